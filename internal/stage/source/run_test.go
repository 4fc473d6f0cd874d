package source_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// many is more reads than it takes until a file is mapped.
const many = 2000

// running is a file whose reads do not wait and which is mapped, as far as its file
// system lets it be.
func running(t *testing.T) (f *source.File, path string, obj source.Info, want []byte) {
	t.Helper()
	want = make([]byte, 300_001)
	for i := range want {
		want[i] = byte(i * i >> 3)
	}
	f = openFile(t)
	path = stagetest.Put(t, filepath.Join(t.TempDir(), "train.bin"), want)
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	obj = info(t, f, path, true)
	if _, ok := f.Run(obj); ok {
		t.Fatal("a run of a file that was never opened")
	}
	if err := f.ReadAt(ctx, obj, make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	r := begin(t, f, obj)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if !hotByKernel(t, fd, 7) {
		t.Skip("this file system does not tell what is in memory")
	}
	for range many {
		if !r.Read(make([]byte, 1), 7) {
			t.Fatal("what was just read is not in memory")
		}
	}
	if !r.End() {
		t.Fatal("the file changed")
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || !strings.Contains(string(maps), path) {
		t.Fatalf("the file is not mapped: %v", err)
	}
	return f, path, obj, want
}

func begin(t *testing.T, f *source.File, obj source.Info) source.Run {
	t.Helper()
	r, ok := f.Run(obj)
	if !ok {
		t.Fatal("no run of a file that is open")
	}
	return r
}

// reads reads by the map, where there is one.
func reads(r *source.Run, p []byte, off int64) bool {
	r.Read(make([]byte, 1), 0) // asks the kernel; the next may use the map
	return r.Read(p, off)
}

func TestRun(t *testing.T) {
	f, path, obj, want := running(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		r := begin(t, f, obj)
		for range 1 + rng.IntN(30) {
			n := rng.IntN(70_000)
			off := rng.IntN(len(want) - n + 1)
			p := make([]byte, n)
			if !r.Read(p, int64(off)) || !bytes.Equal(p, want[off:off+n]) {
				t.Fatalf("%d bytes at %d are others", n, off)
			}
		}
		for _, bad := range [][2]int64{{-1, 1}, {int64(len(want)), 1}, {1 << 62, 1}, {0, int64(len(want)) + 1}} {
			if r.Read(make([]byte, bad[1]), bad[0]) {
				t.Errorf("%d bytes at %d were read", bad[1], bad[0])
			}
		}
		if !r.End() {
			t.Fatal("the file changed")
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || strings.Contains(string(maps), path) {
		t.Errorf("the file is mapped still: %v", err)
	}
}

// A file that was touched while a run read it spoils the run, and never the process.
func TestRunOverChanges(t *testing.T) {
	t.Run("written to", func(t *testing.T) {
		f, path, obj, want := running(t)
		r := begin(t, f, obj)
		if !reads(&r, make([]byte, 10), 100) {
			t.Fatal("nothing is in memory")
		}
		stagetest.Put(t, path, want)
		if r.End() {
			t.Error("it counts as the same")
		}
	})
	t.Run("cut", func(t *testing.T) {
		f, path, obj, _ := running(t)
		r := begin(t, f, obj)
		if err := os.Truncate(path, 1000); err != nil {
			t.Fatal(err)
		}
		if reads(&r, make([]byte, 5000), 200_000) {
			t.Error("what was cut off was read")
		}
		if r.End() {
			t.Error("it counts as the same")
		}
	})
	for name, do := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+"2", []byte("x"), 0o644), os.Rename(path+"2", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, path, obj, want := running(t)
			r := begin(t, f, obj)
			if err := do(path); err != nil {
				t.Fatal(err)
			}
			if p := make([]byte, 10); !reads(&r, p, 100) || !bytes.Equal(p, want[100:110]) {
				t.Error("cannot read what is open")
			}
			if r.End() {
				t.Error("it counts as the same")
			}
			if _, ok := f.Run(obj); ok {
				t.Error("another run reads the old file")
			}
		})
	}
	t.Run("closed", func(t *testing.T) {
		f, _, obj, want := running(t)
		r := begin(t, f, obj)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if p := make([]byte, 10); !reads(&r, p, 100) || !bytes.Equal(p, want[100:110]) || !r.End() {
			t.Error("a run does not end well")
		}
	})
}

// What has to come from the disk is nothing that a run reads, mapped or not.
func TestRunDoesNotWait(t *testing.T) {
	f, path, obj, want := running(t)
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r := begin(t, f, obj)
	if !r.End() {
		t.Fatal("the file changed")
	}
	// The pages of a map stay; those of no map can be dropped.
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.ReadAt(ctx, obj, make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	r = begin(t, f, obj)
	p := make([]byte, 10)
	findsCold(t, fd, 299_000, func() bool {
		clear(p)
		hot := r.Read(p, 299_000)
		if hot && !bytes.Equal(p, want[299_000:299_010]) {
			t.Fatal("bytes that are not those of the file")
		}
		return hot
	})
	if err := f.ReadAt(ctx, obj, p, 299_000); err != nil {
		t.Fatal(err)
	}
	if !r.Read(p, 299_000) || !bytes.Equal(p, want[299_000:299_010]) || !r.End() {
		t.Error("what was just read is not in memory")
	}
}

func TestRunCostsNoHeap(t *testing.T) {
	f, _, obj, _ := running(t)
	p := make([]byte, 4098)
	if n := testing.AllocsPerRun(100, func() {
		r, ok := f.Run(obj)
		if !ok || !r.Read(p, 0) || !r.Read(p, 99) || !r.End() {
			panic("nothing is in memory")
		}
	}); n > 0 && !raceEnabled {
		t.Errorf("%v allocations a run", n)
	}
}
