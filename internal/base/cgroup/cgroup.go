// Package cgroup reads the limits and counters of the cgroups that a process is
// in: version 1, version 2, and machines that have both (hybrid).
//
// A limit of a cgroup applies to everything below it, so each question is asked of
// the process's own cgroup and of all its parents, and the tightest answer counts.
// Files that are missing or cannot be parsed are skipped: a limit that cannot be
// read is not a limit.
//
// Everything is read below a root folder, "/" on a real machine; tests give it
// trees of files. Nothing is cached, because limits change while a process runs.
package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/procfs"
)

// unlimited is the value of "no limit" in version 1, minus the rounding to pages
// that differs between kernels.
const unlimited = 1 << 60

// Groups are the cgroups of one process. The zero value has none, and no limits.
type Groups struct {
	version     int
	cpu, memory []string // folders: the process's own first, then its parents
}

// Self returns the cgroups of this process.
func Self() Groups { return Of("/", "self") }

// Of returns the cgroups of a process, from the files below root.
func Of(root, pid string) (g Groups) {
	b, err := os.ReadFile(filepath.Join(root, "proc", pid, "cgroup"))
	if err != nil {
		return g
	}
	base := filepath.Join(root, "sys/fs/cgroup")
	unified := base
	if !isUnified(base) {
		unified = filepath.Join(base, "unified") // hybrid
	}
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[1] == "" {
			if isUnified(unified) {
				up := withParents(unified, part[2])
				g.cpu, g.memory = append(g.cpu, up...), append(g.memory, up...)
				if g.version == 0 {
					g.version = 2
				}
			}
			continue
		}
		for _, controller := range strings.Split(part[1], ",") {
			switch controller {
			case "cpu":
				g.cpu, g.version = append(g.cpu, withParents(mounted(base, controller), part[2])...), 1
			case "memory":
				g.memory, g.version = append(g.memory, withParents(mounted(base, controller), part[2])...), 1
			}
		}
	}
	return g
}

// isUnified reports whether version 2 is mounted at a folder.
func isUnified(dir string) bool {
	s, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && s.Mode().IsRegular()
}

// mounted is the folder of a controller of version 1, which may share it with
// others: "cpu", or "cpu,cpuacct" in any order.
func mounted(base, controller string) string {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		if e.Name() != controller && slices.Contains(strings.Split(e.Name(), ","), controller) {
			return filepath.Join(base, e.Name())
		}
	}
	return filepath.Join(base, controller)
}

// withParents returns the folder of a cgroup and those above it that exist: inside
// a container the upper part of the path in /proc may not.
func withParents(base, path string) (out []string) {
	for p := filepath.Clean("/" + path); ; p = filepath.Dir(p) {
		if dir := filepath.Join(base, p); isDir(dir) {
			out = append(out, dir)
		}
		if p == "/" {
			return out
		}
	}
}

func isDir(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.IsDir()
}

// Version is 1 or 2, or 0 if no cgroup of the process can be read. A hybrid machine
// has version 1, because its limits are there.
func (g Groups) Version() int { return g.version }

// Quota is the number of cores that the tightest cgroup allows, and the folder of
// that cgroup; +Inf and "" if none has a quota.
func (g Groups) Quota() (cores float64, dir string) {
	cores = math.Inf(1)
	for _, d := range g.cpu {
		f := strings.Fields(procfs.Text(d, "cpu.max"))
		if len(f) != 2 {
			f = []string{procfs.Text(d, "cpu.cfs_quota_us"), procfs.Text(d, "cpu.cfs_period_us")}
		}
		q, err := strconv.ParseFloat(f[0], 64)
		p, err2 := strconv.ParseFloat(f[1], 64)
		if err == nil && err2 == nil && q > 0 && p > 0 && q/p < cores {
			cores, dir = q/p, d
		}
	}
	return cores, dir
}

// Throttle is the counters of the quota of one cgroup.
type Throttle struct {
	Periods, Throttled float64 // periods with something to run; those that were throttled
	Seconds            float64 // stopped, summed over cores
	Known              bool    // the kernel counts them
}

// ThrottleOf reads the counters of a folder that Quota returned; they are zero for
// "".
func ThrottleOf(dir string) (t Throttle) {
	if dir == "" {
		return t
	}
	stat := procfs.Pairs(dir, "cpu.stat")
	if _, ok := stat["nr_periods"]; !ok {
		return t
	}
	t = Throttle{Periods: stat["nr_periods"], Throttled: stat["nr_throttled"], Known: true}
	if us, ok := stat["throttled_usec"]; ok {
		t.Seconds = us / 1e6
	} else {
		t.Seconds = stat["throttled_time"] / 1e9
	}
	return t
}

// Memory is the limit that leaves the least memory, and how much of it is used, in
// bytes; ok is false if there is no limit. Page cache that the kernel can drop does
// not count as used.
func (g Groups) Memory() (limit, used int64, ok bool) {
	left := int64(math.MaxInt64)
	for _, d := range g.memory {
		for _, v := range [...]struct{ limit, usage, cache string }{
			{"memory.max", "memory.current", "inactive_file"},
			{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
		} {
			l, err := strconv.ParseInt(procfs.Text(d, v.limit), 10, 64)
			u, err2 := strconv.ParseInt(procfs.Text(d, v.usage), 10, 64)
			if err != nil || err2 != nil || l < 0 || u < 0 || l >= unlimited {
				continue
			}
			u = max(0, u-int64(procfs.Pairs(d, "memory.stat")[v.cache]))
			if l-u < left {
				left, limit, used, ok = l-u, l, u, true
			}
		}
	}
	return limit, used, ok
}

// Refaults counts the pages that the kernel dropped and read again, in the
// process's own cgroup; ok is false if the kernel does not count them.
func (g Groups) Refaults() (pages float64, ok bool) {
	if len(g.memory) == 0 {
		return 0, false
	}
	stat := procfs.Pairs(g.memory[0], "memory.stat")
	for _, key := range [...]string{"workingset_refault_file", "workingset_refault"} {
		if n, found := stat[key]; found {
			return n, true
		}
	}
	return 0, false
}

// Pressure is the text of memory.pressure of the process's own cgroup, which only
// version 2 has; "" if there is none.
func (g Groups) Pressure() string {
	if g.version != 2 || len(g.memory) == 0 {
		return ""
	}
	return procfs.Text(g.memory[0], "memory.pressure")
}
