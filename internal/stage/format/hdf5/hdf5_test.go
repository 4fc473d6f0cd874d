package hdf5_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

const fixtures = "../../../../testdata/hdf5/"

// fixture is a file that the real library wrote.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	return stagetest.Unzipped(t, fixtures+name+".h5.gz")
}

const here = "mem://x.h5"

func try(data []byte, opt hdf5.Options) (*hdf5.Dataset, error) {
	opt.Store = &index.Store{}
	return hdf5.Open(ctx, stagetest.Memory{here: data}, []string{here}, opt)
}

func open(t *testing.T, data []byte, opt hdf5.Options) *hdf5.Dataset {
	t.Helper()
	d, err := try(data, opt)
	stagetest.Must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// sum reads a field of every sample, as make.py sums what h5py reads.
func sum(d *hdf5.Dataset, src source.Source, field string) (string, error) {
	h := sha256.New()
	for id := range d.Index().Len() {
		var s format.Sample
		if err := stagetest.Read(d, src, id, []string{field}, &s); err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d %s", len(s.Fields[0].Data), s.Fields[0].Data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// want is what h5py says of one dataset.
type want struct {
	DType  string
	Shape  []int64
	SHA256 string
}

func wanted(t *testing.T) map[string]map[string]want {
	t.Helper()
	all := make(map[string]map[string]want)
	for _, name := range []string{"want.json", "want_2.json"} { // HDF5 1.14's and 2.0's
		raw, err := os.ReadFile(fixtures + name)
		stagetest.Must(t, err)
		stagetest.Must(t, json.Unmarshal(raw, &all))
	}
	return all
}

// Every dataset that h5py reads is read as h5py reads it: every row, every byte.
func TestAsH5pyReads(t *testing.T) {
	seen := 0
	for name, datasets := range wanted(t) {
		t.Run(name, func(t *testing.T) {
			data := fixture(t, name)
			for path, w := range datasets {
				seen++
				d, err := try(data, hdf5.Options{Columns: []string{path}})
				if err != nil {
					t.Errorf("%s: %v", path, err)
					continue
				}
				got, err := sum(d, stagetest.Memory{here: data}, path)
				if err != nil || got != w.SHA256 || d.Index().Len() != w.Shape[0] {
					t.Errorf("%s: %d rows with the sum %s (%v), want %d with %s", path, d.Index().Len(), got, err, w.Shape[0], w.SHA256)
				}
				typed(t, d, path, w)
				stagetest.Must(t, d.Close())
			}
		})
	}
	if seen < 170 {
		t.Errorf("%d datasets only", seen)
	}
}

// typed compares the type of a field with NumPy's.
func typed(t *testing.T, d *hdf5.Dataset, path string, w want) {
	t.Helper()
	got, ok := d.Type(path)
	if !ok {
		t.Errorf("%s has no type", path)
	}
	dtype := strings.TrimLeft(w.DType, "<>=|")
	if strings.HasPrefix(w.DType, ">") {
		dtype = map[string]string{"u2": "uint16", "i2": "int16", "u4": "uint32", "i4": "int32", "u8": "uint64", "i8": "int64", "f2": "float16", "f4": "float32", "f8": "float64"}[dtype]
	}
	var shape []int64
	for _, n := range got.Shape {
		shape = append(shape, int64(n))
	}
	switch {
	case path == "jpegs" || path == "tokens" || strings.HasPrefix(path, "ints"):
		if !got.Ragged || len(shape) != 0 {
			t.Errorf("%s: %+v", path, got)
		}
	case got.DType == mem.Object:
		if dtype != "object" && dtype[0] != 'S' && dtype[0] != 'V' {
			t.Errorf("%s is an object, and %s", path, w.DType)
		}
	case strings.HasPrefix(w.DType, "("): // an array type
		if got.DType != mem.Int16 || !slices.Equal(shape, []int64{2, 3}) {
			t.Errorf("%s: %+v", path, got)
		}
	case got.DType.String() != dtype || path != "arrays" && !slices.Equal(shape, w.Shape[1:]) || got.Ragged:
		t.Errorf("%s: %+v, want %s %v", path, got, w.DType, w.Shape)
	}
}

func TestConformance(t *testing.T) {
	for name, opt := range map[string]hdf5.Options{
		"plain":         {},
		"userblock":     {},
		"filters":       {},
		"sparse":        {},
		"sparse_latest": {},
		"types":         {},
		"groups":        {Group: "train"},
		"latest":        {Columns: []string{"fixed", "fixed_gzip", "extensible2_gzip", "tree", "single", "contiguous", "implicit", "strings"}},
	} {
		t.Run(name, func(t *testing.T) {
			data := fixture(t, name)
			d := open(t, data, opt)
			stagetest.Dataset(t, d, stagetest.Memory{here: data})
			if name == "plain" {
				stagetest.NoHeap(t, d, stagetest.Memory{here: data}, []string{"labels", "images"})
			}
			if v, ok := d.Type("no such"); ok {
				t.Errorf("no such field is %v", v)
			}
		})
	}
}

// Files of the same datasets are one dataset, however each of them is compressed.
func TestShards(t *testing.T) {
	src := source.NewFile()
	defer src.Close()
	dir := t.TempDir()
	past := time.Now().Add(-time.Hour)
	var paths []string
	for i := range 3 {
		p := fmt.Sprintf("%s/shard%d.h5", dir, i)
		stagetest.Must(t, os.WriteFile(p, fixture(t, fmt.Sprintf("shard%d", i)), 0o644))
		stagetest.Must(t, os.Chtimes(p, past, past))
		paths = append(paths, p)
	}
	built := 0
	opt := hdf5.Options{Store: &index.Store{Dir: dir + "/cache"}, Progress: func(int64, int64, string) { built++ }}
	d, err := hdf5.Open(ctx, src, paths, opt)
	stagetest.Must(t, err)
	stagetest.Dataset(t, d, src)
	var got []byte
	for id := range d.Index().Len() {
		var s format.Sample
		stagetest.Must(t, stagetest.Read(d, src, id, []string{"y"}, &s))
		got = append(got, s.Fields[0].Data[0])
	}
	var want []byte
	for part := range 3 {
		for i := range 13 + part {
			want = append(want, byte(i+100*part))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	stagetest.Must(t, d.Close())
	d, err = hdf5.Open(ctx, src, paths, opt)
	stagetest.Must(t, err)
	if built != 3 {
		t.Errorf("indexed in %d steps", built)
	}
	stagetest.Must(t, os.WriteFile(paths[1], fixture(t, "shard1"), 0o644))
	err = stagetest.Read(d, src, 15, nil, &format.Sample{})
	if errs.CodeOf(err) != errs.Changed {
		t.Errorf("a file that was written again: %v", err)
	}
	stagetest.Must(t, d.Close())
	stagetest.Must(t, os.WriteFile(paths[1], fixture(t, "plain"), 0o644))
	_, err = hdf5.Open(ctx, src, paths, opt)
	if e := errs.From(err); e.Code != errs.Config || e.Where.Shard != paths[1] || !strings.Contains(e.What, `no dataset "x"`) {
		t.Errorf("%v at %v", e, e.Where)
	}
	opt.Store = &index.Store{}
	_, err = hdf5.Open(ctx, src, []string{dir + "/nothing.h5"}, opt)
	if e := errs.From(err); e.Code != errs.NotFound || e.Where.Shard != dir+"/nothing.h5" {
		t.Errorf("%v at %v", e, e.Where)
	}
}

func TestColumns(t *testing.T) {
	for _, c := range []struct {
		name       string
		opt        hdf5.Options
		fields     string // as they come, or:
		code       errs.Code
		what, hint string
	}{
		{"plain", hdf5.Options{}, "images,labels", "", "", ""},
		{"plain", hdf5.Options{Columns: []string{"/labels"}}, "labels", "", "", ""},
		{"plain", hdf5.Options{Columns: []string{"labels", "images"}}, "labels,images", "", "", ""},
		{"groups", hdf5.Options{Group: "/train/"}, "x,y", "", "", ""},
		{"groups", hdf5.Options{Columns: []string{"soft", "train/relative"}}, "soft,train/relative", "", "", ""},
		{"groups", hdf5.Options{Group: "val", Columns: []string{"x"}}, "x", "", "", ""},
		{"groups", hdf5.Options{}, "", errs.Config, "as many datasets of 8 rows (again, val/y) as of 20 (train/x, train/y)", "columns=[...]"},
		{"groups", hdf5.Options{Columns: []string{"dangling"}}, "", errs.Config, `"nowhere" does not exist; "dangling" leads to it`, "the datasets are again, many/000"},
		{"groups", hdf5.Options{Columns: []string{"outside"}}, "", errs.Unsupported, "a link to another file, other.h5:/x", "give the file"},
		{"groups", hdf5.Options{Columns: []string{"train"}}, "", errs.Config, `"train" is not a dataset`, "name one of the datasets"},
		{"groups", hdf5.Options{Columns: []string{"train/x", "val/y"}}, "", errs.Config, `"val/y" has 8 rows, and "train/x" 20`, "a row for every sample"},
		{"groups", hdf5.Options{Columns: []string{"many/003"}}, "", errs.Config, "it is a single value", "one dimension or more"},
		{"groups", hdf5.Options{Group: "many"}, "", errs.Config, `no dataset with rows in "/many"`, "stoker inspect"},
		{"plain", hdf5.Options{Columns: []string{"lables"}}, "", errs.Config, `no dataset "lables"`, `did you mean "labels"?`},
		{"plain", hdf5.Options{Columns: []string{"labels", "labels"}}, "", errs.Config, "is there twice", "once"},
		{"plain", hdf5.Options{Columns: []string{}}, "", errs.Config, "the list of columns is empty", "leave columns out"},
		{"refused", hdf5.Options{Columns: []string{"compound"}}, "", errs.Unsupported, "compound types are not read", "columns=[...]"},
		{"refused", hdf5.Options{}, "fine", "", "", ""},
		{"refused", hdf5.Options{Columns: []string{"fine", "complex"}}, "", errs.Unsupported, "it is a compound of 2 members, and compound types are not read", "columns=[...]"},
		{"groups", hdf5.Options{Group: "val"}, "x,y", "", "", ""}, // x is listed as "again" first
		{"groups", hdf5.Options{Group: "val/loop/train"}, "x,y", "", "", ""},
		{"groups", hdf5.Options{Columns: []string{"val/x", "val/loop/val/loop/val/y"}}, "val/x,val/loop/val/loop/val/y", "", "", ""},
		{"groups", hdf5.Options{Columns: []string{"val/loop/val/z"}}, "", errs.Config, `"val/z" does not exist; "val/loop/val/z" leads to it`, "datasets are again"},
		{"groups", hdf5.Options{Columns: []string{"again", "val/x"}}, "", errs.Config, `"again" and "val/x" are two names of one dataset`, "once"},
		{"mixed", hdf5.Options{}, "a,b,more/images", "", "", ""},
		{"mixed", hdf5.Options{Columns: []string{"empty"}}, "", errs.Empty, "no row", "first dimension of 0"},
		{"mixed", hdf5.Options{Columns: []string{"a", "empty"}}, "", errs.Config, `"empty" has 0 rows, and "a" 12`, "a row for every sample"},
		{"mixed", hdf5.Options{Columns: []string{"boxes", "a"}}, "", errs.Unsupported, "compound of 2 members", "columns=[...]"},
		{"mixed", hdf5.Options{Columns: []string{"object"}}, "", errs.Unsupported, "reference", "columns=[...]"},
		{"mixed", hdf5.Options{Group: "linked"}, "b,images", "", "", ""},
		{"mixed", hdf5.Options{Columns: []string{"linked/images", "linked/b"}}, "linked/images,linked/b", "", "", ""},
		{"tables", hdf5.Options{}, "", errs.Unsupported, `can be read: "t1" (it is a compound of 2 members, and compound types are not read), "t2" (`, "columns=[...]"},
		{"refused", hdf5.Options{Columns: []string{"scaleoffset"}}, "", errs.Unsupported, "compressed with scaleoffset (filter 6)", "h5repack"},
		{"refused", hdf5.Options{Columns: []string{"zstd"}}, "", errs.Unsupported, "compressed with zstd (filter 32015)", "h5repack"},
		{"refused", hdf5.Options{Columns: []string{"external"}}, "", errs.Unsupported, "its data is in other files", "copy it into one"},
		{"refused", hdf5.Options{Columns: []string{"virtual"}}, "", errs.Unsupported, "virtual dataset", "give the files"},
		{"refused", hdf5.Options{Columns: []string{"references"}}, "", errs.Unsupported, "references are not read", "columns=[...]"},
		{"refused", hdf5.Options{Columns: []string{"strings2d"}}, "", errs.Unsupported, "a row has [2] of type string", "one string a row"},
		{"refused", hdf5.Options{Columns: []string{"fine"}}, "fine", "", "", ""},
	} {
		d, err := try(fixture(t, c.name), c.opt)
		if c.code == "" {
			stagetest.Must(t, err)
			if got := strings.Join(d.Index().Meta().Fields, ","); got != c.fields {
				t.Errorf("%s %+v: fields %s, want %s", c.name, c.opt, got, c.fields)
			}
			stagetest.Must(t, d.Close())
			continue
		}
		e := errs.From(err)
		if e.Code != c.code || !strings.Contains(e.What, c.what) || !strings.Contains(e.Hint, c.hint) || e.Where.Shard != here {
			t.Errorf("%s %+v: %s %q at %v, hint %q", c.name, c.opt, e.Code, e.What, e.Where, e.Hint)
		}
	}
}

func TestFillAndSizes(t *testing.T) {
	data := fixture(t, "sparse")
	d := open(t, data, hdf5.Options{})
	read := func(id int64, field string) []byte {
		var s format.Sample
		stagetest.Must(t, stagetest.Read(d, stagetest.Memory{here: data}, id, []string{field}, &s))
		return s.Fields[0].Data
	}
	if got := read(30, "holes"); hex.EncodeToString(got) != "f9fff9fff9fff9ff" {
		t.Errorf("%x", got)
	}
	if got := read(49, "nothing"); hex.EncodeToString(got) != "0000c03f0000c03f" {
		t.Errorf("%x", got)
	}
	if got := read(20, "grown"); string(got) != "\x09\x09\x09" {
		t.Errorf("%x", got)
	}
	if n := len(d.Extents(49, []string{"nothing", "zeros"}, nil)); n != 0 {
		t.Errorf("%d extents of what was never written", n)
	}
	if d.Size(0, "holes") != 8 || d.Size(0, "zeros") != 1 || d.Size(0, "no") != -1 {
		t.Error(d.Size(0, "holes"), d.Size(0, "zeros"))
	}
	data = fixture(t, "types")
	d = open(t, data, hdf5.Options{})
	if d.Size(3, "jpegs") != 2193 || d.Size(3, "strings") != int64(len(read(3, "strings"))) || d.Size(3, "opaque") != 5 || d.Size(3, "fixed") != -1 {
		t.Error(d.Size(3, "jpegs"), d.Size(3, "strings"), d.Size(3, "opaque"), d.Size(3, "fixed"))
	}
}

func TestCheckSniffList(t *testing.T) {
	data := fixture(t, "plain")
	d := open(t, data, hdf5.Options{})
	stagetest.Must(t, d.Check([]string{"x;images", "labels"}))
	if e := errs.From(d.Check([]string{"image"})); e.Code != errs.Config || e.Hint != `did you mean "images"?` {
		t.Errorf("%v | %s", e, e.Hint)
	}
	if !hdf5.Sniff("x", data[:8]) || !hdf5.Sniff("A.H5", nil) || !hdf5.Sniff("a.hdf5", make([]byte, 8)) || hdf5.Sniff("a.tar", []byte("hello")) {
		t.Error("sniffing")
	}
	items, err := hdf5.List(ctx, stagetest.Memory{here: data}, here)
	stagetest.Must(t, err)
	var got []string
	for _, i := range items {
		line := "/" + i.Path
		if i.Dataset != nil {
			line += fmt.Sprintf(" %s %v", i.Dataset.Type.Name, i.Dataset.Dims)
		}
		for _, a := range i.Attributes {
			line += " " + a.Name + "=" + a.Value
		}
		got = append(got, line)
	}
	if diff := cmp.Diff([]string{
		`/ classes=["cat" "doge"] count=24 flag=true mean=[0.5 0.25 0.125] title="photos of coffee"`,
		`/images uint8 [24 4 5 3] unit="8 bit"`, `/labels int64 [24]`, `/mean float32 [4 5 3]`, `/version int64 []`,
	}, got); diff != "" {
		t.Error(diff)
	}
}

// A dataset that is not a field because it was not asked for is named, with the
// reason; when columns are asked for, nothing is left out.
func TestLeftOutIsNamed(t *testing.T) {
	for name, want := range map[string]string{
		"mixed": `left out of the fields: "boxes" (it is a compound of 2 members, and compound types are not read), ` +
			`"object" (it is a reference, and references are not read), "empty" (it has no rows), "mean" (3 rows instead of 12), ` +
			`"version" (a single value); columns=[...] names the ones to load, and stoker inspect shows all`,
		"plain":   `left out of the fields: "mean" (4 rows instead of 24), "version" (a single value); `,
		"latest":  `"outside" (a link to another file, other.h5:/x), "many/000" (a single value), `,
		"filters": "",
	} {
		d := open(t, fixture(t, name), hdf5.Options{})
		if got := strings.Join(d.Notes(), "\n"); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %s", name, got)
		}
		if d := open(t, fixture(t, name), hdf5.Options{Columns: d.Index().Meta().Fields[:1]}); d.Notes() != nil {
			t.Errorf("%s: %q", name, d.Notes())
		}
	}
}
