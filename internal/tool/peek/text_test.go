package peek

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func TestMain(m *testing.M) {
	os.Exit(stagetest.OwnCache(m))
}

// text is what WriteText says of sample 0 of a file with these bytes.
func text(t interface {
	Fatal(args ...any)
	Helper()
}, path string, body []byte, field string, all bool,
) string {
	t.Helper()
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := Open(context.Background(), spec.Dataset{Path: spec.Paths{path}}, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var b strings.Builder
	if err := d.WriteText(context.Background(), &b, 0, field, all); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elems are numbers as an array stores them.
func elems(t testing.TB, v any) []byte {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestArraysForPeople(t *testing.T) {
	long := make([]uint16, 2000)
	for i := range long {
		long[i] = uint16(i)
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		dtype mem.DType
		shape []int
		v     any
		want  string
	}{
		{mem.Int64, nil, []int64{math.MinInt64}, "int64 []\n-9223372036854775808"},
		{mem.Uint64, []int{2}, []uint64{math.MaxUint64, 0}, "uint64 [2]\n[18446744073709551615, 0]"},
		{mem.Bool, []int{3}, []bool{true, false, true}, "bool [3]\n[true, false, true]"},
		{mem.Float32, []int{2, 3}, []float32{0.1, -1, 1e20, inf, -inf, nan}, "float32 [2, 3]\n[[0.1, -1, 1e+20],\n [Infinity, -Infinity, NaN]]"},
		{mem.Float16, []int{4}, []uint16{0x3c00, 0x2e66, 0x7bff, 0x8001}, "float16 [4]\n[1, 0.099976, 65504, -5.9605e-08]"},
		{mem.Int8, []int{1, 2, 2}, []int8{1, -2, 3, -128}, "int8 [1, 2, 2]\n[[[1, -2],\n  [3, -128]]]"},
		{mem.Uint16, []int{2000}, long, "uint16 [2000]\n[0, 1, 2, …, 1997, 1998, 1999]"},
		{mem.Uint16, []int{8, 250}, long, "uint16 [8, 250]\n[[0, 1, 2, …, 247, 248, 249],\n [250, 251, 252, …, 497, 498, 499],\n [500, 501, 502, …, 747, 748, 749],\n …,\n" +
			" [1250, 1251, 1252, …, 1497, 1498, 1499],\n [1500, 1501, 1502, …, 1747, 1748, 1749],\n [1750, 1751, 1752, …, 1997, 1998, 1999]]"},
	} {
		body := format.NPY(c.dtype, append([]int{1}, c.shape...), elems(t, c.v))
		if got := text(t, filepath.Join(t.TempDir(), "x.npy"), body, "x", false); got != c.want+"\n" {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}

// nested is what Python's tolist makes of an array: the naive way.
func nested(shape []int, next func() any) any {
	if len(shape) == 0 {
		return next()
	}
	out := []any{}
	for range shape[0] {
		out = append(out, nested(shape[1:], next))
	}
	return out
}

// What is not cut is JSON, and has every number.
func TestArraysAreJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 12), 0, 4).Draw(t, "shape")
		n := mem.Shape(shape).Elems()
		var b []byte
		var want any
		dtype := rapid.SampledFrom([]mem.DType{mem.Int32, mem.Uint16, mem.Float64, mem.Float32}).Draw(t, "dtype")
		i := 0
		draw := func(v func(i int) any) {
			want = nested(shape, func() any { i++; return v(i - 1) })
		}
		switch dtype {
		case mem.Int32:
			v := rapid.SliceOfN(rapid.Int32(), n, n).Draw(t, "v")
			b, _ = binary.Append(nil, binary.LittleEndian, v)
			draw(func(i int) any { return float64(v[i]) })
		case mem.Uint16:
			v := rapid.SliceOfN(rapid.Uint16(), n, n).Draw(t, "v")
			b, _ = binary.Append(nil, binary.LittleEndian, v)
			draw(func(i int) any { return float64(v[i]) })
		case mem.Float64:
			v := rapid.SliceOfN(rapid.Float64(), n, n).Draw(t, "v")
			b, _ = binary.Append(nil, binary.LittleEndian, v)
			draw(func(i int) any { return v[i] })
		case mem.Float32:
			v := rapid.SliceOfN(rapid.Float32(), n, n).Draw(t, "v")
			b, _ = binary.Append(nil, binary.LittleEndian, v)
			draw(func(i int) any { return float64(v[i]) })
		}
		got := text(t, path, format.NPY(dtype, append([]int{1}, shape...), b), "x", true)
		head, body, _ := strings.Cut(got, "\n")
		if want := fmt.Sprintf("%s [%s]", dtype, strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]")); head != want {
			t.Fatalf("%s, want %s", head, want)
		}
		for line := range strings.Lines(body) {
			if len(line) > 2*lineBytes {
				t.Fatalf("a line of %d bytes", len(line))
			}
		}
		var have any
		if err := json.Unmarshal([]byte(body), &have); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		if dtype == mem.Float32 { // as short as tells float32s apart
			have = narrow(have)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Fatal(diff)
		}
	})
}

func narrow(v any) any {
	switch v := v.(type) {
	case float64:
		return float64(float32(v))
	case []any:
		for i := range v {
			v[i] = narrow(v[i])
		}
	}
	return v
}

// A .npy file among other things is an array; what says that it is one, and is
// not, is bytes.
func TestFieldsForPeople(t *testing.T) {
	array := format.NPY(mem.Uint8, []int{2}, []byte{7, 8})
	long := strings.Repeat("ä", 1500)
	got := text(t, filepath.Join(t.TempDir(), "x.tar"), tarOf(t, map[string][]byte{
		"a.npy": array, "a.none.npy": format.NPY(mem.Int8, []int{3, 0, 2}, nil), "a.cut.npy": array[:len(array)-1], "a.txt": []byte("two\nlines"), "a.long.txt": []byte(long), "a.bin": bytes.Repeat([]byte{0xff}, 20), "a.cls": []byte("3"),
	}), "", false)
	for _, want := range []string{
		"\nnpy: uint8 [2]\n[7, 8]\n", "\nnone.npy: int8 [3, 0, 2]\n[]\n", "\ntxt: two\nlines\n", "\nlong.txt: " + strings.Repeat("ä", 1000) + "…\n", "\ncls: 3\n",
		"\nbin: 20 B of bytes: " + strings.Repeat("ff", 16) + "…\n", "\ncut.npy: 129 B of bytes: 934e554d5059", "sample 0, a, ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func tarOf(t *testing.T, members map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(members[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(members[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
