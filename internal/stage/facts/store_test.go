package facts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
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

	"golang.org/x/sys/unix"
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
	for range 5000 {
		if done() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("not in five seconds: %s", what)
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
	eventually(t, "each has the other's", func() bool {
		_, ok1 := a.Append(nil, key(15))
		_, ok2 := b.Append(nil, key(5))
		return ok1 && ok2
	})
	a.has(0, 20, 1)
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
		newStore := func() *Store {
			s, err := open(disk{dir: dir}, "test", Options{Limit: limit, Notice: func(s string) { rt.Errorf("notice: %s", s) }}, lim)
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
	eventually(t, "the file is merged", func() bool { return s.Counts().Merges > 0 })
	s.has(0, 100, 1)
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
