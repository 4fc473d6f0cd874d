package cgroup_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/cgroup"
)

// write makes a tree of files below root, given as "path: text" lines, where "\n"
// stands for a line break within the text.
func write(t interface{ Fatal(...any) }, root, tree string) {
	for line := range strings.Lines(tree) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, `\n`, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// answer is all that Groups says.
type answer struct {
	Version  int
	Quota    float64 // 0: none
	QuotaOf  string  // below sys/fs/cgroup
	Throttle cgroup.Throttle
	Limit    int64
	Used     int64
	Limited  bool
	Refaults float64
	Pressure string
}

func ask(root string) (a answer) {
	g := cgroup.Of(root, "self")
	a.Version, a.Pressure = g.Version(), g.Pressure()
	quota, dir := g.Quota()
	if !math.IsInf(quota, 1) {
		a.Quota, a.QuotaOf = quota, strings.TrimPrefix(dir, filepath.Join(root, "sys/fs/cgroup"))
	}
	a.Throttle = cgroup.ThrottleOf(dir)
	a.Limit, a.Used, a.Limited = g.Memory()
	a.Refaults, _ = g.Refaults()
	return a
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name, tree string
		want       answer
	}{
		{"a machine without cgroups", ``, answer{}},
		{
			"version 2: the tightest limit is a parent's", `
			proc/self/cgroup: 0::/slice/job
			sys/fs/cgroup/cgroup.controllers: cpu memory
			sys/fs/cgroup/slice/cpu.max: 250000 100000
			sys/fs/cgroup/slice/cpu.stat: usage_usec 9\nnr_periods 100\nnr_throttled 40\nthrottled_usec 2500000
			sys/fs/cgroup/slice/memory.max: max
			sys/fs/cgroup/slice/memory.current: 9
			sys/fs/cgroup/slice/job/cpu.max: max 100000
			sys/fs/cgroup/slice/job/memory.max: 1000
			sys/fs/cgroup/slice/job/memory.current: 600
			sys/fs/cgroup/slice/job/memory.stat: anon 400\ninactive_file 150\nworkingset_refault_file 7
			sys/fs/cgroup/slice/job/memory.pressure: some total=5
			`,
			answer{2, 2.5, "/slice", cgroup.Throttle{Periods: 100, Throttled: 40, Seconds: 2.5, Known: true}, 1000, 450, true, 7, "some total=5"},
		},
		{
			"version 1: controllers share a folder, whose name is in another order than in /proc", `
			proc/self/cgroup: 3:memory:/a/b\n2:cpu,cpuacct:/a\n1:name=systemd:/
			sys/fs/cgroup/cpuacct,cpu/a/cpu.cfs_quota_us: 150000
			sys/fs/cgroup/cpuacct,cpu/a/cpu.cfs_period_us: 100000
			sys/fs/cgroup/cpuacct,cpu/a/cpu.stat: nr_periods 10\nnr_throttled 9\nthrottled_time 700000000
			sys/fs/cgroup/cpuacct,cpu/cpu.cfs_quota_us: -1
			sys/fs/cgroup/cpuacct,cpu/cpu.cfs_period_us: 100000
			sys/fs/cgroup/memory/a/b/memory.limit_in_bytes: 9223372036854771712
			sys/fs/cgroup/memory/a/b/memory.usage_in_bytes: 1000
			sys/fs/cgroup/memory/a/b/memory.stat: workingset_refault 3
			sys/fs/cgroup/memory/a/memory.limit_in_bytes: 4000
			sys/fs/cgroup/memory/a/memory.usage_in_bytes: 3000
			sys/fs/cgroup/memory/a/memory.stat: total_inactive_file 1000
			`,
			answer{1, 1.5, "/cpuacct,cpu/a", cgroup.Throttle{Periods: 10, Throttled: 9, Seconds: .7, Known: true}, 4000, 2000, true, 3, ""},
		},
		{
			"version 1: one hierarchy for both controllers", `
			proc/self/cgroup: 2:cpu,memory:/a
			sys/fs/cgroup/cpu,memory/a/cpu.cfs_quota_us: 50000
			sys/fs/cgroup/cpu,memory/a/cpu.cfs_period_us: 100000
			sys/fs/cgroup/cpu,memory/a/memory.limit_in_bytes: 100
			sys/fs/cgroup/cpu,memory/a/memory.usage_in_bytes: 10
			`,
			answer{Version: 1, Quota: .5, QuotaOf: "/cpu,memory/a", Limit: 100, Used: 10, Limited: true},
		},
		{
			"hybrid: limits in version 1, version 2 mounted below for systemd", `
			proc/self/cgroup: 4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n0::/system.slice/docker.service
			sys/fs/cgroup/unified/cgroup.controllers: \n
			sys/fs/cgroup/unified/system.slice/docker.service/cgroup.procs: 1
			sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us: 300000
			sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us: 100000
			sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes: 8192
			sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes: 4096
			`,
			answer{Version: 1, Quota: 3, QuotaOf: "/cpu,cpuacct/docker/x", Limit: 8192, Used: 4096, Limited: true},
		},
		{
			"hybrid: memory in version 1, cores in version 2", `
			proc/self/cgroup: 3:memory:/job\n0::/job
			sys/fs/cgroup/unified/cgroup.controllers: cpu
			sys/fs/cgroup/unified/job/cpu.max: 200000 100000
			sys/fs/cgroup/memory/job/memory.limit_in_bytes: 77
			sys/fs/cgroup/memory/job/memory.usage_in_bytes: 7
			`,
			answer{Version: 1, Quota: 2, QuotaOf: "/unified/job", Limit: 77, Used: 7, Limited: true},
		},
		{
			"a container sees its own folder at the top, under a path of the host's", `
			proc/self/cgroup: 0::/kubepods/pod1/../../x
			sys/fs/cgroup/cgroup.controllers: cpu
			sys/fs/cgroup/cpu.max: 50000 100000
			sys/fs/cgroup/memory.max: 10
			sys/fs/cgroup/memory.current: 30
			`,
			answer{Version: 2, Quota: .5, QuotaOf: "", Limit: 10, Used: 30, Limited: true},
		},
		{
			"damaged files are not limits", `
			proc/self/cgroup: 0::/\n\nnonsense\n::
			sys/fs/cgroup/cgroup.controllers: cpu
			sys/fs/cgroup/cpu.max: many 100000
			sys/fs/cgroup/memory.max: -
			sys/fs/cgroup/memory.current: 3
			sys/fs/cgroup/cpu.stat: nr_periods
			`,
			answer{Version: 2},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, c.tree)
			if diff := cmp.Diff(c.want, ask(root)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Any tree of limits, of any version: the tightest from the process's own cgroup up
// to the root counts, whichever hierarchy it is in.
func TestTightestCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		path := ""
		for range rapid.IntRange(0, 3).Draw(t, "depth") {
			path += "/" + rapid.SampledFrom([]string{"a", "b", "job.slice"}).Draw(t, "folder")
		}
		kind := rapid.SampledFrom([]string{"v1", "v2", "hybrid"}).Draw(t, "kind")
		var tree strings.Builder
		put := func(name, format string, args ...any) {
			fmt.Fprintf(&tree, "%s: %s\n", name, fmt.Sprintf(format, args...))
		}
		switch kind {
		case "v2":
			put("proc/self/cgroup", "0::/%s", strings.TrimPrefix(path, "/"))
			put("sys/fs/cgroup/cgroup.controllers", "cpu memory")
		case "v1", "hybrid":
			lines := fmt.Sprintf(`9:memory:/%s\n8:cpuacct,cpu:/%[1]s`, strings.TrimPrefix(path, "/"))
			if kind == "hybrid" {
				lines += `\n0::/init.scope`
				put("sys/fs/cgroup/unified/cgroup.controllers", "")
			}
			put("proc/self/cgroup", "%s", lines)
		}
		quota, left := math.Inf(1), int64(math.MaxInt64)
		for at := path; ; at = at[:strings.LastIndexByte(at, '/')] {
			us := rapid.IntRange(-1, 900_000).Draw(t, "quota") // -1 and 0: none
			limit := rapid.Int64Range(0, 1<<40).Draw(t, "limit")
			used := rapid.Int64Range(0, limit).Draw(t, "used")
			cache := rapid.Int64Range(0, used).Draw(t, "cache")
			bounded := rapid.Bool().Draw(t, "bounded")
			if kind == "v2" {
				if us > 0 {
					put("sys/fs/cgroup"+at+"/cpu.max", "%d 100000", us)
				} else {
					put("sys/fs/cgroup"+at+"/cpu.max", "max 100000")
				}
				if bounded {
					put("sys/fs/cgroup"+at+"/memory.max", "%d", limit)
				} else {
					put("sys/fs/cgroup"+at+"/memory.max", "max")
				}
				put("sys/fs/cgroup"+at+"/memory.current", "%d", used)
				put("sys/fs/cgroup"+at+"/memory.stat", `anon 1\ninactive_file %d`, cache)
			} else {
				put("sys/fs/cgroup/cpu,cpuacct"+at+"/cpu.cfs_quota_us", "%d", us)
				put("sys/fs/cgroup/cpu,cpuacct"+at+"/cpu.cfs_period_us", "100000")
				if !bounded {
					limit = 9223372036854771712
				}
				put("sys/fs/cgroup/memory"+at+"/memory.limit_in_bytes", "%d", limit)
				put("sys/fs/cgroup/memory"+at+"/memory.usage_in_bytes", "%d", used)
				put("sys/fs/cgroup/memory"+at+"/memory.stat", `inactive_file 0\ntotal_inactive_file %d`, cache)
			}
			if us > 0 {
				quota = min(quota, float64(us)/100_000)
			}
			if bounded {
				left = min(left, limit-used+cache)
			}
			if at == "" {
				break
			}
		}
		write(t, root, tree.String())

		g := cgroup.Of(root, "self")
		if got, _ := g.Quota(); got != quota {
			t.Fatalf("quota %v, want %v of\n%s", got, quota, tree.String())
		}
		limit, used, ok := g.Memory()
		if ok != (left != math.MaxInt64) || ok && limit-used != left {
			t.Fatalf("%d of %d bytes used (%v), want %d left of\n%s", used, limit, ok, left, tree.String())
		}
		if want := map[string]int{"v1": 1, "hybrid": 1, "v2": 2}[kind]; g.Version() != want {
			t.Fatalf("version %d, want %d", g.Version(), want)
		}
	})
}

// The reader agrees with this machine: it names a version where the kernel does.
func TestSelf(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil && cgroup.Self().Version() != 2 {
		t.Errorf("version %d on a machine with version 2 alone", cgroup.Self().Version())
	}
	if g := cgroup.Of(t.TempDir(), "self"); g.Version() != 0 {
		t.Errorf("version %d of nothing", g.Version())
	}
}
