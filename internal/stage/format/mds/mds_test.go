package mds_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/mds"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

const root = "s3://bucket/data"

// stored is a folder of testdata in memory.
func stored(t testing.TB, name string) stagetest.Memory {
	t.Helper()
	m := stagetest.Memory{}
	dir := filepath.Join("testdata", name)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		m[root+path[len(dir):]] = data
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func open(t *testing.T, src source.Source, opt mds.Options) *mds.Dataset {
	t.Helper()
	if opt.Store == nil {
		opt.Store = &index.Store{}
	}
	d, err := mds.Open(ctx, src, root, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// value is a field as testdata/make.py writes it down.
type value struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Data  string `json:"data"`
	Bytes string `json:"bytes"`
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
	if len(all[name]) == 0 {
		t.Fatalf("nothing is expected of %s", name)
	}
	return all[name]
}

func unbase(t *testing.T, s string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// same holds a field against what Streaming's own reader made of it.
func same(t *testing.T, id int64, f format.Field, typ format.Type, want value) {
	t.Helper()
	data := unbase(t, want.Data)
	switch {
	case want.DType == "":
		data = unbase(t, want.Bytes)
	case typ.DType == mem.Object && len(want.Shape) >= 2 && want.DType == "uint8" && f.Data[0] == 'P':
		magic := 6
		if len(want.Shape) == 2 {
			magic = 5
		}
		data = append(fmt.Appendf(nil, "P%d\n%d %d\n255\n", magic, want.Shape[1], want.Shape[0]), data...)
	case typ.DType == mem.Object:
		dims := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(want.Shape)), ", "), "[]")
		if len(want.Shape) == 1 {
			dims += ","
		}
		if head := string(f.Data[:len(f.Data)-len(data)]); !strings.Contains(head, "'shape': ("+dims+")") || len(head)%64 != 0 {
			t.Errorf("sample %d, %s: %q", id, f.Name, head)
		}
		f.Data = f.Data[len(f.Data)-len(data):]
	case typ.DType.String() != want.DType:
		t.Errorf("sample %d, %s: %s, want %s", id, f.Name, typ.DType, want.DType)
	case typ.Ragged && !slices.Equal(want.Shape[1:], []int(typ.Shape)), !typ.Ragged && !slices.Equal(want.Shape, []int(typ.Shape)):
		t.Errorf("sample %d, %s: shape %v (ragged: %v), want %v", id, f.Name, typ.Shape, typ.Ragged, want.Shape)
	}
	if !bytes.Equal(f.Data, data) {
		t.Errorf("sample %d, %s: %q, want %q", id, f.Name, f.Data, data)
	}
}

// check reads every sample and holds it against what is expected.
func check(t *testing.T, d *mds.Dataset, src source.Source, want []map[string]value) {
	t.Helper()
	if d.Index().Len() != int64(len(want)) {
		t.Fatalf("%d samples, want %d", d.Index().Len(), len(want))
	}
	var s format.Sample
	for id := range d.Index().Len() {
		if err := stagetest.Read(d, src, id, nil, &s); err != nil {
			t.Fatal(err)
		}
		if len(s.Fields) != len(want[id]) {
			t.Fatalf("sample %d has %d fields, want %d", id, len(s.Fields), len(want[id]))
		}
		for _, f := range s.Fields {
			typ, ok := d.Type(f.Name)
			if !ok {
				t.Fatalf("no type of %s", f.Name)
			}
			same(t, id, f, typ, want[id][f.Name])
			if n := d.Size(id, f.Name); n >= 0 && n != int64(len(f.Data)) {
				t.Errorf("sample %d, %s: %d bytes, Size says %d", id, f.Name, len(f.Data), n)
			}
		}
	}
}

func TestLikeStreaming(t *testing.T) {
	for _, name := range []string{"everything", "plain", "one"} {
		src := stored(t, name)
		check(t, open(t, src, mds.Options{}), src, expected(t, name))
	}
	for _, name := range []string{"zstd", "zstd-19", "gz", "bz2", "snappy"} {
		src := stored(t, name)
		check(t, open(t, src, mds.Options{}), src, expected(t, "packed"))
		check(t, open(t, src, mds.Options{Memory: 1}), src, expected(t, "packed"))
	}
}

func TestSuite(t *testing.T) {
	for _, name := range []string{"everything", "plain", "one", "zstd", "gz", "bz2", "snappy"} {
		t.Run(name, func(t *testing.T) {
			src := stored(t, name)
			d := open(t, src, mds.Options{})
			stagetest.Dataset(t, d, src)
			if name == "plain" {
				stagetest.NoHeap(t, d, src, []string{"txt;text", "label"})
				stagetest.NoHeap(t, d, src, nil)
			}
			if name == "zstd" {
				stagetest.NoHeap(t, d, src, nil)
			}
		})
	}
}

func TestTypes(t *testing.T) {
	src := stored(t, "everything")
	d := open(t, src, mds.Options{})
	want := map[string]format.Type{
		"box":   {DType: mem.Float32, Shape: mem.Shape{2, 4}},
		"same":  {DType: mem.Int16, Shape: mem.Shape{2, 300}},
		"words": {DType: mem.Uint16, Ragged: true},
		"crop":  {DType: mem.Uint8, Shape: mem.Shape{3, 3}, Ragged: true},
		"n":     {DType: mem.Int64}, "float16": {DType: mem.Float16}, "uint64": {DType: mem.Uint64},
		"odd": {}, "pixels": {}, "image": {}, "mask": {}, "meta": {}, "raw": {}, "text": {}, "si": {},
	}
	empty := cmp.Transformer("shape", func(s mem.Shape) string { return fmt.Sprint([]int(s)) })
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got, ok := d.Type("no such;" + name); !ok || cmp.Diff(want[name], got, empty) != "" {
			t.Errorf("%s: %+v, want %+v", name, got, want[name])
		}
	}
	if _, ok := d.Type("no such"); ok {
		t.Error("a field that is not there has a type")
	}
	fields := d.Index().Meta().Fields
	if !slices.IsSorted(fields) || len(fields) != 26 {
		t.Errorf("%d fields: %v", len(fields), fields)
	}
	if d.Size(0, "no such") != -1 || d.Size(99, "n") != -1 || d.Size(2, "words") != 14 || d.Size(3, "raw") != 3 {
		t.Errorf("sizes: %d, %d", d.Size(2, "words"), d.Size(3, "raw"))
	}
}

// A compressed dataset with unpacked shards beside its index.json, as in Streaming's
// local copies, is read from those.
func TestLocalCopy(t *testing.T) {
	src := stored(t, "zstd")
	d := open(t, src, mds.Options{})
	compressed := maps.Clone(src)
	for name, data := range compressed {
		if raw, ok := strings.CutSuffix(name, ".zstd"); ok {
			src[raw] = unzstd(t, data)
		}
	}
	copied := open(t, src, mds.Options{})
	check(t, copied, src, expected(t, "packed"))
	if got := copied.Extents(3, nil, nil); got[0].Off == 0 || len(got) != 1 {
		t.Errorf("%+v", got)
	}
	if hits, misses, _ := copied.Blocks(); hits+misses != 0 {
		t.Errorf("%d shards were unpacked", misses)
	}
	check(t, d, compressed, expected(t, "packed"))
	if hits, misses, kept := d.Blocks(); misses != 3 || hits != 17 || kept == 0 {
		t.Errorf("%d hits, %d misses, %d bytes kept", hits, misses, kept)
	}
}

func TestRefused(t *testing.T) {
	src := stored(t, "refused")
	d := open(t, src, mds.Options{})
	if got := d.Index().Meta().Fields; !slices.Equal(got, []string{"label"}) {
		t.Errorf("%v", got)
	}
	for field, hint := range map[string]string{"code": "runs code", "many": "several pictures", "list": "several pictures"} {
		for _, err := range []error{d.Check([]string{"label", field}), stagetest.Read(d, src, 1, []string{field}, &format.Sample{})} {
			if e := errs.From(err); e.Code != errs.Unsupported || !strings.Contains(e.Hint, hint) || e.Where.Field != field {
				t.Errorf("%s: %v, %q", field, e, e.Hint)
			}
		}
	}
	if err := d.Check([]string{"label"}); err != nil {
		t.Error(err)
	}
	if err := d.Check([]string{"lable"}); errs.CodeOf(err) != errs.Config || !strings.Contains(errs.From(err).Hint, "label") {
		t.Error(err)
	}
	var s format.Sample
	if err := stagetest.Read(d, src, 1, nil, &s); err != nil || len(s.Fields) != 1 {
		t.Errorf("%v: %v", s.Fields, err)
	}

	rgba := stored(t, "rgba")
	d = open(t, rgba, mds.Options{})
	if e := errs.From(stagetest.Read(d, rgba, 0, nil, &s)); e.Code != errs.Unsupported || !strings.Contains(e.What, "RGBA") || !strings.Contains(e.Hint, "png") || e.Where.Sample.Or(-1) != 0 {
		t.Errorf("%v", e)
	}
	if _, err := mds.Open(ctx, stored(t, "br"), root, mds.Options{Store: &index.Store{}}); errs.CodeOf(err) != errs.Unsupported || !strings.Contains(errs.From(err).Hint, "zstd") {
		t.Errorf("%v", err)
	}
}

func TestVerify(t *testing.T) {
	src := stored(t, "zstd")
	d := open(t, src, mds.Options{})
	for file := range d.Index().Files() {
		checked, err := d.Verify(ctx, src, file)
		want := []string{"sha1", "xxh64"}
		if file == 0 {
			want = nil // index.json has no hash
		}
		if err != nil || !slices.Equal(checked, want) || len(d.Hashes(file)) != len(want) {
			t.Errorf("file %d: %v, %v", file, checked, err)
		}
	}
	bad := stagetest.WithFaults(src, "read shard.00001.* flip=70")
	_, err := d.Verify(ctx, bad, 2)
	if e := errs.From(err); e.Code != errs.Damaged || e.Where.Shard != root+"/shard.00001.mds.zstd" || !strings.Contains(e.What, "sha1") {
		t.Errorf("%v", e)
	}
}

// The index is kept, and is stale when index.json or any shard is another one.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir+"/data", os.DirFS("testdata/plain")); err != nil {
		t.Fatal(err)
	}
	src := source.NewFile()
	defer src.Close()
	builds := 0
	try := func() *mds.Dataset {
		t.Helper()
		d, err := mds.Open(ctx, src, dir+"/data/index.json", mds.Options{Store: &index.Store{Dir: dir + "/cache"}, Progress: func(done, total int64, _ string) {
			if done == total {
				builds++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	first := try()
	again := try()
	if builds != 1 || first.Index().Digest() != again.Index().Digest() || first.Index().Digest() == "" {
		t.Fatalf("%d builds", builds)
	}
	check(t, again, src, expected(t, "plain"))
	for i, name := range []string{"index.json", "shard.00002.mds"} {
		path := filepath.Join(dir, "data", name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil { // the same bytes, at another time
			t.Fatal(err)
		}
		if d := try(); builds != i+2 || d.Index().Digest() != first.Index().Digest() {
			t.Fatalf("%s: %d builds", name, builds)
		}
	}
}

func TestSniff(t *testing.T) {
	head, err := os.ReadFile("testdata/plain/index.json")
	if err != nil {
		t.Fatal(err)
	}
	if !mds.Sniff("/x/index.json", head[:512]) || mds.Sniff("/x/other.json", head) || mds.Sniff("index.json", []byte(`{"a": 1}`)) || mds.Sniff("index.json", nil) {
		t.Error("wrong")
	}
}
