package tokens

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// forged is what an index of two files of tokens says, true until a number is changed.
type forged struct {
	opt     Options
	bins    []int
	shards  []*shard
	samples int64 // -1: as many as there are
}

func genuine(opt Options) *forged {
	return &forged{opt: opt, bins: []int{0, 1}, samples: -1, shards: []*shard{
		{dtype: mem.Uint16, count: 100, start: []int64{0, 40}, tokens: []int32{40, 60}},
		{dtype: mem.Uint16, count: 40, off: 20, start: []int64{0}, tokens: []int32{40}},
	}}
}

// accepted reports whether an index with the columns f is opened; if it is, every
// sample must be within the files.
func (f *forged) accepted(t rapid.TB) bool {
	x, err := index.Store{}.Load(context.Background(), index.Plan{
		Key: index.Key{Format: "tokens"},
		Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
			format.Describe(b, []source.Info{{Name: "/a.bin", Size: 200, Version: "1"}, {Name: "/b.bin", Size: 100, Version: "1"}})
			if err := merge([]part{{bin: "/a.bin"}, {bin: "/b.bin"}}, f.bins, f.shards, f.opt, b); err != nil {
				return err
			}
			if f.samples >= 0 {
				b.Meta.Samples = f.samples
			}
			return nil
		},
	})
	if err != nil {
		return false // refused before
	}
	defer x.Close()
	if !valid(x, f.opt.cut()) {
		return false
	}
	d := open(x)
	for _, id := range []int64{0, min(1, x.Len()-1), x.Len() / 2, x.Len() - 1} {
		e := d.Extents(id, nil, nil)[0]
		size, _ := x.Stamp(e.File)
		if e.Off < 0 || e.Len < 0 || e.Len > size || e.Off > size-e.Len {
			t.Fatalf("sample %d is at %+v of %d bytes", id, e, size)
		}
		if err := d.Parse(id, nil, [][]byte{make([]byte, e.Len)}, &format.Sample{}); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// An index may come with the data, from anyone: with any number wrong it is either
// refused, or leads to nothing outside of the files.
func TestForgedIndex(t *testing.T) {
	for name, opt := range map[string]Options{"documents": {Documents: true}, "windows": {Window: 10, Next: true}, "random": {Window: 10, Next: true, Random: 5, Seed: 1}} {
		t.Run(name, func(t *testing.T) {
			if !genuine(opt).accepted(t) {
				t.Fatal("the true index is refused")
			}
			odd := rapid.SampledFrom([]int64{-1 << 63, -1 << 40, -2, -1, 0, 1, 2, 3, 6, 20, 41, 61, 100, 101, 1 << 20, 1 << 31, 1 << 40, 1<<63 - 1})
			rapid.Check(t, func(t *rapid.T) {
				f := genuine(opt)
				for range rapid.IntRange(0, 3).Draw(t, "wrong") {
					sh := rapid.SampledFrom(f.shards).Draw(t, "shard")
					v := odd.Draw(t, "value")
					switch rapid.IntRange(0, 4).Draw(t, "column") {
					case 0:
						sh.dtype = mem.DType(uint8(v) % 13)
					case 1:
						sh.count = v
					case 2:
						sh.off = v
					case 3:
						sh.start[0] = v
					case 4:
						sh.tokens[0] = int32(v)
					}
				}
				if rapid.IntRange(0, 9).Draw(t, "file") == 0 {
					f.bins[0] = int(odd.Draw(t, "value"))
				}
				if rapid.IntRange(0, 5).Draw(t, "other samples") == 0 {
					f.samples = odd.Draw(t, "samples")
				}
				f.accepted(t)
			})
		})
	}
}
