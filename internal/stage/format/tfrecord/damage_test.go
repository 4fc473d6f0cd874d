package tfrecord_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tfrecord"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

const here = "s3://x.tfrecord"

func try(data []byte) (*tfrecord.Dataset, error) {
	return tfrecord.Open(ctx, stagetest.Bytes(data), []string{here}, tfrecord.Options{Store: &index.Store{}})
}

func through(t *testing.T, data []byte, make func(w io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var b bytes.Buffer
	w := make(&b)
	_, err := w.Write(data)
	stagetest.Must(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

// head is the length of a record with a right check.
func head(n uint64) []byte {
	p := binary.LittleEndian.AppendUint64(nil, n)
	return binary.LittleEndian.AppendUint32(p, crc(p))
}

func flipped(data []byte, at int) []byte {
	out := bytes.Clone(data)
	out[at] ^= 4
	return out
}

// What is found while a file is indexed.
func TestDamagedFiles(t *testing.T) {
	// Records of 20, 3 and 0 bytes, at 0, 36 and 55; the end is 71.
	raw := framed([]byte("twenty bytes of data"), []byte("abc"), nil)
	gz := through(t, raw, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	zl := through(t, raw, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	bomb := through(t, append(head(1<<30), make([]byte, 70<<20)...), func(w io.Writer) io.WriteCloser {
		z, _ := gzip.NewWriterLevel(w, 1)
		return z
	})
	for _, c := range []struct {
		name string
		data []byte
		code errs.Code
		what string
		off  int64
	}{
		{"cut in the first head", raw[:11], errs.Damaged, "inside the head", 0},
		{"cut in the first payload", raw[:25], errs.Damaged, "inside a record of 20 bytes, of which", 0},
		{"cut in the check of a payload", raw[:34], errs.Damaged, "inside a record of 20 bytes", 0},
		{"cut in a later head", raw[:40], errs.Damaged, "inside the head", 36},
		{"cut in a later payload", raw[:50], errs.Damaged, "inside a record of 3 bytes, of which", 36},
		{"cut in the last check", raw[:70], errs.Damaged, "inside a record of 0 bytes", 55},
		{"length", flipped(raw, 36), errs.Damaged, "length of a record does not have the CRC", 36},
		{"check of a length", flipped(raw, 36+9), errs.Damaged, "length of a record does not have the CRC", 36},
		{"first length", flipped(raw, 1), errs.Damaged, "first record", 0},
		{"absurd length", append(bytes.Clone(raw), head(1<<62-20)...), errs.Damaged, "inside a record of", 71},
		{"length beyond all", append(bytes.Clone(raw), head(1<<64-1)...), errs.Damaged, "length of a record", 71},
		{"length of a gigabyte", append(bytes.Clone(raw), append(head(1<<30), "and a little"...)...), errs.Damaged, "of 1073741824 bytes, of which 8", 71},
		{"something after", append(bytes.Clone(raw), "and something else"...), errs.Damaged, "length of a record", 71},
		{"no TFRecord", []byte(strings.Repeat("text ", 100)), errs.Damaged, "first record", 0},
		{"zlib", zl, errs.Damaged, "first record", 0},
		{"no record", nil, errs.Empty, "no record", -1},
		{"gzip of no record", through(t, nil, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }), errs.Empty, "no record", -1},
		{"gzip cut", gz[:len(gz)-9], errs.Damaged, "cut off", int64(len(gz) - 9)},
		{"gzip CRC", flipped(gz, len(gz)-8), errs.Damaged, "the CRC", int64(len(gz) - 8)},
		{"gzip of a cut file", through(t, raw[:50], func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }), errs.Damaged, "at byte 36 of the decompressed file", 0},
		{"gzip bomb", bomb, errs.Damaged, "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := try(c.data)
			runtime.ReadMemStats(&after)
			e := errs.From(err)
			if err == nil || e.Code != c.code || e.Where.Shard != here || !strings.Contains(e.What, c.what) || e.Hint == "" || c.off >= 0 && e.Where.Offset.Or(-1) != c.off {
				t.Errorf("%s: %s at %+v | %s; want %q at %d", e.Code, e, e.Where, e.Hint, c.what, c.off)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d bytes were allocated", grown)
			}
		})
	}
}

// Every cut within a record and, in every byte, two or three wrong bits; a cut between
// two records is what the format cannot detect.
func TestEveryCutAndBit(t *testing.T) {
	raw := framed([]byte("twenty bytes of data"), []byte("abc"), nil)
	for at := range raw {
		d, err := try(raw[:at])
		if whole := at == 36 || at == 55; (err == nil) != whole {
			t.Errorf("cut at %d: %v", at, err)
		}
		if err == nil {
			_ = d.Close()
		}
	}
	for at := range raw {
		for bit := at % 3; bit < 8; bit += 3 {
			bad := bytes.Clone(raw)
			bad[at] ^= 1 << bit
			d, err := try(bad)
			if err != nil {
				continue
			}
			found := false
			for id := range d.Index().Len() {
				var s format.Sample
				found = found || errs.CodeOf(stagetest.Read(d, stagetest.Bytes(bad), id, nil, &s)) == errs.Damaged
			}
			_ = d.Close()
			if !found {
				t.Errorf("bit %d of byte %d is wrong: no error", bit, at)
			}
		}
	}
}

// What is found when a sample is read: here the file is another one than was
// indexed, under its size and time.
// A damaged first record does not decide what the others are: its own error names it.
func TestDamagedFirstRecord(t *testing.T) {
	one := example(feat{"a", []byte("x")}, feat{"f", []int64{1, 2}})
	raw := flipped(framed(one, one, one), 14)
	d, err := try(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got := d.Index().Meta().Fields; d.Len() != 3 || !slices.Equal(got, []string{"a", "f"}) {
		t.Fatalf("%d samples of %v", d.Len(), got)
	}
	var s format.Sample
	err = stagetest.Read(d, stagetest.Bytes(raw), 0, []string{"a"}, &s)
	if e := errs.From(err); e.Code != errs.Damaged || e.Where.Sample.Or(-1) != 0 || !strings.Contains(e.Error(), "the CRC") {
		t.Error(err)
	}
	for id := int64(1); id < 3; id++ {
		stagetest.Must(t, stagetest.Read(d, stagetest.Bytes(raw), id, []string{"a"}, &s))
	}
}

func TestDamagedSamples(t *testing.T) {
	was := func(value any) []byte { return example(feat{"a", []byte("x")}, feat{"f", value}) }
	two := was([]int64{1, 2})
	pad := func(p []byte) []byte { // up to 100 bytes, with another feature
		fill := example(feat{"p", []byte{}})
		return append(p, example(feat{"p", make([]byte, 100-len(p)-len(fill))})...)
	}
	for _, c := range []struct {
		name     string
		was, now []byte
		fields   []string
		code     errs.Code
		what     string
	}{
		{"payload", framed(two), flipped(framed(two), 20), []string{"a"}, errs.Damaged, "the CRC"},
		{"check of a payload", framed(two), flipped(framed(two), len(two)+13), []string{"data"}, errs.Damaged, "the CRC"},
		{"fewer values", framed(pad(was([]int64{1, 2, 3, 4, 5}))), framed(pad(was([]int64{1, 2, 3}))), []string{"f"}, errs.Damaged, "3 values, but had 5"},
		{"a different list", framed(pad(two)), framed(pad(was([]float32{1}))), []string{"f"}, errs.Damaged, "not a tf.train.Example"},
		{"no feature", framed(pad(two)), framed(pad(example(feat{"a", []byte("x")}))), []string{"f"}, errs.MissingField, `no field "f"`},
		{"not a protocol buffer", framed(two), framed(bytes.Repeat([]byte{0xff}, len(two))), []string{"f"}, errs.Damaged, "not a tf.train.Example"},
		{"a list that is cut", framed(pad(two)), framed(pad(field(nil, 1, field(nil, 1, field(field(nil, 1, []byte("f")), 2, field(nil, 3, []byte{10, 1, 0x80})))))), []string{"f"}, errs.Damaged, "not a tf.train.Example"},
		{"a number without an end", framed(pad(two)), framed(pad(field(nil, 1, field(nil, 1, field(field(nil, 1, []byte("f")), 2, field(nil, 3, append([]byte{8}, bytes.Repeat([]byte{0x80}, 12)...))))))), []string{"f"}, errs.Damaged, "not a tf.train.Example"},
		{"floats of five bytes", framed(pad(was([]float32{1}))), framed(pad(field(nil, 1, field(nil, 1, field(field(nil, 1, []byte("f")), 2, field(nil, 2, field(nil, 1, []byte("12345")))))))), []string{"f"}, errs.Damaged, "not a tf.train.Example"},
		{"two lists", framed(pad(two)), framed(pad(field(nil, 1, field(nil, 1, field(field(nil, 1, []byte("f")), 2, append(field(nil, 3, nil), field(nil, 3, nil)...)))))), []string{"f"}, errs.Damaged, "not a tf.train.Example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := opened(t, c.was)
			defer d.Close()
			var s format.Sample
			stagetest.Must(t, stagetest.Read(d, stagetest.Bytes(c.was), 0, c.fields, &s))
			err := stagetest.Read(d, stagetest.Bytes(c.now), 0, c.fields, &s)
			e := errs.From(err)
			if err == nil || e.Code != c.code || e.Where.Shard != here || e.Where.Sample.Or(-1) != 0 || e.Where.Offset.Or(-1) != 12 || !strings.Contains(e.Error(), c.what) || e.Hint == "" {
				t.Errorf("%s: %v at %+v | %s", e.Code, e, e.Where, e.Hint)
			}
		})
	}
}

// Records that are not Examples among others that are: reported when they are
// requested.
func TestMixtures(t *testing.T) {
	d, src := opened(t, framed(example(feat{"a", []byte("x")}, feat{"n", []int64{1}}), []byte("\xffno Example"), example(feat{"a", []int64{2}}, feat{"n", []int64{2}})))
	defer d.Close()
	var s format.Sample
	stagetest.Must(t, stagetest.Read(d, src, 1, []string{"data"}, &s))
	stagetest.Must(t, stagetest.Read(d, src, 2, []string{"n"}, &s))
	for id, want := range map[int64]errs.Code{1: errs.Damaged, 2: errs.Unsupported} {
		e := errs.From(stagetest.Read(d, src, id, []string{"a"}, &s))
		if e.Code != want || e.Where.Sample.Or(-1) != id || !strings.Contains(e.Hint, tfrecord.Data) {
			t.Errorf("%d: %v | %s", id, e, e.Hint)
		}
	}
}

func TestOpenErrorsTeach(t *testing.T) {
	src := local(t)
	dir := t.TempDir()
	stagetest.Must(t, os.WriteFile(dir+"/a-00000-of-00002", framed([]byte("x")), 0o600))
	stagetest.Must(t, os.WriteFile(dir+"/nothing", nil, 0o600))
	for _, c := range []struct {
		files []string
		code  errs.Code
		what  string
	}{
		{nil, errs.Config, "list of TFRecord files is empty"},
		{[]string{dir + "/a-00001-of-00002"}, errs.NotFound, "no TFRecord file"},
		{[]string{dir}, errs.Config, "is a folder"},
		{[]string{dir + "/nothing", dir + "/nothing"}, errs.Empty, "there is no record"},
	} {
		_, err := tfrecord.Open(ctx, src, c.files, tfrecord.Options{Store: &index.Store{}})
		if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Hint == "" {
			t.Errorf("%v | %s", e, e.Hint)
		}
	}
}

// Any bytes in a record: no panic, and no bug.
func FuzzTFRecord(f *testing.F) {
	f.Add(example(feat{"a", []byte("x")}, feat{"i", []int64{1, -1}}, feat{"f", []float32{1, 2, 3}}, feat{"l", [][]byte{{1}, {2}}}, feat{"none", nil}), []byte("\x00"))
	f.Add([]byte("raw"), []byte(""))
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 3), head(5))
	f.Fuzz(func(t *testing.T, payload, rest []byte) {
		data := append(framed(payload, example(feat{"a", []byte("y")}, feat{"i", []int64{1, 2}}), payload), rest...)
		d, err := try(data)
		if err != nil {
			if errs.CodeOf(err) == errs.Bug {
				t.Fatal(err)
			}
			return
		}
		defer d.Close()
		var s format.Sample
		for id := range d.Index().Len() {
			wanted := [][]string{nil, {"data"}}
			for _, f := range d.Index().Meta().Fields {
				wanted = append(wanted, []string{f})
			}
			for _, fields := range wanted {
				if err := stagetest.Read(d, stagetest.Bytes(data), id, fields, &s); err != nil && errs.CodeOf(err) == errs.Bug {
					t.Fatal(err)
				}
				for _, f := range s.Fields {
					typ, ok := d.Type(f.Name)
					if !ok || err == nil && !typ.Ragged && typ.DType.Size() > 0 && len(f.Data) != typ.DType.Size()*typ.Shape.Elems() {
						t.Fatalf("field %q has %d bytes, its type is %+v", f.Name, len(f.Data), typ)
					}
				}
			}
		}
	})
}
