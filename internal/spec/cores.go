package spec

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/cgroup"
)

// MaxLanes is the limit on lanes, more than any machine can use.
const MaxLanes = 256

// Cores is how many lanes this process should run: the cores that its affinity and
// its cgroups' quotas allow, shared with the other ranks of this machine
// (LOCAL_WORLD_SIZE), minus one for the trainer if there are more than two.
func Cores() int {
	quota, _ := cgroup.Self().Quota()
	n := min(float64(affinity()), quota)
	if ranks, err := strconv.Atoi(os.Getenv("LOCAL_WORLD_SIZE")); err == nil && ranks > 1 {
		n /= float64(ranks)
	}
	cores := int(math.Ceil(n - 0.1))
	if cores > 2 {
		cores--
	}
	return min(max(cores, 1), MaxLanes)
}

func affinity() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 1
	}
	return max(set.Count(), 1)
}
