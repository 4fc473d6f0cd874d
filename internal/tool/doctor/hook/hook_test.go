package hook

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "hook")
	for range 2 { // a second time over the first
		if err := Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	want, err := filepath.Glob("*.py")
	if err != nil || len(want) < 5 {
		t.Fatalf("%d files beside this test, %v", len(want), err)
	}
	for _, name := range want {
		here, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		there, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(here) != string(there) {
			t.Errorf("%s: not what is in this folder: %v", name, err)
		}
	}
}

func TestWriteWhereNothingCanBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(file, "hook")); err == nil {
		t.Error("no error below a file")
	}
}

func TestEnv(t *testing.T) {
	for _, c := range []struct {
		name          string
		environ, want []string
	}{
		{"bare", []string{"A=1"}, []string{"A=1", "PYTHONPATH=/h", "STOKER_DOCTOR_DIR=/o"}},
		{"kept after ours", []string{"PYTHONPATH=/mine:/too", "A=1"}, []string{"A=1", "PYTHONPATH=/h:/mine:/too", "STOKER_DOCTOR_DIR=/o"}},
		{"empty names nothing", []string{"PYTHONPATH="}, []string{"PYTHONPATH=/h", "STOKER_DOCTOR_DIR=/o"}},
		{"a doctor's child", []string{"STOKER_DOCTOR_DIR=/else"}, []string{"PYTHONPATH=/h", "STOKER_DOCTOR_DIR=/o"}},
		{"the last one counts, as it does for a process", []string{"PYTHONPATH=/a", "PYTHONPATH=/b"}, []string{"PYTHONPATH=/h:/b", "STOKER_DOCTOR_DIR=/o"}},
	} {
		before := slices.Clone(c.environ)
		if got := Env("/h", "/o", c.environ); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if !slices.Equal(before, c.environ) {
			t.Errorf("%s: the caller's own environment was changed", c.name)
		}
	}
}
