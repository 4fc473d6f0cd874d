package parquet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

// open opens files of testdata, or of an absolute path, without keeping an index.
func open(t testing.TB, opt parquet.Options, names ...string) (*parquet.Dataset, source.Source) {
	t.Helper()
	d, src, err := try(t, opt, names...)
	stagetest.Must(t, err)
	return d, src
}

func try(t testing.TB, opt parquet.Options, names ...string) (*parquet.Dataset, source.Source, error) {
	src := source.NewFile()
	t.Cleanup(func() { _ = src.Close() })
	for i, n := range names {
		if !filepath.IsAbs(n) {
			names[i] = filepath.Join("../../../../testdata/parquet", n)
		}
	}
	if opt.Store == nil {
		opt.Store = &index.Store{}
	}
	d, err := parquet.Open(ctx, src, names, opt)
	if err == nil {
		t.Cleanup(func() { _ = d.Close() })
	}
	return d, src, err
}

// rows is what a JSON file of testdata holds.
func rows(t testing.TB, name string) (out []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../../testdata/parquet", name))
	stagetest.Must(t, err)
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	stagetest.Must(t, dec.Decode(&out))
	return out
}

// show is a field as the JSON has it.
func show(typ format.Type, data []byte) any {
	if typ.DType == mem.Object {
		return data
	}
	size := typ.DType.Size()
	var out []float64
	for ; len(data) >= size; data = data[size:] {
		out = append(out, number(typ.DType, data))
	}
	if !typ.Ragged && len(typ.Shape) == 0 {
		return out[0]
	}
	return out
}

func number(t mem.DType, p []byte) float64 {
	le := binary.LittleEndian
	switch t {
	case mem.Bool, mem.Uint8:
		return float64(p[0])
	case mem.Int8:
		return float64(int8(p[0]))
	case mem.Int16:
		return float64(int16(le.Uint16(p)))
	case mem.Uint16, mem.Float16: // of a half, its bits
		return float64(le.Uint16(p))
	case mem.Int32:
		return float64(int32(le.Uint32(p)))
	case mem.Uint32:
		return float64(le.Uint32(p))
	case mem.Int64:
		return float64(int64(le.Uint64(p)))
	case mem.Uint64:
		return float64(le.Uint64(p))
	case mem.Float32:
		return float64(math.Float32frombits(le.Uint32(p)))
	}
	return math.Float64frombits(le.Uint64(p))
}

// wanted is a value of the JSON, in the form of show; nil: null.
func wanted(v any) any {
	switch v := v.(type) {
	case string:
		if rest, ok := strings.CutPrefix(v, "hex:"); ok {
			b, _ := hex.DecodeString(rest)
			return b
		}
		return []byte(v)
	case bool:
		return map[bool]float64{true: 1}[v]
	case json.Number:
		f, _ := v.Float64()
		return f
	case []any:
		var out []float64
		for _, x := range v {
			out = append(out, wanted(x).(float64))
		}
		return out
	}
	return v
}

// compare compares every field of a sample with its row.
func compare(t *testing.T, d *parquet.Dataset, s format.Sample, row map[string]any) {
	t.Helper()
	have := make(map[string]format.Field)
	for _, f := range s.Fields {
		have[f.Name] = f
	}
	seen := 0
	var walk func(prefix string, row map[string]any)
	walk = func(prefix string, row map[string]any) {
		for name, v := range row {
			if sub, ok := v.(map[string]any); ok {
				if p, image := sub["path"]; image {
					walk(prefix, map[string]any{name: sub["bytes"], name + ".path": p})
				} else {
					walk(prefix+name+".", sub)
				}
				continue
			}
			name = prefix + name
			f, ok := have[name]
			if v == nil {
				if ok {
					t.Errorf("sample %d, %q is %v instead of nothing", s.ID, name, f.Data)
				}
				continue
			}
			seen++
			typ, known := d.Type(name)
			if !ok || !known {
				t.Errorf("sample %d has no field %q", s.ID, name)
				continue
			}
			if got, want := fmt.Sprint(show(typ, f.Data)), fmt.Sprint(wanted(v)); got != want {
				t.Errorf("sample %d, %q is %s instead of %s", s.ID, name, got, want)
			}
		}
	}
	walk("", row)
	if seen != len(s.Fields) {
		t.Errorf("sample %d has %d fields instead of %d", s.ID, len(s.Fields), seen)
	}
}

func readAll(t *testing.T, d *parquet.Dataset, src source.Source, want []map[string]any) {
	t.Helper()
	if d.Index().Len() != int64(len(want)) {
		t.Fatalf("%d samples instead of %d", d.Index().Len(), len(want))
	}
	var s format.Sample
	for id := range d.Index().Len() {
		stagetest.Must(t, stagetest.Read(d, src, id, nil, &s))
		compare(t, d, s, want[id])
	}
}

// What pyarrow wrote, in every codec, version of pages, encoding and layout.
func TestRowsOfPyarrow(t *testing.T) {
	want := rows(t, "rows.json")
	files, err := filepath.Glob("../../../../testdata/parquet/rows-*.parquet")
	stagetest.Must(t, err)
	if len(files) < 12 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".parquet"), func(t *testing.T) {
			d, src := open(t, parquet.Options{}, filepath.Base(file))
			readAll(t, d, src, want)
		})
	}
}

func TestHuggingFace(t *testing.T) {
	want := rows(t, "huggingface.json")
	d, src := open(t, parquet.Options{}, "huggingface.parquet")
	readAll(t, d, src, want)
	if got := d.Index().Classes(); !slices.Equal(got, []string{"cat", "dog", "eel"}) {
		t.Errorf("the classes are %q", got)
	}
	class := d.Index().Int32s(index.SampleClass)
	for i := range want {
		if class[i] != int32(i*2%3) {
			t.Errorf("the classes of the samples are %v", class)
		}
	}
	if got := d.Index().Meta().Fields; !slices.Equal(got, []string{"image", "image.path", "label", "embedding"}) {
		t.Errorf("the fields are %q", got)
	}
	for name, want := range map[string]format.Type{
		"image": {}, "image.path": {}, "label": {DType: mem.Int64, Shape: mem.Shape{}}, "embedding": {DType: mem.Float32, Shape: mem.Shape{4}},
		"nothing;label": {DType: mem.Int64, Shape: mem.Shape{}},
	} {
		if got, ok := d.Type(name); !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q is %v, %v", name, got, ok)
		}
	}
	var s format.Sample
	stagetest.Must(t, stagetest.Read(d, src, 7, []string{"label"}, &s))
	if f := s.Fields[0]; !f.IsInt || f.Int != 2 || f.File != -1 {
		t.Errorf("the label is %+v", f)
	}

	for name, want := range map[string]string{"image": "", "image.path": "none", "label": "int", "embedding": "", "nothing": "none"} {
		if got := d.Decode(name); got != want {
			t.Errorf("%q is taken as %q", name, got)
		}
	}

	// An uncompressed picture is returned as it is stored in the file.
	d, src = open(t, parquet.Options{}, "huggingface-plain.parquet")
	readAll(t, d, src, want)
	stagetest.Must(t, stagetest.Read(d, src, 7, []string{"image"}, &s))
	if f := s.Fields[0]; f.File != 0 || f.Off == 0 || f.Unpacked {
		t.Errorf("the picture is in file %d at %d", f.File, f.Off)
	}
	if d.Index().Int32s(index.SampleClass) != nil {
		t.Error("there are classes, and nothing says so")
	}
	d, _ = open(t, parquet.Options{Label: parquet.None}, "huggingface.parquet")
	if d.Index().Int32s(index.SampleClass) != nil {
		t.Error("there are classes, and nobody wants them")
	}
	d, _ = open(t, parquet.Options{}, "rows-whole.parquet")
	for name, want := range map[string]string{"text": "text", "blob": "", "note": "none", "maybe": "none", "i64": "", "box.name": "text", "vec": ""} {
		if got := d.Decode(name); got != want {
			t.Errorf("%q is taken as %q", name, got)
		}
	}
}

func TestConformance(t *testing.T) {
	for _, names := range [][]string{{"rows-snappy.parquet"}, {"rows-v2-none.parquet", "rows-zstd.parquet"}, {"huggingface-plain.parquet"}, {"lists.parquet"}} {
		t.Run(names[0], func(t *testing.T) {
			d, src := open(t, parquet.Options{}, names...)
			stagetest.Dataset(t, d, src)
		})
	}
}

func TestListsOverPages(t *testing.T) {
	d, src := open(t, parquet.Options{}, "lists.parquet")
	readAll(t, d, src, rows(t, "lists.json"))
	if n := len(d.Extents(4, []string{"x"}, nil)); n < 5 {
		t.Errorf("a list of 1000 is in %d pages", n)
	}
	if n := len(d.Extents(3, []string{"x"}, nil)); n != 1 {
		t.Errorf("a list of 1 is in %d pages", n)
	}
}
