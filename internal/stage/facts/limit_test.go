package facts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// found is how many facts of a version there are.
func (o *opened) found(from, to, version int) (n int) {
	for i := from; i < to; i++ {
		if f, ok := o.Append(nil, key(i)); ok && bytes.Equal(f, fact(key(i), version)) {
			n++
		}
	}
	return n
}

// Replaced facts give back their room also if no new one was ever refused.
func TestReplacingAtTheLimit(t *testing.T) {
	lim := small
	lim.fan = 1 << 20 // only the limit is a reason to merge
	s := openWith(t, disk{dir: t.TempDir()}, Options{Limit: 64 << 10}, lim)
	s.add(0, 150, 1)
	if n := s.Counts(); n.Refused > 0 || n.Bytes < 32<<10 {
		t.Fatalf("%+v", n)
	}
	for v := 2; v < 30; v++ {
		eventually(t, "replaced facts are kept", func() bool {
			s.add(0, 150, v)
			return s.found(0, 150, v) == 150
		})
	}
	eventually(t, "the room is given back", func() bool { // for a moment, merged files and their inputs are counted
		n := s.Counts()
		return n.Merges > 0 && n.Bytes <= 73<<10
	})
}

// At the limit, facts that hold no more make room for others. The user is told once, if there
// is no room after that.
func TestFactsThatHoldNoMore(t *testing.T) {
	odd := func() func(uint64) bool { return func(file uint64) bool { return file%2 == 1 } }
	s := openWith(t, disk{dir: t.TempDir()}, Options{Limit: 64 << 10, What: "things", Holds: odd}, small)
	// All exceed the limit; the half that holds fits, also if facts are added while others are dropped.
	s.add(0, 350, 1) // key(n).File is odd if n is
	eventually(t, "facts that do not hold are gone", func() bool {
		s.add(100, 350, 1) // the room is needed; what came during a merge may have been refused
		return s.found(0, 100, 1) == 50
	})
	for i := 0; i < 100; i += 2 {
		if _, ok := s.Append(nil, key(i)); ok {
			t.Fatalf("fact %d of a file that is gone is there", i)
		}
	}
	eventually(t, "others are kept in their place", func() bool {
		s.add(2001, 2002, 1)
		return s.found(2001, 2002, 1) == 1
	})
	// If all hold, a single file is not written again and again.
	all := func() func(uint64) bool { return func(uint64) bool { return true } }
	s = openWith(t, disk{dir: t.TempDir()}, Options{Limit: 64 << 10, What: "things", Holds: all}, small)
	eventually(t, "it is full", func() bool {
		put := s.Counts().Put
		s.add(0, 1000, 1)
		if err := s.Merge(ctx); err != nil {
			t.Fatal(err)
		}
		return s.Counts().Put == put
	})
	before := names(t, s.d.dir, sealedExt)
	for range 20 {
		s.add(1001, 1002, 1)
		time.Sleep(2 * small.look)
	}
	if after := names(t, s.d.dir, sealedExt); len(before) != 1 || len(after) != 1 || before[0] != after[0] {
		t.Errorf("%q became %q", before, after)
	}
	if told := s.told(); len(told) != 1 || !strings.Contains(told[0], "things fill their limit of 65536 bytes") {
		t.Errorf("%q", told)
	}
}

// A file that the system does not open, for now, is neither damaged nor taken over.
func TestAFileThatDoesNotOpen(t *testing.T) {
	dir, name := one(t)
	var full atomic.Bool
	full.Store(true)
	busy := func(op, file, _ string, _ []byte) error {
		if op == "open" && file == filepath.Base(name) && full.Load() {
			return &os.PathError{Op: "open", Path: name, Err: unix.EMFILE}
		}
		return nil
	}
	s := openWith(t, disk{dir: dir, before: busy}, Options{Limit: plenty, What: "things"}, small)
	s.add(200, 260, 1)
	if err := s.Merge(ctx); err != nil {
		t.Fatal(err)
	}
	if told := s.told(); len(told) != 1 || !strings.HasPrefix(told[0], "a file of things cannot be read") {
		t.Errorf("%q", told)
	}
	if sized(t, name) == 0 || s.Counts().Damaged > 0 {
		t.Fatalf("%+v", s.Counts())
	}
	full.Store(false)
	eventually(t, "it is used", func() bool { return s.found(0, 100, 1) == 100 })
	s.has(200, 260, 1)
}

// A large file whose table is damaged loses nothing.
func TestALargeFileWithoutItsTable(t *testing.T) {
	const n = 70_000
	dir := memory(t)
	s := openWith(t, disk{dir: dir}, Options{Limit: plenty}, quiet)
	s.add(0, n, 1)
	s.close()
	all := names(t, dir, sealedExt)
	if len(all) != 1 {
		t.Fatalf("%q", all)
	}
	flip(t, all[0], sized(t, all[0])-1000)
	lim := quiet
	lim.look, lim.orphan = small.look, small.orphan
	s = openWith(t, disk{dir: dir}, Options{Limit: plenty}, lim)
	eventually(t, "all of it is taken over", func() bool { return s.found(n-100, n, 1) == 100 })
	s.has(0, n, 1)
	if told := s.told(); len(told) != 1 || !strings.Contains(told[0], "the checksum of its table is wrong") {
		t.Errorf("%q", told)
	}
}
