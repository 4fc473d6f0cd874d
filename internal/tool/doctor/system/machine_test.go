package system

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/cgroup"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

// tree writes files below a folder that stands for /.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// machine is a machine's files, with more.
func machine(t *testing.T, more map[string]string) string {
	files := map[string]string{
		"proc/sys/kernel/osrelease":     "6.1.0-test",
		"sys/devices/system/cpu/online": "0-5,8-9",
		"proc/meminfo":                  "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\nSwapTotal:            0 kB",
		"proc/loadavg":                  "1.50 1.20 1.00 2/345 6789",
		"proc/self/mountinfo":           "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / /mnt/my\\040data rw - nfs4 server:/x rw",
	}
	for name, text := range more {
		files[name] = text
	}
	return tree(t, files)
}

func TestLimitsOfCgroups(t *testing.T) {
	for _, c := range []struct {
		name          string
		files         map[string]string
		version       int
		quota, cores  float64 // 0: none
		limit, used   float64
		periods, hurt float64
		stopped       float64
	}{
		{name: "no cgroups", cores: 8},
		{
			name: "version 2, the tightest is a parent's",
			files: map[string]string{
				"proc/self/cgroup":                 "0::/slice/job",
				"sys/fs/cgroup/cgroup.controllers": "cpu memory",
				"sys/fs/cgroup/slice/cpu.max":      "250000 100000", "sys/fs/cgroup/slice/job/cpu.max": "max 100000",
				"sys/fs/cgroup/slice/cpu.stat":           "usage_usec 9\nnr_periods 100\nnr_throttled 40\nthrottled_usec 2500000",
				"sys/fs/cgroup/slice/job/memory.max":     "1073741824",
				"sys/fs/cgroup/slice/job/memory.current": "805306368",
				"sys/fs/cgroup/slice/job/memory.stat":    "anon 1\ninactive_file 268435456",
				"sys/fs/cgroup/slice/memory.max":         "max", "sys/fs/cgroup/slice/memory.current": "1",
			},
			version: 2, quota: 2.5, cores: 2.5, limit: 1 << 30, used: 512 << 20, periods: 100, hurt: 40, stopped: 2.5,
		},
		{
			name: "version 1, controllers together and apart",
			files: map[string]string{
				"proc/self/cgroup": "3:memory:/a/b\n2:cpu,cpuacct:/a\n1:name=systemd:/",
				"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us":   "150000",
				"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us":  "100000",
				"sys/fs/cgroup/cpu,cpuacct/a/cpu.stat":           "nr_periods 10\nnr_throttled 9\nthrottled_time 700000000",
				"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712",
				"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "1000",
				"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "4096000",
				"sys/fs/cgroup/memory/a/memory.usage_in_bytes":   "3000000",
				"sys/fs/cgroup/memory/a/memory.stat":             "total_inactive_file 1000000",
				"sys/fs/cgroup/unified/cgroup.controllers":       "",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":     "-1",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":    "100000",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712",
				"sys/fs/cgroup/memory/memory.usage_in_bytes":     "5",
			},
			version: 1, quota: 1.5, cores: 1.5, limit: 4096000, used: 2000000, periods: 10, hurt: 9, stopped: 0.7,
		},
		{
			name: "a container sees its own folder at the top",
			files: map[string]string{
				"proc/self/cgroup":                 "0::/kubepods/pod1/../../x",
				"sys/fs/cgroup/cgroup.controllers": "cpu", "sys/fs/cgroup/cpu.max": "50000 100000",
			},
			version: 2, quota: 0.5, cores: 0.5,
		},
		{
			name: "damaged files set no limits",
			files: map[string]string{
				"proc/self/cgroup":                 "0::/\n\nnonsense\n::",
				"sys/fs/cgroup/cgroup.controllers": "cpu", "sys/fs/cgroup/cpu.max": "many 100000", "sys/fs/cgroup/memory.max": "-", "sys/fs/cgroup/cpu.stat": "nr_periods",
			},
			version: 2, cores: 8,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := machine(t, c.files)
			m := Of(root, "self")
			got := []float64{float64(m.Cgroup), m.Quota.Value, m.Cores.Value, m.Limit.Value, m.Used.Value, m.Online.Value, m.Load.Value, m.Memory.Value}
			want := []float64{float64(c.version), c.quota, c.cores, c.limit, c.used, 8, 1.5, 8 << 30}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("version, quota, cores, limit, used, online, load, memory:\n%s", diff)
			}
			_, dir := cgroup.Of(root, "self").Quota()
			stat := cgroup.ThrottleOf(dir)
			if stat.Periods != c.periods || stat.Throttled != c.hurt || stat.Seconds != c.stopped {
				t.Errorf("throttling %+v", stat)
			}
		})
	}
}

func TestDisk(t *testing.T) {
	root := machine(t, map[string]string{"sys/dev/block/8:1/queue/rotational": "1"})
	d := diskOf(root, "/mnt/my data/train")
	if d.Kind != "nfs4" || d.Device != "server:/x" || d.Spins != nil {
		t.Errorf("%+v", d)
	}
	d = diskOf(root, "/mnt/my database")
	if d.Kind != "ext4" || d.Spins == nil || !*d.Spins {
		t.Errorf("%+v", d)
	}
}

func TestCountList(t *testing.T) {
	for list, n := range map[string]int{"": 0, "0": 1, "0-3": 4, "0-1,4,6-7": 5, "7-3": 0, "x,2": 1} {
		if got := countList(list); got != n {
			t.Errorf("%q is %d cores, not %d", list, got, n)
		}
	}
}

// A false nvidia-smi: what it says, and what becomes of one that fails.
func TestGPUs(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         []evidence.GPU
	}{
		{"two", "echo 'NVIDIA H100, 81559, 1024, 97'; echo 'Weird, [N/A], 5, [N/A]'", []evidence.GPU{
			{Name: "NVIDIA H100", Memory: evidence.Measured(81559<<20, "nvidia-smi"), Used: evidence.Measured(1<<30, "nvidia-smi"), Busy: evidence.Measured(0.97, "nvidia-smi")},
			{Name: "Weird", Used: evidence.Measured(5<<20, "nvidia-smi")},
		}},
		{"no driver", "echo 'has failed because it could not communicate' >&2; exit 9", nil},
		{"nonsense", "echo hello", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":/usr/bin:/bin")
			if diff := cmp.Diff(c.want, gpus(t.Context())); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Setenv("PATH", t.TempDir())
	if got := gpus(t.Context()); got != nil {
		t.Errorf("without nvidia-smi: %v", got)
	}
}

// The machine that the test runs on, whatever it is.
func TestLook(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "3")
	t.Setenv("MKL_NUM_THREADS", "")
	if err := os.Unsetenv("MKL_NUM_THREADS"); err != nil { // Setenv restores it
		t.Fatal(err)
	}
	m := Look(t.Context())
	if _, set := m.Threads["MKL_NUM_THREADS"]; m.Threads["OMP_NUM_THREADS"] != "3" || set {
		t.Errorf("threads: %v", m.Threads)
	}
	if !m.Cores.Known() || m.Cores.Value <= 0 || m.Cores.Value > float64(runtime.NumCPU()) {
		t.Errorf("%g cores, and Go sees %d", m.Cores.Value, runtime.NumCPU())
	}
	_, err := os.Stat("/sys/dev/block") // without it the kind of a disk is unknown
	if !m.Memory.Known() || m.Available.Value > m.Memory.Value || err == nil && m.Disk.Kind == "" {
		t.Errorf("%+v", m)
	}
}

func TestWhatAProcessWaitsFor(t *testing.T) {
	for in, want := range map[string]string{
		"poll_schedule_timeout.constprop.0": "waits for an event (a socket, a pipe or a timer)",
		"futex_wait_queue":                  "waits for another thread (a lock)",
		"folio_wait_bit_common":             "waits for a read from a disk",
		"some_new_function.isra.0":          "",
		"0":                                 "",
	} {
		if got := meaning(in); got != want {
			t.Errorf("%s: %q, not %q", in, got, want)
		}
	}
}
