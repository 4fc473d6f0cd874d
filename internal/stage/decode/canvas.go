package decode

import (
	"encoding/binary"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// keepBytes is the size of the longest buffer that a Decoder keeps from picture to
// picture. A longer one is mapped, and freed by Free, so that one panorama does not
// cost every lane half a gigabyte for the rest of the run.
const keepBytes = mem.KeepBytes

// sized returns a slice of n bytes, in buf's memory if it is large enough;
// otherwise buf is freed. The contents of the slice are undefined.
func sized(buf []byte, n int) []byte {
	if n < cap(buf)/8 {
		mem.Trim(&buf)
	}
	return mem.Sized(buf, n)
}

// Free frees the memory of a large picture. The last result is not valid after it.
func (d *Decoder) Free() {
	for _, buf := range d.buffers() {
		mem.Trim(buf)
	}
}

// buffers are the buffers that grow with pictures.
func (d *Decoder) buffers() []*[]byte {
	return []*[]byte{&d.pix, &d.row, &d.idx, &d.plane, &d.joined, &d.pngr.raw, &d.pngr.rows}
}

// canvas is the picture being written: uint8 HWC with 1 or 3 channels. Its samples
// are undefined until written; a decoder that returns without error has written
// every one of them.
type canvas struct {
	pix     []byte
	w, h, c int
}

// canvas returns the result's memory for a picture of w x h, which CheckSize has
// accepted.
func (d *Decoder) canvas(w, h int, gray bool) canvas {
	c := 3
	if gray {
		c = 1
	}
	d.pix = sized(d.pix, w*h*c)
	return canvas{pix: d.pix, w: w, h: h, c: c}
}

func (c canvas) pixels() kernel.Pixels {
	return kernel.Pixels{Pix: c.pix, W: c.w, H: c.h, C: c.c}
}

// span is a run of n pixels in row y: x, x+dx, x+2dx, ... (dx above 1 is one
// row of an interlaced pass).
type span struct{ x, y, dx, n int }

// row spans all of row y.
func (c canvas) row(y int) span { return span{0, y, 1, c.w} }

// gray writes a span of greys; a pixel has step bytes, and its sample is the first.
func (c canvas) gray(s span, src []byte, step int) {
	at := (s.y*c.w + s.x) * c.c
	if c.c == 1 {
		if s.dx == 1 && step == 1 {
			copy(c.pix[at:at+s.n], src)
			return
		}
		for i := range s.n {
			c.pix[at+i*s.dx] = src[i*step]
		}
		return
	}
	i := 0
	if s.dx == 1 { // writes four bytes per pixel; the next pixel overwrites the last
		out := c.pix[at : at+3*s.n]
		for ; i < s.n-1; i++ {
			binary.LittleEndian.PutUint32(out[3*i:], uint32(src[i*step])*0x010101)
		}
	}
	for at += 3 * i * s.dx; i < s.n; i++ {
		v := src[i*step]
		p := c.pix[at : at+3 : at+3]
		p[0], p[1], p[2] = v, v, v
		at += 3 * s.dx
	}
}

// colour writes a span of colours: a pixel has step bytes, with its samples at
// offsets r, g and b.
func (c canvas) colour(s span, src []byte, step, r, g, b int) {
	at := (s.y*c.w + s.x) * c.c
	if c.c == 1 {
		for i := range s.n {
			p := src[i*step : i*step+step : i*step+step]
			c.pix[at+i*s.dx] = luma(p[r], p[g], p[b])
		}
		return
	}
	if s.dx == 1 && step == 3 && r == 0 && g == 1 && b == 2 {
		copy(c.pix[at:at+3*s.n], src)
		return
	}
	for i := range s.n {
		p := src[i*step : i*step+step : i*step+step]
		q := c.pix[at : at+3 : at+3]
		q[0], q[1], q[2] = p[r], p[g], p[b]
		at += 3 * s.dx
	}
}

// indexed writes a span of palette indices, one per byte.
func (c canvas) indexed(s span, src []byte, pal *palette) {
	at := (s.y*c.w + s.x) * c.c
	if c.c == 1 {
		for i, v := range src[:s.n] {
			c.pix[at+i*s.dx] = pal.luma[v]
		}
		return
	}
	for _, v := range src[:s.n] {
		*(*[3]byte)(c.pix[at:]) = pal.rgb[v]
		at += 3 * s.dx
	}
}

// palette is a colour table. Indices that the file does not define are black, as in
// Pillow.
type palette struct {
	rgb  [256][3]byte
	luma [256]byte
}

func (p *palette) set(i int, r, g, b byte) {
	p.rgb[i] = [3]byte{r, g, b}
	p.luma[i] = luma(r, g, b)
}

// setRGB fills the first entries from triples.
func (p *palette) setRGB(triples []byte) {
	*p = palette{}
	for i := 0; i < 256 && 3*i+2 < len(triples); i++ {
		p.set(i, triples[3*i], triples[3*i+1], triples[3*i+2])
	}
}

// setRamp makes entry i the grey i.
func (p *palette) setRamp() {
	for i := range 256 {
		p.set(i, byte(i), byte(i), byte(i))
	}
}

// luma is Pillow's L of a colour: ITU-R 601-2 in 16-bit fixed point, rounded.
func luma(r, g, b byte) byte {
	return byte((19595*uint32(r) + 38470*uint32(g) + 7471*uint32(b) + 1<<15) >> 16)
}

// unpack spreads n samples of 1, 2, 4 or 8 bits, the first in the highest bits, to
// one per byte.
func unpack(dst, src []byte, bits, n int) {
	switch bits {
	case 8:
		copy(dst[:n], src)
	case 4:
		for i := range n {
			dst[i] = src[i>>1] >> (4 * (^i & 1)) & 15
		}
	case 2:
		for i := range n {
			dst[i] = src[i>>2] >> (2 * (^i & 3)) & 3
		}
	case 1:
		for i := range n {
			dst[i] = src[i>>3] >> (^i & 7) & 1
		}
	}
}

// widen stretches greys of the given bits to the full range.
func widen(row []byte, bits int) {
	if bits == 8 {
		return
	}
	factor := byte(255 / (1<<bits - 1))
	for i := range row {
		row[i] *= factor
	}
}
