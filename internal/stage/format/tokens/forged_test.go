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

// An index may come with the data, from anyone: with any number wrong it is either
// refused, or leads to nothing outside of the files.
func TestForgedIndex(t *testing.T) {
	accepted := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"documents", "windows", "random"}).Draw(t, "kind")
		opt := map[string]Options{"documents": {Documents: true}, "windows": {Window: 10, Next: true}, "random": {Window: 10, Next: true, Random: 5, Seed: 1}}[kind]
		parts := []part{{bin: "/a.bin"}, {bin: "/b.bin"}}
		objs := []source.Info{{Name: "/a.bin", Size: 200, MTime: 1}, {Name: "/b.bin", Size: 100, MTime: 1}}
		shards := []*shard{{dtype: mem.Uint16, count: 100, start: []int64{0, 40}, tokens: []int32{40, 60}}, {dtype: mem.Uint16, count: 40, off: 20, start: []int64{0}, tokens: []int32{40}}}
		odd := rapid.SampledFrom([]int64{-1 << 63, -1 << 40, -2, -1, 0, 1, 2, 3, 6, 20, 41, 61, 100, 101, 1 << 20, 1 << 31, 1 << 40, 1<<63 - 1})
		for range rapid.IntRange(0, 3).Draw(t, "wrong") {
			sh := rapid.SampledFrom(shards).Draw(t, "shard")
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
		bins := []int{0, 1}
		if rapid.IntRange(0, 9).Draw(t, "file") == 0 {
			bins[0] = int(odd.Draw(t, "value"))
		}
		x, err := index.Store{}.Load(context.Background(), index.Plan{
			Key: index.Key{Format: "tokens"},
			Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
				format.Describe(b, objs)
				if err := merge(parts, bins, shards, opt, b); err != nil {
					return err
				}
				if rapid.IntRange(0, 5).Draw(t, "other samples") == 0 {
					b.Meta.Samples = odd.Draw(t, "samples")
				}
				return nil
			},
		})
		if err != nil {
			return // refused before
		}
		defer x.Close()
		if !valid(x, opt.cut()) {
			return
		}
		accepted[kind]++
		d := open(x)
		for _, id := range []int64{0, min(1, x.Len()-1), x.Len() / 2, x.Len() - 1} {
			e := d.Extents(id, nil, nil)[0]
			size, _ := x.Stamp(e.File)
			if e.Off < 0 || e.Len < 0 || e.Len > size || e.Off > size-e.Len {
				t.Fatalf("sample %d lies at %+v of %d bytes", id, e, size)
			}
			if err := d.Parse(id, nil, [][]byte{make([]byte, e.Len)}, &format.Sample{}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if len(accepted) != 3 {
		t.Errorf("not even the true index was accepted: %v", accepted)
	}
}
