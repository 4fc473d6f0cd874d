package spec

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// MaxLanes is more lanes than any machine has use for.
const MaxLanes = 256

// Cores is how many lanes this process should run: the cores that its affinity
// and its cgroups' quotas leave, shared with the other ranks of this machine
// (LOCAL_WORLD_SIZE), less one for the trainer where there are more than two.
func Cores() int {
	n := float64(affinity())
	for _, dir := range mem.Cgroups("cpu") {
		if q, ok := quota(dir); ok {
			n = math.Min(n, q)
		}
	}
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

// quota is the cores that one cgroup allows, of version 2 or 1.
func quota(dir string) (float64, bool) {
	ratio := func(quota, period string) (float64, bool) {
		q, err := strconv.ParseFloat(quota, 64)
		if err != nil || q <= 0 {
			return 0, false
		}
		p, err := strconv.ParseFloat(period, 64)
		return q / p, err == nil && p > 0
	}
	if b, err := os.ReadFile(filepath.Join(dir, "cpu.max")); err == nil {
		if f := strings.Fields(string(b)); len(f) == 2 {
			return ratio(f[0], f[1])
		}
	}
	q, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, false
	}
	p, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, false
	}
	return ratio(strings.TrimSpace(string(q)), strings.TrimSpace(string(p)))
}
