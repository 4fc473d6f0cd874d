package mem

import (
	"github.com/stoker-data/stoker/internal/base/cgroup"
	"github.com/stoker-data/stoker/internal/base/procfs"
)

// Available is the memory in bytes that this process may still allocate without a
// process being killed: the smallest of what the machine has available and what
// each cgroup above the process leaves (page cache that can be dropped counts as
// free).
func Available() int64 { return availableBelow("/") }

// availableBelow is Available for the files below root.
func availableBelow(root string) int64 {
	left := machineAvailable(root)
	if limit, used, ok := cgroup.Of(root, "self").Memory(); ok {
		left = min(left, limit-used)
	}
	return max(left, 0)
}

// machineAvailable is a guess where the kernel does not say.
func machineAvailable(root string) int64 {
	memory := procfs.Pairs(root, "proc/meminfo")
	if len(memory) == 0 {
		return 1 << 30
	}
	return int64(memory["MemAvailable"]) << 10
}
