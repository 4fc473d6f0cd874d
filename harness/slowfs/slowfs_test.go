package slowfs_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/harness/slowfs"
)

// mount shows a folder. A machine that cannot mount is a skip, which CI refuses.
func mount(t *testing.T, of string, o slowfs.Options) (string, *slowfs.FS) {
	t.Helper()
	at := t.TempDir()
	f, err := slowfs.Mount(of, at, o)
	if err != nil {
		t.Skipf("FUSE cannot be used here: %v", err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return at, f
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func noise(seed byte, n int) []byte {
	out := make([]byte, 0, n+32)
	for h := sha256.Sum256([]byte{seed}); len(out) < n; h = sha256.Sum256(h[:]) {
		out = append(out, h[:]...)
	}
	return out[:n]
}

func TestShowsTheFolderAsItIs(t *testing.T) {
	of := t.TempDir()
	want := map[string][]byte{"a": noise(1, 10), "empty": {}, "deep/er/b": noise(2, 3<<20+17), "deep/c": noise(3, 4096)}
	for name, b := range want {
		write(t, filepath.Join(of, name), b)
	}
	if err := os.Symlink("deep/c", filepath.Join(of, "link")); err != nil {
		t.Fatal(err)
	}
	want["link"] = want["deep/c"]
	for name, cache := range map[string]slowfs.Cache{"direct": slowfs.Direct, "reopen": slowfs.Reopen, "keep": slowfs.Keep} {
		t.Run(name, func(t *testing.T) {
			at, _ := mount(t, of, slowfs.Options{Cache: cache})
			seen := 0
			err := filepath.WalkDir(at, func(path string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				rel, _ := filepath.Rel(at, path)
				got, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if !bytes.Equal(got, want[rel]) {
					t.Errorf("%s: %d bytes that differ from the %d below", rel, len(got), len(want[rel]))
				}
				seen++
				return nil
			})
			if err != nil || seen != len(want) {
				t.Fatalf("%d files of %d: %v", seen, len(want), err)
			}
			for _, refused := range []func() error{
				func() error { return os.WriteFile(filepath.Join(at, "new"), nil, 0o644) },
				func() error { return os.Remove(filepath.Join(at, "a")) },
				func() error { _, err := os.OpenFile(filepath.Join(at, "a"), os.O_RDWR, 0); return err },
			} {
				if err := refused(); !errors.Is(err, syscall.EROFS) {
					t.Errorf("a change of the folder: %v", err)
				}
			}
			if _, err := os.Open(filepath.Join(at, "none")); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}

// Every read of a program is one that is counted, with its bytes, whatever its
// size and place, read again or not.
func TestCountsWhatItServes(t *testing.T) {
	of := t.TempDir()
	const size = 300_000
	content := noise(4, size)
	write(t, filepath.Join(of, "f"), content)
	at, served := mount(t, of, slowfs.Options{})
	rapid.Check(t, func(t *rapid.T) {
		before := served.Served()
		f, err := os.Open(filepath.Join(at, "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var want slowfs.Served
		want.Opens = 1
		for range rapid.IntRange(0, 8).Draw(t, "reads") {
			off, n := rapid.IntRange(0, size-1).Draw(t, "off"), rapid.IntRange(1, 200_000).Draw(t, "n")
			b := make([]byte, n)
			m, err := syscall.Pread(int(f.Fd()), b, int64(off))
			if err != nil || !bytes.Equal(b[:m], content[off:min(size, off+n)]) {
				t.Fatalf("%d bytes at %d: %d, %v", n, off, m, err)
			}
			want.Reads++
			want.Bytes += int64(m)
		}
		now := served.Served()
		if got := (slowfs.Served{Opens: now.Opens - before.Opens, Reads: now.Reads - before.Reads, Bytes: now.Bytes - before.Bytes}); got != want {
			t.Fatalf("served %+v, asked for %+v", got, want)
		}
	})
}

// atLeast asserts that something took as long as was injected. Sleeps are never
// shorter than they say; how much longer they are is the machine's matter.
func atLeast(t *testing.T, what string, least time.Duration, do func()) {
	t.Helper()
	begin := time.Now()
	do()
	if took := time.Since(begin); took < least {
		t.Errorf("%s took %v, and %v were injected", what, took, least)
	}
}

func TestInjects(t *testing.T) {
	of := t.TempDir()
	write(t, filepath.Join(of, "f"), noise(5, 1<<20))
	at, served := mount(t, of, slowfs.Options{})
	path := filepath.Join(at, "f")
	buf := make([]byte, 1<<20)
	open := func() *os.File {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	read := func(f *os.File, n int) {
		if m, err := f.ReadAt(buf[:n], 0); m != n && err != io.EOF {
			t.Fatal(m, err)
		}
	}

	served.Set(slowfs.Delays{Open: 60 * time.Millisecond})
	atLeast(t, "three opens", 180*time.Millisecond, func() {
		for range 3 {
			open().Close()
		}
	})
	f := open()
	defer f.Close()
	served.Set(slowfs.Delays{Read: 30 * time.Millisecond})
	atLeast(t, "four reads", 120*time.Millisecond, func() {
		for range 4 {
			read(f, 1<<16)
		}
	})
	served.Set(slowfs.Delays{SmallBytes: 4096, Small: 40 * time.Millisecond})
	atLeast(t, "three small reads", 120*time.Millisecond, func() {
		for range 3 {
			read(f, 4095)
		}
	})
	// One bandwidth for all readers: eight that read at once share it.
	served.Set(slowfs.Delays{BytesPerSecond: 2 << 20})
	atLeast(t, "a MiB by eight readers at 2 MiB/s", 490*time.Millisecond, func() {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				b := make([]byte, 1<<17)
				if _, err := f.ReadAt(b, int64(i)<<17); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// Latencies overlap: sixteen readers wait side by side, so that all of them are
// through long before sixteen waits one after the other.
func TestLatencyIsEachReadersOwn(t *testing.T) {
	of := t.TempDir()
	write(t, filepath.Join(of, "f"), noise(6, 16<<12))
	at, _ := mount(t, of, slowfs.Options{Delays: slowfs.Delays{Read: time.Second}})
	f, err := os.Open(filepath.Join(at, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begin := time.Now()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if _, err := f.ReadAt(make([]byte, 4096), int64(i)<<12); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("sixteen reads at once took %v, at a second each", took)
	}
}

// Pages are forgotten at every open, so that a delay is met again.
func TestNothingIsKept(t *testing.T) {
	of := t.TempDir()
	write(t, filepath.Join(of, "f"), noise(7, 1<<18))
	for name, cache := range map[string]slowfs.Cache{"direct": slowfs.Direct, "reopen": slowfs.Reopen} {
		t.Run(name, func(t *testing.T) {
			at, served := mount(t, of, slowfs.Options{Cache: cache})
			for i := range 3 {
				if _, err := os.ReadFile(filepath.Join(at, "f")); err != nil {
					t.Fatal(err)
				}
				if got := served.Served(); got.Opens != int64(i+1) || got.Bytes != int64(i+1)<<18 {
					t.Fatalf("after %d readings: %+v", i+1, got)
				}
			}
		})
	}
}

// As of a disk: what was read once and still fits into memory is not asked again.
func TestKeepsWhatItIsToldTo(t *testing.T) {
	of := t.TempDir()
	write(t, filepath.Join(of, "f"), noise(9, 1<<18))
	at, served := mount(t, of, slowfs.Options{Cache: slowfs.Keep})
	for i := range 3 {
		if _, err := os.ReadFile(filepath.Join(at, "f")); err != nil {
			t.Fatal(err)
		}
		if got := served.Served(); got.Opens != int64(i+1) || i == 2 && got.Bytes >= 3<<18 {
			t.Fatalf("after %d readings: %+v", i+1, got)
		}
	}
}

// A program that is killed while it waits for a read goes, and the mount with it.
func TestAKilledReaderDoesNotHoldIt(t *testing.T) {
	of := t.TempDir()
	write(t, filepath.Join(of, "f"), noise(8, 1<<16))
	at, served := mount(t, of, slowfs.Options{Delays: slowfs.Delays{Read: time.Hour}})
	cmd := exec.Command("cat", filepath.Join(at, "f"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for served.Served().Opens == 0 {
		time.Sleep(time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if got := served.Served(); got.Bytes != 0 {
		t.Errorf("%+v were served to a program that got nothing", got)
	}
}

func TestRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, []byte("x"))
	for name, c := range map[string]struct{ of, at, says string }{
		"no folder":   {file, t.TempDir(), "not a folder"},
		"none":        {filepath.Join(t.TempDir(), "none"), t.TempDir(), "cannot be read"},
		"nowhere":     {t.TempDir(), filepath.Join(t.TempDir(), "none"), "cannot be read"},
		"over a file": {t.TempDir(), file, "not a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := slowfs.Mount(c.of, c.at, slowfs.Options{})
			if err == nil {
				_ = f.Close()
				t.Fatal("mounted")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Error(err)
			}
		})
	}
}
