package npy

import (
	"context"
	"errors"
	"iter"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// nothing is a source of files that are full of zeros.
type nothing struct{}

func (nothing) Stat(context.Context, string) (source.Info, error) {
	return source.Info{}, os.ErrNotExist
}

func (nothing) ReadAt(_ context.Context, obj source.Info, p []byte, off int64) error {
	if off < 0 || int64(len(p)) > obj.Size-off {
		return errors.New("beyond the file")
	}
	clear(p)
	return nil
}

func (nothing) List(context.Context, string) iter.Seq2[source.Info, error] {
	return func(func(source.Info, error) bool) {}
}

// genuine is what the index of an array x and an archive with an array y says.
func genuine() *columns {
	c := &columns{
		dtype: []int32{1, 4}, rank: []int32{1, 2}, dims: []int64{3, 2, 2}, part: []int64{0, 2, 3}, rows: 20,
		file: []int32{0, 1, 1}, swap: []int32{0, 0, 1}, off: []int64{128, 64, 128}, start: []int64{0, 7, 0}, compressed: []int64{-1, -1, 200},
		head: []int64{0, 0, 300}, body: []int64{0, 0, 340}, size: []int64{0, 0, 600}, crc: []int64{0, 0, 9},
	}
	for _, m := range []string{"", "", "y.npy"} {
		c.member.AppendString(m)
	}
	c.names.AppendString("x")
	c.names.AppendString("y")
	return c
}

// accepted reports whether an index with the columns c is opened; if it is, every
// sample must be within the files.
func (c *columns) accepted(t rapid.TB, samples int64) bool {
	opt := Options{UnpackedBytes: 1 << 20}
	x, err := index.Store{}.Load(context.Background(), index.Plan{
		Key: index.Key{Format: "npy"},
		Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
			format.Describe(b, []source.Info{{Name: "/a.npy", Size: 200, Version: "1"}, {Name: "/b.npz", Size: 600, Version: "1"}})
			b.Meta.Samples = samples
			c.write(b)
			return nil
		},
	})
	if err != nil {
		return false // refused by package index
	}
	defer x.Close()
	if !valid(x, opt) {
		return false
	}
	d := open(x)
	d.src, d.blocks = nothing{}, format.NewBlocks(opt.UnpackedBytes)
	for _, id := range []int64{0, 6, 7, x.Len() / 2, x.Len() - 1} {
		var raw [][]byte
		for _, e := range d.Extents(id, nil, nil) {
			size, _ := x.Stamp(e.File)
			if e.Off < 0 || e.Len < 0 || e.Len > size || e.Off > size-e.Len {
				t.Fatalf("sample %d is at %+v of %d bytes", id, e, size)
			}
			p := make([]byte, e.Len)
			copy(p, "PK\x03\x04\x00\x00\x00\x00\x08\x00")
			raw = append(raw, p)
		}
		var s format.Sample
		_ = d.Parse(id, nil, raw, &s)
	}
	return true
}

// An index may come with the data, from anyone: with any number wrong it is either
// refused, or leads to nothing outside of the files.
func TestForgedIndex(t *testing.T) {
	if !genuine().accepted(t, 20) {
		t.Fatal("the true index is refused")
	}
	odd := rapid.SampledFrom([]int64{-1 << 63, -1 << 40, -2, -1, 0, 1, 2, 3, 6, 20, 21, 200, 599, 600, 601, 1 << 20, 1 << 40, 1<<63 - 1})
	rapid.Check(t, func(t *rapid.T) {
		c := genuine()
		for range rapid.IntRange(0, 3).Draw(t, "wrong") {
			wide := [][]int64{c.dims, c.part, c.off, c.start, c.compressed, c.head, c.body, c.size, c.crc}
			narrow := [][]int32{c.dtype, c.rank, c.file, c.swap}
			if i := rapid.IntRange(0, len(wide)+len(narrow)-1).Draw(t, "column"); i < len(wide) {
				wide[i][rapid.IntRange(0, len(wide[i])-1).Draw(t, "row")] = odd.Draw(t, "value")
			} else {
				v := narrow[i-len(wide)]
				v[rapid.IntRange(0, len(v)-1).Draw(t, "row")] = int32(odd.Draw(t, "value"))
			}
		}
		if rapid.IntRange(0, 9).Draw(t, "short") == 0 {
			c.start = c.start[:rapid.IntRange(0, 2).Draw(t, "rows")]
		}
		c.accepted(t, rapid.SampledFrom([]int64{20, 20, 20, 0, 1, 21, 1 << 62}).Draw(t, "samples"))
	})
}
