// Package formats reads every format from a store, for tests of sources: what is delivered
// must not depend on where the bytes are stored.
package formats

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/mem"
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

// Store is where files are copied to. A local file /A/B becomes the object Prefix + "/A/B",
// which Put makes of the path and the contents.
type Store struct {
	Schemes []source.Scheme // nil: dataset.Sources
	Prefix  string
	Put     func(path string, data []byte)
}

// Read reads a dataset of every format from local files and from their copies in a store.
// Format, digest, samples, and the batches of a shuffled epoch with their ids are equal.
func Read(t *testing.T, s Store) {
	t.Chdir(filepath.Join(top(t), "internal/dataset")) // where the fixtures' relative paths begin
	stores := fixture.Stores(t)
	stores["folder"] = spec.Dataset{Path: spec.Paths{fixture.Pictures(t, 9)}}
	for name, d := range stores {
		t.Run(name, func(t *testing.T) {
			here := Open(t, d, nil)
			away := s.Copied(t, d, here.Dataset().Index())
			there := Open(t, away, s.Schemes)
			if here.Digest() != there.Digest() || here.Len() != there.Len() || here.Format() != there.Format() {
				t.Fatalf("%d samples of %s, digest %s; of local files %d, %s, %s", there.Len(), there.Format(), there.Digest(), here.Len(), here.Format(), here.Digest())
			}
			if want, got := Digests(t, here), Digests(t, there); !slices.Equal(want, got) {
				t.Errorf("samples have the digests %x, and %x in local files", got, want)
			}
			fields := readable(t, here)
			if want, got := batches(t, d, fields, nil), batches(t, away, fields, s.Schemes); !slices.Equal(want, got) {
				t.Errorf("batches are %q, and %q of local files", got, want)
			}
			again := Open(t, away, s.Schemes)
			if again.Dataset().Index().Path() != there.Dataset().Index().Path() {
				t.Errorf("it was indexed again: %s", again.Dataset().Index().Path())
			}
		})
	}
}

func top(t *testing.T) string {
	dir, err := os.Getwd()
	stagetest.Must(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// Away is the name in the store of a local file, whose name may be a pattern.
func (s Store) Away(t *testing.T, name string) string {
	abs, err := filepath.Abs(name)
	stagetest.Must(t, err)
	return s.Prefix + abs
}

// Upload puts a local file into the store.
func (s Store) Upload(t *testing.T, name string) {
	data, err := os.ReadFile(name)
	stagetest.Must(t, err)
	abs, err := filepath.Abs(name)
	stagetest.Must(t, err)
	s.Put(abs, data)
}

// Copied is a dataset whose stored files were copied, with their names in the store.
func (s Store) Copied(t *testing.T, d spec.Dataset, x *index.Index) spec.Dataset {
	t.Helper()
	for i := range x.Files() {
		s.Upload(t, string(x.AppendPath(i, nil)))
	}
	all := func(paths []string) (out spec.Paths) {
		for _, p := range paths {
			out = append(out, s.Away(t, p))
		}
		return out
	}
	d.Path = all(d.Path)
	d.Columns = slices.Clone(d.Columns)
	for i := range d.Columns {
		d.Columns[i].Path = all(d.Columns[i].Path)
	}
	if d.Manifest != "" {
		s.Upload(t, d.Manifest)
		d.Manifest = s.Away(t, d.Manifest)
	}
	return d
}

// Open opens a dataset for its test, without a loader.
func Open(t *testing.T, d spec.Dataset, schemes []source.Scheme) *dataset.Collection {
	t.Helper()
	c, err := dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Sources: schemes, Stored: true})
	stagetest.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// Digests are those of all samples.
func Digests(t *testing.T, c *dataset.Collection) (all []uint64) {
	t.Helper()
	r := format.NewReader(c.Dataset(), c.Source())
	var s format.Sample
	for id := range c.Len() {
		stagetest.Must(t, r.Read(t.Context(), id, nil, &s))
		all = append(all, s.Digest())
	}
	return all
}

// readable are the fields that every sample has.
func readable(t *testing.T, c *dataset.Collection) (out []spec.Field) {
	t.Helper()
	r := format.NewReader(c.Dataset(), c.Source())
	for _, name := range c.Dataset().Index().Meta().Fields {
		good := true
		for id := range c.Len() {
			var s format.Sample
			good = good && r.Read(context.Background(), id, []string{name}, &s) == nil
		}
		if good {
			out = append(out, spec.Field{Name: name})
		}
	}
	return out
}

// batches are an epoch in full shuffle: ids and digest of the columns of each batch.
func batches(t *testing.T, d spec.Dataset, fields []spec.Field, schemes []source.Scheme) (all []string) {
	t.Helper()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 32))
	defer shared.Close()
	l, err := loader.Open(t.Context(), shared, spec.Spec{Dataset: d, Batch: spec.Batch{Size: 3}, Workers: 2, Order: spec.Order{Shuffle: "full"}, Fields: fields}, loader.Options{Sources: schemes})
	stagetest.Must(t, err)
	defer l.Close()
	kinds := map[string]mem.DType{}
	for _, f := range l.Fields() {
		kinds[f.Name], _ = mem.ParseDType(f.DType)
	}
	p, err := l.Pass(0, 0, 0)
	stagetest.Must(t, err)
	defer p.Cancel()
	for {
		b, err := p.Next(t.Context(), time.Minute)
		if errors.Is(err, io.EOF) {
			return all
		}
		stagetest.Must(t, err)
		sum, ids := sha256.New(), []uint64(nil)
		for _, c := range b.Columns {
			for r := range b.Rows {
				if c.Name == batch.IDs {
					ids = append(ids, number(b, c, r))
				} else if dtype, known := kinds[c.Name]; known {
					sum.Write(row(b, c, r, dtype))
				}
			}
		}
		all = append(all, fmt.Sprintf("%d %x", ids, sum.Sum(nil)[:8]))
		b.Release()
	}
}

func number(b *loader.Batch, c batch.Column, r int) uint64 {
	return binary.LittleEndian.Uint64(b.Slot.Mem[c.Off+8*int64(r):])
}

// row is what a batch has of one sample in a column.
func row(b *loader.Batch, c batch.Column, r int, dtype mem.DType) []byte {
	size := int64(dtype.Size()) * int64(mem.Shape(c.Shape).Elems())
	switch {
	case dtype == mem.Object:
		size = 1
	case c.Kind != "ragged":
		return b.Slot.Mem[c.Off+int64(r)*size : c.Off+int64(r+1)*size]
	}
	if c.Data == 0 {
		return nil
	}
	return b.Slot.Mem[c.Data+int64(number(b, c, r))*size : c.Data+int64(number(b, c, r+1))*size]
}
