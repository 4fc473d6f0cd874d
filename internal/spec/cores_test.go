package spec

import (
	"os"
	"path/filepath"
	"testing"
)

func TestQuota(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := quota(dir); ok {
		t.Error("a quota where there is none")
	}
	write("cpu.cfs_quota_us", "-1\n")
	write("cpu.cfs_period_us", "100000\n")
	if _, ok := quota(dir); ok {
		t.Error("-1 is no quota")
	}
	write("cpu.cfs_quota_us", "250000\n")
	if q, ok := quota(dir); !ok || q != 2.5 {
		t.Errorf("version 1: %v, %v", q, ok)
	}
	write("cpu.max", "max 100000\n")
	if _, ok := quota(dir); ok {
		t.Error("max is no quota")
	}
	write("cpu.max", "150000 100000\n")
	if q, ok := quota(dir); !ok || q != 1.5 {
		t.Errorf("version 2: %v, %v", q, ok)
	}
}

// Ranks of one machine share its cores.
func TestCoresAreShared(t *testing.T) {
	all := Cores()
	t.Setenv("LOCAL_WORLD_SIZE", "100000")
	if n := Cores(); n != 1 || all < 1 {
		t.Errorf("%d lanes alone, %d among 100,000 ranks", all, n)
	}
}
