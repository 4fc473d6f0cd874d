package beton_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/beton"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

const path = "s3://bucket/x.beton"

// stored is a file of testdata.
func stored(t testing.TB, name string) []byte {
	t.Helper()
	return stagetest.Unzipped(t, "testdata/"+name+".beton.gz")
}

func open(t *testing.T, src source.Source, opt beton.Options) *beton.Dataset {
	t.Helper()
	opt.Store = &index.Store{}
	d, err := beton.Open(ctx, src, path, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// value is a field as testdata/make.py writes it.
type value struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Data  []byte `json:"data"`
	Bytes []byte `json:"bytes"`
}

func expected(t *testing.T, name string) []map[string]value {
	t.Helper()
	data, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]map[string]value
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all[name]
}

var names = []string{"everything", "jpg", "raw", "mixed", "resized", "numbers", "empty"}

// Every file that FFCV wrote is read as FFCV reads it.
func TestLikeFFCV(t *testing.T) {
	for _, name := range names {
		for _, pictures := range []bool{false, true} {
			src := stagetest.Bytes(stored(t, name))
			d := open(t, src, beton.Options{Pictures: pictures})
			want := expected(t, name)
			if d.Index().Len() != int64(len(want)) {
				t.Fatalf("%s: %d samples, want %d", name, d.Index().Len(), len(want))
			}
			var s format.Sample
			for id := range d.Index().Len() {
				if err := stagetest.Read(d, src, id, nil, &s); err != nil {
					t.Fatal(err)
				}
				for _, f := range s.Fields {
					same(t, d, id, f, want[id][f.Name], pictures)
				}
				if len(s.Fields) != len(d.Index().Meta().Fields) {
					t.Errorf("%s: %d fields", name, len(s.Fields))
				}
			}
		}
	}
}

func same(t *testing.T, d *beton.Dataset, id int64, f format.Field, want value, pictures bool) {
	t.Helper()
	typ, ok := d.Type(f.Name)
	data := want.Data
	isPicture := len(want.Shape) == 3 && want.DType == "uint8"
	switch {
	case want.DType == "":
		data = want.Bytes
	case isPicture && typ.DType == mem.Object:
		data = append(fmt.Appendf(nil, "P6\n%d %d\n255\n", want.Shape[1], want.Shape[0]), data...)
	case isPicture && pictures, typ.DType.String() != want.DType, !slices.Equal(want.Shape, []int(typ.Shape)), typ.Ragged:
		t.Errorf("sample %d, %s: %v %v, want %s %v", id, f.Name, typ.DType, typ.Shape, want.DType, want.Shape)
	}
	if !ok || !bytes.Equal(f.Data, data) {
		t.Errorf("sample %d, %s: %q, want %q", id, f.Name, f.Data, data)
	}
	if n := d.Size(id, f.Name); n != int64(len(f.Data)) {
		t.Errorf("sample %d, %s: %d bytes, Size says %d", id, f.Name, len(f.Data), n)
	}
}

func TestSuite(t *testing.T) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			src := stagetest.Bytes(stored(t, name))
			d := open(t, src, beton.Options{})
			stagetest.Dataset(t, d, src)
			if name == "everything" {
				stagetest.NoHeap(t, d, src, []string{"no such;raw", "label", "grid"})
			}
			if name == "raw" {
				stagetest.NoHeap(t, d, src, nil)
			}
		})
	}
}

// Raw pictures of any size can be decoded.
func TestDecoded(t *testing.T) {
	for _, name := range []string{"resized", "raw", "mixed", "jpg"} {
		src := stagetest.Bytes(stored(t, name))
		d := open(t, src, beton.Options{Pictures: true})
		for id, want := range expected(t, name) {
			var s format.Sample
			if err := stagetest.Read(d, src, int64(id), []string{"image"}, &s); err != nil {
				t.Fatal(err)
			}
			kind := decode.Sniff(s.Fields[0].Data)
			if v := want["image"]; v.DType == "" && kind != decode.KindJPEG || v.DType != "" && kind != decode.KindPNM {
				t.Errorf("%s: sample %d is %v", name, id, kind)
			}
		}
	}
}

func TestTypes(t *testing.T) {
	d := open(t, stagetest.Bytes(stored(t, "everything")), beton.Options{})
	for name, want := range map[string]string{
		"label": "int64 []", "score": "float64 []", "grid": "int16 [2 3]", "tensor": "float16 [2 1 2]", "flag": "bool [1]", "raw": "object []", "image": "object []",
	} {
		typ, ok := d.Type("no such;" + name)
		if got := fmt.Sprint(typ.DType, " ", []int(typ.Shape)); !ok || got != want || typ.Ragged {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if _, ok := d.Type("no such"); ok || d.Size(0, "no such") != -1 || d.Size(7, "label") != -1 {
		t.Error("a field or a sample that is not there")
	}
	if got := d.Index().Meta().Fields; len(got) != 8 || got[0] != "label" || got[7] != "flag" {
		t.Errorf("%v", got)
	}
	for _, err := range []error{d.Check([]string{"big-endian"}), d.Parse(0, []string{"big-endian"}, nil, &format.Sample{})} {
		if e := errs.From(err); e.Code != errs.Unsupported || !strings.Contains(e.What, ">f4") {
			t.Errorf("%v", err)
		}
	}
	if err := d.Check([]string{"label", "imag"}); errs.CodeOf(err) != errs.Config || !strings.Contains(errs.From(err).Hint, "image") {
		t.Errorf("%v", err)
	}
	if d.Check([]string{"x;label", "raw"}) != nil {
		t.Error("fields that are there")
	}
	// Values that are stored side by side take one read, and numbers need no read.
	if got := d.Extents(3, nil, nil); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	if got := d.Extents(3, []string{"label", "score"}, nil); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestKept(t *testing.T) {
	dir := t.TempDir()
	name := dir + "/x.beton"
	write := func() {
		t.Helper()
		if err := os.WriteFile(name, stored(t, "raw"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	src := source.NewFile()
	defer src.Close()
	builds := 0
	try := func() string {
		t.Helper()
		d, err := beton.Open(ctx, src, name, beton.Options{Store: &index.Store{Dir: dir + "/cache"}, Progress: func(done, total int64, _ string) {
			if done == total {
				builds++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return d.Index().Digest()
	}
	first := try()
	if try() != first || builds != 1 {
		t.Errorf("%d builds", builds)
	}
	write()
	if try() != first || builds != 2 {
		t.Errorf("%d builds", builds)
	}
	if _, err := beton.Open(ctx, src, dir+"/y.beton", beton.Options{}); errs.CodeOf(err) != errs.NotFound {
		t.Error(err)
	}
	if _, err := beton.Open(ctx, src, dir, beton.Options{}); errs.CodeOf(err) != errs.Config {
		t.Error(err)
	}
}

func TestSniff(t *testing.T) {
	data := stored(t, "numbers")
	if !beton.Sniff("a/x.beton", data[:512]) || beton.Sniff("x.tar", data) || beton.Sniff("x.beton", data[:10]) || beton.Sniff("x.beton", make([]byte, 512)) {
		t.Error("wrong")
	}
}
