package mem

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/cgroup"
)

// Available is the memory in bytes that this process may still allocate without a
// process being killed: the smallest of what the machine has available and what
// each cgroup above the process leaves (page cache that can be dropped counts as
// free).
func Available() int64 { return availableBelow("/") }

// availableBelow is Available for the files below root.
func availableBelow(root string) int64 {
	left := machineAvailable(filepath.Join(root, "proc/meminfo"))
	if limit, used, ok := cgroup.Of(root, "self").Memory(); ok {
		left = min(left, limit-used)
	}
	return max(left, 0)
}

func machineAvailable(meminfo string) int64 {
	b, err := os.ReadFile(meminfo)
	if err != nil {
		return 1 << 30
	}
	return fieldOf(b, "MemAvailable:") * 1024
}

// fieldOf is the first number on the line that begins with name; 0 if there is
// none.
func fieldOf(b []byte, name string) int64 {
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), name); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				n, _ := strconv.ParseInt(f[0], 10, 64)
				return n
			}
		}
	}
	return 0
}
