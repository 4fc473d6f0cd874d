package decode

import (
	"bytes"
	"errors"
	"io"
	"math/bits"

	"golang.org/x/image/ccitt"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

func (d *Decoder) tiff(b []byte, gray bool) (canvas, error) {
	p, err := tiffHeader(b)
	if err != nil {
		return canvas{}, err
	}
	if p.photometric == tiffPalette {
		d.pal = palette{}
		n := 1 << p.bits
		for i := range n {
			at := func(channel int) byte { return byte(p.colours.at(channel*n+i) >> 8) }
			d.pal.set(i, at(0), at(1), at(2))
		}
	}
	c := d.canvas(p.w, p.h, gray)
	across, down := (p.w-1)/p.blockW+1, (p.h-1)/p.blockH+1
	for i := range across * down {
		x, y := i%across*p.blockW, i/across*p.blockH
		pixels, err := d.tiffBlock(b, &p, i, across*down, y)
		if err != nil {
			return canvas{}, err
		}
		row := p.rowBytes(p.samples)
		for k := range min(p.blockH, p.h-y) {
			d.tiffRow(&p, c, span{x, y + k, 1, min(p.blockW, p.w-x)}, pixels[k*row:(k+1)*row])
		}
	}
	return d.tiffTurn(c, p.orientation), nil
}

// scratch is the memory that decoding a file of n bytes needs besides the pixels: a
// block and one plane of it, a row, its compressed bytes, and the picture again if
// it is turned.
func (p *tiffInfo) scratch(n int) int64 {
	_, size := p.blockBytes(0)
	block := int64(size) * int64(p.planes)
	if p.planes > 1 {
		block += int64(size)
	}
	if p.orientation >= 2 && p.orientation <= 8 {
		block += 3 * int64(p.w) * int64(p.h)
	}
	return block + 3*int64(p.blockW) + int64(n)
}

// rowBytes is the size of one row of a block whose pixels have n samples.
func (p *tiffInfo) rowBytes(n int) int { return (p.blockW*n*p.bits + 7) / 8 }

// blockBytes is the size of one plane of the block whose first row is y. Tiles are
// complete; the last strip ends with the picture.
func (p *tiffInfo) blockBytes(y int) (rows, size int) {
	rows = p.blockH
	if !p.tiled {
		rows = min(rows, p.h-y)
	}
	return rows, rows * p.rowBytes(p.samples/p.planes)
}

// inside checks that every block is inside the file and is large enough for its
// pixels, before memory is allocated.
func (p *tiffInfo) inside(b []byte) error {
	across, down := (p.w-1)/p.blockW+1, (p.h-1)/p.blockH+1
	for i := range across * down * p.planes {
		rows, size := p.blockBytes(i % (across * down) / across * p.blockH)
		from, n := p.offsets.at(i), uint64(size)
		if p.compression != tiffRaw {
			n = p.stored(b, i)
		}
		if from > uint64(len(b)) || n > uint64(len(b))-from {
			return malformed(KindTIFF, "strip or tile %d would end at byte %d of %d", i, from+n, len(b))
		}
		var most uint64
		switch p.compression {
		case tiffRaw:
			continue
		case tiffRuns:
			most = n * runsRatio
		case tiffLZW:
			most = n * lzwRatio
		case tiffZip, tiffOldZip:
			most = n * deflateRatio
		default: // fax: at least one bit a row
			most = n * 8 * uint64(size/rows)
		}
		if most < uint64(size) {
			return malformed(KindTIFF, "strip or tile %d has %d bytes, which cannot hold its pixels", i, n)
		}
	}
	return nil
}

// stored is the size in bytes of compressed block i. Old writers omit the size of a
// single strip, which then runs to the end of the file.
func (p *tiffInfo) stored(b []byte, i int) uint64 {
	if p.sizes.len() == 0 {
		return uint64(len(b)) - min(uint64(len(b)), p.offsets.at(i))
	}
	return p.sizes.at(i)
}

// tiffBlock returns the i-th of n blocks with interleaved samples and the predictor
// undone.
func (d *Decoder) tiffBlock(b []byte, p *tiffInfo, i, n, y int) ([]byte, error) {
	rows, size := p.blockBytes(y)
	if p.planes == 1 {
		d.idx = sized(d.idx, size)
		return d.idx, d.tiffPlane(b, p, i, rows, d.idx)
	}
	d.plane, d.idx = sized(d.plane, size), sized(d.idx, size*p.planes)
	for plane := range p.planes {
		if err := d.tiffPlane(b, p, plane*n+i, rows, d.plane); err != nil {
			return nil, err
		}
		k := p.bits / 8
		for at := 0; at < size; at += k {
			copy(d.idx[at*p.planes+plane*k:], d.plane[at:at+k])
		}
	}
	return d.idx, nil
}

// tiffPlane fills dst from the stored block i.
func (d *Decoder) tiffPlane(b []byte, p *tiffInfo, i, rows int, dst []byte) error {
	src := b[p.offsets.at(i):]
	if p.compression == tiffRaw {
		copy(dst, src)
		if p.fillOrder == 2 {
			reverseBits(dst)
		}
		return nil
	}
	src = src[:p.stored(b, i)]
	fax := p.compression == tiffFax3 || p.compression == tiffFax4
	if p.fillOrder == 2 && !fax {
		d.joined = append(d.joined[:0], src...)
		src = d.joined
		reverseBits(src)
	}
	got, err := 0, error(nil)
	switch p.compression {
	case tiffRuns:
		got = unpackBits(dst, src)
	case tiffLZW:
		if len(src) > 1 && src[0] == 0 && src[1]&1 != 0 {
			return unsupported(KindTIFF, "LZW with its bits in the old order")
		}
		got, err = d.lzw.Decode(dst, src, 8, true)
	case tiffZip, tiffOldZip:
		got, _, err = d.inflate.Zlib(dst, len(dst), src)
		if errors.Is(err, kernel.InflateFull) { // libtiff and Pillow ignore the rest
			err = nil
		}
	default:
		got, err = p.fax(dst, src, rows)
	}
	if err == nil && got < len(dst) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return compressedError(KindTIFF, err)
	}
	if p.predictor == 2 && p.compression != tiffRuns && !fax {
		p.unpredict(dst)
	}
	return nil
}

// fax reads Group 3 or 4. Whatever the interpretation, a white run gives zeros.
func (p *tiffInfo) fax(dst, src []byte, rows int) (int, error) {
	order, group := ccitt.MSB, ccitt.Group4
	if p.fillOrder == 2 {
		order = ccitt.LSB
	}
	if p.compression == tiffFax3 {
		group = ccitt.Group3
	}
	r := ccitt.NewReader(bytes.NewReader(src), order, group, p.blockW, rows, &ccitt.Options{Invert: true})
	return io.ReadFull(r, dst)
}

func reverseBits(p []byte) {
	for i, v := range p {
		p[i] = bits.Reverse8(v)
	}
}

// unpredict undoes horizontal differencing: a sample is stored as the difference
// from the same sample of the pixel to its left.
func (p *tiffInfo) unpredict(block []byte) {
	n := p.samples / p.planes
	row := p.rowBytes(n)
	if p.bits == 8 {
		kernel.Unpredict(block, row, n)
		return
	}
	for ; len(block) >= row; block = block[row:] {
		line := block[:row]
		for i := 2 * n; i < row; i += 2 {
			p.order.PutUint16(line[i:], p.order.Uint16(line[i:])+p.order.Uint16(line[i-2*n:]))
		}
	}
}

// tiffRow writes one row. Alpha and other extra samples are dropped, and of 16-bit
// samples the high byte is used.
func (d *Decoder) tiffRow(p *tiffInfo, c canvas, s span, row []byte) {
	size := max(1, p.bits/8)
	step, high := p.samples*size, 0
	if size == 2 && p.order.String() == "LittleEndian" {
		high = 1
	}
	switch p.photometric {
	case tiffRGB:
		if p.multiplied {
			for i := range s.n {
				unmultiply(row[i*step+high:], size)
			}
		}
		c.colour(s, row, step, high, high+size, high+2*size)
	case tiffCMYK:
		d.row = sized(d.row, 3*s.n)
		for i := range s.n {
			q := row[i*step+high:]
			rest := 255 - int(q[3*size])
			for channel := range 3 {
				d.row[3*i+channel] = byte(max(0, rest-over255(int(q[channel*size])*rest)))
			}
		}
		c.colour(s, d.row, 3, 0, 1, 2)
	case tiffPalette:
		c.indexed(s, d.tiffSingle(p, row, s.n, step), &d.pal)
	default:
		if p.bits == 16 {
			c.gray(s, row[high:], step)
			return
		}
		one := d.tiffSingle(p, row, s.n, step)
		widen(one, p.bits)
		if p.photometric == tiffWhiteIsZero {
			for i, v := range one {
				one[i] = 255 - v
			}
		}
		c.gray(s, one, 1)
	}
}

// tiffSingle spreads a row's first samples of at most 8 bits to one per byte.
func (d *Decoder) tiffSingle(p *tiffInfo, row []byte, n, step int) []byte {
	d.row = sized(d.row, n)
	if p.bits < 8 {
		unpack(d.row, row, p.bits, n)
		return d.row
	}
	for i := range d.row {
		d.row[i] = row[i*step]
	}
	return d.row
}

// over255 divides a product of two bytes by 255, rounded.
func over255(v int) int {
	v += 128
	return (v + v>>8) >> 8
}

// unmultiply undoes the multiplication of a pixel's colours by its alpha, as Pillow
// does: rounding down, and black if alpha is 0.
func unmultiply(q []byte, size int) {
	alpha := int(q[3*size])
	for channel := range 3 {
		v := &q[channel*size]
		if alpha == 0 {
			*v = 0
		} else {
			*v = byte(min(255, int(*v)*255/alpha))
		}
	}
}

// tiffTurn turns the picture as its orientation tag says.
func (d *Decoder) tiffTurn(c canvas, orientation uint64) canvas {
	if orientation < 2 || orientation > 8 {
		return c
	}
	// Where pixel (0, 0) of the result comes from, and how far its source
	// moves with each step right and down.
	w, h := c.w, c.h
	from := [...]struct{ at, right, down int }{
		2: {w - 1, -1, w},
		3: {h*w - 1, -1, -w},
		4: {(h - 1) * w, 1, -w},
		5: {0, w, 1},
		6: {(h - 1) * w, -w, 1},
		7: {h*w - 1, -w, -1},
		8: {w - 1, w, -1},
	}[orientation]
	out := canvas{w: w, h: h, c: c.c}
	if orientation >= 5 {
		out.w, out.h = h, w
	}
	d.idx = sized(d.idx, len(c.pix))
	out.pix = d.idx
	for y := range out.h {
		for x := range out.w {
			i := (from.at + x*from.right + y*from.down) * c.c
			copy(out.pix[(y*out.w+x)*c.c:][:c.c], c.pix[i:i+c.c])
		}
	}
	d.pix, d.idx = out.pix, c.pix
	return out
}
