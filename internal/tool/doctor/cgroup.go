package doctor

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroups reads limits and counters of the cgroups that a process is in, of
// versions 1 and 2, below any root: tests give it trees of files.
type cgroups struct {
	version int
	cpu     []string // folders, the process's own first, then its parents
	memory  []string
}

// cgroupsOf are those of a process; version 0 where there are none.
func cgroupsOf(root string, pid string) (g cgroups) {
	b, err := os.ReadFile(filepath.Join(root, "proc", pid, "cgroup"))
	if err != nil {
		return g
	}
	base := filepath.Join(root, "sys/fs/cgroup")
	unified := base
	if !isFile(filepath.Join(base, "cgroup.controllers")) {
		unified = filepath.Join(base, "unified") // a machine with both
	}
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		of := "," + part[1] + ","
		switch {
		case part[1] == "" && isFile(filepath.Join(unified, "cgroup.controllers")):
			up := parents(unified, part[2])
			g.cpu, g.memory = append(g.cpu, up...), append(g.memory, up...)
			if g.version == 0 { // a machine with both has its limits in version 1
				g.version = 2
			}
		case strings.Contains(of, ",cpu,"):
			g.cpu = append(g.cpu, parents(mounted(base, part[1], "cpu"), part[2])...)
			g.version = 1
		case strings.Contains(of, ",memory,"):
			g.memory = append(g.memory, parents(mounted(base, part[1], "memory"), part[2])...)
		}
	}
	return g
}

// mounted is where a controller of version 1 lies: alone, or with others.
func mounted(base, all, one string) string {
	if dir := filepath.Join(base, all); isDir(dir) {
		return dir
	}
	return filepath.Join(base, one)
}

// parents are a cgroup's folder and those above it that are there: inside a
// container the upper part of its path is not.
func parents(base, path string) (out []string) {
	for p := filepath.Clean("/" + path); ; p = filepath.Dir(p) {
		if dir := filepath.Join(base, p); isDir(dir) {
			out = append(out, dir)
		}
		if p == "/" {
			return out
		}
	}
}

// quota is the cores that the tightest of them allows, and its folder.
func (g cgroups) quota() (cores float64, dir string) {
	cores = math.Inf(1)
	for _, d := range g.cpu {
		f := strings.Fields(text(d, "cpu.max"))
		if len(f) != 2 {
			f = []string{text(d, "cpu.cfs_quota_us"), text(d, "cpu.cfs_period_us")}
		}
		q, err := strconv.ParseFloat(f[0], 64)
		p, err2 := strconv.ParseFloat(f[1], 64)
		if err == nil && err2 == nil && q > 0 && p > 0 && q/p < cores {
			cores, dir = q/p, d
		}
	}
	return cores, dir
}

// throttle are the counters of a cgroup's quota.
type throttle struct {
	periods, throttled float64
	seconds            float64 // stopped, summed over cores
	known              bool
}

func throttleOf(dir string) (t throttle) {
	if dir == "" {
		return t
	}
	stat := pairs(text(dir, "cpu.stat"))
	if _, ok := stat["nr_periods"]; !ok {
		return t
	}
	t = throttle{periods: stat["nr_periods"], throttled: stat["nr_throttled"], known: true}
	if us, ok := stat["throttled_usec"]; ok {
		t.seconds = us / 1e6
	} else {
		t.seconds = stat["throttled_time"] / 1e9
	}
	return t
}

// memoryLimit is the limit that leaves least, what is used of it (page cache that
// can go is not), and whether there is one.
func (g cgroups) memoryLimit() (limit, used float64, ok bool) {
	left := math.Inf(1)
	for _, d := range g.memory {
		for _, v := range [...][3]string{
			{"memory.max", "memory.current", "inactive_file"},
			{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
		} {
			l, err := strconv.ParseFloat(text(d, v[0]), 64)
			u, err2 := strconv.ParseFloat(text(d, v[1]), 64)
			if err != nil || err2 != nil || l >= 1<<60 {
				continue
			}
			u = max(0, u-pairs(text(d, "memory.stat"))[v[2]])
			if l-u < left {
				left, limit, used, ok = l-u, l, u, true
			}
		}
	}
	return limit, used, ok
}

// refaults counts pages that were dropped and read again, in the process's own
// cgroup; ok is false where the kernel does not say.
func (g cgroups) refaults() (pages float64, ok bool) {
	if len(g.memory) == 0 {
		return 0, false
	}
	stat := pairs(text(g.memory[0], "memory.stat"))
	for _, key := range [...]string{"workingset_refault_file", "workingset_refault"} {
		if n, found := stat[key]; found {
			return n, true
		}
	}
	return 0, false
}

// text is a small file without white space at its ends; empty if it is not there.
func text(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// pairs reads lines of a name and a number.
func pairs(s string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(s) {
		if f := strings.Fields(line); len(f) >= 2 {
			if n, err := strconv.ParseFloat(f[1], 64); err == nil {
				out[strings.TrimSuffix(f[0], ":")] = n
			}
		}
	}
	return out
}

func isFile(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.Mode().IsRegular()
}

func isDir(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.IsDir()
}
