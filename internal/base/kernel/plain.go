package kernel

import "fmt"

// The plain decoder: sequential Huffman-coded JPEG, to be read beside ITU T.81,
// whose names it takes. Its stages are files:
//
//	plain.go       markers: frame header, scan header, tables (annex B)
//	plain_scan.go  entropy-coded data to coefficients (annexes C, E and F.2.2)
//	plain_dct.go   coefficients to samples (A.3.3)
//	plain_draft.go coefficients to fewer samples
//	upsample.go    samples of every component to pixels, which T.81 leaves open
//
// plain_tables.go has the zigzag order and the Huffman tables of annex K.
//
// T.81 also leaves open how exactly the inverse DCT is computed. Here every
// rounding is libjpeg-turbo's, so that pixels are, to the bit, those of the C
// kernel and of Pillow.

// Markers, table B.1.
const (
	mSOF0  = 0xc0 // baseline DCT
	mSOF1  = 0xc1 // extended sequential DCT: more tables, and of 16 bits
	mDHT   = 0xc4
	mRST0  = 0xd0
	mSOI   = 0xd8
	mEOI   = 0xd9
	mSOS   = 0xda
	mDQT   = 0xdb
	mDRI   = 0xdd
	mAPP0  = 0xe0
	mAPP14 = 0xee
	mAPP15 = 0xef
	mCOM   = 0xfe
)

// Limits of T.81: samples of a block; destinations of tables; blocks of an MCU
// (B.2.3).
const (
	blockSize = 64
	maxTables = 4
	maxBlocks = 10
)

// block is 8x8 coefficients, row by row.
type block [blockSize]int16

// quantTable is the Qk of B.2.4.1, row by row. Only the low 16 bits of a product count,
// so it does not matter that values above 32767 are negative here.
type quantTable [blockSize]int16

// component is a component of the frame, and its samples once they are decoded.
type component struct {
	c      byte // Ci, its identifier
	h, v   int  // Hi, Vi: its blocks in an MCU, across and down
	tq     int  // Tqi: its quantisation table
	td, ta int  // Tdj, Taj: its Huffman tables for DC and AC

	side   int    // samples of a block across and down: 8, fewer in a reduced picture
	w, hgt int    // xi, yi of A.1.1: samples of the picture
	stride int    // of a row with those that complete the MCUs (A.2.4)
	pix    []byte // whole MCUs
}

// frame describes the picture by the markers up to the first scan.
type frame struct {
	file       []byte
	x, y       int // X and Y: the picture's columns and rows
	comp       []component
	hmax, vmax int // Hmax, Vmax
	quant      [maxTables]*quantTable
	dc, ac     [maxTables]*huffmanSpec
	ri         int      // restart interval in MCUs; 0: none
	ycc        bool     // three components are YCbCr; else RGB
	scan       int      // byte offset of the entropy-coded data
	strict     bool     // the scan must end with the picture
	entries    *Entries // known points, and where those that are passed are recorded; nil: nowhere
}

// huffmanSpec is a table as stored in the file (B.2.4.2).
type huffmanSpec struct {
	bits    []byte // BITS: how many codes of 1 to 16 bits
	huffval []byte // HUFFVAL: their values, shortest code first
}

// application is the markers' information that T.81 leaves to applications.
type application struct {
	jfif      bool
	adobe     bool
	transform byte // Adobe's
}

// readFrame reads markers up to the first scan, and accepts the picture if that scan is
// all of it: sequential, Huffman-coded, 8 bits, with one or three components in the
// frame's order, the first of them sampled most finely. It accepts nothing that T.81
// does not allow there; another decoder will report it. readHeader has already read the
// same bytes.
func readFrame(b []byte) (f *frame, taken bool) {
	f = &frame{file: b}
	var app application
	if len(b) < 2 || b[0] != 0xff || b[1] != mSOI {
		return nil, false
	}
	for at := 2; ; {
		if at >= len(b) || b[at] != 0xff {
			return nil, false
		}
		for at < len(b) && b[at] == 0xff { // any marker may have fill bytes before it (B.1.1.2)
			at++
		}
		if at+3 > len(b) {
			return nil, false
		}
		m, n := b[at], word(b[at+1:])
		at++
		if n < 2 || at+n > len(b) {
			return nil, false
		}
		seg := b[at+2 : at+n]
		at += n
		ok := true
		switch {
		case m == mSOF0 || m == mSOF1:
			ok = f.readSOF(seg)
		case m == mDHT:
			ok = f.readDHT(seg)
		case m == mDQT:
			ok = f.readDQT(seg)
		case m == mDRI && len(seg) == 2:
			f.ri = word(seg)
		case m == mSOS:
			f.scan = at
			f.ycc = len(f.comp) == 3 && app.ycc(f.comp)
			return f, f.readSOS(seg)
		case m >= mAPP0 && m <= mAPP15:
			ok = app.read(m, seg)
		default:
			ok = m == mCOM
		}
		if !ok {
			return nil, false
		}
	}
}

func word(b []byte) int { return int(b[0])<<8 | int(b[1]) }

// readDQT reads quantisation tables: Pq and Tq in one byte, then Q0 to Q63 in zigzag
// order, with 8 bits each if Pq is 0 and 16 if it is 1 (B.2.4.1).
func (f *frame) readDQT(seg []byte) bool {
	for len(seg) > 0 {
		pq, tq := int(seg[0]>>4), seg[0]&15
		n := 1 + blockSize*(pq+1)
		if pq > 1 || tq >= maxTables || len(seg) < n {
			return false
		}
		q := new(quantTable)
		for k, z := range zigzag {
			if pq == 0 {
				q[z] = int16(seg[1+k])
			} else {
				q[z] = int16(word(seg[1+2*k:]))
			}
		}
		f.quant[tq] = q
		seg = seg[n:]
	}
	return true
}

// readDHT reads Huffman tables: Tc and Th in one byte, then BITS, then HUFFVAL.
func (f *frame) readDHT(seg []byte) bool {
	for len(seg) > 0 {
		tc, th := seg[0]>>4, seg[0]&15
		if tc > 1 || th >= maxTables || len(seg) < 17 {
			return false
		}
		n := 0
		for _, l := range seg[1:17] {
			n += int(l)
		}
		if n > 256 || len(seg) < 17+n {
			return false
		}
		s := &huffmanSpec{bits: seg[1:17], huffval: seg[17 : 17+n]}
		if tc == 0 {
			f.dc[th] = s
		} else {
			f.ac[th] = s
		}
		seg = seg[17+n:]
	}
	return true
}

// readSOF reads a frame header (B.2.2).
func (f *frame) readSOF(seg []byte) bool {
	if f.comp != nil || len(seg) < 6 || seg[0] != 8 {
		return false
	}
	f.y, f.x = word(seg[1:]), word(seg[3:])
	nf := int(seg[5])
	if nf != 1 && nf != 3 || len(seg) != 6+3*nf || f.x == 0 || f.y == 0 {
		return false
	}
	f.comp = make([]component, nf)
	blocks := 0
	for i := range f.comp {
		p := seg[6+3*i:]
		c := component{c: p[0], h: int(p[1] >> 4), v: int(p[1] & 15), tq: int(p[2])}
		if c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4 || c.tq >= maxTables {
			return false
		}
		if nf == 1 {
			c.h, c.v = 1, 1 // A.2.2: a scan of one component goes block by block
		}
		for j := range i {
			if f.comp[j].c == c.c {
				return false
			}
		}
		f.comp[i] = c
		blocks += c.h * c.v
		if f.comp[0].h%c.h != 0 || f.comp[0].v%c.v != 0 {
			return false
		}
	}
	f.hmax, f.vmax = f.comp[0].h, f.comp[0].v
	return blocks <= maxBlocks
}

// readSOS reads a scan header (B.2.3): all components in order, all
// coefficients (Ss, Se), and all of their bits (Ah, Al).
func (f *frame) readSOS(seg []byte) bool {
	ns := len(f.comp)
	if ns == 0 || len(seg) != 4+2*ns || int(seg[0]) != ns {
		return false
	}
	for i := range f.comp {
		c, p := &f.comp[i], seg[1+2*i:]
		c.td, c.ta = int(p[1]>>4), int(p[1]&15)
		if p[0] != c.c || c.td >= maxTables || c.ta >= maxTables {
			return false
		}
	}
	return wholeScan(seg)
}

// read reads the two markers that describe colour. Versions and transforms about which
// libjpeg warns are not accepted.
func (a *application) read(m byte, seg []byte) bool {
	switch {
	case m == mAPP0 && len(seg) >= 14 && string(seg[:5]) == "JFIF\x00":
		a.jfif = true
		return seg[5] == 1
	case m == mAPP14 && len(seg) >= 12 && string(seg[:5]) == "Adobe":
		a.adobe, a.transform = true, seg[11]
		return a.transform <= 1
	}
	return true
}

// ycc decides the colour space of three components, in libjpeg's order: with JFIF it is
// YCbCr; then Adobe's marker decides; then the components' names, which may be those of
// RGB.
func (a *application) ycc(comp []component) bool {
	switch {
	case a.jfif:
		return true
	case a.adobe:
		return a.transform == 1
	}
	return comp[0].c != 'R' || comp[1].c != 'G' || comp[2].c != 'B'
}

// decode decodes the picture at 1/2^shift of its size: to one channel if it has one
// component, otherwise to RGB.
func (f *frame) decode(shift int) (Pixels, error) {
	for i := range f.comp {
		c := &f.comp[i]
		if f.quant[c.tq] == nil {
			return Pixels{}, FormatError(fmt.Sprintf("quantisation table %d, which component %d uses, is missing", c.tq, i))
		}
		c.side = f.side(c, shift)
		c.w, c.hgt = ceilDiv(f.x*c.h*c.side, f.hmax*8), ceilDiv(f.y*c.v*c.side, f.vmax*8)
		c.stride = c.side * c.h * f.mcusAcross()
		c.pix = make([]byte, c.stride*c.side*c.v*f.mcusDown())
	}
	if err := f.decodeScan(); err != nil {
		return Pixels{}, err
	}
	p := newPixels(ceilDiv(f.x, 1<<shift), ceilDiv(f.y, 1<<shift), len(f.comp))
	up := make([]upsampler, len(f.comp))
	line := make([][]byte, len(f.comp))
	for i := range f.comp {
		c := &f.comp[i]
		hs, vs := f.hmax*(8>>shift)/(c.h*c.side), f.vmax*(8>>shift)/(c.v*c.side)
		up[i] = newUpsampler(c.pix, c.stride, c.w, c.hgt, hs, vs)
		up[i].repeat = shift == 3
		line[i] = make([]byte, p.W)
	}
	for y := range p.H {
		for i := range up {
			up[i].row(line[i], y)
		}
		switch {
		case p.C == 1:
			copy(p.row(y), line[0])
		case f.ycc:
			yccToRGB(p.row(y), line[0], line[1], line[2])
		default:
			interleave(p.row(y), line[0], line[1], line[2])
		}
	}
	return p, nil
}

func (f *frame) mcusAcross() int { return ceilDiv(f.x, 8*f.hmax) }
func (f *frame) mcusDown() int   { return ceilDiv(f.y, 8*f.vmax) }

func ceilDiv(a, b int) int { return (a + b - 1) / b }
