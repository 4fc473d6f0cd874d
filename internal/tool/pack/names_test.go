package pack_test

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/tool/pack"
)

// fields are those of a dataset, without its keys.
func fields(path ...string) ([]string, error) {
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 8))
	defer shared.Close()
	l, err := loader.Open(context.Background(), shared, spec.Spec{Dataset: spec.Dataset{Path: path}, Workers: 1}, loader.Options{Stored: true})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	all := slices.Clone(l.Dataset().Index().Meta().Fields)
	return slices.DeleteFunc(all, func(f string) bool { return strings.HasPrefix(f, "__") }), nil
}

// The value of a key has no name that a user of WebDataset should see: pictures of
// an LMDB are KEY.jpg.
func TestValuesOfLMDBAreNamedForWhatTheyAre(t *testing.T) {
	f, err := os.Open("../../../testdata/guides/data.mdb.gz")
	stagetest.Must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	stagetest.Must(t, err)
	data, err := io.ReadAll(z)
	stagetest.Must(t, err)
	src, dst := filepath.Join(t.TempDir(), "data.mdb"), t.TempDir()
	put(t, src, data)
	run(t, config(src, dst, pack.Options{}))
	all, _ := members(t, dst, "")
	if len(all) == 0 {
		t.Fatal("no member")
	}
	for _, m := range all {
		if _, end, _ := strings.Cut(m.name, "."); end != "jpg" || !strings.HasPrefix(m.body, "\xff\xd8\xff") {
			t.Errorf("%s", m.name)
		}
	}
	if got, err := fields(dst); err != nil || !slices.Equal(got, []string{"jpg"}) {
		t.Errorf("fields %q, %v", got, err)
	}

	// With --output tfrecord there is a name to keep.
	dst = t.TempDir()
	run(t, config(src, dst, pack.Options{Output: "tfrecord"}))
	if got, err := fields(dst); err != nil || !slices.Contains(got, "value") {
		t.Errorf("fields %q, %v", got, err)
	}
}

// An array that is packed has its field's name again, in one shard as in several;
// a number at the end of anybody else's file is part of its name.
func TestFieldsOfPackedArrays(t *testing.T) {
	dir := t.TempDir()
	const n = 40
	for _, name := range []string{"x_1", "label"} {
		data := make([]byte, 0, 8*n)
		for i := range n {
			data = binary.LittleEndian.AppendUint64(data, uint64(i))
		}
		put(t, filepath.Join(dir, "src", name+".npy"), format.NPY(mem.Int64, []int{n}, data))
	}
	for shards, size := range map[int]int64{1: 1 << 20, 4: 16 * 10} {
		dst := filepath.Join(dir, fmt.Sprint(shards))
		run(t, config(filepath.Join(dir, "src"), dst, pack.Options{Output: "npy", ShardSize: size}))
		made, _ := filepath.Glob(dst + "/*.npy")
		if len(made) != 2*shards {
			t.Fatalf("%q instead of %d shards", made, shards)
		}
		for _, path := range []string{dst, dst + "/*.npy"} {
			if got, err := fields(path); err != nil || !slices.Equal(got, []string{"label", "x_1"}) {
				t.Errorf("%s: fields %q, %v", path, got, err)
			}
		}
		one := []string{dst + "/x_1-000000.npy"}
		if got, err := fields(one...); err != nil || !slices.Equal(got, []string{"x_1"}) {
			t.Errorf("one of %d shards: fields %q, %v", shards, got, err)
		}
		if shards > 1 {
			if _, err := fields(dst+"/x_1-000000.npy", dst+"/label-000001.npy"); errs.CodeOf(err) != errs.Config {
				t.Errorf("fields of two shards beside each other: %v", err)
			}
		}
		stagetest.Must(t, os.Remove(filepath.Join(dst, "manifest.json")))
		if got, err := fields(one...); err != nil || !slices.Equal(got, []string{"x_1-000000"}) {
			t.Errorf("a file like one of %d shards: fields %q, %v", shards, got, err)
		}
	}
}
