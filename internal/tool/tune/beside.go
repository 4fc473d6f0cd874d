package tune

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
		others := (now - all - max(0, b.own()-own)) / userHz / seconds
		return max(0, others-max(0, float64(cpus)-b.Cores)), true
	}
}

// userHz is the unit of times in /proc, the same on all machines that Go runs on.
const userHz = 100

func (b Beside) read(name string) []byte {
	proc := b.Proc
	if proc == "" {
		proc = "/proc"
	}
	text, _ := os.ReadFile(proc + "/" + name)
	return text
}

// busy is the time that the CPUs of this process were not idle, and their number.
func (b Beside) busy() (ticks float64, cpus int, ok bool) {
	var mine unix.CPUSet
	if unix.SchedGetaffinity(0, &mine) != nil {
		return 0, 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(b.read("stat"))); lines.Scan(); {
		f := strings.Fields(lines.Text())
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
			ticks += n
		}
	}
	return ticks, cpus, cpus > 0
}

// own is the CPU time of the process and all processes below it, including those
// that ended.
func (b Beside) own() (ticks float64) {
	type process struct {
		parent int
		ticks  float64
	}
	all := map[int]process{}
	proc := b.Proc
	if proc == "" {
		proc = "/proc"
	}
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		_, after, found := bytes.Cut(b.read(e.Name()+"/stat"), []byte(") "))
		f := strings.Fields(string(after))
		if !found || len(f) < 15 {
			continue
		}
		p := process{}
		p.parent, _ = strconv.Atoi(f[1])
		for _, i := range []int{11, 12, 13, 14} { // utime stime cutime cstime
			n, _ := strconv.ParseFloat(f[i], 64)
			p.ticks += n
		}
		all[pid] = p
	}
	for pid, p := range all {
		for at, depth := pid, 0; at > 0 && depth < 64; at, depth = all[at].parent, depth+1 {
			if at == b.PID {
				ticks += p.ticks
				break
			}
		}
	}
	return ticks
}
