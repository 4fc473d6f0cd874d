package facts

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

func flip(t testing.TB, name string, at int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 4
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func sized(t testing.TB, name string) int64 {
	t.Helper()
	fi, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

var quiet = limits{queue: 1 << 20, facts: 1 << 20, bytes: 1 << 30, age: time.Hour, tick: time.Hour, look: time.Hour, orphan: time.Hour, fan: 1 << 20}

// memory is a folder of files in memory, if there can be one, for tests in which syncs
// prove nothing.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "facts")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// one is a folder with one file of facts 0 to 100, in version 1.
func one(t testing.TB) (dir, name string) {
	t.Helper()
	dir = memory(t)
	s := openWith(t, disk{dir: dir}, Options{Limit: plenty}, quiet)
	s.add(0, 100, 1)
	s.close()
	return dir, names(t, dir, sealedExt)[0]
}

func TestDamage(t *testing.T) {
	for what, damage := range map[string]func(t testing.TB, name string){
		"a flipped bit of the header": func(t testing.TB, name string) { flip(t, name, 20) },
		"of the table":                func(t testing.TB, name string) { flip(t, name, sized(t, name)-200) },
		"of the footer":               func(t testing.TB, name string) { flip(t, name, sized(t, name)-60) },
		"cut":                         func(t testing.TB, name string) { _ = os.Truncate(name, sized(t, name)/2) },
		"empty":                       func(t testing.TB, name string) { _ = os.Truncate(name, 0) },
		"zeros":                       func(t testing.TB, name string) { _ = os.WriteFile(name, make([]byte, 5000), 0o600) },
		"something else":              func(t testing.TB, name string) { _ = os.WriteFile(name, bytes.Repeat([]byte("else"), 50), 0o600) },
		"a later version": func(t testing.TB, name string) {
			b, _ := os.ReadFile(name)
			b[8] = 2
			_ = os.WriteFile(name, b, 0o600)
		},
		"of another kind": func(t testing.TB, name string) {
			b, _ := os.ReadFile(name)
			copy(b, header("other"))
			_ = os.WriteFile(name, b, 0o600)
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir, name := one(t)
			damage(t, name)
			before, _ := os.ReadFile(name)
			if s, err := open(disk{dir: dir}, "test", Options{Limit: plenty, Named: true}, quiet); err == nil {
				_ = s.Close()
				t.Error("no error of a store that the user named")
			} else if c := errs.CodeOf(err); c != errs.Damaged && (c != errs.Incompatible || what != "a later version") {
				t.Error(err)
			}
			s := openWith(t, disk{dir: dir}, Options{Limit: plenty}, quiet)
			if f, ok := s.Append(nil, key(1)); ok && !bytes.Equal(f, fact(key(1), 1)) { // if it is taken over already
				t.Errorf("%q", f)
			}
			s.add(200, 210, 1)
			s.add(0, 100, 1)
			s.has(0, 100, 1)
			if told := s.told(); len(told) != 1 || !strings.Contains(told[0], name) || s.Counts().Damaged != 1 {
				t.Errorf("%q, %+v", told, s.Counts())
			}
			s.close()
			// A merge takes over what is whole, and removes the file if it was ours.
			m := openSmall(t, dir)
			if err := m.Merge(ctx); err != nil {
				t.Fatal(err)
			}
			m.has(0, 100, 1)
			m.has(200, 210, 1)
			after, err := os.ReadFile(name)
			switch what {
			case "something else", "a later version", "of another kind":
				if err != nil || !bytes.Equal(before, after) {
					t.Error("a file that is not ours was touched")
				}
			default:
				if err == nil {
					t.Error("the damaged file is there still")
				}
			}
		})
	}
}

// A merge rescues the records of a file whose table is damaged.
func TestRescue(t *testing.T) {
	dir, name := one(t)
	flip(t, name, sized(t, name)-200)
	s := openSmall(t, dir)
	eventually(t, "the file is merged", func() bool { return s.Counts().Merges > 0 && s.found(0, 100, 1) == 100 })
	if names := names(t, dir, sealedExt); len(names) != 1 || names[0] == name {
		t.Errorf("%q", names)
	}
}

// What processes left: a part of a later version, or of another kind, stays; what is empty
// or has only the beginning of a header goes. Merges that are not under way go after an hour.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	later := header("test")
	later[8] = 2
	old, young := "test-00000000000000aa.tmp", "test-00000000000000bb.tmp"
	for name, data := range map[string][]byte{
		"test-0000000000000001.part": later, "test-0000000000000002.part": header("other"),
		"test-0000000000000003.part": nil, "test-0000000000000004.part": header("test")[:30], "test-0000000000000005.part": header("test"),
		"test-0000000000000006.part": append(header("test"), "broken"...),
		old:                          nil, young: nil,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, old), then, then); err != nil {
		t.Fatal(err)
	}
	s := openSmall(t, dir)
	eventually(t, "two parts are left", func() bool { return len(names(t, dir, partExt)) == 2 })
	eventually(t, "one merge is left", func() bool { return len(names(t, dir, mergeExt)) == 1 })
	s.add(0, 10, 1)
	s.has(0, 10, 1)
	s.close()
	want := []string{filepath.Join(dir, "test-0000000000000001.part"), filepath.Join(dir, "test-0000000000000002.part")}
	if left := names(t, dir, partExt); !slices.Equal(left, want) || names(t, dir, mergeExt)[0] != filepath.Join(dir, young) {
		t.Errorf("left are %q, %q", left, names(t, dir, mergeExt))
	}
	if told := s.told(); len(told) != 2 {
		t.Errorf("%q", told)
	}
}

// Both files of a merge that did not end are removed, also if there is nothing to merge.
func TestMergesThatDidNotEnd(t *testing.T) {
	dir, _ := one(t)
	s := openWith(t, disk{dir: dir, before: func(op, name, _ string, _ []byte) error {
		if filepath.Ext(name) == mergeExt && (op == "rename" || op == "remove") { // as if it had been killed
			return unix.EIO
		}
		return nil
	}}, Options{Limit: plenty}, quiet)
	s.add(100, 110, 1)
	_ = s.Merge(ctx)
	s.close()
	left := names(t, dir, mergeExt)
	if len(left) != 2 {
		t.Fatalf("%q", left)
	}
	then := time.Now().Add(-2 * time.Hour)
	for _, name := range left {
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names(t, dir, sealedExt)[1:] {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	s = openSmall(t, dir)
	eventually(t, "what a merge left is removed", func() bool { return len(names(t, dir, mergeExt)) == 0 })
	if told := s.told(); len(told) > 0 || len(names(t, dir, sealedExt)) != 1 {
		t.Errorf("%q, %q", told, names(t, dir, sealedExt))
	}
}

// A damaged record is not found, all others are, and another takes its place.
func TestDamagedRecord(t *testing.T) {
	dir, name := one(t)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	off := int64(bytes.Index(b, fact(key(7), 1)))
	flip(t, name, off+3)
	s := openWith(t, disk{dir: dir}, Options{Limit: plenty}, quiet)
	if out, ok := s.Append([]byte("kept"), key(7)); ok || string(out) != "kept" {
		t.Errorf("%q", out)
	}
	s.has(0, 7, 1)
	s.has(8, 100, 1)
	s.add(7, 8, 1)
	s.has(0, 100, 1)
	if told := s.told(); len(told) != 1 || s.Counts().Put != 1 {
		t.Errorf("%q, %+v", told, s.Counts())
	}
}

// Somebody truncates a file that is mapped: no fault ends the process.
func TestTruncatedWhileMapped(t *testing.T) {
	dir := t.TempDir()
	lim := quiet
	lim.bytes = 1 << 30
	s := openWith(t, disk{dir: dir}, Options{Limit: plenty}, lim)
	s.add(0, 1000, 1)
	s.add(1000, 1010, 1)
	all := names(t, dir, sealedExt)
	slices.SortFunc(all, func(a, b string) int { return int(sized(t, b) - sized(t, a)) })
	if err := os.Truncate(all[0], 100); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		s.Ahead(key(i))
		if f, ok := s.Append(nil, key(i)); ok && !bytes.Equal(f, fact(key(i), 1)) {
			t.Errorf("fact %d: %q", i, f)
		}
	}
	s.has(1000, 1010, 1)
	n := 0
	for range s.All() {
		n++
	}
	if err := s.Merge(ctx); err != nil {
		t.Fatal(err)
	}
	s.has(1000, 1010, 1)
	if told := s.told(); len(told) != 1 || n < 10 {
		t.Errorf("%q, %d facts", told, n)
	}
}

// A fault in the assembly of a checksum is caught too.
func TestTruncatedWhileChecked(t *testing.T) {
	_, name := one(t)
	data, err := mapped(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	if err := os.Truncate(name, 0); err != nil {
		t.Fatal(err)
	}
	if guarded(func() { _, _ = parse(data, "test", 0) }) || guarded(func() { whole(data, 0) }) || guarded(func() { crc32.Update(0, castagnoli, data) }) {
		t.Error("no fault")
	}
}

func TestCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	others, _ := one(t)
	if err := os.Chown(others, 12345, -1); err != nil {
		others = ""
	}
	for _, dir := range []string{file + "/below", others} {
		if dir == "" {
			continue // only root can give a folder to somebody else
		}
		if _, err := open(disk{dir: dir}, "test", Options{Limit: plenty, Named: true}, small); errs.CodeOf(err) != errs.Unreadable {
			t.Errorf("%s: %v", dir, err)
		}
		s := openSmall(t, dir)
		s.add(100, 110, 1)
		s.Put(key(200), nil)
		if dir == others {
			s.has(0, 100, 1)
		}
		if told, n := s.told(), s.Counts(); len(told) != 1 || !strings.Contains(told[0], "STOKER_CACHE") || n.Dropped != 11 || n.Put != 0 {
			t.Errorf("%q, %+v", told, n)
		}
		if dir == others && len(names(t, dir, "")) != 1 {
			t.Errorf("%q", names(t, dir, ""))
		}
	}
}

// Every change of the folder fails in turn, and all after it: what was there is found,
// what is found is right, one notice says so, and nothing is left open.
func TestFaults(t *testing.T) {
	for _, why := range []error{unix.ENOSPC, unix.EIO, unix.EROFS} {
		for _, op := range []string{"create", "write", "sync", "rename", "remove", "lock"} {
			for nth := 1; nth <= 4; nth++ {
				dir, _ := one(t)
				var mu sync.Mutex
				seen := 0
				broken := func(o, _, _ string, _ []byte) error {
					mu.Lock()
					defer mu.Unlock()
					if o == op {
						seen++
					}
					if o == op && seen >= nth {
						return why
					}
					return nil
				}
				s := openWith(t, disk{dir: dir, before: broken}, Options{Limit: plenty}, small)
				for from := 100; from < 160; from += 20 {
					s.add(from, from+20, 1)
				}
				_ = s.Merge(ctx)
				s.has(0, 100, 1)
				for i := 100; i < 160; i++ {
					if f, ok := s.Append(nil, key(i)); ok && !bytes.Equal(f, fact(key(i), 1)) {
						t.Errorf("fact %d: %q", i, f)
					}
				}
				s.close()
				told := s.told()
				if len(told) > 2 || len(told) == 0 && seen >= nth {
					t.Errorf("%v, %s %d: %q", why, op, nth, told)
				}
				openSmall(t, dir).has(0, 100, 1)
				named, err := open(disk{dir: dir, before: broken}, "test", Options{Limit: plenty, Named: true}, small)
				if err != nil {
					continue
				}
				named.Put(key(1000), nil)
				err = named.Flush(ctx)
				if code := errs.CodeOf(err); (op == "create" || op == "write") && (errors.Is(why, unix.ENOSPC) && code != errs.Space || err == nil) {
					t.Errorf("%v, %s: %v", why, op, err)
				}
				_ = named.Close()
			}
		}
	}
}

func TestNoLocks(t *testing.T) {
	s := openWith(t, disk{dir: t.TempDir(), before: func(op, _, _ string, _ []byte) error {
		if op == "lock" {
			return unix.ENOLCK
		}
		return nil
	}}, Options{Limit: plenty}, small)
	s.add(0, 200, 1)
	_ = s.Merge(ctx)
	s.add(200, 400, 1)
	s.has(0, 400, 1)
	if told := s.told(); len(told) != 1 || !strings.Contains(told[0], "no locks") || s.Counts().Merges > 0 {
		t.Errorf("%q, %+v", told, s.Counts())
	}
}

func TestFlushEnds(t *testing.T) {
	stuck, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := openWith(t, disk{dir: t.TempDir(), before: func(op, _, _ string, _ []byte) error {
		if op == "write" {
			once.Do(func() { close(stuck); <-free })
		}
		return nil
	}}, Options{Limit: plenty}, small)
	s.Put(key(1), nil)
	<-stuck
	short, stop := context.WithCancel(ctx)
	stop()
	if err := s.Flush(short); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(free)
	s.flush()
	s.close()
}
