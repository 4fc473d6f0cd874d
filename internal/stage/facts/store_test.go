package facts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
)

var ctx = context.Background()

// small are limits at which little data goes through everything: parts of a few facts,
// merges of a few files, and parts of the dead taken over at once.
var small = limits{
	queue: 4 << 10, facts: 8, bytes: 2 << 10, age: 5 * time.Millisecond,
	tick: time.Millisecond, look: 2 * time.Millisecond, orphan: 0, fan: 3,
}

const plenty = 1 << 30

func key(n int) Key { return Key{File: uint64(n) * 77, Offset: int64(n) * 1000, Length: 999} }

// fact is a function of its key and version, of up to 300 bytes.
func fact(k Key, version int) []byte {
	h := fnv.New64a()
	fmt.Fprint(h, k, version)
	sum := h.Sum64()
	f := make([]byte, sum%300)
	for i := range f {
		f[i] = byte(sum >> (i % 57))
	}
	return append(f, byte(version))
}

type opened struct {
	*Store
	t       testing.TB
	mu      sync.Mutex
	notices []string
}

func (o *opened) told() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.notices)
}

func openWith(t testing.TB, d disk, o Options, lim limits) *opened {
	t.Helper()
	st := &opened{t: t}
	o.Notice = func(text string) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.notices = append(st.notices, text)
	}
	s, err := open(d, "test", o, lim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	st.Store = s
	return st
}

func openSmall(t testing.TB, dir string) *opened {
	return openWith(t, disk{dir: dir}, Options{Limit: plenty}, small)
}

func (o *opened) flush() {
	o.t.Helper()
	if err := o.Flush(ctx); err != nil {
		o.t.Fatal(err)
	}
}

func (o *opened) add(from, to, version int) {
	o.t.Helper()
	err := o.Add(ctx, func(yield func(Key, []byte) bool) {
		for i := from; i < to; i++ {
			if !yield(key(i), fact(key(i), version)) {
				return
			}
		}
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *opened) has(from, to, version int) {
	o.t.Helper()
	for i := from; i < to; i++ {
		if got, ok := o.Append([]byte("x"), key(i)); !ok || !bytes.Equal(got[1:], fact(key(i), version)) {
			o.t.Fatalf("fact %d: %v, %q", i, ok, got)
		}
	}
}

func (o *opened) close() {
	o.t.Helper()
	if err := o.Close(); err != nil {
		o.t.Fatal(err)
	}
}

// eventually waits for what a store does on its own.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("not in a minute: %s", what)
}

func names(t testing.TB, dir, ext string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*"+ext))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := openSmall(t, dir)
	if _, ok := s.Append(nil, key(1)); ok {
		t.Error("a fact in an empty store")
	}
	s.add(0, 100, 1)
	s.has(0, 100, 1)
	s.add(50, 60, 2)
	s.has(0, 50, 1)
	s.has(50, 60, 2)
	s.has(60, 100, 1)
	s.add(0, 50, 1) // known
	for i := range 110 {
		s.Ahead(key(i))
	}
	if out, ok := s.Append([]byte("kept"), key(100)); ok || string(out) != "kept" {
		t.Errorf("%q %v", out, ok)
	}
	if n := s.Counts(); n.Put != 110 || n.Known != 50 || n.Dropped != 0 || n.Refused != 0 || n.Damaged != 0 {
		t.Errorf("%+v", n)
	}
	s.close()
	s.close()
	s.Put(key(5), nil)
	s.Ahead(key(5))
	if _, ok := s.Append(nil, key(5)); ok {
		t.Error("a fact in a closed store")
	}
	if err := s.Flush(ctx); err != nil {
		t.Error(err)
	}
	if left := append(names(t, dir, partExt), names(t, dir, mergeExt)...); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	again := openSmall(t, dir)
	again.has(0, 50, 1)
	again.has(50, 60, 2)
	if err := again.Merge(ctx); err != nil {
		t.Fatal(err)
	}
	again.close()
	last := openSmall(t, dir)
	last.has(50, 60, 2)
	if n := last.Counts(); n.Found != 100 || n.Files != 1 || len(names(t, dir, sealedExt)) != 1 {
		t.Errorf("%+v, files %q", n, names(t, dir, sealedExt))
	}
	if told := append(append(s.told(), again.told()...), last.told()...); len(told) > 0 {
		t.Errorf("%q", told)
	}
}

// The last version of a key that is put is the one that is found: within a part, over
// parts that are not sealed yet, and if it is one that was stored before.
func TestPutAgain(t *testing.T) {
	dir := t.TempDir()
	lim := quiet
	lim.tick = time.Millisecond
	s := openWith(t, disk{dir: dir}, Options{Limit: plenty}, lim)
	for v := range 1000 {
		s.Put(key(1), fact(key(1), v%200))
	}
	s.Put(key(1), fact(key(1), 1))
	s.flush()
	s.has(1, 2, 1)
	s.Put(key(1), fact(key(1), 2))
	eventually(t, "it is in a part", func() bool { return s.Counts().Put == 1002 })
	s.add(1, 2, 1)
	s.has(1, 2, 1)
	s.close()
	again := openSmall(t, dir)
	if n := again.Counts(); n.Found != 2 || n.Files != 2 { // one for each part
		t.Errorf("%+v", n)
	}

	sealing, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	lim.facts = 1
	s = openWith(t, disk{dir: dir, before: func(op, _, _ string, _ []byte) error {
		if op == "sync" {
			once.Do(func() { close(sealing); <-free })
		}
		return nil
	}}, Options{Limit: plenty}, lim)
	s.Put(key(1), fact(key(1), 2))
	<-sealing
	s.Put(key(1), fact(key(1), 1))
	eventually(t, "it is written, or known", func() bool { n := s.Counts(); return n.Put+n.Known == 2 })
	close(free)
	s.flush()
	s.has(1, 2, 1)
}

// A copy beside the data: everything, the newest of each, as one file.
func TestExport(t *testing.T) {
	from, to := openSmall(t, t.TempDir()), openSmall(t, t.TempDir())
	from.add(0, 300, 1)
	from.add(100, 200, 2)
	all := maps.Collect(func(yield func(Key, string) bool) {
		for k, f := range from.All() {
			if !yield(k, string(f)) {
				return
			}
		}
	})
	if len(all) != 300 || all[key(150)] != string(fact(key(150), 2)) || all[key(50)] != string(fact(key(50), 1)) {
		t.Errorf("%d facts", len(all))
	}
	for range from.All() {
		break
	}
	if err := to.Add(ctx, from.All()); err != nil {
		t.Fatal(err)
	}
	if err := to.Merge(ctx); err != nil {
		t.Fatal(err)
	}
	to.has(0, 100, 1)
	to.has(100, 200, 2)
	if n := to.Counts(); n.Put != 300 || n.Files != 1 {
		t.Errorf("%+v", n)
	}
}

// Two processes of one folder learn what the other learned, without being told.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	a, b := openSmall(t, dir), openSmall(t, dir)
	a.add(0, 10, 1)
	b.add(10, 20, 1)
	eventually(t, "each has the other's", func() bool { return a.found(0, 20, 1) == 20 && b.found(0, 20, 1) == 20 })
	b.add(0, 20, 2)
	eventually(t, "the later one replaces the earlier", func() bool {
		f, _ := a.Append(nil, key(5))
		return bytes.Equal(f, fact(key(5), 2))
	})
}

// A model: what a map says that was flushed is found, by whichever store; of the rest,
// what is found is a version that was put.
func TestModel(t *testing.T) {
	top := memory(t)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(top, "")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		limit := int64(plenty)
		if rapid.Bool().Draw(rt, "tight") {
			limit = rapid.Int64Range(0, 40<<10).Draw(rt, "limit")
		}
		lim := small
		lim.facts = rapid.IntRange(1, 40).Draw(rt, "facts")
		lim.fan = rapid.IntRange(2, 5).Draw(rt, "fan")
		notice := func(s string) {
			if limit == plenty || !strings.Contains(s, "fill their limit") {
				rt.Errorf("notice: %s", s)
			}
		}
		newStore := func() *Store {
			s, err := open(disk{dir: dir}, "test", Options{Limit: limit, Notice: notice}, lim)
			if err != nil {
				rt.Fatal(err)
			}
			return s
		}
		stores := []*Store{newStore(), newStore(), newStore()}
		defer func() {
			for _, s := range stores {
				_ = s.Close()
			}
		}()
		latest, sure := map[int]int{}, map[int]int{} // by key: versions that were put, and that are found
		version := 0
		get := func(s *Store, n int) int {
			f, ok := s.Append(nil, key(n))
			if !ok {
				return 0
			}
			v := int(f[len(f)-1])
			if !bytes.Equal(f, fact(key(n), v)) {
				rt.Fatalf("key %d: %q is not a fact of it", n, f)
			}
			return v
		}
		refused := func() (n int64) {
			for _, s := range stores {
				n += s.Counts().Refused
			}
			return n
		}
		mine := map[*Store]map[int]int{} // what a store put itself, and finds at once
		check := func(s *Store) {
			for n, v := range latest {
				got := get(s, n)
				for range 2000 { // what others put is found a moment later
					if got >= sure[n] && (limit < plenty || got == v || mine[s][n] == v) {
						break
					}
					time.Sleep(time.Millisecond)
					got = get(s, n)
				}
				switch {
				case got > v:
					rt.Fatalf("key %d: version %d, and %d was the last", n, got, v)
				case limit == plenty && got != v, got < sure[n] && refused() == 0:
					rt.Fatalf("key %d: version %d, and not %d", n, got, v)
				case got > 0:
					sure[n] = got
				case sure[n] > 0:
					rt.Fatalf("key %d was lost", n)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				s := stores[rapid.IntRange(0, 2).Draw(rt, "store")]
				from, n := rapid.IntRange(0, 60).Draw(rt, "from"), rapid.IntRange(1, 30).Draw(rt, "n")
				version = min(version+rapid.IntRange(0, 1).Draw(rt, "newer"), 250)
				version = max(version, 1)
				if mine[s] == nil {
					mine[s] = map[int]int{}
				}
				all := func(yield func(Key, []byte) bool) {
					for i := range n {
						latest[from+i] = version
						mine[s][from+i] = version
						if !yield(key(from+i), fact(key(from+i), version)) {
							return
						}
					}
				}
				if err := s.Add(ctx, all); err != nil {
					rt.Fatal(err)
				}
				check(s)
			},
			"merge": func(rt *rapid.T) {
				s := stores[rapid.IntRange(0, 2).Draw(rt, "store")]
				if err := s.Merge(ctx); err != nil {
					rt.Fatal(err)
				}
				check(s)
			},
			"reopen": func(rt *rapid.T) {
				i := rapid.IntRange(0, 2).Draw(rt, "i")
				if err := stores[i].Close(); err != nil {
					rt.Fatal(err)
				}
				refusals := stores[i].Counts().Refused
				stores[i] = newStore()
				stores[i].n.refused.Add(refusals)
				check(stores[i])
			},
			"all": func(rt *rapid.T) {
				seen := map[Key]bool{}
				for k, f := range stores[rapid.IntRange(0, 2).Draw(rt, "store")].All() {
					if v := int(f[len(f)-1]); seen[k] || !bytes.Equal(f, fact(k, v)) {
						rt.Fatalf("%v twice, or wrong", k)
					}
					seen[k] = true
				}
			},
		})
		if limit < plenty {
			var n int64
			for _, name := range append(names(t, dir, sealedExt), names(t, dir, partExt)...) {
				if fi, err := os.Stat(name); err == nil {
					n += fi.Size()
				}
			}
			// Three stores, each of which may not know yet what the others wrote.
			if n > limit+limit/8+3*12<<10 {
				rt.Fatalf("%d bytes, of %d", n, limit)
			}
		}
	})
}

func TestLimit(t *testing.T) {
	dir := t.TempDir()
	lim := small
	lim.fan = 1 << 20 // only the limit is a reason to merge
	s := openWith(t, disk{dir: dir}, Options{Limit: 64 << 10}, lim)
	s.add(0, 2000, 1)
	if err := s.Merge(ctx); err != nil { // while one runs, its result counts besides
		t.Fatal(err)
	}
	n := s.Counts()
	if n.Put == 0 || n.Refused == 0 || n.Put+n.Refused != 2000 || n.Bytes > 64<<10 {
		t.Fatalf("%+v", n)
	}
	found := int64(0)
	for i := range 2000 {
		if f, ok := s.Append(nil, key(i)); ok && bytes.Equal(f, fact(key(i), 1)) {
			found++
		}
	}
	if found != n.Put {
		t.Errorf("%d of %d", found, n.Put)
	}
	s.has(0, 50, 1)
	// Replaced again and again, facts take no more room than once and an eighth.
	for v := 2; v < 12; v++ {
		s.add(0, 20, v)
		if err := s.Merge(ctx); err != nil {
			t.Fatal(err)
		}
		s.has(0, 20, v)
		s.has(20, 50, 1)
	}
	if now := s.Counts(); now.Put != n.Put+200 || now.Bytes > 73<<10 {
		t.Errorf("%+v, then %+v", n, now)
	}
	// Nor does that wait for anybody who asks for a merge.
	for v := 12; v < 60; v++ {
		eventually(t, "replaced facts give back their room", func() bool {
			s.add(0, 20, v)
			all := true
			for i := range 20 {
				f, _ := s.Append(nil, key(i))
				all = all && bytes.Equal(f, fact(key(i), v))
			}
			return all
		})
		s.has(20, 50, 1)
	}
	none := openWith(t, disk{dir: t.TempDir()}, Options{}, small)
	none.add(0, 10, 1)
	if n := none.Counts(); n.Refused != 10 || len(names(t, none.d.dir, "")) > 0 {
		t.Errorf("%+v", n)
	}
}

// A queue that is full drops, and closing writes what is in it.
func TestCloseWithAFullQueue(t *testing.T) {
	lim := small
	lim.tick, lim.look, lim.age = time.Hour, time.Hour, time.Hour
	dir := t.TempDir()
	var slow sync.Mutex
	slow.Lock()
	s := openWith(t, disk{dir: dir, before: func(op, _, _ string, _ []byte) error {
		slow.Lock() // no write is made until the queue is full
		defer slow.Unlock()
		return nil
	}}, Options{Limit: plenty}, lim)
	for i := range 1000 {
		s.Put(key(i), fact(key(i), 1))
	}
	slow.Unlock()
	s.close()
	n := s.Counts()
	if n.Put == 0 || n.Dropped == 0 || n.Put+n.Dropped != 1000 {
		t.Errorf("%+v", n)
	}
	again := openSmall(t, dir)
	found := int64(0)
	for i := range 1000 {
		if f, ok := again.Append(nil, key(i)); ok {
			if found++; !bytes.Equal(f, fact(key(i), 1)) {
				t.Errorf("fact %d: %q", i, f)
			}
		}
	}
	if found != n.Put {
		t.Errorf("%d of %d", found, n.Put)
	}
}

func TestSizes(t *testing.T) {
	s := openWith(t, disk{dir: t.TempDir()}, Options{Limit: plenty}, usual)
	sizes := []int{0, 1, 7, 8, 9, 4095, 4096, 1<<18 - 41, MaxFact}
	big := bytes.Repeat([]byte("0123456789"), MaxFact/10+1)
	err := s.Add(ctx, func(yield func(Key, []byte) bool) {
		for _, n := range sizes {
			yield(key(n), big[:n])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Put(key(-1), big)
	for _, n := range sizes {
		if f, ok := s.Append(nil, key(n)); !ok || !bytes.Equal(f, big[:n]) {
			t.Errorf("a fact of %d bytes: %v, %d bytes", n, ok, len(f))
		}
	}
	if n := s.Counts(); n.Dropped != 1 || n.Put != int64(len(sizes)) {
		t.Errorf("%+v", n)
	}
}

func TestKinds(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"", "A", "a/b", "a.b", "-a", strings.Repeat("k", 49)} {
		if _, err := Open(dir, kind, Options{}); errs.CodeOf(err) != errs.Config {
			t.Errorf("kind %q: %v", kind, err)
		}
	}
	a, err := Open(dir, "jpeg-1", Options{Limit: plenty})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Open(dir, "jpeg-12", Options{Limit: plenty})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a.Put(key(1), []byte("a"))
	b.Put(key(1), []byte("b"))
	if err := errors.Join(a.Flush(ctx), b.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
	fa, _ := a.Append(nil, key(1))
	fb, _ := b.Append(nil, key(1))
	if string(fa) != "a" || string(fb) != "b" {
		t.Errorf("%q %q", fa, fb)
	}
}

// Many goroutines read while others write and everything is merged under them.
func TestReadersAndWriters(t *testing.T) {
	s := openSmall(t, t.TempDir())
	other := openSmall(t, s.d.dir)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			var buf []byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				for range 50 {
					k := key(r.IntN(400))
					s.Ahead(k)
					f, ok := s.Append(buf[:0], k)
					if ok && !bytes.Equal(f, fact(k, int(f[len(f)-1]))) {
						t.Errorf("%v: %q", k, f)
						return
					}
					buf = f
				}
			}
		})
	}
	for v := range 10 {
		for i := range 400 {
			s.Put(key(i), fact(key(i), v))
			other.Put(key(i), fact(key(i), v))
		}
		s.flush()
	}
	other.flush()
	s.add(0, 400, 20)
	if err := s.Merge(ctx); err != nil {
		t.Error(err)
	}
	s.has(0, 400, 20)
	close(stop)
	wg.Wait()
	s.close()
	other.close()
}

func TestNoDescriptorsAreLeft(t *testing.T) {
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	maps := func() int {
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(b, []byte(sealedExt)) + bytes.Count(b, []byte(partExt))
	}
	before := count()
	s := openSmall(t, t.TempDir())
	s.add(0, 500, 1)
	eventually(t, "descriptors of mapped files are closed", func() bool { return count() <= before+1 })
	s.close()
	if now := count(); now > before || maps() > 0 {
		t.Errorf("%d descriptors, %d before; %d mappings", now, before, maps())
	}
}
