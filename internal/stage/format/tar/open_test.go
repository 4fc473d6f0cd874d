package tar

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// BenchmarkOpenMillion opens the index of 1.28 million samples of two members in
// 1,000 shards, which are there but for their bytes.
func BenchmarkOpenMillion(b *testing.B) {
	const shards, samples, body = 1000, 1280, 110 << 10
	dir := b.TempDir()
	src := source.NewFile()
	ctx := context.Background()
	var paths []string
	var found []*shard
	var objs []source.Info
	for i := range shards {
		path := fmt.Sprintf("%s/train-%06d.tar", dir, i)
		paths = append(paths, path)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			b.Fatal(err)
		}
		if err := os.Truncate(path, 2*samples*(body+blockLen)+2*blockLen); err != nil {
			b.Fatal(err)
		}
		obj, err := src.Stat(ctx, path)
		if err != nil {
			b.Fatal(err)
		}
		sh := &shard{obj: obj, fields: []string{"jpg", "cls"}, first: []int64{0}}
		for j := range samples {
			key := fmt.Sprintf("n%08d_%d", i, j)
			for f, name := range sh.fields {
				sh.name.AppendString(key + "." + name)
				sh.field = append(sh.field, int32(f))
				sh.off = append(sh.off, int64(2*j+f)*(body+blockLen)+blockLen)
				sh.size = append(sh.size, body)
				sh.head = append(sh.head, 0)
			}
			sh.keyLen, sh.first = append(sh.keyLen, int32(len(key))), append(sh.first, int64(len(sh.off)))
		}
		found, objs = append(found, sh), append(objs, obj)
	}
	store := index.Store{Dir: dir + "/cache"}
	x, err := store.Load(ctx, index.Plan{
		Key:   index.Key{Format: "tar", Paths: paths},
		Build: func(_ context.Context, _ *index.Index, bd *index.Builder) error { return merge(objs, found, bd) },
	})
	if err != nil {
		b.Fatal(err)
	}
	_ = x.Close()
	for b.Loop() {
		d, err := Open(ctx, src, paths, Options{Store: &store})
		if err != nil {
			b.Fatal(err)
		}
		_ = d.Close()
	}
}
