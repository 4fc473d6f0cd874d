package tfrecord

import (
	"context"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/compressed"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The columns beside those that every index has.
const (
	fileFirst    = "tfrecord.first"    // int64, one more than files: number of the first sample
	sampleStart  = "tfrecord.start"    // int64: of the record in its file, unpacked
	exampleCount = "tfrecord.examples" // int64, one row: samples that are Examples
)

func build(ctx context.Context, src source.Source, paths []string, b *index.Builder, progress index.Progress) error {
	objs, err := format.Stat(ctx, src, paths, "TFRecord file")
	if err != nil {
		return err
	}
	example := false
	for _, obj := range objs {
		is, any, err := first(ctx, src, obj)
		if err != nil {
			return err
		}
		if any {
			example = is
			break
		}
	}
	done := format.NewTally(progress, objs)
	shards := make([]*shard, len(objs))
	err = format.EachOf(ctx, src, objs[0].Name, len(objs), func(i int) error {
		return format.Settled(ctx, src, objs[i], func() (err error) {
			last := int64(0)
			shards[i], err = scan(ctx, src, objs[i], example, func(off int64) {
				if off-last >= 16<<20 {
					done.Add(off - last)
					last = off
				}
			})
			done.Add(objs[i].Size - last)
			return err
		})
	})
	if err != nil {
		return err
	}
	return merge(objs, shards, b)
}

func merge(objs []source.Info, shards []*shard, b *index.Builder) error {
	var (
		start, first, sizes []int64
		points              []*compressed.Points
		all                 facts
	)
	some := false
	for _, sh := range shards {
		first = append(first, int64(len(start)))
		start = append(start, sh.start...)
		points, sizes = append(points, sh.points), append(sizes, sh.size)
		some = some || sh.points != nil
		all.merge(&sh.facts)
	}
	first = append(first, int64(len(start)))
	if len(start) == 0 {
		return errs.New(errs.Empty, "there is no record in %s", objs[0].Name).At(errs.Where{Shard: objs[0].Name}).
			Try("the files are empty; write them again")
	}
	for _, o := range objs {
		if o.Size == 0 && unpackedName(o.Name) != o.Name {
			return errs.New(errs.Damaged, "the file is empty, but a compressed file without records is not").At(errs.Where{Shard: o.Name, Offset: errs.Known(0)}).
				Try("fetch or write it again; if no sample belongs in it, remove it")
		}
	}
	b.Meta.Samples = int64(len(start))
	format.Describe(b, objs)
	b.Int64s(fileFirst, first, index.Identity)
	b.Int64s(sampleStart, start, index.Identity)
	b.Int64s(exampleCount, []int64{all.samples}, index.Aside)
	all.write(b)
	if some {
		compressed.Write(b, points, sizes)
	}
	return nil
}

// valid reports whether every number of the index can be used without further checks.
func valid(x *index.Index) bool {
	d := open(x)
	n := x.Len()
	if n < 1 || int64(len(d.start)) != n || len(d.first) != x.Files()+1 || d.first[0] != 0 || d.first[x.Files()] != n ||
		!x.Watched() || d.compressed != nil && !d.compressed.Valid() || !featuresValid(x) {
		return false
	}
	for f := range x.Files() {
		from, to := d.first[f], d.first[f+1]
		if from > to || to > n {
			return false
		}
		for id := from; id < to; id++ {
			end := d.sizes[f]
			if id+1 < to {
				end = d.start[id+1]
			}
			if d.start[id] < 0 || id == from && d.start[id] != 0 || end-d.start[id] < headLen+footLen {
				return false
			}
		}
	}
	return true
}
