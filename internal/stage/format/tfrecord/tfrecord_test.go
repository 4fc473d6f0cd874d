package tfrecord_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tfrecord"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

func local(t *testing.T) source.Source {
	src := source.NewFile()
	t.Cleanup(func() { _ = src.Close() })
	return src
}

func open(t stagetest.TB, src source.Source, files ...string) *tfrecord.Dataset {
	t.Helper()
	d, err := tfrecord.Open(ctx, src, files, tfrecord.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	return d
}

// opened is a dataset of one file in memory.
func opened(t stagetest.TB, data []byte) (*tfrecord.Dataset, stagetest.Bytes) {
	t.Helper()
	return open(t, stagetest.Bytes(data), "s3://x.tfrecord"), stagetest.Bytes(data)
}

// crc is TensorFlow's masked CRC.
func crc(p []byte) uint32 {
	c := crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

func framed(payloads ...[]byte) (out []byte) {
	for _, p := range payloads {
		at := len(out)
		out = binary.LittleEndian.AppendUint64(out, uint64(len(p)))
		out = binary.LittleEndian.AppendUint32(out, crc(out[at:]))
		out = append(out, p...)
		out = binary.LittleEndian.AppendUint32(out, crc(p))
	}
	return out
}

// feat is one feature: []byte, [][]byte, []int64, []float32, or nil.
type feat struct {
	name  string
	value any
}

func example(list ...feat) []byte {
	var features []byte
	for _, f := range list {
		var values []byte
		num := protowire.Number(0)
		switch v := f.value.(type) {
		case []byte:
			num, values = 1, field(nil, 1, v)
		case [][]byte:
			num = 1
			for _, b := range v {
				values = field(values, 1, b)
			}
		case []float32:
			var p []byte
			for _, x := range v {
				p = protowire.AppendFixed32(p, math.Float32bits(x))
			}
			num, values = 2, field(nil, 1, p)
		case []int64:
			var p []byte
			for _, x := range v {
				p = protowire.AppendVarint(p, uint64(x))
			}
			num, values = 3, field(nil, 1, p)
		}
		var message []byte
		if num > 0 {
			message = field(nil, num, values)
		}
		features = field(features, 1, field(field(nil, 1, []byte(f.name)), 2, message))
	}
	return field(nil, 1, features)
}

func field(dst []byte, num protowire.Number, p []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), p)
}

// all is every field of every sample.
func all(t stagetest.TB, d *tfrecord.Dataset, src source.Source) []map[string]string {
	t.Helper()
	var out []map[string]string
	var s format.Sample
	for id := range d.Index().Len() {
		stagetest.Must(t, stagetest.Read(d, src, id, nil, &s))
		one := make(map[string]string)
		for _, f := range s.Fields {
			one[strings.Clone(f.Name)] = string(f.Data)
		}
		out = append(out, one)
	}
	return out
}

type golden struct {
	Payloads []string
	Features []map[string][2]json.RawMessage
}

// What TensorFlow reads from what TensorFlow wrote; see testdata/tfrecord/make.py.
func TestLikeTensorFlow(t *testing.T) {
	text, err := os.ReadFile("../../../../testdata/tfrecord/tensorflow.json")
	stagetest.Must(t, err)
	var files map[string]golden
	stagetest.Must(t, json.Unmarshal(text, &files))
	if len(files) < 9 {
		t.Fatalf("%d files", len(files))
	}
	src := local(t)
	for name, want := range files {
		t.Run(name, func(t *testing.T) {
			path := "../../../../testdata/tfrecord/" + name
			head, err := os.ReadFile(path)
			stagetest.Must(t, err)
			if !tfrecord.Sniff(name, head[:min(len(head), 16)]) {
				t.Error("was not recognised")
			}
			d := open(t, src, path)
			defer d.Close()
			stagetest.Dataset(t, d, src)
			got := all(t, d, src)
			if len(got) != len(want.Payloads) {
				t.Fatalf("%d samples of %d", len(got), len(want.Payloads))
			}
			for i, payload := range want.Payloads {
				if hex.EncodeToString([]byte(got[i][tfrecord.Data])) != payload && hex.EncodeToString([]byte(got[i][tfrecord.Payload])) != payload {
					t.Errorf("payload %d differs", i)
				}
				if want.Features == nil && len(got[i]) != 1 {
					t.Errorf("sample %d has %d fields", i, len(got[i]))
				}
			}
			for i, features := range want.Features {
				for feature, f := range features {
					compareFeature(t, d, fmt.Sprintf("sample %d, feature %q", i, feature), feature, f, got[i])
				}
			}
		})
	}
}

func compareFeature(t *testing.T, d *tfrecord.Dataset, at, name string, f [2]json.RawMessage, got map[string]string) {
	t.Helper()
	var kind string
	var values []string
	stagetest.Must(t, json.Unmarshal(f[0], &kind))
	stagetest.Must(t, json.Unmarshal(f[1], &values))
	have, ok := got[name]
	if kind == "none" || len(values) != 1 {
		if ok {
			t.Errorf("%s: is there", at)
		}
		return
	}
	if hex.EncodeToString([]byte(have)) != values[0] || !ok {
		t.Errorf("%s: %x, want %s", at, have, values[0])
	}
	want := map[string]mem.DType{"bytes": mem.Object, "int64": mem.Int64, "float32": mem.Float32}[kind]
	if typ, ok := d.Type(name); !ok || typ.DType != want {
		t.Errorf("%s: is of the type %v", at, typ)
	}
}

func TestTypes(t *testing.T) {
	d := open(t, local(t), "../../../../testdata/tfrecord/pictures.tfrecord")
	defer d.Close()
	fields := []string{"image/bbox", "image/class/label", "image/encoded", "nothing", "parts", "text", "tokens", "weights"}
	if diff := cmp.Diff(fields, d.Index().Meta().Fields); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]format.Type{
		"image/bbox":        {DType: mem.Float32, Shape: mem.Shape{4}},
		"image/class/label": {DType: mem.Int64, Shape: mem.Shape{}},
		"image/encoded":     {},
		"tokens":            {DType: mem.Int64, Shape: mem.Shape{}, Ragged: true},
		"weights":           {DType: mem.Float32, Shape: mem.Shape{}, Ragged: true},
		"data":              {},
		"__data__":          {},
	} {
		if got, ok := d.Type(name); !ok || !cmp.Equal(want, got) {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	if _, ok := d.Type("label"); ok {
		t.Error("a field that is not there has a type")
	}
	if d.Size(0, "image/bbox") != 16 || d.Size(0, "no;image/class/label") != 8 || d.Size(0, "tokens") != -1 || d.Size(0, "data") < 100 {
		t.Errorf("sizes %d %d %d %d", d.Size(0, "image/bbox"), d.Size(0, "image/class/label"), d.Size(0, "tokens"), d.Size(0, "data"))
	}
}

func TestSuite(t *testing.T) {
	src := local(t)
	d := open(t, src, "../../../../testdata/tfrecord/pictures-00000-of-00002", "../../../../testdata/tfrecord/pictures.tfrecord.gz", "../../../../testdata/tfrecord/pictures-00001-of-00002")
	defer d.Close()
	stagetest.Dataset(t, d, src)
	if d.Index().Len() != 5+12+4 {
		t.Errorf("%d samples", d.Index().Len())
	}
	plain := open(t, src, "../../../../testdata/tfrecord/pictures-00000-of-00002", "../../../../testdata/tfrecord/pictures.tfrecord", "../../../../testdata/tfrecord/pictures-00001-of-00002")
	defer plain.Close()
	if diff := cmp.Diff(all(t, plain, src), all(t, d, src)); diff != "" {
		t.Error(diff)
	}
	stagetest.NoHeap(t, plain, src, []string{"image/encoded;jpg", "image/class/label", "image/bbox", "tokens", "data"})
	stagetest.NoHeap(t, plain, src, []string{"data"})
	stagetest.NoHeap(t, plain, src, nil)
	x := open(t, src, "../../../../testdata/tfrecord/raw.tfrec")
	defer x.Close()
	stagetest.NoHeap(t, x, src, nil)
}

func TestFieldsTeach(t *testing.T) {
	src := local(t)
	path, _ := filepath.Abs("../../../../testdata/tfrecord/pictures.tfrecord")
	d := open(t, src, path)
	defer d.Close()
	stagetest.Must(t, d.Check([]string{"image/encoded", "png;text", "data", "__data__"}))
	if e := errs.From(d.Check([]string{"text", "image/enoded"})); e.Code != errs.Config || !strings.Contains(e.Hint, "image/encoded") || e.Where.Shard != path {
		t.Errorf("%v | %s", e, e.Hint)
	}
	var s format.Sample
	e := errs.From(stagetest.Read(d, src, 1, []string{"parts"}, &s))
	if e.Code != errs.Unsupported || !strings.Contains(e.What, "2 values") || e.Where.Sample.Or(-1) != 1 || e.Where.Field != "parts" || e.Where.Shard != path || e.Where.Offset.Or(-1) < 12 || !strings.Contains(e.Hint, `"data"`) {
		t.Errorf("%v at %+v | %s", e, e.Where, e.Hint)
	}
	e = errs.From(stagetest.Read(d, src, 1, []string{"txt"}, &s))
	if e.Code != errs.MissingField || !strings.Contains(e.Hint, `"text"`) {
		t.Errorf("%v | %s", e, e.Hint)
	}
	stagetest.Must(t, stagetest.Read(d, src, 0, []string{"tokens", "parts"}, &s))
	if len(s.Fields[0].Data) != 0 || string(s.Fields[1].Data) != "alone" {
		t.Errorf("%+v", s.Fields)
	}
}

// Protocol buffers may be written in other ways than TensorFlow's.
func TestOddExamples(t *testing.T) {
	entry := func(name string, message []byte) []byte {
		return field(nil, 1, field(field(nil, 1, []byte(name)), 2, message))
	}
	unpacked := field(nil, 3, protowire.AppendVarint(protowire.AppendTag(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7), 1, protowire.VarintType), 1<<63))
	floats := field(nil, 2, append(field(nil, 1, []byte("abcd")), append([]byte{1<<3 | 5}, "efgh"...)...))
	swapped := field(nil, 1, field(field(nil, 2, field(nil, 1, field(nil, 1, []byte("v")))), 1, []byte("swapped")))
	twice := append(entry("twice", field(nil, 1, field(nil, 1, []byte("first")))), entry("twice", field(nil, 1, field(nil, 1, []byte("last"))))...)
	first := example(feat{"swapped", []byte("x")}, feat{"twice", []byte("x")}, feat{"i", []int64{1}}, feat{"f", []float32{1}})
	second := field(nil, 1, slices.Concat(entry("i", unpacked), entry("f", floats), swapped, twice))
	second = append(second, protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 3)...) // a field of the future
	d, src := opened(t, framed(first, second))
	defer d.Close()
	got := all(t, d, src)[1]
	want := map[string]string{
		"i": "\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80", "f": "abcdefgh",
		"swapped": "v", "twice": "last", "data": string(second),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Any Examples: what comes out is what went in, plain and compressed.
func TestRandomExamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b/c", "ä", "data", "long name of a feature"}
		var payloads [][]byte
		var want []map[string]string
		for range rapid.IntRange(1, 6).Draw(t, "samples") {
			var list []feat
			one := map[string]string{}
			for i, name := range names {
				if i >= 2 && rapid.IntRange(0, 3).Draw(t, "left out") == 0 {
					continue
				}
				switch i % 3 {
				case 0:
					v := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "bytes")
					list = append(list, feat{name, append([]byte{}, v...)})
					one[name] = string(v)
				case 1:
					v := rapid.SliceOfN(rapid.Int64(), 0, 5).Draw(t, "ints")
					list = append(list, feat{name, append([]int64{}, v...)})
					var p []byte
					for _, x := range v {
						p = binary.LittleEndian.AppendUint64(p, uint64(x))
					}
					one[name] = string(p)
				case 2:
					v := rapid.SliceOfN(rapid.Float32(), 0, 5).Draw(t, "floats")
					list = append(list, feat{name, append([]float32{}, v...)})
					var p []byte
					for _, x := range v {
						p = binary.LittleEndian.AppendUint32(p, math.Float32bits(x))
					}
					one[name] = string(p)
				}
			}
			payloads, want = append(payloads, example(list...)), append(want, one)
		}
		d, src := opened(t, framed(payloads...))
		defer d.Close()
		for i, got := range all(t, d, src) {
			payload := tfrecord.Data
			if _, ok := got[tfrecord.Payload]; ok {
				payload = tfrecord.Payload
			}
			if got[payload] != string(payloads[i]) {
				t.Fatalf("payload %d differs", i)
			}
			delete(got, payload)
			for name, v := range got {
				if v == "" && want[i][name] == "" { // a ragged one that is left out is empty
					delete(got, name)
				}
			}
			for name, v := range want[i] {
				if v == "" {
					delete(want[i], name)
				}
			}
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Fatalf("sample %d: %s", i, diff)
			}
		}
	})
}

func TestStaleness(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tfrecord")
	put := func(data []byte, age time.Duration) {
		stagetest.Must(t, os.WriteFile(path, data, 0o600))
		at := time.Now().Add(-age)
		stagetest.Must(t, os.Chtimes(path, at, at))
	}
	src := local(t)
	built := 0
	try := func() *tfrecord.Dataset {
		d, err := tfrecord.Open(ctx, src, []string{path}, tfrecord.Options{
			Store: &index.Store{Dir: dir + "/cache"}, Progress: func(int64, int64, string) { built++ },
		})
		stagetest.Must(t, err)
		return d
	}
	put(framed([]byte("one")), time.Hour)
	_ = try().Close()
	n := built
	d := try()
	defer d.Close()
	if n == 0 || built != n {
		t.Errorf("built %d times at first, %d later", n, built-n)
	}
	put(framed([]byte("two")), time.Minute)
	var s format.Sample
	if err := stagetest.Read(d, src, 0, nil, &s); errs.CodeOf(err) != errs.Changed {
		t.Errorf("%v", err)
	}
	again := try()
	defer again.Close()
	if built == n || all(t, again, src)[0]["data"] != "two" {
		t.Error("was not built again")
	}
}

func TestSniff(t *testing.T) {
	record, gzip := framed([]byte("x")), []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00")
	for _, c := range []struct {
		name string
		head []byte
		want bool
	}{
		{"x.tfrecord", record, true},
		{"whatever", record, true},
		{"x.tfrecord", []byte("no such thing as this"), false},
		{"x.tfrecord", gzip, true},
		{"x.TFREC.gz", gzip, true},
		{"x.tfrecord-00000-of-00010", gzip, true},
		{"train-00000-of-00010.gz", gzip, true},
		{"x.tar.gz", gzip, false},
		{"x.tfrecord", nil, false},
	} {
		if got := tfrecord.Sniff(c.name, c.head); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 30 {
		var p [][]byte
		for j := range 1 + i%4 {
			p = append(p, fmt.Appendf(nil, "%d-%d", i, j))
		}
		paths = append(paths, fmt.Sprintf("%s/x-%05d-of-00030", dir, i))
		stagetest.Must(t, os.WriteFile(paths[i], framed(p...), 0o600))
	}
	src := local(t)
	d := open(t, src, paths...)
	defer d.Close()
	got := all(t, d, src)
	at := 0
	for i := range 30 {
		for j := range 1 + i%4 {
			if want := fmt.Sprintf("%d-%d", i, j); got[at]["data"] != want {
				t.Fatalf("sample %d is %q, want %q", at, got[at]["data"], want)
			}
			at++
		}
	}
	if at != len(got) || !bytes.Equal(d.Index().AppendPath(3, nil), []byte(paths[3])) {
		t.Errorf("%d samples of %d", len(got), at)
	}
}

// A file of 0 bytes is one without records, as TensorFlow writes it, at any place in
// the list; it is named, since a failed copy looks the same.
func TestFilesWithoutRecords(t *testing.T) {
	src, dir := local(t), t.TempDir()
	put := func(name string, data []byte) string {
		stagetest.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		return filepath.Join(dir, name)
	}
	a := put("a", framed(example(feat{"x", []int64{1}}), example(feat{"x", []int64{2}})))
	b, none := put("b", framed(example(feat{"x", []int64{3}}))), put("none", nil)
	for name, files := range map[string][]string{
		"first": {none, a, b}, "between": {a, none, b}, "last": {a, b, none},
	} {
		d := open(t, src, files...)
		stagetest.Dataset(t, d, src)
		var got []string
		for _, one := range all(t, d, src) {
			got = append(got, one["x"][:1])
		}
		if !slices.Equal(got, []string{"\x01", "\x02", "\x03"}) {
			t.Errorf("%s: %q", name, got)
		}
		if n := d.Notes(); len(n) != 1 || !strings.Contains(n[0], "1 of 3 files have 0 bytes, and count as no records: none;") {
			t.Errorf("%s: %q", name, n)
		}
	}
	if n := open(t, src, a, b).Notes(); n != nil {
		t.Errorf("%q", n)
	}
	// What packs a file of no records writes more than nothing.
	cut := put("cut.gz", nil)
	_, err := tfrecord.Open(ctx, src, []string{a, cut}, tfrecord.Options{Store: &index.Store{}})
	if e := errs.From(err); e.Code != errs.Damaged || e.Where.Shard != cut {
		t.Errorf("%v at %v", err, e.Where)
	}
	// Of many, the first few are named.
	many := []string{a}
	for range 30 {
		many = append(many, none)
	}
	if n := open(t, src, many...).Notes(); len(n) != 1 || !strings.Contains(n[0], "30 of 31 files") || !strings.Contains(n[0], "and others") {
		t.Errorf("%q", n)
	}
}

// A feature whose name is not UTF-8 is not a field and is reported; the other features
// are fields, and the records are available whole.
func TestNamesThatAreNotText(t *testing.T) {
	odd := "caf\xe9"
	record := example(feat{"x", []int64{7}}, feat{odd, []byte("au lait")}, feat{"na\u00efve", []int64{8}})
	for name, records := range map[string][][]byte{
		"in the first": {record, example(feat{"x", []int64{1}}, feat{"na\u00efve", []int64{2}})},
		"in a later":   {example(feat{"x", []int64{1}}, feat{"na\u00efve", []int64{2}}), record},
	} {
		d, src := opened(t, framed(records...))
		if got := d.Index().Meta().Fields; !slices.Equal(got, []string{"na\u00efve", "x"}) {
			t.Errorf("%s: fields %q", name, got)
		}
		if n := d.Notes(); len(n) != 1 || !strings.Contains(n[0], `not UTF-8 are left out: "caf\xe9"; the field "data" has`) {
			t.Errorf("%s: %q", name, n)
		}
		stagetest.Dataset(t, d, src)
		if d.Decode("x") != "" {
			t.Errorf("%s: x is taken as %q", name, d.Decode("x"))
		}
	}
	d, src := opened(t, framed(example(feat{odd, []byte("noir")})))
	if got := d.Index().Meta().Fields; !slices.Equal(got, []string{"data"}) || d.Decode("data") != "" || len(d.Notes()) != 1 {
		t.Errorf("%q, taken as %q: %q", got, d.Decode("data"), d.Notes())
	}
	if got := all(t, d, src); !strings.Contains(got[0]["data"], "noir") {
		t.Errorf("%q", got)
	}
	if e := errs.From(d.Check([]string{odd})); e.Hint == "" {
		t.Errorf("%v", e)
	}
}

// A feature that has a ; in its name is asked for by it, alone and as an alternative; a
// list of alternatives that is not the name of a feature stays a list.
func TestNamesWithSemicolons(t *testing.T) {
	d, src := opened(t, framed(
		example(feat{"a", []byte("A")}, feat{"a;b", []byte("AB")}, feat{"n;m", []int64{5}}),
		example(feat{"a;b", []byte("ab")}, feat{"b", []byte("B")}, feat{"n;m", []int64{6}})))
	stagetest.Must(t, d.Check([]string{"a;b", "zz;a;b", "n;m"}))
	if e := errs.From(d.Check([]string{"y;z"})); e.Code != errs.Config {
		t.Errorf("%v", e)
	}
	if typ, ok := d.Type("n;m"); !ok || typ.DType != mem.Int64 {
		t.Errorf("%v, %t", typ, ok)
	}
	want := map[string][2]string{
		"a;b": {"AB", "ab"}, "zz;a;b": {"AB", "ab"}, "b;a": {"A", "B"}, "n;m": {"\x05\x00\x00\x00\x00\x00\x00\x00", "\x06\x00\x00\x00\x00\x00\x00\x00"},
	}
	for field, values := range want {
		for id, value := range values {
			var s format.Sample
			stagetest.Must(t, stagetest.Read(d, src, int64(id), []string{field}, &s))
			if got := string(s.Fields[0].Data); got != value {
				t.Errorf("%s of sample %d: %q, want %q", field, id, got, value)
			}
		}
	}
	stagetest.NoHeap(t, d, src, []string{"a;b", "b;a", "n;m"})
}
