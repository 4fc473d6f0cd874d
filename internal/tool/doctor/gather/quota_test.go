package gather

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// A quota that the kernel really keeps: a process in a cgroup of ours that wants
// a whole core and may have a fifth. Where no cgroup can be made it is skipped,
// which CI refuses: what limits a job in a container is not to go untested.
func TestQuotaIsSeen(t *testing.T) {
	dir := quotaFolder(t)
	busy := exec.Command("/bin/sh", "-c", "read go; while :; do :; done")
	gate, err := busy.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	}()
	pid := strconv.Itoa(busy.Process.Pid)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o644); err != nil {
		t.Fatalf("a process cannot be put into a cgroup of ours: %v", err)
	}
	fmt.Fprintln(gate)
	w := system.NewWatched("/")
	w.Look(busy.Process.Pid, system.Now())
	began := w.Last()
	for range 400 { // at least ten periods of a tenth of a second
		w.Look(busy.Process.Pid, system.Now())
		if a, b, ok := w.Span(0); ok && b.Throttle.Periods-a.Throttle.Periods >= 10 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	r := RunOf(NewFolder(""), w, began)
	if !r.Throttled.Known() || r.Throttled.Value < 0.5 {
		t.Errorf("stopped in %.2f of its periods [%s]", r.Throttled.Value, r.Throttled.Source)
	}
	if r.CPU.Value > 0.5 {
		t.Errorf("%.2f cores used below a quota of 0.2", r.CPU.Value)
	}
	if m := system.Of("/", pid); m.Quota.Value != 0.2 || m.Cores.Value != 0.2 {
		t.Errorf("quota %g, cores %g", m.Quota.Value, m.Cores.Value)
	}
}

func isFile(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.Mode().IsRegular()
}

func isDir(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.IsDir()
}

// quotaFolder is a cgroup of a fifth of a core.
func quotaFolder(t *testing.T) string {
	t.Helper()
	name := "stoker-test-" + strconv.Itoa(os.Getpid())
	for _, v := range []struct{ root, file, text string }{
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "20000"},
		{"/sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us", "20000"},
		{"/sys/fs/cgroup", "cpu.max", "20000 100000"},
	} {
		dir := filepath.Join(v.root, name)
		if !strings.HasSuffix(v.root, "cgroup") && !isDir(v.root) || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if !isFile(filepath.Join(dir, v.file)) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, v.file), []byte(v.text), 0o644); err != nil {
			t.Fatalf("%s cannot be set: %v", v.file, err)
		}
		return dir
	}
	t.Skip("no cgroup with a quota can be made here")
	return ""
}
