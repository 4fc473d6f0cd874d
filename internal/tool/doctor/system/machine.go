// Package system looks at the machine: its limits, its processes as /proc shows them,
// and how quickly its storage answers.
package system

import (
	"context"
	"encoding/csv"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/cgroup"
	"github.com/stoker-data/stoker/internal/base/procfs"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

// Look is the machine as this process sees it, and its disk as the current folder.
func Look(ctx context.Context) evidence.Machine {
	m := Of("/", "self")
	wd, err := os.Getwd()
	if err == nil {
		m.Disk = diskOf("/", wd)
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil && set.Count() > 0 {
		m.Bound = evidence.Measured(float64(set.Count()), "sched_getaffinity")
	}
	m.Cores = m.Usable()
	var s unix.Statfs_t
	if unix.Statfs("/dev/shm", &s) == nil {
		m.Shm, m.ShmFree = evidence.Measured(float64(s.Blocks)*float64(s.Bsize), "statfs /dev/shm"), evidence.Measured(float64(s.Bavail)*float64(s.Bsize), "statfs /dev/shm")
	}
	m.Lock, m.Files = limitOf(unix.RLIMIT_MEMLOCK), limitOf(unix.RLIMIT_NOFILE)
	for _, name := range evidence.ThreadSettings {
		if v, ok := os.LookupEnv(name); ok {
			if m.Threads == nil {
				m.Threads = map[string]string{}
			}
			m.Threads[name] = v
		}
	}
	m.GPUs = gpus(ctx)
	return m
}

// Of reads what files below root say of the machine, as a process of it sees that.
func Of(root, pid string) (m evidence.Machine) {
	m.Kernel = procfs.Text(root, "proc/sys/kernel/osrelease")
	if n := countList(procfs.Text(root, "sys/devices/system/cpu/online")); n > 0 {
		m.Online = evidence.Measured(float64(n), "/sys/devices/system/cpu/online")
	}
	mem := procfs.Pairs(root, "proc/meminfo")
	if len(mem) > 0 {
		m.Memory = evidence.Measured(mem["MemTotal"]*1024, "/proc/meminfo")
		m.Available = evidence.Measured(mem["MemAvailable"]*1024, "/proc/meminfo")
		m.Swap = evidence.Measured(mem["SwapTotal"]*1024, "/proc/meminfo")
	}
	if f := strings.Fields(procfs.Text(root, "proc/loadavg")); len(f) > 0 {
		if load, err := strconv.ParseFloat(f[0], 64); err == nil {
			m.Load = evidence.Measured(load, "/proc/loadavg")
		}
	}
	g := cgroup.Of(root, pid)
	m.Cgroup = g.Version()
	if cores, _ := g.Quota(); !math.IsInf(cores, 1) {
		m.Quota = evidence.Measured(cores, "cgroup")
	}
	if limit, used, ok := g.Memory(); ok {
		m.Limit, m.Used = evidence.Measured(float64(limit), "cgroup"), evidence.Measured(float64(used), "cgroup")
	}
	m.Cores = m.Usable()
	return m
}

// countList counts a list like 0-3,8.
func countList(s string) (n int) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, span := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if span {
			if b, err = strconv.Atoi(to); err != nil || b < a {
				continue
			}
		}
		n += b - a + 1
	}
	return n
}

// limitOf is a limit of this process; not known where there is none.
func limitOf(resource int) evidence.Figure {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil || l.Cur >= 1<<62 {
		return evidence.Figure{}
	}
	return evidence.Measured(float64(l.Cur), "getrlimit")
}

// diskOf is what a path is stored on: the mount with the longest folder above it.
func diskOf(root, path string) evidence.Disk {
	d := evidence.Disk{Path: path}
	best := -1
	for line := range strings.Lines(procfs.Text(root, "proc/self/mountinfo")) {
		f := strings.Fields(line)
		dash := -1
		for i, word := range f {
			if word == "-" {
				dash = i
			}
		}
		if len(f) < 5 || dash < 0 || dash+2 >= len(f) {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(f[4])
		if under(path, at) && len(at) >= best {
			best = len(at)
			d.Kind, d.Device = f[dash+1], f[dash+2]
			d.Spins = spins(root, f[2])
		}
	}
	var s unix.Statfs_t
	if unix.Statfs(path, &s) == nil {
		d.Free = evidence.Measured(float64(s.Bavail)*float64(s.Bsize), "statfs")
	}
	return d
}

func under(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// spins says whether the device major:minor is a rotating disk; nil: not known.
func spins(root, number string) *bool {
	for _, of := range [...]string{"queue/rotational", "../queue/rotational"} {
		if s := procfs.Text(filepath.Join(root, "sys/dev/block", number), of); s != "" {
			yes := s == "1"
			return &yes
		}
	}
	return nil
}

// askGPU is how long nvidia-smi may take: on a machine whose driver hangs, it
// hangs too.
const askGPU = 3 * time.Second

// gpus are the devices that nvidia-smi tells of; none where it is not there.
func gpus(ctx context.Context) (out []evidence.GPU) {
	smi, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askGPU)
	defer cancel()
	cmd := exec.CommandContext(ctx, smi, "--query-gpu=name,memory.total,memory.used,utilization.gpu", "--format=csv,noheader,nounits")
	cmd.WaitDelay = time.Second
	b, err := cmd.Output()
	if err != nil {
		return nil
	}
	r := csv.NewReader(strings.NewReader(string(b)))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = -1
	rows, _ := r.ReadAll()
	for _, row := range rows {
		if len(row) < 4 {
			continue
		}
		g := evidence.GPU{Name: row[0]}
		number := func(s string, unit float64) evidence.Figure {
			n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
			if err != nil { // "[N/A]"
				return evidence.Figure{}
			}
			return evidence.Measured(n*unit, "nvidia-smi")
		}
		g.Memory, g.Used, g.Busy = number(row[1], 1<<20), number(row[2], 1<<20), number(row[3], 0.01)
		out = append(out, g)
	}
	return out
}
