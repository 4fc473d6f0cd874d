package index

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// small is a dataset of two files in two classes.
func small() *Builder {
	var names, classes Texts
	names.AppendString("a/1.jpg")
	names.AppendString("b/2.jpg")
	classes.AppendString("a")
	classes.AppendString("b")
	b := &Builder{Meta: Meta{Format: "test", Root: "/data", Samples: 2, Fields: []string{"image"}}}
	b.Strings(FileName, &names, Identity)
	b.Int64s(FileSize, []int64{10, 20}, Identity)
	b.Int64s(FileMTime, []int64{0, 5}, Aside)
	b.Int32s(SampleClass, []int32{0, 1}, Identity)
	b.Strings(ClassName, &classes, Identity)
	b.Bytes("flags", []byte{7}, Aside)
	return b
}

// written is the file that b becomes.
func written(t testing.TB, b *Builder) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "x.idx"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := b.write(f); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.idx")
	if err := os.WriteFile(path, written(t, small()), 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if x.Len() != 2 || x.Files() != 2 || string(x.AppendPath(1, []byte("at "))) != "at /data/b/2.jpg" || x.Path() != path {
		t.Errorf("%d samples, %d files, %s, kept at %s", x.Len(), x.Files(), x.AppendPath(1, nil), x.Path())
	}
	if size, version := x.Stamp(1); size != 20 || version != "\x05\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("stamp %d %q", size, version)
	}
	if diff := cmp.Diff([]string{"a", "b"}, x.Classes()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int32{0, 1}, x.Int32s(SampleClass)); diff != "" {
		t.Error(diff)
	}
	if !bytes.Equal(x.Bytes("flags"), []byte{7}) || x.Bytes("none") != nil || x.Int64s("flags") != nil || x.Int32s(FileSize) != nil || x.Strings("none").Len() != 0 {
		t.Error("columns of another name or kind")
	}
	if m := x.Meta(); m.Format != "test" || m.Fields[0] != "image" || m.Digest != x.Digest() {
		t.Errorf("%+v", m)
	}
	if err := x.Invalidate(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("after Invalidate: %v", err)
	}
	if string(x.Strings(FileName).At(0)) != "a/1.jpg" {
		t.Error("the mapping did not outlive the file")
	}
	for range 2 {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Names of files and fields may have any bytes, and stay what they are.
func TestNamesOfAnyBytes(t *testing.T) {
	b := small()
	b.Meta.Root, b.Meta.Fields = "/d\xff/\ufffd", []string{"jp\xfe", "\ufffd"}
	path := filepath.Join(t.TempDir(), "x.idx")
	if err := os.WriteFile(path, written(t, b), 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if m := x.Meta(); m.Root != b.Meta.Root || !slices.Equal(m.Fields, b.Meta.Fields) || !strings.HasPrefix(string(x.AppendPath(0, nil)), "/d\xff/") {
		t.Errorf("%q, %q, %q", m.Root, m.Fields, x.AppendPath(0, nil))
	}
}

func TestInvalidateSparesTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.idx")
	for range 2 {
		if err := replace(path, small()); err != nil {
			t.Fatal(err)
		}
	}
	old, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := replace(path, small()); err != nil {
		t.Fatal(err)
	}
	if err := old.Invalidate(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("an index that somebody else built was removed")
	}
}

// The digest is part of the format: other machines and saved states have it.
func TestDigestIsLocked(t *testing.T) {
	if got, want := small().digest(), "0eed9f793efa1e3014ce85834fa4e550"; got != want {
		t.Errorf("the digest is %s, was %s", got, want)
	}
	base := small().digest()
	for name, change := range map[string]func(b *Builder) bool{ // true: the digest changes
		"root":   func(b *Builder) bool { b.Meta.Root = "/elsewhere"; return false },
		"time":   func(b *Builder) bool { binary.LittleEndian.PutUint64(b.data[2][0], 99); return false },
		"format": func(b *Builder) bool { b.Meta.Format = "other"; return true },
		"size":   func(b *Builder) bool { b.data[1] = [][]byte{make([]byte, 16)}; return true },
		"name":   func(b *Builder) bool { b.data[0] = [][]byte{b.data[0][0], []byte("a/1.jpgb/3.jpg")}; return true },
		"cut":    func(b *Builder) bool { b.data[0][0] = bytes.Clone(b.data[0][0]); b.data[0][0][8]--; return true },
		"label":  func(b *Builder) bool { b.data[3] = [][]byte{{0, 0, 0, 0, 0, 0, 0, 0}}; return true },
	} {
		b := small()
		if want := change(b); (b.digest() != base) != want {
			t.Errorf("%s: changed is %v, want %v", name, !want, want)
		}
	}
}

// Every single wrong bit, every length that is not the right one.
func TestDamageIsFound(t *testing.T) {
	data := written(t, small())
	if _, err := view(data); err != nil {
		t.Fatal(err)
	}
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			if _, err := view(bad); err == nil {
				t.Fatalf("bit %d of byte %d is wrong and nobody knows", bit, i)
			}
		}
	}
	for n := range len(data) {
		if _, err := view(data[:n]); err == nil {
			t.Fatalf("no error for a file cut to %d bytes", n)
		}
	}
	if _, err := view(append(bytes.Clone(data), make([]byte, 8)...)); err == nil {
		t.Fatal("no error for bytes after the end")
	}
	path := filepath.Join(t.TempDir(), "x.idx")
	if err := os.WriteFile(path, data[:len(data)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if e := errs.From(err); e.Code != errs.Damaged || e.Where.File != path || e.Hint == "" {
		t.Errorf("%v", err)
	}
	for _, path := range []string{t.TempDir(), "/dev/null"} {
		if _, err := Open(path); err == nil {
			t.Errorf("%s could be opened", path)
		}
	}
}

// seal gives any contents right checksums: what a forger would do.
func seal(meta, columns []byte) []byte {
	body := append(bytes.Clone(meta), make([]byte, align8(int64(len(meta)))-int64(len(meta)))...)
	body = append(body, columns...)
	h := header(int64(headerLen+len(body)), int64(len(meta)), xxhash.Sum64(body))
	out := make([]byte, 0, headerLen+len(body)+8)
	return append(append(out, h[:]...), body...)
}

// touch reads everything that an index lets one read.
func touch(x *Index) (sum int64) {
	for i := range x.Files() {
		size, version := x.Stamp(i)
		sum += size + int64(len(version)) + int64(len(x.AppendPath(i, nil)))
	}
	for name := range x.parts {
		for _, v := range x.Int64s(name) {
			sum += v
		}
		for _, v := range x.Int32s(name) {
			sum += int64(v)
		}
		for _, v := range x.Bytes(name) {
			sum += int64(v)
		}
		s := x.Strings(name)
		for i := range s.Len() {
			sum += int64(len(s.At(i)))
		}
	}
	x.Classes()
	return sum
}

func forgeries() [][2][]byte {
	offsets := func(v ...int64) []byte {
		var b []byte
		for _, n := range v {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		return b
	}
	meta := func(samples int64, c ...column) []byte {
		// Offsets are counted from the end of meta and its padding, roughly: the
		// fuzzer finds the rest.
		b, _ := json.Marshal(metaFile{Meta: Meta{Samples: samples}, Columns: c})
		at := align8(headerLen + int64(len(b)) + 8)
		for i := range c {
			if c[i].Off == 0 {
				c[i].Off = at
			}
		}
		b, _ = json.Marshal(metaFile{Meta: Meta{Samples: samples}, Columns: c})
		for headerLen+int64(len(b)) < at {
			b = append(b, ' ')
		}
		return b
	}
	return [][2][]byte{
		{meta(0), nil},
		{meta(-1), nil},
		{meta(1<<62, column{Name: FileSize, Kind: kindInt64, Rows: 2}), offsets(1, 2)},
		{meta(1, column{Name: "n", Kind: kindStrings, Rows: 2, Text: 3}), append(offsets(0, 1, 3), "abc"...)},
		{meta(1, column{Name: "n", Kind: kindStrings, Rows: 2, Text: 3}), append(offsets(0, 9, 3), "abc"...)},
		{meta(1, column{Name: "n", Kind: kindStrings, Rows: 2, Text: 3}), append(offsets(0, -5, 3), "abc"...)},
		{meta(1, column{Name: "n", Kind: kindStrings, Rows: math.MaxInt64, Text: 3}), offsets(0, 1)},
		{meta(1, column{Name: "n", Kind: kindStrings, Rows: -1}), offsets(0, 1)},
		{meta(1, column{Name: "n", Kind: kindInt64, Rows: math.MaxInt64/8 + 1}), offsets(0, 1)},
		{meta(1, column{Name: "n", Kind: kindInt64, Rows: 1, Off: math.MaxInt64 &^ 7}), offsets(0, 1)},
		{meta(1, column{Name: "n", Kind: kindInt64, Rows: 1, Off: -8}), offsets(0, 1)},
		{meta(1, column{Name: "n", Kind: kindInt64, Rows: 1, Off: 65}), offsets(0, 1)},
		{meta(1, column{Name: "n", Kind: "strange", Rows: 1}), offsets(0, 1)},
		{meta(1, column{Name: "n", Kind: kindBytes, Rows: 3}, column{Name: "n", Kind: kindBytes, Rows: 3}), offsets(0)},
		{meta(1, column{Name: FileSize, Kind: kindInt64, Rows: 2}), offsets(1, -2)},
		{meta(1, column{Name: FileSize, Kind: kindInt64, Rows: 2}, column{Name: FileMTime, Kind: kindInt64, Rows: 1}), offsets(1, 2)},
		{[]byte("{"), nil},
		{[]byte("null"), nil},
		{[]byte(`{"columns":[{}]}`), nil},
	}
}

func TestForgeriesDoNotCrash(t *testing.T) {
	for _, f := range forgeries() {
		if x, err := view(seal(f[0], f[1])); err == nil {
			touch(x)
		}
	}
}

func FuzzView(f *testing.F) {
	for _, s := range forgeries() {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, meta, columns []byte) {
		if x, err := view(seal(meta, columns)); err == nil {
			touch(x)
		}
		_, _ = view(columns)
	})
}

func TestRoundTripProperty(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringN(0, 20, 60), 0, 30).Draw(t, "names")
		sizes := rapid.SliceOfN(rapid.Int64Min(0), len(names), len(names)).Draw(t, "sizes")
		numbers := rapid.SliceOf(rapid.Int32()).Draw(t, "numbers")
		raw := rapid.SliceOf(rapid.Byte()).Draw(t, "raw")
		var texts Texts
		for _, n := range names {
			texts.AppendString(n)
		}
		b := &Builder{Meta: Meta{Format: "test", Samples: int64(len(names))}}
		b.Bytes("raw", raw, Identity)
		b.Int32s("numbers", numbers, Aside)
		b.Strings(FileName, &texts, Identity)
		b.Int64s(FileSize, sizes, Identity)
		path := filepath.Join(dir, "x.idx")
		if err := replace(path, b); err != nil {
			t.Fatal(err)
		}
		x, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		for i, n := range names {
			if size, version := x.Stamp(i); string(x.AppendPath(i, nil)) != n || size != sizes[i] || version != "" {
				t.Fatalf("file %d is %s with %d bytes", i, x.AppendPath(i, nil), size)
			}
		}
		if x.Files() != len(names) || !bytes.Equal(x.Bytes("raw"), raw) || !cmp.Equal(append([]int32{}, x.Int32s("numbers")...), append([]int32{}, numbers...)) {
			t.Fatal("columns differ")
		}
	})
}
