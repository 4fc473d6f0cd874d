package procfs_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/procfs"
)

// A /proc of files: what the kernel writes, and what it does not.
func TestFiles(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string]string{
		"7/stat":  "7 (a name) R (5) S 3 7 7 0 -1 4194560 100 0 12 0 250 50 30 20 20 0 1 0 777 1000 25 18446744073709551615\n",
		"8/stat":  "8 (cut) S 3",
		"9/other": "",
		"meminfo": "MemTotal:       8 kB\nHugePages 3\nno number\n\nalone\nDirectMap4k: x kB\n",
		"uptime":  "  1.5 2.5\n",
		"self/x":  "",
	} {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := procfs.Text(proc, "uptime"); got != "1.5 2.5" {
		t.Errorf("%q", got)
	}
	if got := procfs.Text(proc, "none"); got != "" {
		t.Errorf("%q of a file that is missing", got)
	}
	if diff := cmp.Diff(map[string]float64{"MemTotal": 8, "HugePages": 3}, procfs.Pairs(proc, "meminfo")); diff != "" {
		t.Error(diff)
	}
	pids := procfs.Processes(proc)
	slices.Sort(pids)
	if !slices.Equal(pids, []int{7, 8, 9}) {
		t.Errorf("processes %v", pids)
	}
	got, ok := procfs.Of(proc, 7)
	want := procfs.Stat{Name: "a name) R (5", State: 'S', Parent: 3, Faults: 12, User: 2.5, System: 0.5, Children: 0.5, Start: 777}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Error(ok, diff)
	}
	for _, pid := range []int{8, 9, 10} {
		if s, ok := procfs.Of(proc, pid); ok {
			t.Errorf("process %d: %+v", pid, s)
		}
	}
}

// This process has a name, and has had memory.
func TestSelf(t *testing.T) {
	if s, ok := procfs.Of("/proc", os.Getpid()); !ok || s.Parent != os.Getppid() || s.Name == "" {
		t.Errorf("%+v %v", s, ok)
	}
	procfs.ResetPeak()
	if n := procfs.Peak(); n < 1<<20 {
		t.Errorf("a peak of %d bytes", n)
	}
}
