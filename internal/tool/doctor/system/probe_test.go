package system_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// A machine of its own below root: a process has files open, and has read from them.
func process(t *testing.T, root string, pid int, open ...string) {
	t.Helper()
	dir := filepath.Join(root, "proc", fmt.Sprint(pid))
	if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "io"), []byte("rchar: 5\nwchar: 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, path := range open {
		if err := os.Symlink(path, filepath.Join(dir, "fd", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
}

func stored(t *testing.T, name string, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, size), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func settled(t *testing.T, p *system.Prober) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !p.Settled(true); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the probe does not end")
		}
	}
}

// What workers have open is probed once, while others look at them again and ask for
// what was found: the largest file, with its streams, and not the code, nor the index
// beside it.
func TestAProbeWhileWorkersAreWatched(t *testing.T) {
	large, index, code := stored(t, "train.rec", 3<<20), stored(t, "train.idx", 64<<10), stored(t, "train.py", 4<<20)
	root := t.TempDir()
	process(t, root, 10, large, code)
	process(t, root, 11, index, "/dev/null", "socket:[5]")
	var p system.Prober
	if found := p.Found(); !p.Settled(true) || found.File != "" {
		t.Errorf("nobody was watched: %+v", found)
	}
	ended := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				p.Watch(root, []int{10, 11}, map[int][]string{10: nil, 11: nil, 12: nil})
				if found := p.Found(); found.File != "" && found.File != large {
					t.Errorf("probed %s", found.File)
				}
				select {
				case <-ended:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	p.Watch(root, []int{10, 11}, map[int][]string{10: nil, 11: nil})
	if !p.Settled(false) || p.Found().File != "" {
		t.Error("a probe began, and reads are not what costs")
	}
	settled(t, &p)
	close(ended)
	all.Wait()
	found := p.Found()
	if found.File != large || found.Streams != system.Streams || found.Open.Value <= 0 || found.Latency.Value <= 0 || found.Alone.Value <= 0 || found.Rate.Value <= 0 {
		t.Errorf("%+v", found)
	}
}

// Small files are probed together with their neighbours in the folder, which have their
// ending: as many streams as there are files. Files that were open for a moment only
// are known from the samples that opened them.
func TestAProbeOfSmallFiles(t *testing.T) {
	root := t.TempDir()
	for i := range 6 {
		if err := os.MkdirAll(filepath.Join(root, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{fmt.Sprintf("%d.jpg", i), fmt.Sprintf("%d.txt", i)} {
			if err := os.WriteFile(filepath.Join(root, "data", name), make([]byte, 20000), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	process(t, root, 10)
	var p system.Prober
	p.Watch(root, []int{10}, map[int][]string{10: {"data/0.jpg", "data/gone.jpg"}})
	settled(t, &p)
	if found := p.Found(); found.File != filepath.Join(root, "data", "0.jpg") || found.Streams != 6 || found.Rate.Value <= 0 {
		t.Errorf("%+v", found)
	}
}
