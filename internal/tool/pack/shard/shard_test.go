package shard_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// encode is the samples as the files of one shard, heads and tails included.
func encode(t interface{ Fatal(...any) }, o shard.Output, samples ...*shard.Sample) []string {
	kinds := o.Files()
	parts := make([][]byte, len(kinds))
	for i, k := range kinds {
		if k.Head != nil {
			parts[i] = append(parts[i], k.Head(int64(len(samples)))...)
		}
	}
	for _, s := range samples {
		if err := o.Encode(s, parts); err != nil {
			t.Fatal(err)
		}
	}
	var out []string
	for i, k := range kinds {
		var b bytes.Buffer
		b.Write(parts[i])
		if k.Tail != nil {
			if err := k.Tail(&b, bytes.NewReader(parts[i]), int64(len(parts[i])), int64(len(samples))); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, b.String())
	}
	return out
}

func number(name string, n int64) shard.Field {
	return shard.Field{Name: name, Data: binary.LittleEndian.AppendUint64(nil, uint64(n)), DType: mem.Int64, Shape: mem.Shape{}}
}

func array(name string, d mem.DType, data []byte, shape ...int) shard.Field {
	return shard.Field{Name: name, Data: data, DType: d, Shape: shape}
}

func TestMemberNames(t *testing.T) {
	s := &shard.Sample{Key: []byte("k"), Fields: []shard.Field{
		{Name: "image", Ext: "jpg"},
		number("label", 3),
		{Name: "jpg", Ext: "jpg"},
		{Name: "Caption", Ext: "txt"},
		{Name: "left.png", Ext: "png"},
		{Name: "json", Ext: "json"},
		number("age", 4), number("class", 4),
		array("depth", mem.Float32, make([]byte, 8), 2), array("x.npy", mem.Uint8, make([]byte, 2), 2),
		array("label2", mem.Float64, make([]byte, 8)),
	}}
	got, err := shard.Members(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields("jpg cls jpg.jpg caption.txt left.png json age.npy class.cls depth.npy x.npy label2.npy"), got); diff != "" {
		t.Error(diff)
	}
}

// Any field's name makes one member of its sample, and two are never one.
func TestOddMemberNames(t *testing.T) {
	odd := func(names ...string) (*shard.Sample, string) {
		s := &shard.Sample{Key: []byte("k")}
		for _, name := range names {
			s.Fields = append(s.Fields, shard.Field{Name: name, Ext: "jpg"})
		}
		got, err := shard.Members(s)
		if err != nil {
			return s, err.Error()
		}
		return s, strings.Join(got, " ")
	}
	for _, c := range [][]string{
		{"image_encoded.jpg a_b_c.jpg", "image/encoded", "a/b/c"},
		{"___x.jpg a.._.jpg", "../x", "a../"},
		{"_.jpg __0_.jpg ___.jpg", "", "\x00\x1f0\x7f", "\xff\\\xfe"},
		{"日本.jpg", "日本"},
		{`the fields "a/b" and "a_b" would both be called "a_b.a_b.jpg" (field "a_b")`, "a/b", "a_b"},
		{`the fields "A" and "a" would both be called "a.a.jpg" (field "a")`, "A", "a"},
	} {
		s, got := odd(c[1:]...)
		if got != c[0] {
			t.Errorf("%q: %s, not %s", c[1:], got, c[0])
		}
		if !strings.HasPrefix(c[0], "the fields") {
			r := tar.NewReader(strings.NewReader(encode(t, shard.Tar{}, s)[0]))
			for _, want := range strings.Fields(c[0]) {
				if h, err := r.Next(); err != nil || h.Name != "k."+want {
					t.Errorf("%v, %v; not %s", h, err, want)
				}
			}
		}
	}
	two := &shard.Sample{Fields: []shard.Field{number("a/b", 1), number("a_b", 1)}}
	if _, err := shard.NewNpy(two); err == nil || !strings.Contains(err.Error(), `would both be called "a_b"`) {
		t.Error(err)
	}
}

// Whatever the names and sizes, archive/tar reads what was put in.
func TestTar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var samples []*shard.Sample
		var want []string
		for i := range rapid.IntRange(1, 5).Draw(t, "samples") {
			key := fmt.Sprint(i) + rapid.StringMatching(`(/[a-zé]{1,70}){0,3}/[a-zü]{1,60}`).Draw(t, "key")
			body := rapid.SliceOfN(rapid.Byte(), 0, 1100).Draw(t, "body")
			n := rapid.Int64().Draw(t, "number")
			samples = append(samples, &shard.Sample{Key: []byte(key), Fields: []shard.Field{{Name: "image", Data: body, Ext: "jpg"}, number("label", n)}})
			want = append(want, key+".jpg", string(body), key+".cls", fmt.Sprint(n))
		}
		file := encode(t, shard.Tar{}, samples...)[0]
		if len(file)%512 != 0 || file[len(file)-1024:] != strings.Repeat("\x00", 1024) {
			t.Fatal("it does not end with two blocks of zeros")
		}
		var got []string
		r := tar.NewReader(strings.NewReader(file))
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r)
			if err != nil || h.Mode != 0o644 || h.Typeflag != tar.TypeReg || h.Uid != 0 {
				t.Fatal(h, err)
			}
			got = append(got, h.Name, string(body))
		}
		if !slices.Equal(want, got) {
			t.Fatal(cmp.Diff(want, got))
		}
	})
}

// The header that numpy.save writes for the same arrays (NumPy 2.1).
func TestNpy(t *testing.T) {
	s := &shard.Sample{Fields: []shard.Field{
		array("a", mem.Uint8, []byte{1, 2, 3, 4, 5, 6}, 2, 3), number("b", 7), array("c", mem.Float32, make([]byte, 8), 2),
	}}
	o, err := shard.NewNpy(s)
	if err != nil {
		t.Fatal(err)
	}
	files := encode(t, o, s, s)
	for i, want := range []string{
		"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 3), }",
		"{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }",
	} {
		head := "\x93NUMPY\x01\x00v\x00" + want + strings.Repeat(" ", 117-len(want)) + "\n"
		if !strings.HasPrefix(files[i], head) {
			t.Errorf("%q", files[i])
		}
		if data := files[i][len(head):]; data != strings.Repeat(string(s.Fields[i].Data), 2) {
			t.Errorf("%q", data)
		}
	}
	for i, f := range o.Files() {
		if f.End != ".npy" || f.Field != []string{"a", "b", "c"}[i] {
			t.Errorf("%+v", f)
		}
	}
	other := &shard.Sample{Fields: []shard.Field{array("a", mem.Uint8, make([]byte, 9), 3, 3), s.Fields[1], s.Fields[2]}}
	if err := o.Encode(other, make([][]byte, 3)); err == nil || !strings.Contains(err.Error(), `field "a" is uint8 [3 3], but that of the first sample is uint8 [2 3]`) {
		t.Error(err)
	}
	if _, err := shard.NewNpy(&shard.Sample{Fields: []shard.Field{{Name: "image", Ext: "jpg"}}}); err == nil || !strings.Contains(err.Error(), "encoded bytes") {
		t.Error(err)
	}
}

// The bytes that TensorFlow 2.21 writes for the same Example.
func TestTFRecord(t *testing.T) {
	const want = "73000000000000000d737cc80a710a0b0a016112060a040a02ffd80a130a0162120e1a0c0a0afeffffffffffffffff010a11" +
		"0a0163120c120a0a080000803f000000400a0b0a016412060a040a0209080a0c0a016512071a050a0301ac020a110a0166120c120a0a080000003f000000c00a0c0a036b657912050a030a016bb0655607"
	s := &shard.Sample{Key: []byte("k"), Fields: []shard.Field{
		{Name: "a", Data: []byte("\xff\xd8"), Ext: "jpg"},
		number("b", -2),
		array("c", mem.Float32, []byte{0, 0, 128, 63, 0, 0, 0, 64}, 2),
		{Name: "d", Data: []byte{9, 8}, Ext: "bin"},
		array("e", mem.Uint16, []byte{1, 0, 44, 1}, 2),
		array("f", mem.Float16, []byte{0, 0x38, 0, 0xc0}, 2),
	}}
	if got := hex.EncodeToString([]byte(encode(t, shard.TFRecord{}, s)[0])); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	shaped := &shard.Sample{Key: []byte("k"), Fields: []shard.Field{array("u", mem.Uint8, []byte{9, 8}, 1, 2)}}
	got := hex.EncodeToString([]byte(encode(t, shard.TFRecord{}, shaped)[0]))
	for _, feature := range []string{"0a0175" + "12060a040a02" + "0908", "0a07" + hex.EncodeToString([]byte("u/shape")) + "12061a040a02" + "0102"} {
		if !strings.Contains(got, feature) {
			t.Errorf("%s is not in %s", feature, got)
		}
	}
}

// A value that is not a token number is reported with a hint.
func TestNoTokens(t *testing.T) {
	for _, c := range []struct {
		v    int64
		wide bool
		hint string
	}{{-1, false, "no token type"}, {70000, false, "uint32"}, {1 << 40, false, "no token type"}, {1 << 40, true, "no token type"}} {
		f := array("x", mem.Int64, binary.LittleEndian.AppendUint64(nil, uint64(c.v)), 1)
		err := shard.Tokens{Wide: c.wide}.Encode(&shard.Sample{Fields: []shard.Field{f}}, make([][]byte, 2))
		if e := errs.From(err); err == nil || !strings.Contains(e.Hint, c.hint) || !strings.Contains(e.What, fmt.Sprint(c.v)) {
			t.Errorf("%d: %v", c.v, err)
		}
	}
}

// A field is one kind of feature whatever its values are; what that does not hold
// is refused, never written as something else.
func TestTFRecordKindsAreOfTypes(t *testing.T) {
	u64 := func(v ...uint64) (b []byte) {
		for _, n := range v {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	kind := func(f shard.Field) byte { // of the feature x
		got := encode(t, shard.TFRecord{}, &shard.Sample{Key: []byte("k"), Fields: []shard.Field{f}})[0]
		at := strings.Index(got, "\x0a\x01x\x12") + 4
		for got[at] >= 0x80 {
			at++
		}
		return got[at+1] >> 3
	}
	for _, f := range []shard.Field{
		array("x", mem.Uint64, u64(0)), array("x", mem.Uint64, u64(1<<63-1)), array("x", mem.Uint64, u64(1, 2), 2), array("x", mem.Uint8, []byte{3}),
	} {
		if k := kind(f); k != 3 {
			t.Errorf("%s %v is list %d", f.DType, f.Shape, k)
		}
	}
	for _, f := range []shard.Field{array("x", mem.Float64, u64(0)), array("x", mem.Float64, u64(1, 2), 2), array("x", mem.Uint8, []byte{3, 4}, 2)} {
		if k := kind(f); k != 1 {
			t.Errorf("%s %v is list %d", f.DType, f.Shape, k)
		}
	}
	double := encode(t, shard.TFRecord{}, &shard.Sample{Key: []byte("k"), Fields: []shard.Field{array("x", mem.Float64, u64(math.Float64bits(0.1)))}})[0]
	if !strings.Contains(double, string(format.NPY(mem.Float64, mem.Shape{}, u64(math.Float64bits(0.1))))) || strings.Contains(double, "x/shape") {
		t.Errorf("%q", double)
	}
	for _, f := range []shard.Field{array("x", mem.Uint64, u64(1<<63)), array("x", mem.Uint64, u64(1, math.MaxUint64), 2)} {
		parts := [][]byte{nil}
		err := (shard.TFRecord{}).Encode(&shard.Sample{Key: []byte("k"), Fields: []shard.Field{f}}, parts)
		if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.Hint, "tar or npy") || e.Where.Field != "x" {
			t.Errorf("%v", err)
		}
	}
}

// What a sample holds is only read: it may be a page of a mapped file, or belong
// to the next sample too.
func TestEncodeOnlyReads(t *testing.T) {
	memory := []byte("0123456789abcdef")
	s := &shard.Sample{Key: []byte("k"), Fields: []shard.Field{
		{Name: "path", Data: memory[:5], Ext: "txt"},
		number("n", 70000),
		array("u", mem.Uint8, memory[4:8], 2, 2), array("f", mem.Float64, memory[8:], 1), number("m", 1),
	}}
	for _, o := range []shard.Output{shard.TFRecord{}, shard.Tar{}} {
		encode(t, o, s)
		if string(memory) != "0123456789abcdef" {
			t.Fatalf("%T wrote into its sample: %q", o, memory)
		}
	}
}

// An independent reading of Megatron's index.
func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide := rapid.Bool().Draw(t, "wide")
		docs := rapid.SliceOfN(rapid.SliceOfN(rapid.Uint16(), 0, 20), 1, 9).Draw(t, "documents")
		var samples []*shard.Sample
		var all []uint16
		for _, d := range docs {
			var data []byte
			for _, v := range d {
				data = binary.LittleEndian.AppendUint32(data, uint32(v))
			}
			samples = append(samples, &shard.Sample{Fields: []shard.Field{array("tokens", mem.Uint32, data, len(d))}})
			all = append(all, d...)
		}
		files := encode(t, shard.Tokens{Wide: wide}, samples...)
		width, code := 2, byte(8)
		if wide {
			width, code = 4, 4
		}
		bin, idx := []byte(files[0]), []byte(files[1])
		if len(bin) != width*len(all) {
			t.Fatalf("%d bytes of %d tokens", len(bin), len(all))
		}
		for i, v := range all {
			if got := int(bin[i*width]) | int(bin[i*width+1])<<8; got != int(v) {
				t.Fatalf("token %d is %d, not %d", i, got, v)
			}
		}
		n := len(docs)
		if string(idx[:9]) != "MMIDIDX\x00\x00" || idx[9] != 1 || idx[17] != code || len(idx) != 34+4*n+8*n+8*(n+1) ||
			binary.LittleEndian.Uint64(idx[18:]) != uint64(n) || binary.LittleEndian.Uint64(idx[26:]) != uint64(n+1) {
			t.Fatalf("%x", idx)
		}
		at := 0
		for i, d := range docs {
			if binary.LittleEndian.Uint32(idx[34+4*i:]) != uint32(len(d)) || binary.LittleEndian.Uint64(idx[34+4*n+8*i:]) != uint64(at) ||
				binary.LittleEndian.Uint64(idx[34+12*n+8*i:]) != uint64(i) {
				t.Fatalf("document %d: %x", i, idx)
			}
			at += width * len(d)
		}
	})
	big := binary.LittleEndian.AppendUint32(nil, math.MaxUint16+1)
	err := shard.Tokens{}.Encode(&shard.Sample{Fields: []shard.Field{array("tokens", mem.Uint32, big, 1)}}, make([][]byte, 2))
	if err == nil || !strings.Contains(err.Error(), "0 to 65535") {
		t.Error(err)
	}
}
