package parquet_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// A type that has a plain form is returned in it; one that does not is refused by
// name, and only where it is wanted.
func TestKinds(t *testing.T) {
	d, src := open(t, parquet.Options{}, "kinds.parquet")
	var s format.Sample
	stagetest.Must(t, stagetest.Read(d, src, 1, nil, &s))
	for _, want := range []struct {
		name  string
		typ   format.Type
		value string
	}{
		{"day", format.Type{DType: mem.Int32, Shape: mem.Shape{}}, "18263"},
		{"when", format.Type{DType: mem.Int64, Shape: mem.Shape{}}, "1.5779232e+15"},
		{"half", format.Type{DType: mem.Float16, Shape: mem.Shape{}}, "14336"}, // 0x3800: 0.5
		{"fixed", format.Type{DType: mem.Int16, Shape: mem.Shape{3}}, "[1 2 3]"},
		{"things.x", format.Type{DType: mem.Int64, Shape: mem.Shape{}, Ragged: true}, "[1 2]"},
		{"things.y", format.Type{DType: mem.Float64, Shape: mem.Shape{}, Ragged: true}, "[2.5 3.5]"},
	} {
		typ, _ := d.Type(want.name)
		at := slices.IndexFunc(s.Fields, func(f format.Field) bool { return f.Name == want.name })
		if at < 0 || fmt.Sprint(typ) != fmt.Sprint(want.typ) || fmt.Sprint(show(typ, s.Fields[at].Data)) != want.value {
			t.Errorf("%s is %v in place %d, %v", want.name, typ, at, s.Fields)
		}
	}
	for name, why := range map[string]string{"money": "decimal", "map.key_value.key": "map", "deep": "lists in lists", "words": "list of texts"} {
		e := errs.From(stagetest.Read(d, src, 1, []string{name}, &s))
		if e.Code != errs.Unsupported || !strings.Contains(e.What, why) || !strings.Contains(e.What, name) || e.Where.Sample.Or(-1) != 1 || e.Where.Field != name || e.Hint == "" {
			t.Errorf("%s: %s, %v at %v | %s", name, e.Code, e, e.Where, e.Hint)
		}
		if _, ok := d.Type(name); ok {
			t.Errorf("%s has a type", name)
		}
		if e := errs.From(d.Check([]string{"day", name})); e.Code != errs.Unsupported || e.Where.Field != name {
			t.Errorf("check of %s: %v", name, e)
		}
	}
	// A list that is null, one with a null in it, and an empty one.
	for id, want := range []string{"has a null in it", "", "is null", ""} {
		err := stagetest.Read(d, src, int64(id), []string{"day", "holes"}, &s)
		if (err == nil) != (want == "") || err != nil && (errs.CodeOf(err) != errs.MissingField || !strings.Contains(err.Error(), want)) {
			t.Errorf("row %d: %v", id, err)
		}
	}
	d, src = open(t, parquet.Options{}, "old-time.parquet")
	if e := errs.From(stagetest.Read(d, src, 0, []string{"when"}, &s)); e.Code != errs.Unsupported || !strings.Contains(e.What, "INT96") {
		t.Errorf("INT96: %v", e)
	}
	stagetest.Must(t, stagetest.Read(d, src, 0, nil, &s))
	if len(s.Fields) != 1 || s.Fields[0].Name != "id" {
		t.Errorf("everything is %+v", s.Fields)
	}
}

// Only the pages of the wanted columns are read, and of them those with the row.
func TestProjection(t *testing.T) {
	d, _ := open(t, parquet.Options{}, "rows-v2-none.parquet")
	all := d.Extents(10, nil, nil)
	for _, fields := range [][]string{{"f32"}, {"no;f32", "f32"}, {"text", "f32"}} {
		var got, total int64
		for _, e := range d.Extents(10, fields, nil) {
			got += e.Len
			if !slices.Contains(all, e) {
				t.Errorf("%q: %+v is not among all", fields, e)
			}
		}
		for _, e := range all {
			total += e.Len
		}
		if got == 0 || got*5 > total {
			t.Errorf("%q: %d bytes of %d", fields, got, total)
		}
	}
	a, b, c := d.Extents(9, []string{"f32"}, nil), d.Extents(17, []string{"f32"}, nil), d.Extents(18, []string{"f32"}, nil)
	if !slices.Equal(a, b) || slices.Equal(b, c) {
		t.Errorf("rows 9, 17 and 18 are in %v, %v and %v", a, b, c)
	}
	if got := d.Runs(); !slices.Equal(got, []int64{20, 16}) {
		t.Errorf("the row groups have %v rows", got)
	}
}

func TestSeveralFiles(t *testing.T) {
	d, src := open(t, parquet.Options{Label: "text"}, "rows-gzip.parquet", "rows-index.parquet")
	want := rows(t, "rows.json")
	if d.Index().Len() != int64(2*len(want)) {
		t.Fatalf("%d samples", d.Index().Len())
	}
	if got := d.Index().Classes(); !slices.Equal(got, []string{"", "alpha", "beta", "gämma"}) {
		t.Errorf("classes %q", got)
	}
	class := d.Index().Int32s(index.SampleClass)
	var s format.Sample
	for id := range d.Index().Len() {
		stagetest.Must(t, stagetest.Read(d, src, id, []string{"text", "i64"}, &s))
		row := want[id%int64(len(want))]
		name := d.Index().Classes()[s.Fields[0].Int]
		if name != row["text"] || int64(class[id]) != s.Fields[0].Int || show(format.Type{DType: mem.Int64, Shape: mem.Shape{}}, s.Fields[1].Data) != wanted(row["i64"]) {
			t.Errorf("sample %d is %q, class %d, %v", id, name, class[id], s.Fields[1].Data)
		}
	}
	stagetest.Dataset(t, d, src)
	_, _, err := try(t, parquet.Options{}, "rows-gzip.parquet", "huggingface.parquet")
	if e := errs.From(err); e.Code != errs.Unsupported || e.Where.Field != "flag" || !strings.HasSuffix(e.Where.Shard, "huggingface.parquet") {
		t.Errorf("two schemas: %v at %v", err, e.Where)
	}
}

func TestLabels(t *testing.T) {
	d, _ := open(t, parquet.Options{Label: "u8"}, "rows-snappy.parquet")
	if d.Index().Classes() != nil || d.Index().Int32s(index.SampleClass)[3] != 17 {
		t.Error("the numbers of a column are not the classes")
	}
	for label, code := range map[string]errs.Code{
		"i8": errs.MissingField, "maybe": errs.MissingField, "note": errs.MissingField, "f32": errs.Config, "vec": errs.Config, "u9": errs.Config,
	} {
		_, _, err := try(t, parquet.Options{Label: label}, "rows-snappy.parquet")
		if e := errs.From(err); err == nil || e.Code != code || e.Where.Field != label || e.Hint == "" {
			t.Errorf("%s: %s, %v | %s", label, e.Code, err, e.Hint)
		}
	}
}

// The index is used again while size and time stay the same; its digest depends on
// the contents of the dataset, and not on where it is stored.
func TestStale(t *testing.T) {
	store := index.Store{Dir: t.TempDir()}
	put := func(dir, from string) string {
		data, err := os.ReadFile(filepath.Join("../../../../testdata/parquet", from))
		stagetest.Must(t, err)
		path := filepath.Join(dir, "x.parquet")
		stagetest.Must(t, os.WriteFile(path, data, 0o600))
		return path
	}
	dir := t.TempDir()
	path := put(dir, "huggingface.parquet")
	builds := 0
	digest := func(path string) string {
		d, _ := open(t, parquet.Options{Store: &store, Progress: func(int64, int64, string) { builds++ }}, path)
		return d.Index().Digest()
	}
	first := digest(path)
	if again := digest(path); again != first || builds != 1 {
		t.Errorf("%d builds, %s and %s", builds, first, again)
	}
	if digest(put(t.TempDir(), "huggingface.parquet")) != first {
		t.Error("the digest depends on the place")
	}
	// A class whose name is not UTF-8 would be another class, or two of them one.
	raw, err := os.ReadFile(path)
	stagetest.Must(t, err)
	if bytes.Count(raw, []byte(`"eel"`)) == 0 {
		t.Fatal("the names of classes are not there")
	}
	broken := put(t.TempDir(), "huggingface.parquet")
	stagetest.Must(t, os.WriteFile(broken, bytes.ReplaceAll(raw, []byte(`"eel"`), []byte("\"e\xffl\"")), 0o600))
	src := source.NewFile()
	defer src.Close()
	if _, err := parquet.Open(context.Background(), src, []string{broken}, parquet.Options{Store: &index.Store{}}); errs.CodeOf(err) != errs.Damaged || errs.From(err).Where.Shard != broken {
		t.Errorf("%v", err)
	}
	builds = 0
	if digest(put(dir, "huggingface-plain.parquet")) == first || builds != 1 {
		t.Errorf("%d builds after a change", builds)
	}
}

// A cache too small to keep a page gives the same bytes.
func TestSmallCache(t *testing.T) {
	d, src := open(t, parquet.Options{Cache: 1}, "rows-brotli.parquet")
	readAll(t, d, src, rows(t, "rows.json"))
}

func TestSniff(t *testing.T) {
	for name, want := range map[string]bool{"a.parquet": true, "a.PQ": true, "a.csv": false} {
		if parquet.Sniff(name, nil) != want || !parquet.Sniff(name, []byte("PAR1...")) || parquet.Sniff(name, []byte("path,label")) {
			t.Error(name)
		}
	}
}

// A file without a row, whatever columns it has, does not affect the others; a list
// of only such files is refused as empty.
func TestFilesWithoutRows(t *testing.T) {
	for _, opt := range []parquet.Options{{}, {Label: "text"}} {
		d, src := open(t, opt, "no-rows.parquet", "rows-whole.parquet", "no-rows.parquet", "rows-none.parquet", "no-rows.parquet")
		want := rows(t, "rows.json")
		if d.Index().Len() != int64(2*len(want)) || d.Index().Files() != 5 {
			t.Fatalf("%d samples in %d files", d.Index().Len(), d.Index().Files())
		}
		if opt.Label == "" {
			readAll(t, d, src, append(want, want...))
		}
		var at []format.Extent
		if at = d.Extents(40, []string{"i64"}, nil); len(at) == 0 || at[0].File != 3 {
			t.Errorf("sample 40 is in %v", at)
		}
	}
	for _, names := range [][]string{{"no-rows.parquet"}, {"no-rows.parquet", "no-rows.parquet"}} {
		if _, _, err := try(t, parquet.Options{}, names...); errs.CodeOf(err) != errs.Empty {
			t.Errorf("%v", err)
		}
	}
}
