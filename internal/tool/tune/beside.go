package tune

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/procfs"
)

// Beside measures what else a machine does while a process and its children work.
type Beside struct {
	PID   int     // of the measuring process; its children's time counts as its own
	Cores float64 // cores that it may use
	// Proc is where /proc is; "" is /proc.
	Proc string
}

// Begin begins to measure. The function that it returns says how many of the
// process's cores others have kept busy since; false if the machine does not tell.
// Time that a hypervisor gave to other machines counts as time of others.
func (b Beside) Begin() func() (cores float64, known bool) {
	begin := time.Now()
	all, cpus, ok := b.busy()
	own := b.own()
	return func() (float64, bool) {
		seconds := time.Since(begin).Seconds()
		now, _, still := b.busy()
		if !ok || !still || seconds <= 0 {
			return 0, false
		}
		others := (now - all - max(0, b.own()-own)) / seconds
		return max(0, others-max(0, float64(cpus)-b.Cores)), true
	}
}

func (b Beside) proc() string { return cmp.Or(b.Proc, "/proc") }

// busy is the time that the CPUs of this process were not idle, and their number.
func (b Beside) busy() (seconds float64, cpus int, ok bool) {
	var mine unix.CPUSet
	if unix.SchedGetaffinity(0, &mine) != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(procfs.Text(b.proc(), "stat")) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		cpu, err := strconv.Atoi(f[0][len("cpu"):])
		if err != nil || !mine.IsSet(cpu) {
			continue // the first line is the sum of all
		}
		cpus++
		for _, i := range []int{1, 2, 3, 6, 7, 8} { // user nice system irq softirq steal; idle and iowait are not
			n, _ := strconv.ParseFloat(f[i], 64)
			seconds += n * procfs.Tick
		}
	}
	return seconds, cpus, cpus > 0
}

// own is the CPU time of the process and all processes below it, including those
// that ended.
func (b Beside) own() (seconds float64) {
	all := map[int]procfs.Stat{}
	for _, pid := range procfs.Processes(b.proc()) {
		if p, ok := procfs.Of(b.proc(), pid); ok {
			all[pid] = p
		}
	}
	for pid, p := range all {
		for at, depth := pid, 0; at > 0 && depth < 64; at, depth = all[at].Parent, depth+1 {
			if at == b.PID {
				seconds += p.User + p.System + p.Children
				break
			}
		}
	}
	return seconds
}
