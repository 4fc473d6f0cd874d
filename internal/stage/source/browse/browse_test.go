package browse_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/bucket"
)

// over is a Browser of a store with these objects, which are numbered, and local files.
func over(t *testing.T, s *bucket.Store) *browse.Browser {
	t.Helper()
	b := browse.New(t.Context(), mux.New([]source.Scheme{source.Local(), s.Scheme()}, source.Access{}), nil)
	t.Cleanup(b.End)
	return b
}

func TestBrowserIsASource(t *testing.T) {
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		s := bucket.New()
		var b *browse.Browser
		put := func(name string, data []byte) {
			s.Put("mem://b/"+name, data)
			if b != nil {
				b.End() // what it remembers is of one opening, in which nothing changes
			}
		}
		for name, data := range objects {
			put(name, data)
		}
		b = over(t, s)
		return b, "mem://b/", put
	})
}

// Names are looked at by one listing of their folder where that is less than a request
// each, whether by braces or one by one; a few, or a few of very many, are not.
func TestListingsAreAskedOnce(t *testing.T) {
	s := bucket.New()
	for i := range 1000 {
		s.Put(fmt.Sprintf("mem://b/train/%03d.tar", i), []byte{1})
	}
	for i := range 20_000 {
		s.Put(fmt.Sprintf("mem://b/many/%06d.jpg", i), []byte{1})
	}
	var list []string
	for i := range 1000 {
		list = append(list, fmt.Sprintf("mem://b/train/%03d.tar", i))
	}
	for _, c := range []struct {
		name     string
		patterns []string
		found    int
		most     bucket.Calls
	}{
		{"braces", []string{"mem://b/train/{000..999}.tar"}, 1000, bucket.Calls{Lists: 1}},
		{"a list", list, 1000, bucket.Calls{Lists: 1}},
		{"two", []string{"mem://b/train/{000..001}.tar"}, 2, bucket.Calls{Stats: 3, Lists: 1}},
		{"the last of many", []string{"mem://b/many/{019997..019999}.jpg"}, 3, bucket.Calls{Stats: 4, Lists: 2}},
		{"letters", []string{"mem://b/many/01999*.jpg"}, 10, bucket.Calls{Stats: 1, Lists: 1}},
		{"all", []string{"mem://b/many/*"}, 20_000, bucket.Calls{Stats: 1, Lists: 20}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := over(t, s)
			s.Calls()
			found, err := pattern.Expand(t.Context(), b, c.patterns)
			stagetest.Must(t, err)
			if len(found) != c.found || !slices.IsSorted(found) {
				t.Errorf("%d names: %q ...", len(found), found[:min(3, len(found))])
			}
			if got := s.Calls(); got.Stats > c.most.Stats || got.Lists > c.most.Lists || got.Reads > 0 {
				t.Errorf("%+v", got)
			}
			stats := 0
			stagetest.Must(t, source.Stats(t.Context(), b, found[:min(len(found), 1000)], func(_ int, st source.Info, err error) error {
				if stats++; err != nil || st.Size != 1 || st.Version == "" {
					t.Errorf("%+v, %v", st, err)
				}
				return nil
			}))
			if got := s.Calls(); (c.name == "braces" || c.name == "letters") && got.All() > 0 || stats != min(len(found), 1000) {
				t.Errorf("looking at %d names again: %+v", stats, got)
			}
		})
	}
}

// Of a folder whose keys were all listed, nothing is asked that the listing says: neither of
// a name that is not there, nor of one in a folder that is not.
func TestWhatAListingLacksIsMissing(t *testing.T) {
	s := bucket.New()
	for i := range 10 {
		s.Put(fmt.Sprintf("mem://b/train/%03d.tar", i), []byte{1})
	}
	b := over(t, s)
	_, err := pattern.Expand(t.Context(), b, []string{"mem://b/train/{000..009}.tar"})
	stagetest.Must(t, err)
	s.Calls()
	for _, name := range []string{"mem://b/train/manifest.json", "mem://b/train/.pack/plan.json", "mem://b/train/0000/x"} {
		_, err := b.Stat(t.Context(), name)
		if e := errs.From(err); errs.CodeOf(err) != errs.NotFound || e.Where.File != name || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := s.Calls(); c.All() > 0 {
		t.Errorf("%+v", c)
	}
	if _, err := b.Stat(t.Context(), "mem://b/other/000.tar"); errs.CodeOf(err) != errs.NotFound || s.Calls().Stats == 0 {
		t.Errorf("a folder that was not listed: %v", err)
	}
}

// What is missing is missing whether a listing or a request says so, and the first of many
// is named.
func TestMissingOfMany(t *testing.T) {
	s := bucket.New()
	for i := range 500 {
		s.Put(fmt.Sprintf("mem://b/train/%03d.tar", i), nil)
	}
	b := over(t, s)
	_, err := pattern.Expand(t.Context(), b, []string{"mem://b/train/{000..999}.tar"})
	e := errs.From(err)
	if e.Code != errs.NotFound || !strings.Contains(e.What, "500 of the 1000") || !strings.Contains(e.What, "train/500.tar") || !strings.Contains(e.Hint, "has 500 entries: 000.tar") {
		t.Errorf("%v | %s", err, e.Hint)
	}
	if c := s.Calls(); c.All() > 60 {
		t.Errorf("%+v", c)
	}
	if _, err := b.Stat(t.Context(), "mem://b/train/777.tar"); errs.CodeOf(err) != errs.NotFound || errs.From(err).Where.File != "mem://b/train/777.tar" {
		t.Errorf("%v at %v", err, errs.From(err).Where)
	}
	if st, err := b.Stat(t.Context(), "mem://b/train"); err != nil || !st.Dir {
		t.Errorf("%+v, %v", st, err)
	}
}

// ** is one flat listing, and finds what a walk of local folders finds.
func TestFlatGlobs(t *testing.T) {
	dir := t.TempDir()
	s := bucket.New()
	for _, name := range []string{
		"a/x-1.tar", "a/b/x-2.tar", "a/b/c/x-3.tar", "a/b/c/y.tar", "a/.hidden/x-4.tar", "a/b/.x-5.tar", "a/b.tar", "a/b.tar.d/x-6.tar", "a/b-c/d/x-7.tar", "z/x-8.tar", "a/x-d/deep/q",
	} {
		stagetest.Put(t, dir+"/"+name, []byte(name))
		s.Put("mem://b/"+name, []byte(name))
	}
	for _, given := range []string{
		"**", "a/**", "a/**/x-*.tar", "**/x-*.tar", "**/b/**/x-*", "*/**/*.tar", "a/**/c/*", "a/**/.x-*", "a/**/b*", "**/x-*", "a/b/**", "a/**/nothing", "a/x-[0-9].tar", "a/*/x-?.tar", "a/**/d", "a/[!b]*",
	} {
		here, errHere := pattern.Expand(t.Context(), source.NewFile(), []string{dir + "/" + given})
		b := over(t, s)
		s.Calls()
		there, err := pattern.Expand(t.Context(), b, []string{"mem://b/" + given})
		if (errHere == nil) != (err == nil) {
			t.Errorf("%s: %v; of local files %v", given, err, errHere)
			continue
		}
		for i := range here {
			here[i] = strings.TrimPrefix(here[i], dir)
		}
		for i := range there {
			there[i] = strings.TrimPrefix(there[i], "mem://b")
		}
		if !slices.Equal(here, there) {
			t.Errorf("%s: %q; of local files %q", given, there, here)
		}
		if c := s.Calls(); strings.HasPrefix(given, "a/**") && err == nil && c.All() > 2 {
			t.Errorf("%s: %+v", given, c)
		}
	}
}

// Reads through a Browser are the bytes of the object, in whatever order they are asked
// for and by however many.
func TestAheadReadsWhatIsThere(t *testing.T) {
	s := bucket.New()
	s.Reach = source.Link{Gap: 300 << 10, Part: 1 << 20, Conns: 4}
	data := make([]byte, 9<<20+12345)
	for i := range data {
		data[i] = byte(i*2654435761>>7 + i>>16)
	}
	s.Put("mem://b/x", data)
	b := over(t, s)
	obj, err := b.Stat(t.Context(), "mem://b/x")
	stagetest.Must(t, err)
	check := func(off, n int) {
		p := make([]byte, n)
		if err := b.ReadAt(t.Context(), obj, p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+n]) {
			t.Errorf("%d bytes at %d: other bytes, or %v", n, off, err)
		}
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			at := 0
			for range 300 {
				n := 1 + rng.IntN(4096)
				switch rng.IntN(12) {
				case 0:
					at = rng.IntN(len(data))
				case 1:
					n = rng.IntN(3 << 20)
				case 2:
					at += rng.IntN(500 << 10)
				}
				at %= len(data)
				n = min(n, len(data)-at)
				check(at, n)
				at += n
			}
		})
	}
	wg.Wait()
	for at := 0; at < len(data); at += 100_000 {
		check(at, min(100_000, len(data)-at))
	}
	s.Put("mem://b/x", data[1:])
	if err := browse.New(t.Context(), s, nil).ReadAt(t.Context(), obj, make([]byte, 10), 5); errs.CodeOf(err) != errs.Changed {
		t.Errorf("of an object that was replaced: %v", err)
	}
}

// Reading in order asks for long ranges, several at once, and for each byte once; steps
// longer than the gap are stepped over.
func TestAheadReadsLongRanges(t *testing.T) {
	const size = 64 << 20
	s := bucket.New()
	s.Reach = source.Link{Gap: 1 << 20, Part: 4 << 20, Conns: 16}
	s.Put("mem://b/x", make([]byte, size))
	read := func(step, n int64) bucket.Calls {
		b := over(t, s)
		obj, err := b.Stat(t.Context(), "mem://b/x")
		stagetest.Must(t, err)
		s.Calls()
		for at := int64(0); at+n <= size; at += step {
			stagetest.Must(t, b.ReadAt(t.Context(), obj, make([]byte, n), at))
		}
		b.End()
		return s.Calls()
	}
	if c := read(110<<10, 4<<10); c.Reads > 22 || c.Bytes > size {
		t.Errorf("small steps: %+v", c)
	}
	if c := read(1<<20, 1<<20); c.Reads > 22 || c.Bytes > size+1<<20 {
		t.Errorf("no steps: %+v", c)
	}
	if c := read(4<<20, 4<<10); c.Reads != 16 || c.Bytes > size/20 {
		t.Errorf("long steps: %+v", c)
	}
	if c := read(size, size); c.Reads > 20 || c.Bytes != size {
		t.Errorf("all at once: %+v", c)
	}
}

// As many objects as Width lets read at once are read ahead of, and each byte once.
func TestAheadOfManyObjects(t *testing.T) {
	const n, size = 64, 1 << 20
	s := bucket.New()
	s.Reach = source.Link{Gap: 64 << 10, Part: 256 << 10, Conns: n}
	for i := range n {
		s.Put(fmt.Sprintf("mem://b/%02d", i), make([]byte, size))
	}
	b := over(t, s)
	width := source.Width(b, "mem://b/00")
	if width != n {
		t.Fatalf("%d are read at once", width)
	}
	objs := make([]source.Info, n)
	for i := range objs {
		var err error
		objs[i], err = b.Stat(t.Context(), fmt.Sprintf("mem://b/%02d", i))
		stagetest.Must(t, err)
	}
	s.Calls()
	for at := int64(0); at < size; at += 16 << 10 { // in turn: none is ahead of another
		stagetest.Must(t, source.Each(t.Context(), width, n, func(i int) error { return b.ReadAt(t.Context(), objs[i], make([]byte, 16<<10), at) }))
	}
	b.End()
	if c := s.Calls(); c.Reads > 8*n || c.Bytes > n*size {
		t.Errorf("%d requests, %d bytes of %d", c.Reads, c.Bytes, n*size)
	}
}

// What was requested early is counted until somebody asks for it, and those who no longer
// read give it up for those who do.
func TestAheadIsBounded(t *testing.T) {
	const n, part, size = 16, 256 << 10, 8 << 20
	s := bucket.New()
	s.Reach = source.Link{Gap: 64 << 10, Part: part, Conns: n}
	for i := range n + 1 {
		s.Put(fmt.Sprintf("mem://b/%02d", i), make([]byte, size))
	}
	b := over(t, s)
	stat := func(i int) source.Info {
		obj, err := b.Stat(t.Context(), fmt.Sprintf("mem://b/%02d", i))
		stagetest.Must(t, err)
		return obj
	}
	objs := make([]source.Info, n+1)
	for i := range objs {
		objs[i] = stat(i)
	}
	s.Calls()
	const begun = 64<<10 + 2*part // of each object; what follows is requested early
	for _, obj := range objs[:n] {
		for at := int64(0); at < begun; at += 32 << 10 {
			stagetest.Must(t, b.ReadAt(t.Context(), obj, make([]byte, 32<<10), at))
		}
	}
	var c bucket.Calls
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		more := s.Calls()
		if c.Reads += more.Reads; more.Reads == 0 {
			break // what was requested has come
		}
		c.Bytes += more.Bytes
	}
	if early := (c.Bytes - n*begun) / part; early < n/2 || early > n {
		t.Errorf("%d parts are in memory that nobody asked for", early)
	}
	s.Latency = 5 * time.Millisecond
	s.Calls()
	for at := int64(0); at < size; at += 4 << 10 {
		stagetest.Must(t, b.ReadAt(t.Context(), objs[n], make([]byte, 4<<10), at))
	}
	if c := s.Calls(); c.Most < 3 || c.Bytes > size {
		t.Errorf("with others that no longer read: %d requests at once, %d bytes", c.Most, c.Bytes)
	}
}

// A range that nobody asked for fails nobody who asks for another, and an end is heeded.
func TestAheadPassesOnErrors(t *testing.T) {
	s := bucket.New()
	s.Put("mem://b/x", make([]byte, 8<<20))
	b := over(t, s)
	obj, err := b.Stat(t.Context(), "mem://b/x")
	stagetest.Must(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := b.ReadAt(ended, obj, make([]byte, 10), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	stagetest.Must(t, b.ReadAt(t.Context(), obj, make([]byte, 10), 0))
	b.End()
	stagetest.Must(t, b.ReadAt(t.Context(), obj, make([]byte, 10), 1<<20))
	if c := s.Calls(); c.Of["mem://b/x"].Reads < 2 {
		t.Errorf("%+v", c)
	}
}

// Listings tell how far they are.
func TestListingsTellProgress(t *testing.T) {
	s := bucket.New()
	s.Latency = time.Millisecond
	for i := range 5000 {
		s.Put(fmt.Sprintf("mem://b/%d/%04d", i/100, i), nil)
	}
	var told []int64
	b := browse.New(t.Context(), s, func(n int64) { told = append(told, n) })
	defer b.End()
	found, err := pattern.Expand(t.Context(), b, []string{"mem://b/*/*"})
	stagetest.Must(t, err)
	if len(found) != 5000 || len(told) != 5 || !slices.IsSorted(told) {
		t.Errorf("%d names, and %d was told", len(found), told)
	}
	if c := s.Calls(); c.Most < 2 || c.Most > 16 {
		t.Errorf("%d at once", c.Most)
	}
}
