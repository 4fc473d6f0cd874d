package files_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/files"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

// shelf is a folder of files and a place for indexes.
type shelf struct {
	dir   string
	src   source.Source
	store *index.Store
}

func newShelf(t testing.TB, contents map[string]string) *shelf {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	stagetest.Must(t, err)
	src := source.NewFile()
	t.Cleanup(func() { _ = src.Close() })
	s := &shelf{dir: filepath.Join(dir, "data"), src: src, store: &index.Store{}}
	for name, text := range contents {
		s.put(t, name, text)
	}
	return s
}

func (s *shelf) put(t testing.TB, name, text string) string {
	path := filepath.Join(s.dir, name)
	stagetest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	stagetest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (s *shelf) manifest(t testing.TB, name string, opt files.Options) *files.Dataset {
	t.Helper()
	opt.Store = s.store
	d, err := files.OpenManifest(ctx, s.src, filepath.Join(s.dir, name), opt)
	stagetest.Must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// pictures are four files in three folders.
func pictures() map[string]string {
	return map[string]string{"dog/0.jpg": "a dog", "cat/1.jpg": "a cat", "dog/2.jpg": "another dog", "eel/3.jpg": "an eel"}
}

// show is all fields of a sample, in one line.
func show(t testing.TB, d format.Stored, src source.Source, id int64, fields ...string) string {
	t.Helper()
	var s format.Sample
	stagetest.Must(t, stagetest.Read(d, src, id, fields, &s))
	var out []string
	for _, f := range s.Fields {
		typ, ok := d.(format.Typed).Type(f.Name)
		if !ok {
			t.Errorf("field %q has no type", f.Name)
		}
		v := fmt.Sprintf("%q", f.Data)
		switch {
		case f.IsInt:
			v = fmt.Sprint(f.Int)
			if binary.LittleEndian.Uint64(f.Data) != uint64(f.Int) || typ.DType != mem.Int64 {
				t.Errorf("the label is %+v", f)
			}
		case typ.DType == mem.Int64:
			v = fmt.Sprint(int64(binary.LittleEndian.Uint64(f.Data)))
		case typ.DType == mem.Uint64:
			v = fmt.Sprint(binary.LittleEndian.Uint64(f.Data))
		case typ.DType == mem.Float64:
			v = fmt.Sprint(math.Float64frombits(binary.LittleEndian.Uint64(f.Data)))
		case typ.DType == mem.Bool:
			v = fmt.Sprint(f.Data[0] != 0)
		}
		out = append(out, f.Name+"="+v)
	}
	return strings.Join(out, " ")
}

func TestListOfFiles(t *testing.T) {
	s := newShelf(t, pictures())
	paths, err := pattern.Expand(t.Context(), s.src, []string{s.dir + "/**/*.jpg"})
	stagetest.Must(t, err)
	paths = append(paths, paths[0]) // twice is meant
	d, err := files.Open(ctx, s.src, paths, files.Options{Store: s.store, Label: files.Folder})
	stagetest.Must(t, err)
	defer d.Close()
	stagetest.Dataset(t, d, s.src)
	for id, want := range []string{
		`image="a cat" label=0 __key__="cat/1.jpg"`, `image="a dog" label=1 __key__="dog/0.jpg"`,
		`image="another dog" label=1 __key__="dog/2.jpg"`, `image="an eel" label=2 __key__="eel/3.jpg"`,
		`image="a cat" label=0 __key__="cat/1.jpg"`,
	} {
		if got := show(t, d, s.src, int64(id)); got != want {
			t.Errorf("sample %d is %s", id, got)
		}
	}
	x := d.Index()
	if !slices.Equal(x.Classes(), []string{"cat", "dog", "eel"}) || !slices.Equal(x.Int32s(index.SampleClass), []int32{0, 1, 1, 2, 0}) || x.Files() != 4 {
		t.Errorf("classes %q, %v, %d files", x.Classes(), x.Int32s(index.SampleClass), x.Files())
	}
	if d.Size(2, "image") != 11 || d.Size(2, files.Key) != 9 || d.Size(2, "label") != -1 {
		t.Error("sizes are wrong")
	}
	stagetest.NoHeap(t, d, s.src, []string{"image", "label"})

	plain, err := files.Open(ctx, s.src, paths, files.Options{Store: s.store})
	stagetest.Must(t, err)
	defer plain.Close()
	if plain.Index().Int32s(index.SampleClass) != nil || show(t, plain, s.src, 0) != `image="a cat" __key__="cat/1.jpg"` {
		t.Error("files without classes have some")
	}
}

// Manifests that say the same in three ways are the same samples.
func TestManifests(t *testing.T) {
	want := []string{
		`image="a dog" path="dog/0.jpg" label=1 score=0 split=0 ok=true __key__="dog/0.jpg"`,
		`image="a cat" path="cat/1.jpg" label=0 score=0.25 split=1 ok=false __key__="cat/1.jpg"`,
		`image="another dog" path="dog/2.jpg" label=1 split=2 ok=true __key__="dog/2.jpg"`,
		`image="an eel" path="eel/3.jpg" label=2 score=0.75 split=3 ok=false __key__="eel/3.jpg"`,
	}
	s := newShelf(t, pictures())
	s.put(t, "m.csv", "\ufeffpath,label,score,split,ok\r\ndog/0.jpg,dog,0,0,true\r\n./cat/1.jpg,cat,0.25,1,false\r\n"+
		"\"dog/2.jpg\",dog,,2,true\r\neel/3.jpg,eel,0.75,3,false")
	s.put(t, "m.tsv", "path\tlabel\tscore\tsplit\tok\ndog/0.jpg\tdog\t0\t0\ttrue\ncat/1.jpg\tcat\t0.25\t1\tfalse\ndog/2.jpg\tdog\t\t2\ttrue\neel/3.jpg\teel\t0.75\t3\tfalse\n")
	s.put(t, "m.jsonl", `{"path": "dog/0.jpg", "label": "dog", "score": 0.0, "split": 0, "ok": true}
{"label": "cat", "path": "cat/1.jpg", "score": 0.25, "split": 1, "ok": false}

{"path": "dog/2.jpg", "label": "dog", "score": null, "split": 2, "ok": true}
{"path": "eel/3.jpg", "label": "eel", "score": 75e-2, "split": 3, "ok": false}
`)
	parquet, err := os.ReadFile("../../../../testdata/files/manifest.parquet")
	stagetest.Must(t, err)
	s.put(t, "m.parquet", string(parquet))
	for _, name := range []string{"m.csv", "m.tsv", "m.jsonl", "m.parquet"} {
		t.Run(name, func(t *testing.T) {
			d := s.manifest(t, name, files.Options{})
			for id, line := range want {
				got := show(t, d, s.src, int64(id))
				if strings.HasSuffix(name, "sv") { // has no booleans
					line = strings.ReplaceAll(strings.ReplaceAll(line, "ok=true", `ok="true"`), "ok=false", `ok="false"`)
				}
				if name == "m.csv" && id == 1 {
					line = strings.Replace(line, `path="cat`, `path="./cat`, 1)
				}
				if got != line {
					t.Errorf("sample %d is\n%s instead of\n%s", id, got, line)
				}
			}
			if got := d.Index().Classes(); !slices.Equal(got, []string{"cat", "dog", "eel"}) {
				t.Errorf("classes %q", got)
			}
			if got := d.Index().Int32s(index.SampleClass); !slices.Equal(got, []int32{1, 0, 1, 2}) {
				t.Errorf("classes of the samples: %v", got)
			}
			for field, want := range map[string]string{"image": "", "path": "none", "label": "int", "score": "none", "split": "", "nothing": "none"} {
				if got := d.Decode(field); got != want {
					t.Errorf("%q is taken as %q", field, got)
				}
			}
			stagetest.Dataset(t, d, s.src)
			if name == "m.csv" {
				return
			}
			e := errs.From(stagetest.Read(d, s.src, 2, []string{"score"}, &format.Sample{}))
			if e.Code != errs.MissingField || e.Where.Sample.Or(-1) != 2 || e.Where.Field != "score" || e.Hint == "" {
				t.Errorf("%s at %v | %s", e, e.Where, e.Hint)
			}
		})
	}
}

func TestChoosesColumns(t *testing.T) {
	s := newShelf(t, pictures())
	s.put(t, "m.csv", "id;image;kind;weight\n007;dog/0.jpg;3;1.5\n008;cat/1.jpg;0;2\n008;cat/1.jpg;1;2\n")
	d := s.manifest(t, "m.csv", files.Options{Label: "kind"})
	for id, want := range []string{
		`image="a dog" id="007" kind=3 weight=1.5 __key__="dog/0.jpg"`, `image="a cat" id="008" kind=0 weight=2 __key__="cat/1.jpg"`,
		`image="a cat" id="008" kind=1 weight=2 __key__="cat/1.jpg"`,
	} {
		if got := show(t, d, s.src, int64(id)); got != want {
			t.Errorf("sample %d is %s", id, got)
		}
	}
	if got := show(t, d, s.src, 0, "label", "nothing;kind"); got != "kind=3 kind=3" {
		t.Errorf("the label is %s", got)
	}
	if d.Index().Classes() != nil || !slices.Equal(d.Index().Int32s(index.SampleClass), []int32{3, 0, 1}) {
		t.Errorf("classes %v", d.Index().Int32s(index.SampleClass))
	}
	// A number to predict is not a class.
	d = s.manifest(t, "m.csv", files.Options{Label: "weight"})
	if d.Index().Int32s(index.SampleClass) != nil || show(t, d, s.src, 0, "weight") != "weight=1.5" {
		t.Error("fractions became classes")
	}
	// Paths relative to another folder, which is the root for good.
	s.put(t, "lists/m.jsonl", `{"img": "0.jpg"}`)
	d = s.manifest(t, "lists/m.jsonl", files.Options{Root: s.dir + "/dog"})
	if got := show(t, d, s.src, 0); got != `image="a dog" img="0.jpg" __key__="0.jpg"` {
		t.Errorf("sample 0 is %s", got)
	}
	// Absolute paths below the root are paths below the root.
	s.put(t, "abs.csv", "path\n"+s.dir+"/dog/0.jpg\n")
	if got := show(t, s.manifest(t, "abs.csv", files.Options{}), s.src, 0, "__key__"); got != `__key__="dog/0.jpg"` {
		t.Error(got)
	}
	if err := d.Check([]string{"image", "imgs"}); errs.CodeOf(err) != errs.Config || !strings.Contains(errs.From(err).Hint, `"img"`) {
		t.Errorf("%v", err)
	}
}

func TestTable(t *testing.T) {
	s := newShelf(t, nil)
	a := s.put(t, "a.csv", "x,y,label\n1,0.5,no\n-2,,yes\n")
	b := s.put(t, "b.csv", "label,x,y\nno,3,nan\n")
	ds, err := files.OpenTable(ctx, s.src, []string{a, b}, files.Options{Store: s.store})
	stagetest.Must(t, err)
	defer ds.Index().Close()
	for id, want := range []string{`x=1 y=0.5 label=0`, `x=-2 label=1`, `x=3 y=NaN label=0`} {
		if got := show(t, ds, s.src, int64(id)); got != want {
			t.Errorf("sample %d is %s", id, got)
		}
	}
	stagetest.Dataset(t, ds, s.src)
	if got := ds.Index().Meta().Fields; !slices.Equal(got, []string{"x", "y", "label"}) {
		t.Errorf("fields %q", got)
	}
	raw, err := os.ReadFile("../../../../testdata/files/manifest.parquet")
	stagetest.Must(t, err)
	ds, err = files.OpenTable(ctx, s.src, []string{s.put(t, "t.parquet", string(raw))}, files.Options{Store: s.store, Label: "label"})
	stagetest.Must(t, err)
	defer ds.Index().Close()
	if got := ds.Index().Classes(); !slices.Equal(got, []string{"cat", "dog", "eel"}) {
		t.Errorf("classes %q", got)
	}
	if got := show(t, ds, s.src, 3, "label", "split"); got != "label=2 split=3" {
		t.Errorf("sample 3 is %s", got)
	}
}

// The digest depends on what the dataset is, and not on where it is.
func TestDigest(t *testing.T) {
	digest := func(change func(s *shelf)) string {
		s := newShelf(t, pictures())
		s.put(t, "m.csv", "path,label,x\ndog/0.jpg,1,1\ncat/1.jpg,0,2\n")
		if change != nil {
			change(s)
		}
		return s.manifest(t, "m.csv", files.Options{}).Index().Digest()
	}
	want := digest(nil)
	if digest(nil) != want {
		t.Error("the digest depends on where the files are")
	}
	for name, change := range map[string]func(s *shelf){
		"label":  func(s *shelf) { s.put(t, "m.csv", "path,label,x\ndog/0.jpg,1,1\ncat/1.jpg,1,2\n") },
		"column": func(s *shelf) { s.put(t, "m.csv", "path,label,x\ndog/0.jpg,1,1\ncat/1.jpg,0,3\n") },
		"name":   func(s *shelf) { s.put(t, "m.csv", "path,label,y\ndog/0.jpg,1,1\ncat/1.jpg,0,2\n") },
		"order":  func(s *shelf) { s.put(t, "m.csv", "path,label,x\ncat/1.jpg,0,2\ndog/0.jpg,1,1\n") },
		"size":   func(s *shelf) { s.put(t, "cat/1.jpg", "a longer cat") },
	} {
		if digest(change) == want {
			t.Errorf("another %s has the same digest", name)
		}
	}
}

// An index is used again until its manifest changes.
func TestStale(t *testing.T) {
	s := newShelf(t, pictures())
	s.store = &index.Store{Dir: t.TempDir()}
	s.put(t, "m.csv", "path\ndog/0.jpg\n")
	builds := 0
	open := func() int64 {
		d := s.manifest(t, "m.csv", files.Options{Progress: func(int64, int64, string) { builds++ }})
		return d.Index().Len()
	}
	if first, second := open(), open(); first != 1 || second != 1 || builds != 1 {
		t.Errorf("%d builds", builds)
	}
	s.put(t, "m.csv", "path\ndog/0.jpg\ncat/1.jpg\n")
	if open() != 2 || builds != 2 {
		t.Errorf("%d builds", builds)
	}
	d := s.manifest(t, "m.csv", files.Options{})
	s.put(t, "cat/1.jpg", "not the cat that it was")
	if err := stagetest.Read(d, s.src, 1, nil, &format.Sample{}); errs.CodeOf(err) != errs.Changed {
		t.Errorf("a file that changed: %v", err)
	}
	if !bytes.Equal([]byte(show(t, d, s.src, 0, "image")), []byte(`image="a dog"`)) {
		t.Error("the other one is lost")
	}
}
