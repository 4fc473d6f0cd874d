package packed

import (
	"bytes"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	kzlib "github.com/klauspost/compress/zlib"
	"pgregory.net/rapid"
)

func zlibbed(data []byte, level int) []byte {
	var b bytes.Buffer
	w, _ := zlib.NewWriterLevel(&b, level)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

// What Go's writer makes of drawn bytes comes out again; harmed, it is an error or
// the same, as Go's reader says.
func TestZlib(t *testing.T) {
	var u Inflater
	rapid.Check(t, func(t *rapid.T) {
		run := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "run")
		data := bytes.Repeat(run, rapid.IntRange(0, 300).Draw(t, "times"))
		raw := zlibbed(data, rapid.IntRange(-2, 9).Draw(t, "level"))
		behind := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "behind")
		got, err := u.Zlib(append(bytes.Clone(raw), behind...), int64(len(data)))
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes of %d: %v", len(got), len(data), err)
		}
		for _, n := range []int{len(data) - 1, len(data) + 1} {
			if _, err := u.Zlib(raw, int64(max(n, 0))); err == nil && n >= 0 {
				t.Fatalf("%d bytes are taken for %d", len(data), n)
			}
		}
		harmed := bytes.Clone(raw)
		harmed[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		harmed = harmed[:rapid.IntRange(len(raw)*3/4, len(raw)).Draw(t, "cut")]
		got, err = u.Zlib(harmed, int64(len(data)))
		want, gone := stdZlib(harmed)
		if gone == nil && len(want) == len(data) && (err != nil || !bytes.Equal(got, want)) {
			t.Fatalf("Go's reader takes it, and this one says %v", err)
		}
		if gone != nil && err == nil {
			t.Fatalf("Go's reader says %v, and this one nothing", gone)
		}
	})
}

func stdZlib(raw []byte) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestZlibSaysWhatIsWrong(t *testing.T) {
	data := bytes.Repeat([]byte("what is told is told "), 400)
	raw := zlibbed(data, 6)
	sum := bytes.Clone(raw)
	sum[len(sum)-1]++
	for _, c := range []struct {
		name, want string
		raw        []byte
		n          int
	}{
		{"empty", "begin", nil, 5},
		{"gzip", "begin", []byte{0x1f, 0x8b, 8, 0}, 5},
		{"dictionary", "begin", []byte{0x78, 0x20, 0, 0}, 5},
		{"cut", "cut off", raw[:len(raw)/2], len(data)},
		{"cut in the sum", "cut off", raw[:len(raw)-2], len(data)},
		{"longer", "there is more", raw, len(data) - 1},
		{"much longer", "there is more", raw, 10},
		{"shorter", "came out, and not", raw, len(data) + 1},
		{"sum", "checksum", sum, len(data)},
		{"block type", "type", []byte{0x78, 0x9c, 0x07, 0, 0, 0, 0, 0}, 5},
	} {
		var u Inflater
		if _, err := u.Zlib(c.raw, int64(c.n)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzZlib(f *testing.F) {
	f.Add(zlibbed([]byte("hello hello hello"), 9), uint16(17))
	f.Add(zlibbed(make([]byte, 70000), 0), uint16(4000))
	var u Inflater
	f.Fuzz(func(t *testing.T, raw []byte, n uint16) {
		got, err := u.Zlib(raw, int64(n))
		want, gone := stdZlib(raw)
		if err == nil && (gone != nil || !bytes.Equal(got, want)) || gone == nil && len(want) == int(n) && err != nil {
			t.Fatalf("%d bytes and %v; Go's reader says %d bytes and %v", len(got), err, len(want), gone)
		}
	})
}

func BenchmarkZlib(b *testing.B) {
	for _, what := range []string{"words", "mixed"} {
		want := texts(48 << 10)[what]
		raw := zlibbed(want, 4)
		b.Run(what+"/here", func(b *testing.B) {
			var u Inflater
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				if _, err := u.Zlib(raw, int64(len(want))); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(what+"/klauspost", func(b *testing.B) {
			r, _ := kzlib.NewReader(bytes.NewReader(raw))
			out := make([]byte, len(want))
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				_ = r.(kzlib.Resetter).Reset(bytes.NewReader(raw), nil)
				_, _ = io.ReadFull(r, out)
			}
		})
	}
}
