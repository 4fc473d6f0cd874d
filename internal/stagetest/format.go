package stagetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Read gets the wanted fields of one sample as the engine does, without read-ahead.
// raw is memory to reuse; it may be nil.
func Read(d format.Stored, src source.Source, id int64, fields []string, s *format.Sample) error {
	raw, err := readExtents(d, src, d.Extents(id, fields, nil))
	if err != nil {
		return err
	}
	return d.Parse(id, fields, raw, s)
}

func readExtents(d format.Stored, src source.Source, extents []format.Extent) ([][]byte, error) {
	var raw [][]byte
	for _, e := range extents {
		size, version := d.Index().Stamp(e.File)
		obj := source.Info{Name: string(d.Index().AppendPath(e.File, nil)), Size: size, Version: version}
		p := make([]byte, e.Len)
		if err := src.ReadAt(context.Background(), obj, p, e.Off); err != nil {
			return nil, err
		}
		raw = append(raw, p)
	}
	return raw, nil
}

// Dataset checks an open dataset against the contract of format.Stored. All samples
// must be undamaged.
func Dataset(t *testing.T, d format.Stored, src source.Source) {
	x := d.Index()
	if x.Len() < 1 || x.Files() < 1 || len(x.Digest()) != 32 {
		t.Fatalf("%d samples in %d files, digest %q", x.Len(), x.Files(), x.Digest())
	}
	everything := make([]format.Sample, x.Len())
	t.Run("everything", func(t *testing.T) {
		for id := range x.Len() {
			checkExtents(t, d, id, nil)
			if err := Read(d, src, id, nil, &everything[id]); err != nil {
				t.Fatal(err)
			}
			checkSample(t, d, src, id, everything[id])
			var again format.Sample
			if err := Read(d, src, id, nil, &again); err != nil {
				t.Fatal(err)
			}
			if diff := diffSamples(everything[id], again); diff != "" {
				t.Errorf("sample %d read twice differs: %s", id, diff)
			}
		}
	})
	t.Run("chosen fields", func(t *testing.T) {
		var s format.Sample // reused, as in the engine
		for id := range x.Len() {
			for _, fields := range choices(everything[id].Fields) {
				checkExtents(t, d, id, fields)
				if err := Read(d, src, id, fields, &s); err != nil {
					t.Fatalf("sample %d, %q: %v", id, fields, err)
				}
				checkChoice(t, everything[id], s, fields)
			}
		}
	})
	t.Run("missing field", func(t *testing.T) {
		for id := range x.Len() {
			fields := []string{everything[id].Fields[0].Name, "no such;nor this"}
			err := Read(d, src, id, fields, &format.Sample{})
			e := errs.From(err)
			if e.Code != errs.MissingField || e.Where.Sample.Or(-1) != id || e.Where.Field != fields[1] || e.Hint == "" {
				t.Errorf("sample %d: %s at %v, hint %q", id, e, e.Where, e.Hint)
			}
		}
	})
	t.Run("wrong bytes", func(t *testing.T) { wrongBytes(t, d, src) })
	t.Run("no such sample", func(t *testing.T) {
		for _, id := range []int64{-1, x.Len(), 1 << 62} {
			if got := d.Extents(id, nil, nil); len(got) != 0 {
				t.Errorf("sample %d has the extents %v", id, got)
			}
			if d.Parse(id, nil, nil, &format.Sample{}) == nil {
				t.Errorf("sample %d could be parsed", id)
			}
		}
	})
	t.Run("side by side", func(t *testing.T) {
		var wg sync.WaitGroup
		for g := range int64(8) {
			wg.Go(func() {
				var s format.Sample
				for i := range min(x.Len(), 50) {
					id := (i*7 + g*13) % x.Len()
					if err := Read(d, src, id, nil, &s); err != nil {
						t.Error(err)
					} else if diff := diffSamples(everything[id], s); diff != "" {
						t.Errorf("sample %d differs: %s", id, diff)
					}
				}
			})
		}
		wg.Wait()
	})
}

// diffSamples is cmp.Diff, without the seconds that it takes for large equal
// samples.
func diffSamples(want, got format.Sample) string {
	return cmp.Diff(want, got, cmp.Comparer(bytes.Equal), cmpopts.IgnoreUnexported(format.Sample{}))
}

// choices are every field alone, all of them backwards, one of them twice, and one
// after an alternative that does not exist.
func choices(have []format.Field) [][]string {
	out := [][]string{{}}
	var names []string
	for _, f := range have {
		names = append(names, f.Name)
		out = append(out, []string{f.Name}, []string{"no such;" + f.Name + ";" + have[0].Name})
	}
	slices.Reverse(names)
	return append(out, names, []string{names[0], names[len(names)-1], names[0]})
}

func checkChoice(t *testing.T, all, got format.Sample, fields []string) {
	t.Helper()
	if len(got.Fields) != len(fields) || got.ID != all.ID {
		t.Fatalf("sample %d: %d fields for %q of sample %d", got.ID, len(got.Fields), fields, all.ID)
	}
	for i := range got.Fields {
		at := slices.IndexFunc(all.Fields, func(a format.Field) bool {
			return a.Name == fields[i] || "no such;"+a.Name+";"+all.Fields[0].Name == fields[i]
		})
		if diff := diffSamples(format.Sample{Fields: all.Fields[at : at+1]}, format.Sample{Fields: got.Fields[i : i+1]}); diff != "" {
			t.Errorf("sample %d, %q: %s", got.ID, fields[i], diff)
		}
	}
}

func checkExtents(t *testing.T, d format.Stored, id int64, fields []string) {
	t.Helper()
	first := format.Extent{File: 77}
	got := d.Extents(id, fields, []format.Extent{first})
	if got[0] != first {
		t.Fatalf("sample %d: what was before its extents became %v", id, got[0])
	}
	got = got[1:]
	if diff := cmp.Diff(d.Extents(id, fields, make([]format.Extent, 0, 8)), append([]format.Extent{}, got...)); diff != "" {
		t.Errorf("sample %d has other extents the second time: %s", id, diff)
	}
	for _, e := range got {
		if e.File < 0 || e.File >= d.Index().Files() {
			t.Fatalf("sample %d is in file %d of %d", id, e.File, d.Index().Files())
		}
		size, _ := d.Index().Stamp(e.File)
		if e.Off < 0 || e.Len < 0 || e.Off+e.Len > size || e.Whole && (e.Off != 0 || e.Len != size) {
			t.Errorf("sample %d: %+v does not fit a file of %d bytes", id, e, size)
		}
	}
}

// checkSample compares every field with the bytes of its file.
func checkSample(t *testing.T, d format.Stored, src source.Source, id int64, s format.Sample) {
	t.Helper()
	if s.ID != id || len(s.Fields) == 0 {
		t.Fatalf("sample %d came as %d with %d fields", id, s.ID, len(s.Fields))
	}
	seen := make(map[string]bool)
	for _, f := range s.Fields {
		if seen[f.Name] {
			t.Errorf("sample %d has the field %q twice", id, f.Name)
		}
		seen[f.Name] = true
		if f.IsInt || f.File < 0 || f.Unpacked {
			continue
		}
		at := format.Extent{File: f.File, Off: f.Off, Len: int64(len(f.Data))}
		raw, err := readExtents(d, src, []format.Extent{at})
		if err != nil || !bytes.Equal(raw[0], f.Data) {
			t.Errorf("sample %d, field %q is not what is stored at its offset (%v)", id, f.Name, err)
		}
		if p, ok := d.(format.Placed); ok && !slices.Contains(p.Places(id, []string{f.Name}, nil), at) {
			t.Errorf("sample %d, field %q is stored at %v, which is not one of its places", id, f.Name, at)
		}
	}
}

// wrongBytes passes in bytes that cannot be the extents: the result is an error,
// and never a panic.
func wrongBytes(t *testing.T, d format.Stored, src source.Source) {
	for id := range min(d.Index().Len(), 20) {
		raw, err := readExtents(d, src, d.Extents(id, nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		cases := map[string][][]byte{"nothing": nil, "nothing in it": make([][]byte, len(raw))}
		if n := len(raw); n > 0 && len(raw[n-1]) > 0 {
			short := slices.Clone(raw)
			short[n-1] = short[n-1][:len(short[n-1])-1]
			cases["one byte less"] = short
		} else {
			continue
		}
		for name, raw := range cases {
			if err := d.Parse(id, nil, raw, &format.Sample{}); err == nil {
				t.Errorf("sample %d could be parsed from %s", id, name)
			}
		}
	}
}

// NoHeap checks that extents and fields of a sample allocate nothing after the
// first use.
func NoHeap(t *testing.T, d format.Stored, src source.Source, fields []string) {
	t.Helper()
	id := d.Index().Len() / 2
	raw, err := readExtents(d, src, d.Extents(id, fields, nil))
	if err != nil {
		t.Fatal(err)
	}
	var s format.Sample
	dst := make([]format.Extent, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		dst = d.Extents(id, fields, dst[:0])
		if err := d.Parse(id, fields, raw, &s); err != nil {
			panic(fmt.Sprint(err))
		}
	}); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
}
