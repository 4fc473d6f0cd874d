package pack_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
)

// A state of what was packed fits a packing exactly where its samples are those of
// the source, in their order, and the blocks of a block shuffle are the same; the
// ids of the rest of the epoch are then the same.
func TestStatesOfWhatWasPacked(t *testing.T) {
	src := folder(t, 40, 3000)
	rapid.Check(t, func(rt *rapid.T) {
		opt := pack.Options{
			Output:    rapid.SampledFrom([]string{pack.OutputTar, pack.OutputTFRecord}).Draw(rt, "output"),
			ShardSize: rapid.Int64Range(2<<10, 64<<10).Draw(rt, "shard size"),
			Shuffle:   rapid.IntRange(0, 3).Draw(rt, "shuffle") == 0,
			Options:   prepare.Options{Keys: rapid.SampledFrom([]string{"", "number"}).Draw(rt, "keys")},
		}
		order := rapid.SampledFrom([]stoker.Order{
			{Shuffle: stoker.ShuffleNone},
			{Shuffle: stoker.ShuffleFull, Seed: 4},
			{Shuffle: stoker.ShuffleWindow, Seed: 4, Window: 9},
			{Shuffle: stoker.ShuffleBlock, Seed: 4},
			{Shuffle: stoker.ShuffleBlock, Seed: 4, Block: 7},
		}).Draw(rt, "order")
		dst := filepath.Join(t.TempDir(), "dst")
		made, err := pack.Run(t.Context(), pack.Config{Dataset: spec.Dataset{Path: spec.Paths{src}}, Dst: dst, Options: opt})
		if err != nil {
			rt.Fatal(err)
		}
		spec := func(path, image, label string) stoker.Spec {
			return stoker.Spec{
				Dataset: stoker.Dataset{Path: stoker.Paths{path}}, Order: order, Batch: stoker.BatchSpec{Size: 3},
				Fields: []stoker.Field{
					{Name: image, Decode: "bytes"}, {Name: label, Decode: "int"},
				},
			}
		}
		image, label := "jpg", "cls"
		if opt.Output == pack.OutputTFRecord {
			image, label = "image", "label"
		}
		a, b := opened(t, spec(src, "image", "label")), opened(t, spec(dst, image, label))
		defer a.Close()
		defer b.Close()
		ids(t, a, 2)
		text, err := json.Marshal(a.State())
		if err != nil || len(text) > 1024 {
			rt.Fatalf("%d bytes: %v", len(text), err)
		}
		var state stoker.State
		if err := json.Unmarshal(text, &state); err != nil {
			rt.Fatal(err)
		}
		fits := !opt.Shuffle
		if order.Shuffle == stoker.ShuffleBlock && order.Block == 0 && len(made.Manifest.Shards) > 1 {
			fits = false // 40 files are one block
		}
		err = b.Restore(state)
		if (err == nil) != fits {
			rt.Fatalf("%+v, %d shards: %v", opt, len(made.Manifest.Shards), err)
		}
		if err != nil {
			if errs.CodeOf(err) != errs.State || !strings.Contains(err.Error(), "block sizes") && !strings.Contains(err.Error(), "packed with --shuffle") {
				rt.Fatal(err)
			}
			return
		}
		if err := a.Restore(state); err != nil {
			rt.Fatal(err)
		}
		if got, want := ids(t, b, 0), ids(t, a, 0); !slices.Equal(got, want) || len(want) != 34 {
			rt.Fatalf("ids %v, want %v", got, want)
		}
		old := state
		old.Processing = ""
		if err := b.Restore(old); errs.CodeOf(err) != errs.State || !strings.Contains(err.Error(), "earlier release") {
			rt.Fatalf("a state without its second digest: %v", err)
		}
	})
}

func opened(tb testing.TB, spec stoker.Spec) *stoker.Loader {
	l, err := stoker.Open(tb.Context(), spec)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// ids are those of a pass, of up to most batches if that is not 0.
func ids(tb testing.TB, l *stoker.Loader, most int) (all []int64) {
	for b, err := range l.Batches(tb.Context()) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, b.IDs()...)
		if most--; most == 0 {
			break
		}
	}
	return all
}
