package loader

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/facts"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// model is a dataset and a store of entry points to which anything may happen.
type model struct {
	t      *testing.T
	rt     *rapid.T
	root   string
	sp     Spec
	photos [][]byte // of one size
	files  []string
	times  int64            // given to files so far
	plain  map[int64][]seen // batches of epochs of the dataset as it is, without entry points
	harmed bool             // files of the store were changed: there may be notices
}

func (m *model) newTime() time.Time {
	m.times++
	return time.Unix(1_600_000_000+m.times, 0)
}

// put writes a file of the dataset at one instant, as rsync does.
func (m *model) put(path string, photo int, when time.Time) {
	tmp := filepath.Join(filepath.Dir(m.root), "tmp.jpg")
	writeFile(m.t, tmp, m.photos[photo])
	if err := errors.Join(os.Chtimes(tmp, when, when), os.MkdirAll(filepath.Dir(path), 0o755), os.Rename(tmp, path)); err != nil {
		m.rt.Fatal(err)
	}
	clear(m.plain)
}

func (m *model) anyPhoto() int   { return rapid.IntRange(0, len(m.photos)-1).Draw(m.rt, "photo") }
func (m *model) anyFile() string { return rapid.SampledFrom(m.files).Draw(m.rt, "file") }

func (m *model) add() {
	path := filepath.Join(m.root, fmt.Sprint("class", len(m.files)%2), fmt.Sprintf("%c%03d.jpg", 'a'+m.anyPhoto(), len(m.files)))
	m.put(path, m.anyPhoto(), m.newTime())
	m.files = append(m.files, path)
}

func (m *model) want(epoch int64) []seen {
	if m.plain[epoch] == nil {
		m.plain[epoch] = plainly(m.t, m.sp, epoch)
	}
	return m.plain[epoch]
}

// use lets a loader deliver the first batches of an epoch, or all: those without entry points.
func (m *model) use(l *Loader, epoch int64, want []seen) {
	most := rapid.IntRange(1, len(want)).Draw(m.rt, "batches")
	p, err := l.Pass(epoch, 0, 0)
	if err != nil {
		m.rt.Fatal(err)
	}
	defer p.Cancel()
	for i := range most {
		if b := next(m.t, l, p); b == nil || digest([]seen{*b}) != digest(want[i:i+1]) {
			m.rt.Fatalf("epoch %d, batch %d differs from the one without entry points", epoch, i)
		}
	}
}

// walk opens a loader for epochs, and does something before it is closed.
func (m *model) walk(then func()) {
	var wanted [][]seen
	epochs := rapid.SliceOfN(rapid.Int64Range(0, 2), 1, 2).Draw(m.rt, "epochs")
	for _, epoch := range epochs {
		wanted = append(wanted, m.want(epoch))
	}
	_, told := alone(m.t, m.sp, func(l *Loader) {
		for i, epoch := range epochs {
			m.use(l, epoch, wanted[i])
		}
		then()
	})
	if m.sp.Entries.Limit > 0 {
		told = slices.DeleteFunc(told, func(line string) bool { return strings.Contains(line, "fill their limit") })
	}
	if len(told) > 2 || len(told) > 0 && !m.harmed { // of a file, and of a record
		m.rt.Fatalf("notices: %q", told)
	}
}

// stored are the files of the store: sealed, and of processes that were killed.
func (m *model) stored() (all []string) {
	for _, dir := range storesOf(m.t) {
		names, err := filepath.Glob(filepath.Join(dir, "entries-*"))
		if err != nil {
			m.rt.Fatal(err)
		}
		all = append(all, names...)
	}
	return all
}

// killed is a walk after which the store is as a kill -9 at some moment would have left it.
func (m *model) killed() {
	left := make(map[string][]byte)
	m.walk(func() {
		time.Sleep(time.Duration(rapid.IntRange(0, 3).Draw(m.rt, "ms")) * time.Millisecond)
		for _, path := range m.stored() {
			if b, err := os.ReadFile(path); err == nil {
				left[path] = b
			} else if !errors.Is(err, fs.ErrNotExist) {
				m.rt.Fatal(err)
			}
		}
	})
	for _, path := range m.stored() {
		_ = os.Remove(path)
	}
	then := time.Now().Add(-2 * time.Hour) // others take over what is left
	for path, b := range left {
		writeFile(m.t, path, b)
		if err := os.Chtimes(path, then, then); err != nil {
			m.rt.Fatal(err)
		}
	}
}

// harm changes bytes of a file of the store.
func (m *model) harm() {
	if all := m.stored(); len(all) > 0 {
		path := rapid.SampledFrom(all).Draw(m.rt, "stored")
		harm := rapid.SliceOfN(rapid.Byte(), 5, 20).Draw(m.rt, "harm")
		changed(m.t, path, func(b []byte) []byte { return stagetest.Harmed(b, harm) })
		m.harmed = true
	}
}

// forge gives a picture the record of another one, with its own fingerprint.
func (m *model) forge() {
	for _, dir := range storesOf(m.t) {
		f, err := facts.Open(dir, "entries", facts.Options{Limit: 1 << 30})
		if err != nil {
			m.rt.Fatal(err)
		}
		all := make(map[facts.Key][]byte)
		for k, rec := range f.All() {
			all[k] = bytes.Clone(rec)
		}
		keys := slices.SortedFunc(maps.Keys(all), func(a, b facts.Key) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for i, k := range keys {
			other := all[keys[(i+1)%len(keys)]]
			if len(all[k]) > 8 && len(other) > 8 && rapid.Bool().Draw(m.rt, "forged") {
				f.Put(k, append(all[k][:8:8], other[8:]...))
			}
		}
		_ = f.Close()
	}
}

// Whatever happens to a dataset and its store between openings: batches are those without
// entry points. STOKER_MODELS is the number of sequences.
func TestModelOfEntryPoints(t *testing.T) {
	checks, steps := "20", "20"
	if n := os.Getenv("STOKER_MODELS"); n != "" {
		checks, steps = n, "40"
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.steps": steps} {
		f := flag.Lookup(name)
		before := f.Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
	var photos [][]byte
	for _, name := range []string{"chelsea", "coffee", "rocket", "astronaut"} {
		raw, err := os.ReadFile("../../testdata/photos/" + name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		photos = append(photos, append(raw, make([]byte, 120_000-len(raw))...))
	}
	rapid.Check(t, func(rt *rapid.T) {
		top := t.TempDir()
		t.Setenv("STOKER_CACHE", filepath.Join(top, "cache"))
		m := &model{
			t: t, rt: rt, root: filepath.Join(top, "data"), photos: photos, sp: cropSpec(t, filepath.Join(top, "data")),
			plain: make(map[int64][]seen),
		}
		m.sp.Batch.Size = 2
		for range 5 {
			m.add()
		}
		rt.Repeat(map[string]func(*rapid.T){
			"walk":        func(*rapid.T) { m.walk(func() {}) },
			"walk again":  func(*rapid.T) { m.walk(func() {}) },
			"two at once": func(*rapid.T) { m.walk(func() { m.walk(func() {}) }) },
			"kill":        func(*rapid.T) { m.killed() },
			"add": func(*rapid.T) {
				if len(m.files) < 9 {
					m.add()
				}
			},
			"touch": func(*rapid.T) { m.put(m.anyFile(), m.anyPhoto(), m.newTime()) },
			"replace": func(rt *rapid.T) { // by another of its size and time
				path := m.anyFile()
				fi, err := os.Stat(path)
				if err != nil {
					rt.Fatal(err)
				}
				m.put(path, m.anyPhoto(), fi.ModTime())
			},
			"harm":  func(*rapid.T) { m.harm() },
			"forge": func(*rapid.T) { m.forge() },
			"limit": func(rt *rapid.T) {
				m.sp.Entries.Limit = rapid.SampledFrom([]spec.Bytes{0, 1, 1500, 4 << 10, 1 << 20}).Draw(rt, "limit")
			},
			"merge": func(*rapid.T) {
				for _, dir := range storesOf(t) {
					mergeStore(t, dir)
				}
			},
		})
	})
}
