package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

const count = 6

func prepare(t *testing.T, dir string) Dataset {
	t.Helper()
	d, err := Prepare(t.Context(), dir, count, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func content(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "demo-6", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestMadeOnceAndTheSameEverywhere(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	first := prepare(t, one)
	if !first.Made || first.Count != count {
		t.Fatalf("%+v", first)
	}
	again := prepare(t, one)
	if again.Made || again.Bytes != first.Bytes {
		t.Fatalf("%+v", again)
	}
	prepare(t, two)
	if content(t, one) != content(t, two) {
		t.Fatalf("%s is not %s", content(t, one), content(t, two))
	}
}

// A file that changed, is missing or was cut: all is made again.
func TestDamageIsFound(t *testing.T) {
	dir := t.TempDir()
	root := prepare(t, dir).Root
	want := content(t, dir)
	victim := filepath.Join(root, "coffee", "0000.jpg")
	raw, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func() error{
		"a flipped bit": func() error { raw[len(raw)/2] ^= 1; return os.WriteFile(victim, raw, 0o644) },
		"a cut":         func() error { return os.Truncate(victim, 100) },
		"a removal":     func() error { return os.Remove(victim) },
		"no manifest":   func() error { return os.Remove(filepath.Join(dir, "demo-6", "manifest.json")) },
		"half a manifest": func() error {
			return os.Truncate(filepath.Join(dir, "demo-6", "manifest.json"), 20)
		},
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if d := prepare(t, dir); !d.Made || content(t, dir) != want {
			t.Errorf("%s was not mended", name)
		}
	}
}

func TestInterruptedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Prepare(ctx, dir, 10_000, func(done, total int) {
		if done >= 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Fatalf("left %v", left)
	}
}

func TestTwoAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := Prepare(t.Context(), dir, count, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if d := prepare(t, dir); d.Made {
		t.Error("what was left was not whole")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(t.Context(), file, count, nil); err == nil {
		t.Fatal("a file was taken for a folder")
	}
}

// The pictures are of the sizes that the demo promises, each within its bounds.
func TestSizes(t *testing.T) {
	d := prepare(t, t.TempDir())
	paths, err := filepath.Glob(filepath.Join(d.Root, "*", "*.jpg"))
	if err != nil || len(paths) != count {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		h, err := kernel.ReadHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		if n := h.W * h.H; n < 125_000 || n > 260_000 || h.Components != 3 {
			t.Errorf("%s: %+v", p, h)
		}
	}
}
