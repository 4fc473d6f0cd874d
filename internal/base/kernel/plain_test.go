package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Each constant is what its comment says.
func TestPlainConstants(t *testing.T) {
	c := func(k float64) float64 { return math.Sqrt2 * math.Cos(k*math.Pi/16) }
	for _, k := range []struct {
		is   int32
		want float64
	}{
		{k0298, -c(1) + c(3) + c(5) - c(7)},
		{k0390, c(3) - c(5)},
		{k0541, c(6)},
		{k0765, c(2) - c(6)},
		{k0899, c(3) - c(7)},
		{k1175, c(3)},
		{k1501, c(1) + c(3) - c(5) - c(7)},
		{k1847, c(2) + c(6)},
		{k1961, c(3) + c(5)},
		{k2053, c(1) + c(3) - c(5) + c(7)},
		{k2562, c(1) + c(3)},
		{k3072, c(1) + c(3) + c(5) - c(7)},
	} {
		if got := int32(math.Round(k.want * (1 << constBits))); got != k.is {
			t.Errorf("%.9f is %d, not %d", k.want, got, k.is)
		}
	}
}

// definedDCT is the inverse DCT exactly as A.3.3 defines it.
func definedDCT(s *[64]float64) (out [64]float64) {
	var cos [8][8]float64
	for x := range 8 {
		for u := range 8 {
			cos[x][u] = math.Cos(float64(2*x+1) * float64(u) * math.Pi / 16)
		}
	}
	for i := range out {
		y, x := i/8, i%8
		for k, S := range s {
			v, u := k/8, k%8
			if u == 0 {
				S /= math.Sqrt2
			}
			if v == 0 {
				S /= math.Sqrt2
			}
			out[i] += S / 4 * cos[x][u] * cos[y][v]
		}
	}
	return out
}

// The inverse DCT is the standard's, rounded: seldom more than half a step away,
// and never a whole one. Single coefficients and rows are blocks of their own,
// because zeros are cut short.
func TestInverseDCT(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 72))
	off, n := 0, 0
	for i := range 3000 {
		var s block
		var q quantTable
		var S [64]float64
		for k := range q {
			q[k] = int16(1 + r.IntN(12))
		}
		for k := range s {
			switch size := 1 + r.IntN(60); {
			case i < 64 && k != i, i%4 == 1 && k >= 8, i%4 == 2 && k%8 > 1, r.IntN(3) > 0 && i >= 64:
			default:
				s[k] = int16((r.IntN(2*size+1) - size) / int(q[k]))
			}
			S[k] = float64(s[k] * q[k])
		}
		const stride = 11
		out := make([]byte, 8*stride)
		inverseDCT(out, stride, &s, &q)
		for k, want := range definedDCT(&S) {
			want = min(max(want+128, 0), 255)
			got := float64(out[k/8*stride+k%8])
			if math.Abs(got-want) >= 1 {
				t.Fatalf("block %d: sample %d is %v, not %.3f", i, k, got, want)
			}
			n++
			if got != math.Round(want) {
				off++
			}
		}
	}
	if off*50 > n {
		t.Errorf("%d of %d samples are rounded the wrong way", off, n)
	}
}

// The codes of table K.3, which most encoders take for DC differences.
func TestPlainTableK3(t *testing.T) {
	h, ok := newHuffman(&typicalDC[0])
	if !ok {
		t.Fatal("not a table")
	}
	for v, code := range []string{"00", "010", "011", "100", "101", "110", "1110", "11110", "111110", "1111110", "11111110", "111111110"} {
		b := bitsOf(code)
		if got, ok := b.decode(h); !ok || int(got) != v || b.pos != len(code) {
			t.Errorf("%s is %d (%v) in %d bits, not %d", code, got, ok, b.pos, v)
		}
	}
	b := bitsOf("1111111111111111")
	if v, ok := b.decode(h); ok {
		t.Errorf("a code of ones is %d", v)
	}
}

func bitsOf(text string) bits {
	var w bitWriter
	for _, c := range text {
		w.put(uint32(c-'0'), 1)
	}
	w.flush()
	data := bytes.ReplaceAll(w.b, []byte{0xff, 0}, []byte{0xff})
	return bits{data: append(data, make([]byte, beyondData)...), end: len(text)}
}

// Codes of any length are found, wherever they are.
func TestPlainHuffman(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 74))
	for range 200 {
		symbols := make([]byte, 256)
		for i, v := range r.Perm(256) {
			symbols[i] = byte(v)
		}
		codes := drawCodes(r, symbols[:1+r.IntN(256)])
		h, ok := newHuffman(spec(codes))
		if !ok {
			t.Fatalf("not a table: %v", codes)
		}
		var text strings.Builder
		var want []byte
		for range 100 {
			c := codes[r.IntN(len(codes))]
			fmt.Fprintf(&text, "%0*b", c.n, c.v)
			want = append(want, c.symbol)
		}
		b := bitsOf(text.String())
		for i, v := range want {
			if got, ok := b.decode(h); !ok || got != v {
				t.Fatalf("code %d is %d (%v), not %d", i, got, ok, v)
			}
		}
	}
	for _, bad := range [][]byte{{2}, {1, 2}, {0, 4}, {0, 0, 0, 0, 0, 0, 0, 255, 2}} {
		s := &huffmanSpec{bits: append(bad, make([]byte, 16-len(bad))...), huffval: make([]byte, 256)}
		if _, ok := newHuffman(s); ok {
			t.Errorf("a table of too many codes passes: %v", s.bits)
		}
	}
}

// EXTEND, by table F.1: sizes and the values they stand for.
func TestPlainExtend(t *testing.T) {
	for size := range 16 {
		var values []int32
		for v := range int32(1) << size {
			values = append(values, extend(v, size))
		}
		least, half := int32(1)-1<<size, len(values)/2
		for i, v := range values {
			want := least + int32(i)
			if i >= half {
				want = int32(i)
			}
			if v != want {
				t.Fatalf("%d of %d bits is %d, not %d", i, size, v, want)
			}
		}
	}
}

// Where the standard library decodes the same, it is near: the two share nothing
// but the standard.
func TestPlainIsNearTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(75, 76))
	twin := newLane("go")
	for i := range 200 {
		d := drawJPEG(r, true)
		if i%3 > 0 { // seldom enough by chance
			d.x, d.y, d.factors, d.id = 1+r.IntN(70), 1+r.IntN(70), [][2]int{{1, 1}, {1, 1}, {1, 1}}, []byte{1, 2, 3}
		}
		d.size, d.most, d.symbols, d.sof = 3, 3, 9, mSOF1
		b := d.bytes(r)
		m, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil {
			continue // it takes fewer kinds
		}
		got := run(t, twin, Job{JPEG: b})
		for j := range d.x * d.y {
			x, y := j%d.x, j/d.x
			var want []byte
			switch m := m.(type) {
			case *image.Gray:
				v := m.GrayAt(x, y).Y
				want = []byte{v, v, v}
			case *image.YCbCr:
				if m.SubsampleRatio != image.YCbCrSubsampleRatio444 {
					continue
				}
				r, g, b, _ := m.YCbCrAt(x, y).RGBA()
				want = []byte{byte(r >> 8), byte(g >> 8), byte(b >> 8)}
			default:
				continue
			}
			for c := range 3 {
				if e := int(got[3*j+c]) - int(want[c]); e > 4 || e < -4 {
					t.Fatalf("%+v: pixel %d,%d is %v, not %v", d, x, y, got[3*j:3*j+3], want)
				}
			}
		}
	}
}

// What is damaged is named, with its place in the file.
func TestPlainErrors(t *testing.T) {
	// Two grey blocks: DC codes 0: no difference, 10: three bits; AC codes 0: end
	// of block, 10: 15 zeros and a bit, 110: 16 zeros.
	file := func(dcBits string, ri byte, data ...byte) []byte {
		b := []byte{0xff, mSOI}
		b = append(append(append(b, marker(mDQT, 65)...), 0), bytes.Repeat([]byte{1}, 64)...)
		b = append(append(append(b, marker(mDHT, 19)...), 0), dcBits...)
		b = append(b, "\x00\x03"...)
		b = append(append(append(b, marker(mDHT, 20)...), 0x10), "\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf1\xf0"...)
		b = append(append(b, marker(mDRI, 2)...), 0, ri)
		b = append(append(b, marker(mSOF0, 9)...), 8, 0, 8, 0, 16, 1, 1, 0x11, 0)
		b = append(append(b, marker(mSOS, 6)...), 1, 1, 0, 0, 63, 0)
		return append(append(b, data...), 0xff, mEOI)
	}
	const dc = "\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	at := len(file(dc, 0)) - 2
	without := func(b []byte, m byte) []byte {
		i := bytes.Index(b, []byte{0xff, m})
		return append(b[:i:i], b[i+2+word(b[i+2:]):]...)
	}
	for _, c := range []struct {
		file []byte
		want string
	}{
		{file(dc, 0, 0b00001111), ""},
		{file(dc, 0, 0b00001111, 0xff, 0), ""},
		{file(dc, 1, 0b00111111, 0xff, 0xff, 0xd0, 0b00111111), ""},
		{file(dc, 0, 0b00011111), fmt.Sprintf("at byte %d of the JPEG: the data ends inside the picture", at+1)},
		{file(dc, 0, 0b11111111, 0, 1, 1, 1), fmt.Sprintf("at byte %d of the JPEG: bits that are not a Huffman code", at)},
		{file(dc, 0, 0b10111010, 0b11111111, 0, 0b11111111, 0, 0b11101011, 0b10101110, 0, 0, 0), fmt.Sprintf("at byte %d of the JPEG: bits that are not a Huffman code", at+1)},
		{file(dc, 0, 0b01101101, 0b10110110, 0b11011000, 0, 0), fmt.Sprintf("at byte %d of the JPEG: more than 64 coefficients in a block", at+1)},
		{file(dc, 1, 0b00111111, 0xff, 0xd1, 0b00111111), fmt.Sprintf("at byte %d of the JPEG: restart marker 0xffd0 is missing", at+1)},
		{file(dc, 1, 0b00111111, 0b00111111), fmt.Sprintf("at byte %d of the JPEG: restart marker 0xffd0 is missing", at+2)},
		{file(dc, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0b00111111), fmt.Sprintf("at byte %d of the JPEG: 9 bytes too many before a restart marker", at)},
		{file(dc, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0b00111111), ""},
		{file("\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 0, 0), "DC Huffman table 0 has more codes than there are"},
		{without(file(dc, 0, 0), mDQT), "quantisation table 0, which component 0 uses, is missing"},
		{without(file(dc, 0, 0), mDHT), ""}, // table K.3 has a code of 00
		{bytes.Replace(file(dc, 0, 0), []byte{1, 1, 0, 0, 63, 0}, []byte{1, 1, 0x20, 0, 63, 0}, 1), "DC Huffman table 2, which component 0 uses, is missing"},
		{bytes.Replace(file(dc, 0, 0), []byte("\x00\x03"), []byte("\x00\x10"), 1), "DC Huffman table 0 has differences of 16 bits"},
	} {
		err := newLane("go").Run(&Job{JPEG: c.file, Gray: true, Dst: make([]byte, 128)})
		var f FormatError
		switch {
		case c.want == "" && err != nil, c.want != "" && (!errors.As(err, &f) || err.Error() != c.want):
			t.Errorf("% x: %v, not %q", c.file[at:], err, c.want)
		}
	}
}

// Pictures as wide and as high as the format has them.
func TestPlainLongSides(t *testing.T) {
	r := rand.New(rand.NewPCG(77, 78))
	twin := newLane("go")
	for _, side := range [][2]int{{65535, 1}, {1, 65535}} {
		d := drawnJPEG{sof: mSOF0, x: side[0], y: side[1], id: []byte{1}, factors: [][2]int{{1, 1}}, most: 1, size: 2, symbols: 2}
		if got := run(t, twin, Job{JPEG: d.bytes(r), Gray: true}); len(got) != 65535 {
			t.Errorf("%v: %d bytes", side, len(got))
		}
	}
}

// A picture whose encoder left out the tables that everybody has is the same.
func TestTypicalTables(t *testing.T) {
	r := rand.New(rand.NewPCG(79, 80))
	for _, c := range []int{1, 3} {
		full, err := encode(smooth(r, 90, 70, c), encodeOptions{quality: 90, subsampling: "4:2:0"})
		if err != nil {
			t.Fatal(err)
		}
		bare, at := []byte{0xff, mSOI}, 2
		for full[at+1] != mSOS {
			n := 2 + word(full[at+2:])
			if full[at+1] != mDHT {
				bare = append(bare, full[at:at+n]...)
			}
			at += n
		}
		bare = append(bare, full[at:]...)
		if len(bare) == len(full) {
			t.Fatal("no tables were left out")
		}
		each(t, func(t *testing.T, l *Lane) {
			if d := diff(run(t, l, Job{JPEG: bare}), run(t, l, Job{JPEG: full})); d != "" {
				t.Error(d)
			}
		})
	}
}
