package pack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest/bucket"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
	"github.com/stoker-data/stoker/internal/tool/pack"
)

// away is a packing in a store that waits, some of whose bytes may be others.
func away(t *testing.T, dst string, change func(name string, data []byte) []byte) *bucket.Store {
	t.Helper()
	s := bucket.New()
	s.Reach = source.Link{Gap: 1000, Part: 1 << 20, Conns: 4}
	for name, text := range tree(t, dst) {
		if data := change(name, []byte(text)); data != nil {
			s.Put(bucket.Prefix+"b/p/"+name, data)
		}
	}
	return s
}

func unchanged(_ string, data []byte) []byte { return data }

// epochs reads two epochs of a dataset.
func epochs(t *testing.T, schemes []source.Scheme, d spec.Dataset, fields []spec.Field) (samples int, err error) {
	t.Helper()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 32))
	defer shared.Close()
	l, err := loader.Open(t.Context(), shared, spec.Spec{
		Dataset: d, Fields: fields, Batch: spec.Batch{Size: 4}, Workers: 2, Order: spec.Order{Shuffle: "full"},
	}, loader.Options{Sources: schemes})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	for epoch := range int64(2) {
		p, err := l.Pass(epoch, 0, 0)
		if err != nil {
			return samples, err
		}
		for {
			b, err := p.Next(context.Background(), 0)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				p.Cancel()
				return samples, err
			}
			samples += b.Rows
			b.Release()
		}
	}
	return samples, nil
}

func whole() []spec.Field {
	return []spec.Field{{Name: "image", From: "jpg", Decode: "bytes"}, {Name: "label", From: "cls", Decode: "int"}}
}

// What comes from a store is compared with what was packed: each sample once, if all of it
// is read.
func TestSamplesFromAfarAreCompared(t *testing.T) {
	src, dst := folder(t, 30, 3000), filepath.Join(t.TempDir(), "p")
	run(t, config(src, dst, pack.Options{ShardSize: 20_000}))
	paths := spec.Paths{bucket.Prefix + "b/p"}
	digests := bucket.Prefix + "b/p/" + packing.DigestsName
	flipped := func(name string, data []byte) []byte {
		if strings.HasSuffix(name, "000001.tar") {
			data[512+10] ^= 1 // of the first member's body
		}
		return data
	}
	sources := func(s *bucket.Store) []source.Scheme { return []source.Scheme{source.Local(), s.Scheme()} }

	s := away(t, dst, unchanged)
	if n, err := epochs(t, sources(s), spec.Dataset{Path: paths}, whole()); err != nil || n != 60 {
		t.Fatalf("%d samples: %v", n, err)
	}
	got := s.Calls().Of[digests]
	if n, err := epochs(t, sources(s), spec.Dataset{Path: paths}, whole()[:1]); err != nil || n != 60 {
		t.Errorf("without labels: %d, %v", n, err)
	}
	// A part of a sample is not compared; opening looks at all files.
	if without := s.Calls().Of[digests]; got.Reads != without.Reads+1 || got.Bytes != without.Bytes+8*30 {
		t.Errorf("%+v of the digests was read, in two epochs of 30 samples, and %+v without labels", got, without)
	}

	s = away(t, dst, flipped)
	for _, path := range []string{"b/p", "b/p/*-000001.tar"} { // whose samples begin with 0
		_, err := epochs(t, sources(s), spec.Dataset{Path: spec.Paths{bucket.Prefix + path}}, whole())
		e := errs.From(err)
		if e.Code != errs.Damaged || !strings.HasSuffix(e.Where.Shard, "000001.tar") || e.Where.Member == "" || e.Where.Sample.Or(-1) < 0 || !strings.Contains(e.What, "packed") {
			t.Errorf("%s: %v at %+v", path, err, e.Where)
		}
		if first := strings.Contains(path, "*"); first != (e.Where.Sample.Or(-1) == 0) {
			t.Errorf("%s: the sample is %v", path, e.Where.Sample)
		}
	}
	// A packing without its digests and local files are not compared.
	s = away(t, dst, func(name string, data []byte) []byte {
		if name == packing.DigestsName {
			return nil
		}
		return flipped(name, data)
	})
	if n, err := epochs(t, sources(s), spec.Dataset{Path: paths}, whole()); err != nil || n != 60 {
		t.Errorf("without digests: %d, %v", n, err)
	}
	s = away(t, dst, func(name string, data []byte) []byte {
		if name == packing.DigestsName {
			data[5] ^= 1
		}
		return data
	})
	if _, err := epochs(t, sources(s), spec.Dataset{Path: paths}, whole()); errs.CodeOf(err) != errs.Damaged || !strings.HasSuffix(errs.From(err).Where.File, packing.DigestsName) {
		t.Errorf("digests that are damaged: %v", err)
	}
	for name, text := range tree(t, dst) {
		put(t, filepath.Join(dst, name), flipped(name, []byte(text)))
	}
	if n, err := epochs(t, nil, spec.Dataset{Path: spec.Paths{dst}}, whole()); err != nil || n != 60 {
		t.Errorf("local files: %d, %v", n, err)
	}
}

// vast is a store that says of the digests that they have 2^50 bytes, and has none of them.
type vast struct {
	source.Source
	asked *atomic.Int64 // bytes, of the digests
}

func (v vast) Stat(ctx context.Context, name string) (source.Info, error) {
	st, err := v.Source.Stat(ctx, name)
	if strings.HasSuffix(name, packing.DigestsName) {
		st.Size = 1 << 50
	}
	return st, err
}

func (v vast) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if strings.HasSuffix(obj.Name, packing.DigestsName) {
		v.asked.Add(int64(len(p)))
		return errs.New(errs.Unreadable, "the body ends early").At(errs.Where{File: obj.Name}).Try("ask who wrote it")
	}
	return v.Source.ReadAt(ctx, obj, p, off)
}

func (v vast) Link(name string) (source.Link, bool) { return source.LinkOf(v.Source, name) }

// What a manifest and a store say of the digests of a packing is not believed: counts that
// do not agree are an error, and memory is taken for what has come.
func TestDigestsOfAStranger(t *testing.T) {
	src, dst := folder(t, 30, 3000), filepath.Join(t.TempDir(), "p")
	run(t, config(src, dst, pack.Options{ShardSize: 20_000}))
	const many = 1 << 47 // digests, in 2^50 bytes
	for what, c := range map[string]struct {
		change func(m *packing.Manifest[json.RawMessage])
		code   errs.Code
		file   string
	}{
		"more samples than the manifest":     {func(m *packing.Manifest[json.RawMessage]) { m.Shards[1].First = 1 << 40 }, errs.Damaged, packing.ManifestName},
		"before the first":                   {func(m *packing.Manifest[json.RawMessage]) { m.Shards[1].First = -100 }, errs.Damaged, packing.ManifestName},
		"beyond all numbers":                 {func(m *packing.Manifest[json.RawMessage]) { m.Shards[1].First = math.MaxInt64 }, errs.Damaged, packing.ManifestName},
		"no samples":                         {func(m *packing.Manifest[json.RawMessage]) { m.Samples = 0 }, errs.Damaged, packing.ManifestName},
		"a size that no number has":          {func(m *packing.Manifest[json.RawMessage]) { m.Samples = 1 << 61 }, errs.Damaged, packing.ManifestName},
		"another size than the digests have": {func(m *packing.Manifest[json.RawMessage]) { m.Samples++ }, errs.Damaged, packing.DigestsName},
		"2^50 bytes, as the store says too":  {func(m *packing.Manifest[json.RawMessage]) { m.Samples = many }, errs.Unreadable, packing.DigestsName},
	} {
		s := away(t, dst, func(name string, data []byte) []byte {
			if name != packing.ManifestName {
				return data
			}
			m, err := packing.Read[json.RawMessage](bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			c.change(m)
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			return text
		})
		scheme, asked := s.Scheme(), &atomic.Int64{}
		if c.code == errs.Unreadable {
			scheme.Open = func(source.Access) (source.Source, error) { return vast{s, asked}, nil }
		}
		_, err := epochs(t, []source.Scheme{source.Local(), scheme}, spec.Dataset{Path: spec.Paths{bucket.Prefix + "b/p"}}, whole())
		if e := errs.From(err); err == nil || e.Code != c.code || !strings.HasSuffix(e.Where.File, c.file) || e.Hint == "" || asked.Load() > 64<<20 {
			t.Errorf("%s: %v, and %d bytes were asked for", what, err, asked.Load())
		}
	}
}

// Rows of arrays are compared over all of their files.
func TestArraysFromAfarAreCompared(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "p")
	fixture.SaveArray(t, src, "x.npy", mem.Float32, "(20, 3)", fixture.Random(240, 1))
	fixture.SaveArray(t, src, "y.npy", mem.Int64, "(20,)", fixture.Random(160, 2))
	run(t, config(src, dst, pack.Options{Output: pack.OutputNpy, ShardSize: 100}))
	fields := []spec.Field{{Name: "y"}, {Name: "x"}}
	for change, want := range map[string]errs.Code{"": "", "x-000001": errs.Damaged, "y-000001": errs.Damaged} {
		touched := false
		s := away(t, dst, func(name string, data []byte) []byte {
			if change != "" && strings.Contains(name, change[:1]) && strings.Contains(name, change[2:]) && strings.HasSuffix(name, ".npy") {
				data[len(data)-1] ^= 1
				touched = true
			}
			return data
		})
		schemes := slices.Concat([]source.Scheme{source.Local(), s.Scheme()})
		n, err := epochs(t, schemes, spec.Dataset{Path: spec.Paths{bucket.Prefix + "b/p"}}, fields)
		if errs.CodeOf(err) != want && (want != "" || err != nil) || want == "" && n != 40 || touched != (change != "") {
			t.Errorf("%s: %d samples, %v", change, n, err)
		}
		if want != "" && !strings.Contains(errs.From(err).Where.Shard, "000001") {
			t.Errorf("%s: %v", change, err)
		}
	}
}
