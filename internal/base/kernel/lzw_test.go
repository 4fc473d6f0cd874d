package kernel

import (
	"bytes"
	"compress/lzw"
	"testing"

	"pgregory.net/rapid"
)

// What Go's writer packed comes out again; harmed or not, C and twin say the same.
func TestLZW(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := drawnBytes(t)
		bits := rapid.IntRange(2, 8).Draw(t, "bits")
		for i := range data {
			data[i] &= 1<<bits - 1
		}
		tiff := bits == 8 && rapid.Bool().Draw(t, "tiff")
		var b bytes.Buffer
		w := lzw.NewWriter(&b, lzw.LSB, bits)
		if tiff { // Go's order is TIFF's, but for when codes become wider: short ones are alike
			w = lzw.NewWriter(&b, lzw.MSB, bits)
			data = data[:min(len(data), 200)]
		}
		_, _ = w.Write(data)
		_ = w.Close()
		raw := b.Bytes()
		var c LZW
		var twin lzwTwin
		got := bytes.Repeat([]byte{0xEE}, len(data)+16)
		if n, err := c.Decode(got[:len(data)], raw, bits, tiff); err != nil || n != len(data) || !bytes.Equal(got[:n], data) || got[len(data)] != 0xEE {
			t.Fatalf("%d bytes of %d, %v", n, len(data), err)
		}
		for range rapid.IntRange(0, 3).Draw(t, "times") {
			raw[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		}
		likeLZWTwin(t, &c, &twin, raw[:rapid.IntRange(0, len(raw)).Draw(t, "cut")], len(data)+rapid.IntRange(0, 99).Draw(t, "more"), bits, tiff)
	})
}

func likeLZWTwin(t rapid.TB, c *LZW, twin *lzwTwin, raw []byte, n, bits int, tiff bool) {
	got, want := make([]byte, n), make([]byte, n)
	gotN, err := c.Decode(got, raw, bits, tiff)
	wantN, wantErr := twin.decode(want, raw, bits, tiff)
	if gotN != wantN || err != wantErr || !bytes.Equal(got[:gotN], want[:wantN]) { //nolint:errorlint // as it is
		t.Fatalf("%d bytes, %v; the twin has %d, %v", gotN, err, wantN, wantErr)
	}
}

func FuzzLZW(f *testing.F) {
	f.Add([]byte("\x80\x0b\x60\x50\x22\x0c\x0c\x85\x01"), uint16(20), uint8(7), true)
	f.Add([]byte("\x8c\x2d\x99\x87\x2a\x1c\xdc\x33\xa0\x02\x75\xec\x95\xfa\xa8\xde\x60\x8c\x04\x91\x4c\x01"), uint16(100), uint8(1), false)
	var c LZW
	var twin lzwTwin
	f.Fuzz(func(t *testing.T, raw []byte, n uint16, bits uint8, tiff bool) {
		likeLZWTwin(t, &c, &twin, raw, int(n), int(bits%8)+1, tiff)
	})
}

func TestUnpredict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		back := rapid.IntRange(1, 6).Draw(t, "back")
		n := back * rapid.IntRange(1, 30).Draw(t, "pixels")
		block := rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "block")
		want := bytes.Clone(block)
		unpredictGo(want, n, len(block)/n, back)
		if Unpredict(block, n, back); !bytes.Equal(block, want) {
			t.Fatalf("rows of %d, %d back: other bytes", n, back)
		}
	})
}
