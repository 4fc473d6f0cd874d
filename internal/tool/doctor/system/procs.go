package system

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/cgroup"
	"github.com/stoker-data/stoker/internal/base/procfs"
)

// Sighting is what /proc says of a process at a moment. Times are seconds.
type Sighting struct {
	procfs.Stat

	T        float64
	Queue    float64 // waiting for a core, of its first thread
	Ran      float64 // on a core, of its first thread
	Switches float64 // taken off a core
	RChar    float64 // bytes that it has read
}

// CPU is the time on a core.
func (s Sighting) CPU() float64 { return s.User + s.System }

// Over says whether the process has ended, and is only not buried yet.
func (s Sighting) Over() bool { return s.State == 'Z' || s.State == 'X' }

// Sight looks at one process below root; ok is false when it is gone.
func Sight(root string, pid int, t float64) (s Sighting, ok bool) {
	dir := filepath.Join(root, "proc", strconv.Itoa(pid))
	stat, ok := procfs.Of(filepath.Join(root, "proc"), pid)
	if !ok {
		return s, false
	}
	s = Sighting{T: t, Stat: stat}
	if q := strings.Fields(procfs.Text(dir, "schedstat")); len(q) >= 2 {
		ran, _ := strconv.ParseFloat(q[0], 64)
		wait, _ := strconv.ParseFloat(q[1], 64)
		s.Ran, s.Queue = ran/1e9, wait/1e9
	}
	s.Switches = procfs.Pairs(dir, "status")["nonvoluntary_ctxt_switches"]
	s.RChar = procfs.Pairs(dir, "io")["rchar"]
	return s, true
}

// family finds the descendants of a process, itself first.
func family(root string, pid int) []int {
	children, proc := map[int][]int{}, filepath.Join(root, "proc")
	for _, child := range procfs.Processes(proc) {
		if s, ok := procfs.Of(proc, child); ok && s.Parent > 0 {
			children[s.Parent] = append(children[s.Parent], child)
		}
	}
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out
}

// busySeconds is the processor time of the whole machine, in seconds, that was not
// idle.
func busySeconds(root string) float64 {
	for line := range strings.Lines(procfs.Text(root, "proc/stat")) {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] != "cpu" {
			continue
		}
		sum := 0.0
		for i, word := range f[1:8] { // user nice system idle iowait irq softirq
			n, _ := strconv.ParseFloat(word, 64)
			if i != 3 && i != 4 {
				sum += n * procfs.Tick
			}
		}
		return sum
	}
	return 0
}

// Counters are what the machine and the cgroup count, at a moment.
type Counters struct {
	T        float64
	Busy     float64
	Throttle cgroup.Throttle
	Pressure float64 // seconds that some process waited for memory
	Psi      bool
	Swapped  float64 // pages
	Refaults float64 // pages
	Refault  bool    // the kernel counts them
	Limit    float64 // bytes of memory; 0: none
	Used     float64 // of these
}

func countersOf(root, pid string, t float64) Counters {
	g := cgroup.Of(root, pid)
	_, dir := g.Quota()
	c := Counters{T: t, Busy: busySeconds(root), Throttle: cgroup.ThrottleOf(dir)}
	c.Refaults, c.Refault = g.Refaults()
	limit, used, _ := g.Memory()
	c.Limit, c.Used = float64(limit), float64(used)
	c.Swapped = procfs.Pairs(root, "proc/vmstat")["pswpin"]
	psi := procfs.Text(root, "proc/pressure/memory")
	if own := g.Pressure(); own != "" {
		psi = own
	}
	if _, after, ok := strings.Cut(psi, "total="); ok {
		if f := strings.Fields(after); len(f) > 0 {
			us, err := strconv.ParseFloat(f[0], 64)
			c.Pressure, c.Psi = us/1e6, err == nil
		}
	}
	return c
}

// Watched is what /proc said of processes over a time: of each the sightings
// that matter for any stretch, thinned out as they grow old.
type Watched struct {
	Root     string
	Pids     map[int][]Sighting
	counters []Counters
}

func NewWatched(root string) *Watched { return &Watched{Root: root, Pids: map[int][]Sighting{}} }

// sightings is how many are kept of a process before every other one is dropped.
const sightings = 120

// Look sees pid's family and the machine's counters.
func (w *Watched) Look(pid int, t float64) {
	for _, p := range family(w.Root, pid) {
		s, ok := Sight(w.Root, p, t)
		if !ok || s.State == 'Z' {
			continue
		}
		seen := w.Pids[p]
		if len(seen) > 0 && seen[0].Start != s.Start {
			seen = nil
		}
		w.Pids[p] = thin(append(seen, s))
	}
	w.counters = thin(append(w.counters, countersOf(w.Root, strconv.Itoa(pid), t)))
}

// thin drops every other one of too many, and keeps the first and the last.
func thin[T any](all []T) []T {
	if len(all) <= sightings {
		return all
	}
	out := all[:0]
	last := all[len(all)-1]
	for i := 0; i < len(all)-1; i += 2 {
		out = append(out, all[i])
	}
	return append(out, last)
}

// Between is the first sighting of a process at or after a moment, and its last;
// ok where there is time between them.
func (w *Watched) Between(pid int, t float64) (a, b Sighting, ok bool) {
	seen := w.Pids[pid]
	if len(seen) < 2 {
		return a, b, false
	}
	a, b = seen[0], seen[len(seen)-1]
	for _, s := range seen {
		if s.T >= t {
			a = s
			break
		}
	}
	return a, b, b.T > a.T
}

// Span is the same for the machine's counters.
func (w *Watched) Span(t float64) (a, b Counters, ok bool) {
	if len(w.counters) < 2 {
		return a, b, false
	}
	a, b = w.counters[0], w.counters[len(w.counters)-1]
	for _, c := range w.counters {
		if c.T >= t {
			a = c
			break
		}
	}
	return a, b, b.T > a.T
}

// waitsFor says what processes wait for in functions of the kernel, by a part of their
// names. Whoever is not named sleeps.
var waitsFor = [...]struct{ in, means string }{
	{"futex", "waits for another thread (a lock)"},
	{"nanosleep", "sleeps"},
	{"pipe", "waits for another process (a pipe)"},
	{"poll", "waits for an event (a socket, a pipe or a timer)"},
	{"select", "waits for an event (a socket, a pipe or a timer)"},
	{"do_wait", "waits for a child process to end"},
	{"unix_stream", "waits for another process (a socket)"},
	{"tcp", "waits for the network"},
	{"inet", "waits for the network"},
	{"sk_wait", "waits for the network"},
	{"nfs", "waits for a network file system"},
	{"rpc", "waits for a network file system"},
	{"fuse", "waits for a FUSE file system"},
	{"folio", "waits for a read from a disk"},
	{"page", "waits for a read from a disk"},
	{"io_schedule", "waits for a disk"},
	{"sigsuspend", "waits for a signal"},
	{"sem", "waits for another process (a semaphore)"},
}

// meaning is what a function of the kernel that a process is in means to people.
func meaning(wchan string) string {
	for _, w := range waitsFor {
		if strings.Contains(wchan, w.in) {
			return w.means
		}
	}
	return ""
}

// Standing is what the first thread of a process does or waits for, in words for people.
func Standing(root string, pid int) string {
	dir := filepath.Join(root, "proc", strconv.Itoa(pid))
	s, ok := Sight(root, pid, 0)
	if !ok {
		return ""
	}
	what := map[byte]string{'R': "runs", 'S': "sleeps", 'D': "waits for a disk", 'T': "is stopped", 'Z': "has ended"}[s.State]
	if s.State == 'S' || s.State == 'D' {
		if means := meaning(procfs.Text(dir, "wchan")); means != "" {
			what = means
		}
	}
	return s.Name + " " + strconv.Itoa(pid) + " " + strings.TrimSpace(what)
}

// Now is CLOCK_MONOTONIC in seconds, the clock of the hook's lines.
func Now() float64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return float64(ts.Sec) + float64(ts.Nsec)/1e9
}

// PageSize is bytes of a page of memory, in which the kernel counts.
var PageSize = float64(os.Getpagesize())

// Last is when it was looked at last.
func (w *Watched) Last() float64 {
	if len(w.counters) == 0 {
		return 0
	}
	return w.counters[len(w.counters)-1].T
}

// Signal sends to every process that was seen and is still itself.
func (w *Watched) Signal(s syscall.Signal) {
	for pid, seen := range w.Pids {
		if is, ok := Sight(w.Root, pid, 0); ok && is.Start == seen[0].Start {
			_ = syscall.Kill(pid, s)
		}
	}
}

func (w *Watched) Alive() bool {
	for pid, seen := range w.Pids {
		if is, ok := Sight(w.Root, pid, 0); ok && is.Start == seen[0].Start && is.State != 'Z' {
			return true
		}
	}
	return false
}

// Denied is the user whose process it is, where we may not see what it holds open: its
// statistics are there.
func Denied(root string, pid int) string {
	dir := filepath.Join(root, "proc", strconv.Itoa(pid))
	if _, err := os.ReadDir(filepath.Join(dir, "fd")); !errors.Is(err, fs.ErrPermission) {
		return ""
	}
	uid := "another user"
	if f := strings.Fields(lineOf(procfs.Text(dir, "status"), "Uid:")); len(f) > 0 {
		uid = "user " + f[0]
		if u, err := user.LookupId(f[0]); err == nil {
			uid = u.Username
		}
	}
	return uid
}

// lineOf is what follows a name in a file of lines.
func lineOf(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return rest
		}
	}
	return ""
}

func CommandOf(root string, pid int) []string {
	return strings.FieldsFunc(procfs.Text(filepath.Join(root, "proc", strconv.Itoa(pid)), "cmdline"), func(r rune) bool { return r == 0 })
}
