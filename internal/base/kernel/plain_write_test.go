package kernel

import (
	"encoding/binary"
	"math/rand/v2"
	"sort"
)

// drawnJPEG is a JPEG that nobody encoded: any frame that the plain decoder takes,
// with Huffman codes and symbols drawn at random, and so coefficients that no
// picture has.
type drawnJPEG struct {
	sof     byte
	x, y    int
	id      []byte
	factors [][2]int // Hi, Vi
	wide    bool     // quantisation tables of 16 bits
	most    uint16   // in them
	size    int      // bits of a coefficient at most
	symbols int      // of a block at most
	ri      int
	app     []byte // a segment, marker and all
}

// drawJPEG draws a frame of up to 70 x 70 pixels. sound coefficients are about as
// large as those of pictures.
func drawJPEG(r *rand.Rand, sound bool) drawnJPEG {
	d := drawnJPEG{
		sof: mSOF0 + byte(r.IntN(2)), x: 1 + r.IntN(70), y: 1 + r.IntN(70),
		wide: r.IntN(2) == 0, most: 8, size: 5, symbols: 1 + r.IntN(64), ri: r.IntN(2) * r.IntN(9),
	}
	if !sound {
		d.size, d.most = 1+r.IntN(15), uint16(1)<<r.IntN(16)
	}
	d.id, d.factors = []byte{1}, [][2]int{{1 + r.IntN(4), 1 + r.IntN(4)}}
	if r.IntN(5) == 0 {
		return d
	}
	for blocks := 99; blocks > maxBlocks; {
		h, v := 1+r.IntN(4), 1+r.IntN(4)
		d.factors, blocks = [][2]int{{h, v}, {divisor(r, h), divisor(r, v)}, {divisor(r, h), divisor(r, v)}}, 0
		for _, f := range d.factors {
			blocks += f[0] * f[1]
		}
	}
	d.id = [][]byte{{1, 2, 3}, {0, 1, 2}, {'R', 'G', 'B'}, {'r', 'g', 'b'}}[r.IntN(4)]
	adobe := append(marker(mAPP14, 12), "Adobe\x00\x64\x00\x00\x00\x00"...)
	jfif := append(marker(mAPP0, 14), "JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"...)
	d.app = [][]byte{nil, jfif, append(adobe, 0), append(adobe[:len(adobe):len(adobe)], 1)}[r.IntN(4)]
	return d
}

func divisor(r *rand.Rand, n int) int {
	for {
		if d := 1 + r.IntN(n); n%d == 0 {
			return d
		}
	}
}

// marker is a marker and the length of its segment, for n bytes more.
func marker(m byte, n int) []byte {
	return binary.BigEndian.AppendUint16([]byte{0xff, m}, uint16(2+n))
}

// code is one of a Huffman table: its bits in the low ones of v.
type code struct {
	symbol byte
	n      int
	v      uint32
}

// drawCodes gives symbols codes of random lengths. Codes are the 16-bit numbers
// cut into ranges, in order of length: a code of n bits takes 2^(16-n) of them,
// and is the first n bits of all. The last number stays free.
func drawCodes(r *rand.Rand, symbols []byte) []code {
	codes := make([]code, len(symbols))
	free := 1<<16 - 1
	for i, s := range symbols {
		n := 1 + r.IntN(16)
		for 1<<(16-n) > free-(len(symbols)-1-i) {
			n++
		}
		free -= 1 << (16 - n)
		codes[i] = code{symbol: s, n: n}
	}
	r.Shuffle(len(codes), func(i, j int) { codes[i], codes[j] = codes[j], codes[i] })
	sort.SliceStable(codes, func(i, j int) bool { return codes[i].n < codes[j].n })
	at := 0
	for i := range codes {
		codes[i].v = uint32(at >> (16 - codes[i].n))
		at += 1 << (16 - codes[i].n)
	}
	return codes
}

// spec is BITS and HUFFVAL of codes.
func spec(codes []code) *huffmanSpec {
	s := &huffmanSpec{bits: make([]byte, 16)}
	for _, c := range codes {
		s.bits[c.n-1]++
		s.huffval = append(s.huffval, c.symbol)
	}
	return s
}

func (d *drawnJPEG) bytes(r *rand.Rand) []byte {
	b := append([]byte{0xff, mSOI}, d.app...)
	pq := 0
	if d.wide {
		pq = 1
	}
	for i := range d.id {
		b = append(append(b, marker(mDQT, 1+64*(1+pq))...), byte(pq<<4|i))
		for range 64 {
			if q := uint16(1 + r.IntN(int(d.most))); d.wide {
				b = binary.BigEndian.AppendUint16(b, q)
			} else {
				b = append(b, byte(min(q, 255)))
			}
		}
	}
	var dc, ac []byte
	for ssss := range d.size + 1 {
		dc = append(dc, byte(ssss))
		for run := range 16 {
			ac = append(ac, byte(run<<4|ssss)) // with size 0 only EOB and ZRL of these are the standard's
		}
	}
	var codes [2][]code
	for class, symbols := range [][]byte{dc, ac} {
		codes[class] = drawCodes(r, symbols)
		s := spec(codes[class])
		b = append(append(b, marker(mDHT, 17+len(symbols))...), byte(class<<4|3))
		b = append(append(b, s.bits...), s.huffval...)
	}
	b = append(append(b, marker(mDRI, 2)...), 0, byte(d.ri))
	b = append(append(b, marker(d.sof, 6+3*len(d.id))...), 8)
	b = binary.BigEndian.AppendUint16(b, uint16(d.y))
	b = binary.BigEndian.AppendUint16(b, uint16(d.x))
	b = append(b, byte(len(d.id)))
	for i, id := range d.id {
		b = append(b, id, byte(d.factors[i][0]<<4|d.factors[i][1]), byte(i))
	}
	b = append(append(b, marker(mSOS, 4+2*len(d.id))...), byte(len(d.id)))
	for _, id := range d.id {
		b = append(b, id, 3<<4|3)
	}
	b = append(b, 0, 63, 0)
	return append(d.scan(b, r, codes), 0xff, mEOI)
}

// scan appends as many MCUs as the picture has.
func (d *drawnJPEG) scan(b []byte, r *rand.Rand, codes [2][]code) []byte {
	h, v, blocks := d.factors[0][0], d.factors[0][1], 0
	for _, f := range d.factors {
		blocks += f[0] * f[1]
	}
	if len(d.id) == 1 {
		h, v, blocks = 1, 1, 1
	}
	w := bitWriter{b: b}
	for m := range ceilDiv(d.x, 8*h) * ceilDiv(d.y, 8*v) {
		if d.ri > 0 && m > 0 && m%d.ri == 0 {
			w.flush()
			w.b = append(w.b, 0xff, byte(mRST0+(m/d.ri-1)&7))
		}
		for range blocks {
			d.drawBlock(&w, r, codes)
		}
	}
	w.flush()
	return w.b
}

func (d *drawnJPEG) drawBlock(w *bitWriter, r *rand.Rand, codes [2][]code) {
	put := func(c code) {
		w.put(c.v, c.n)
		w.put(r.Uint32(), int(c.symbol&15))
	}
	put(codes[0][r.IntN(len(codes[0]))])
	for k, n := 1, 0; k < blockSize; n++ {
		c := codes[1][r.IntN(len(codes[1]))]
		run, ssss := int(c.symbol>>4), c.symbol&15
		end := ssss == 0 && run < 15
		if k+run >= blockSize && !end || end && n < d.symbols || n >= d.symbols && !end {
			if r.IntN(2) == 0 {
				n++
			}
			continue // not this one
		}
		put(c)
		if end {
			return
		}
		k += run + 1
	}
}

type bitWriter struct {
	b   []byte
	acc uint32
	n   int
}

// put writes the low n bits of v.
func (w *bitWriter) put(v uint32, n int) {
	for n--; n >= 0; n-- {
		w.acc = w.acc<<1 | v>>n&1
		if w.n++; w.n == 8 {
			w.b = append(w.b, byte(w.acc))
			if byte(w.acc) == 0xff {
				w.b = append(w.b, 0)
			}
			w.n = 0
		}
	}
}

// flush fills the byte with ones (F.1.2.3).
func (w *bitWriter) flush() {
	for w.n > 0 {
		w.put(1, 1)
	}
}
