package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

func openFile(t *testing.T) *source.File {
	f := source.NewFile()
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestFile(t *testing.T) {
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		dir := t.TempDir() + "/"
		for name, data := range objects {
			stagetest.Put(t, dir+name, data)
		}
		return openFile(t), dir, func(name string, data []byte) { stagetest.Put(t, dir+name, data) }
	})
}

// info is what an index would have of a file.
func info(t *testing.T, f *source.File, name string, watched bool) source.Info {
	t.Helper()
	st, err := f.Stat(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if !watched {
		st.Version = ""
	}
	return st
}

func code(t *testing.T, err error, want errs.Code) *errs.Error {
	t.Helper()
	e := errs.From(err)
	if err == nil || e.Code != want {
		t.Fatalf("got %v (%s), want %s", err, e.Code, want)
	}
	return e
}

func TestWhatIsNoFile(t *testing.T) {
	f := openFile(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	file := stagetest.Put(t, filepath.Join(dir, "file"), []byte("x"))
	for _, version := range []string{"", "\x01\x00\x00\x00\x00\x00\x00\x00"} {
		for name, want := range map[string]errs.Code{
			fifo: errs.Unreadable, dir: errs.Unreadable, loop: errs.Unreadable, "/dev/null": errs.Unreadable,
			file + "/below": errs.NotFound, dir + "/none": errs.NotFound, "": errs.NotFound, "a\x00b": errs.NotFound,
			dir + strings.Repeat("/long", 2000): errs.NotFound,
		} {
			e := code(t, f.ReadAt(ctx, source.Info{Name: name, Size: 0, Version: version}, nil, 0), want)
			if e.Where.File != name {
				t.Errorf("%q is placed at %v", name, e.Where)
			}
		}
	}
}

// Pipes, sockets and devices are refused by name, and nobody waits for what may
// come out of them.
func TestPipesSocketsAndDevices(t *testing.T) {
	f := openFile(t)
	dir := t.TempDir()
	fifo, sock := filepath.Join(dir, "fifo"), filepath.Join(dir, "sock")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: sock}); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]string{fifo: "named pipe", sock: "socket", "/dev/zero": "device"} {
		_, stat := f.Stat(ctx, name)
		_, head := source.Head(ctx, f, name, make([]byte, 8))
		if _, err := source.ReadFile(name); err == nil || !strings.Contains(err.Error(), kind) {
			t.Errorf("open of %s: %v", name, err)
		}
		for how, err := range map[string]error{"stat": stat, "head": head, "read": f.ReadAt(ctx, source.Info{Name: name}, nil, 0)} {
			if e := code(t, err, errs.Unreadable); e.Where.File != name || !strings.Contains(e.Error(), kind) || e.Hint == "" {
				t.Errorf("%s of %s: %v; hint %q", how, name, e, e.Hint)
			}
		}
		for _, err := range f.List(ctx, name) {
			code(t, err, errs.NotFound) // there is no such folder
		}
	}
	p := make([]byte, 8)
	if n, err := source.Head(ctx, f, stagetest.Put(t, filepath.Join(dir, "short"), []byte("abc")), p); err != nil || string(p[:n]) != "abc" {
		t.Errorf("%q %v", p[:n], err)
	}
	_, err = source.Head(ctx, f, filepath.Join(dir, "none"), p)
	code(t, err, errs.NotFound)
}

func TestUnreadable(t *testing.T) {
	f := openFile(t)
	path := stagetest.Put(t, filepath.Join(t.TempDir(), "x"), []byte("x"))
	st := info(t, f, path, false)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // who may read everything; so not as root, in this thread
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(0) }()
	}
	if e := code(t, f.ReadAt(ctx, st, make([]byte, 1), 0), errs.Unreadable); !strings.Contains(e.Hint, "chmod") {
		t.Errorf("hint %q", e.Hint)
	}
}

// A shard that stays open is held against what it should be at every read: it
// can be written to, replaced or removed at any time.
func TestKeptOpen(t *testing.T) {
	past := time.Now().Add(-time.Hour)
	read := func(f *source.File, st source.Info) error { return f.ReadAt(ctx, st, make([]byte, 2), 0) }
	setup := func(t *testing.T) (*source.File, string, source.Info) {
		f := openFile(t)
		path := stagetest.Put(t, filepath.Join(t.TempDir(), "s.tar"), []byte("old!"))
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
		st := info(t, f, path, true)
		if err := read(f, st); err != nil {
			t.Fatal(err)
		}
		return f, path, st
	}
	t.Run("written to", func(t *testing.T) {
		f, path, st := setup(t)
		stagetest.Put(t, path, []byte("new!"))
		code(t, read(f, st), errs.Changed)
		if err := read(f, info(t, f, path, true)); err != nil {
			t.Error(err)
		}
	})
	t.Run("cut", func(t *testing.T) {
		f, path, st := setup(t)
		if err := os.Truncate(path, 1); err != nil {
			t.Fatal(err)
		}
		code(t, read(f, st), errs.Changed)
	})
	t.Run("replaced", func(t *testing.T) {
		f, path, st := setup(t)
		if err := os.Rename(stagetest.Put(t, path+".new", []byte("new!")), path); err != nil {
			t.Fatal(err)
		}
		code(t, read(f, st), errs.Changed)
	})
	t.Run("replaced by the same", func(t *testing.T) {
		f, path, st := setup(t)
		stagetest.Put(t, path+".new", []byte("new!"))
		if err := os.Chtimes(path+".new", past, time.Unix(0, st.Time)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 4)
		if err := f.ReadAt(ctx, st, p, 0); err != nil || string(p) != "new!" {
			t.Errorf("%q, %v", p, err)
		}
	})
	t.Run("removed", func(t *testing.T) {
		f, path, st := setup(t)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		code(t, read(f, st), errs.NotFound)
	})
	t.Run("closed", func(t *testing.T) {
		f, _, st := setup(t)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := read(f, st); err != nil {
			t.Error(err)
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// Many shards, many readers, and shards that fail among them: the descriptors
// stay bounded, no read sees another file's bytes, and none is left at the end.
func TestDescriptors(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 512, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	before := descriptors(t)
	f := source.NewFile()
	dir := t.TempDir()
	const shards = 200
	sts := make([]source.Info, shards)
	for i := range sts {
		name := stagetest.Put(t, fmt.Sprintf("%s/%03d", dir, i), []byte(fmt.Sprintf("%03d", i)))
		sts[i] = info(t, f, name, true)
		if i%10 == 0 {
			sts[i].Size++
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			p := make([]byte, 3)
			for i := range 500 {
				no := (i*(2*g+1) + g*31) % shards
				err := f.ReadAt(ctx, sts[no], p, 0)
				switch {
				case no%10 == 0:
					if errs.CodeOf(err) != errs.Changed {
						t.Errorf("%d: %v", no, err)
					}
				case err != nil || string(p) != fmt.Sprintf("%03d", no):
					t.Errorf("%d: %q, %v", no, p, err)
				}
			}
		})
	}
	wg.Wait()
	if n := descriptors(t) - before; n > 512/8 {
		t.Errorf("%d descriptors are kept open", n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors were open, %d are", before, n)
	}
}

// hotByKernel says whether the kernel reads a byte of a file without waiting; false if
// the file system cannot say.
func hotByKernel(t *testing.T, fd int, off int64) bool {
	t.Helper()
	n, err := unix.Preadv2(fd, [][]byte{make([]byte, 1)}, off, unix.RWF_NOWAIT)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		t.Fatal(err)
	}
	return err == nil && n == 1
}

// findsCold drops a file from the page cache until hot, which reads at off, says that
// it is not in memory. The kernel may keep a page that is in use for a moment, and any
// question about a page that is gone may bring it back: so it is asked in turns, by us
// and by hot. If only we find the page gone, hot is wrong.
func findsCold(t *testing.T, fd int, off int64, hot func() bool) {
	t.Helper()
	drop := func() {
		if err := errors.Join(unix.Fsync(fd), unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)); err != nil {
			t.Fatal(err)
		}
	}
	gone := 0
	for range 100 {
		if drop(); !hot() {
			return
		}
		if drop(); !hotByKernel(t, fd, off) {
			gone++
		}
		time.Sleep(time.Millisecond)
	}
	if gone > 10 {
		t.Fatalf("the page was gone %d times of 100, and was said to be in memory", gone)
	}
	t.Skip("this file system keeps what it is told to drop")
}

// What was dropped from the page cache is not in memory, and is once it was read.
func TestWhatIsHot(t *testing.T) {
	f := openFile(t)
	name := stagetest.Put(t, filepath.Join(t.TempDir(), "x"), bytes.Repeat([]byte("stoker"), 100_000))
	obj := info(t, f, name, true)
	p := make([]byte, 6)
	fd, err := unix.Open(name, unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if !hotByKernel(t, fd, 300_000) {
		t.Skip("this file system does not tell what is in memory")
	}
	if hot, err := f.ReadHot(ctx, obj, p, 300_000, false); err != nil || !hot || string(p) != "stoker" {
		t.Fatalf("what was just written is not in memory: %q, %v, %v", p, hot, err)
	}
	findsCold(t, fd, 300_000, func() bool {
		p = make([]byte, 6)
		hot, err := f.ReadHot(ctx, obj, p, 300_000, false)
		if err != nil || hot && string(p) != "stoker" {
			t.Fatalf("%q is in memory: %v", p, err)
		}
		return hot
	})
	// Asking may have begun to fetch it, so that it may be in memory by now.
	if _, err := f.ReadHot(ctx, obj, p, 300_000, true); err != nil || string(p) != "stoker" {
		t.Fatalf("%q is read: %v", p, err)
	}
	if hot, err := f.ReadHot(ctx, obj, p, 300_000, false); err != nil || !hot {
		t.Errorf("what was just read is not in memory: %v", err)
	}
}

func TestReadCostsNoHeap(t *testing.T) {
	f := openFile(t)
	name := stagetest.Put(t, filepath.Join(t.TempDir(), "x"), make([]byte, 5000))
	p := make([]byte, 5000)
	for _, watched := range []bool{true, false} {
		st := info(t, f, name, watched)
		if n := testing.AllocsPerRun(100, func() {
			if err := f.ReadAt(ctx, st, p, 0); err != nil {
				panic(err)
			}
			if _, err := f.ReadHot(ctx, st, p, 0, false); err != nil {
				panic(err)
			}
		}); n > 0 && !raceEnabled {
			t.Errorf("watched %v: %v allocations a read", watched, n)
		}
	}
}

func TestTimeZeroIsWatched(t *testing.T) {
	f := openFile(t)
	name := stagetest.Put(t, filepath.Join(t.TempDir(), "x"), nil)
	if err := os.Chtimes(name, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if st := info(t, f, name, true); st.Version == "" {
		t.Error("a file from the beginning of time counts as one without a time")
	}
}

func TestListBrokenLinkAndFolderIDs(t *testing.T) {
	dir := t.TempDir()
	stagetest.Put(t, dir+"/real/x", []byte("x"))
	for name, target := range map[string]string{"again": "real", "broken": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	got := make(map[string]source.Info)
	for st, err := range openFile(t).List(ctx, dir) {
		if err != nil {
			t.Fatal(err)
		}
		got[filepath.Base(st.Name)] = st
	}
	if len(got) != 3 || got["broken"].Dir || got["broken"].Version != "" || !got["again"].Dir || got["again"].ID != got["real"].ID || got["real"].ID == [2]uint64{} {
		t.Errorf("%+v", got)
	}
}

func TestSettle(t *testing.T) {
	start := time.Now()
	if err := source.Settle(ctx, source.Info{Time: start.UnixNano() | 1}); err != nil {
		t.Fatal(err)
	}
	if time.Since(start) < 15*time.Millisecond {
		t.Error("did not wait for the clock to go on")
	}
	ended, end := context.WithCancel(ctx)
	end()
	if source.Settle(ended, source.Info{Time: time.Now().UnixNano()}) == nil {
		t.Error("an ended context was not noticed")
	}
	for _, mtime := range []int64{0, 1, time.Now().Add(time.Hour).UnixNano()} {
		if err := source.Settle(ctx, source.Info{Time: mtime}); err != nil { // would take too long otherwise
			t.Fatal(err)
		}
	}
}
