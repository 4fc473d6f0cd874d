// Package elsewhere tests that datasets are the same wherever they are stored: whoever
// has a server of a store calls it with a way to put files there.
package elsewhere

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
)

// Store is where files are put.
type Store struct {
	// Prefix is what their names begin with: followed by the absolute path of a local
	// file, it is the name of its copy. No slash at the end.
	Prefix string
	// Put stores a copy under an absolute path.
	Put func(path string, data []byte)
	// Sources are all schemes, made anew.
	Sources func() []source.Scheme
}

// Formats opens a dataset of every format from local files and from the store, and checks
// that they are the same: digests, samples, and the order of a shuffle. The test's working
// folder becomes one in which the fixtures are found: top is the folder "internal" as seen
// from the test's package.
func Formats(t *testing.T, top string, s Store) {
	t.Chdir(filepath.Join(top, "dataset"))
	stores := fixture.Stores(t)
	stores["folder"] = spec.Dataset{Path: spec.Paths{fixture.Pictures(t, 9)}}
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		t.Run(name, func(t *testing.T) {
			d := stores[name]
			here := open(t, d, nil)
			far := s.Move(t, d, here.Dataset().Index())
			there := open(t, far, s.Sources())
			if here.Digest() != there.Digest() || here.Len() != there.Len() || here.Format() != there.Format() {
				t.Fatalf("%d samples of %s, digest %s; of local files %d, %s, %s", there.Len(), there.Format(), there.Digest(), here.Len(), here.Format(), here.Digest())
			}
			if want, got := digests(t, here), digests(t, there); !slices.Equal(want, got) {
				t.Errorf("samples have the digests %x, and %x in local files", got, want)
			}
			again := open(t, far, s.Sources())
			if again.Dataset().Index().Path() != there.Dataset().Index().Path() {
				t.Errorf("another index: %s", again.Dataset().Index().Path())
			}
			if want, got := IDs(t, d, nil), IDs(t, far, s.Sources()); !slices.Equal(want, got) {
				t.Errorf("the order is %d, and %d of local files", got, want)
			}
		})
	}
}

// Move puts the stored files of a dataset into the store, and returns the dataset there.
func (s Store) Move(t *testing.T, d spec.Dataset, x *index.Index) spec.Dataset {
	t.Helper()
	for i := range x.Files() {
		s.upload(t, string(x.AppendPath(i, nil)))
	}
	all := func(paths []string) (out spec.Paths) {
		for _, p := range paths {
			out = append(out, s.away(t, p))
		}
		return out
	}
	d.Path = all(d.Path)
	d.Columns = slices.Clone(d.Columns)
	for i := range d.Columns {
		d.Columns[i].Path = all(d.Columns[i].Path)
	}
	if d.Manifest != "" {
		s.upload(t, d.Manifest)
		d.Manifest = s.away(t, d.Manifest)
	}
	return d
}

// away is the name in the store of a local file, whose name may be a pattern.
func (s Store) away(t *testing.T, name string) string {
	t.Helper()
	abs, err := filepath.Abs(name)
	stagetest.Must(t, err)
	return s.Prefix + abs
}

func (s Store) upload(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	stagetest.Must(t, err)
	abs, err := filepath.Abs(name)
	stagetest.Must(t, err)
	s.Put(abs, data)
}

func open(t *testing.T, d spec.Dataset, sources []source.Scheme) *dataset.Collection {
	t.Helper()
	c, err := dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Sources: sources, Stored: true})
	stagetest.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// digests are those of all samples.
func digests(t *testing.T, c *dataset.Collection) (all []uint64) {
	t.Helper()
	r := format.NewReader(c.Dataset(), c.Source())
	var s format.Sample
	for id := range c.Len() {
		stagetest.Must(t, r.Read(t.Context(), id, nil, &s))
		all = append(all, s.Digest())
	}
	return all
}

// IDs are the samples of an epoch in the order of a full shuffle.
func IDs(t *testing.T, d spec.Dataset, sources []source.Scheme) (all []int64) {
	t.Helper()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 32))
	defer shared.Close()
	l, err := loader.Open(t.Context(), shared, spec.Spec{Dataset: d, Batch: spec.Batch{Size: 1}, Order: spec.Order{Shuffle: "full"}}, loader.Options{Sources: sources})
	stagetest.Must(t, err)
	defer l.Close()
	p, err := l.Pass(0, 0, 0)
	stagetest.Must(t, err)
	defer p.Cancel()
	for {
		b, err := p.Next(t.Context(), time.Minute)
		if errors.Is(err, io.EOF) {
			return all
		}
		stagetest.Must(t, err)
		c := b.Columns[slices.IndexFunc(b.Columns, func(c batch.Column) bool { return c.Name == batch.IDs })]
		for r := range b.Rows {
			all = append(all, int64(binary.LittleEndian.Uint64(b.Slot.Mem[c.Off+8*int64(r):])))
		}
		b.Release()
	}
}
