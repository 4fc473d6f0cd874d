// Package procfs reads small files of the kernel: those of /proc and of cgroups. A file
// that is missing, or that the kernel does not let this process read, is empty: whoever
// asks for a figure in it does not find it. Nothing is cached. Tests give folders of
// files in place of /proc.
package procfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Tick is the unit in seconds of processor times in /proc: 1/sysconf(_SC_CLK_TCK), which
// is 100 on every Linux that Go runs on.
const Tick = 0.01

// Text is a file without white space at its ends.
func Text(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Pairs are the first number after each name in a file of lines such as "nr_periods 7" or
// "MemTotal: 8 kB". Lines of another form are passed over.
func Pairs(dir, name string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(Text(dir, name)) {
		if f := strings.Fields(line); len(f) >= 2 {
			if n, err := strconv.ParseFloat(f[1], 64); err == nil {
				out[strings.TrimSuffix(f[0], ":")] = n
			}
		}
	}
	return out
}

// Processes are the PIDs of a /proc, in no order.
func Processes(proc string) (pids []int) {
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Stat is the file stat of a process, as far as somebody needs it. Times are seconds.
type Stat struct {
	Name         string
	State        byte // R, S, D, T, Z, ...
	Parent       int
	Faults       float64 // major ones
	User, System float64 // on a processor
	Children     float64 // the same of children that have ended and been waited for
	Start        float64 // ticks since boot: a PID that is used again has another
}

// Of is the stat of one process of a /proc; ok is false where there is none.
func Of(proc string, pid int) (s Stat, ok bool) {
	stat := Text(filepath.Join(proc, strconv.Itoa(pid)), "stat")
	open, shut := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')') // a name may have both in it
	if open < 0 || shut < open {
		return s, false
	}
	f := strings.Fields(stat[shut+1:])
	if len(f) < 20 {
		return s, false
	}
	number := func(i int) float64 { n, _ := strconv.ParseFloat(f[i], 64); return n }
	return Stat{
		Name: stat[open+1 : shut], State: f[0][0], Parent: int(number(1)), Faults: number(9),
		User: number(11) * Tick, System: number(12) * Tick, Children: (number(13) + number(14)) * Tick, Start: number(19),
	}, true
}

// ResetPeak makes the most memory that this process has had be that of now. Where that is
// not allowed, it goes on to count what came before.
func ResetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// Peak is that, in bytes; files that are mapped count. 0: not known.
func Peak() int64 { return int64(Pairs("/proc/self", "status")["VmHWM"]) << 10 }
