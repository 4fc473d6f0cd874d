package decode

import (
	"encoding/binary"
	"math/bits"
)

// bmpInfo is the contents of a bitmap's two headers.
type bmpInfo struct {
	w, h    int
	topDown bool
	bits    int // per pixel: 1, 4, 8 with a palette, 16, 24, 32
	packing uint32
	masks   [3]uint32 // red, green, blue, for 16 and 32 bits
	palette []byte    // entries of palStep bytes: blue, green, red
	palStep int
	data    int // offset of the rows
}

// Values of the header's compression field.
const (
	bmpRaw  = 0
	bmpRLE8 = 1
	bmpRLE4 = 2
	bmpBits = 3 // masks
	bmpJPEG = 4
	bmpPNG  = 5
)

// bmpHeader reads the file header (14 bytes) and any of the information
// headers: 12 bytes (OS/2), 40 (version 3), 52, 56, 64 (OS/2 2), 108 (4), 124 (5).
func bmpHeader(b []byte) (p bmpInfo, err error) {
	le := binary.LittleEndian
	if len(b) < 18 {
		return p, malformed(KindBMP, "the file ends inside its header")
	}
	size := int(le.Uint32(b[14:]))
	switch size {
	case 12, 40, 52, 56, 64, 108, 124:
	default:
		return p, unsupported(KindBMP, "an information header of %d bytes", uint32(size))
	}
	end := 14 + size
	if len(b) < end {
		return p, malformed(KindBMP, "the file ends inside its header")
	}
	p.data = int(le.Uint32(b[10:]))
	colours := 0
	if size == 12 {
		p.w, p.h = int(le.Uint16(b[18:])), int(le.Uint16(b[20:]))
		p.bits, p.palStep = int(le.Uint16(b[24:])), 3
	} else {
		p.w, p.h = int(int32(le.Uint32(b[18:]))), int(int32(le.Uint32(b[22:])))
		if p.h < 0 {
			p.h, p.topDown = -p.h, true
		}
		p.bits, p.palStep = int(le.Uint16(b[28:])), 4
		p.packing = le.Uint32(b[30:])
		colours = int(le.Uint32(b[46:]))
	}
	if err := checkSize(KindBMP, int64(p.w), int64(p.h)); err != nil {
		return p, err
	}
	if end, err = p.layout(b, size, end); err != nil {
		return p, err
	}
	if p.bits <= 8 {
		if colours > 65536 {
			return p, malformed(KindBMP, "a palette of %d colours", colours)
		}
		if colours == 0 {
			colours = 1 << p.bits
		}
		p.palette = b[end:min(len(b), end+colours*p.palStep)]
		// Some writers point the offset at the palette.
		if p.data == end {
			p.data += colours * p.palStep
		}
		end += colours * p.palStep
	}
	if p.data == 0 {
		p.data = end
	}
	if p.data > len(b) {
		return p, malformed(KindBMP, "the rows begin at byte %d of %d", p.data, len(b))
	}
	return p, p.holds(len(b) - p.data)
}

func (p bmpInfo) runLength() bool { return p.packing == bmpRLE8 || p.packing == bmpRLE4 }

// rows is the used size of a row in bytes, and the distance to the next: rows are
// padded to four bytes.
func (p bmpInfo) rows() (used, stride int64) {
	used = (int64(p.w)*int64(p.bits) + 7) / 8
	return used, (used + 3) &^ 3
}

// holds rejects a picture whose rows do not fit into n bytes.
func (p bmpInfo) holds(n int) error {
	if p.runLength() {
		// An escape of 4 bytes skips at most 255 rows.
		if int64(n)*64 < int64(p.h) {
			return malformed(KindBMP, "%d bytes cannot hold %d rows", n, p.h)
		}
		return nil
	}
	used, stride := p.rows()
	if need := stride*int64(p.h-1) + used; int64(n) < need { // some writers leave the last row short
		return malformed(KindBMP, "%d bytes of rows, but %d x %d pixels take %d", n, p.w, p.h, need)
	}
	return nil
}

// scratch is the memory that decoding needs besides the pixels.
func (p bmpInfo) scratch() int64 {
	if p.runLength() {
		return int64(p.w) * int64(p.h)
	}
	return 3 * int64(p.w)
}

// layout checks that depth and compression match and reads the masks, which follow
// a header of 40 bytes and are inside the longer ones. It returns where the headers
// end.
func (p *bmpInfo) layout(b []byte, size, end int) (int, error) {
	switch p.bits {
	case 1, 4, 8, 16, 24, 32:
	default:
		return 0, unsupported(KindBMP, "%d bits per pixel", p.bits)
	}
	switch p.packing {
	case bmpRaw:
		p.masks = [3]uint32{0xff0000, 0xff00, 0xff}
		if p.bits == 16 {
			p.masks = [3]uint32{0x7c00, 0x3e0, 0x1f}
		}
	case bmpRLE8, bmpRLE4:
		if p.bits != 8 && p.packing == bmpRLE8 || p.bits != 4 && p.packing == bmpRLE4 {
			return 0, malformed(KindBMP, "run-length compression %d of %d bits per pixel", p.packing, p.bits)
		}
	case bmpBits:
		if p.bits < 16 {
			return 0, malformed(KindBMP, "colour masks for %d bits per pixel", p.bits)
		}
		if size == 40 {
			end += 12
		}
		if len(b) < 66 {
			return 0, malformed(KindBMP, "the file ends inside its colour masks")
		}
		for i := range p.masks {
			p.masks[i] = binary.LittleEndian.Uint32(b[54+4*i:])
		}
		if p.bits == 32 && p.masks == [3]uint32{} {
			p.masks = [3]uint32{0xff0000, 0xff00, 0xff}
		}
		for _, m := range p.masks {
			if m == 0 || bits.OnesCount32(m) != 32-bits.LeadingZeros32(m)-bits.TrailingZeros32(m) || p.bits < 32 && m>>p.bits != 0 {
				return 0, unsupported(KindBMP, "the colour masks %08x of %d bits per pixel", p.masks, p.bits)
			}
		}
		if p.bits == 24 && p.masks != [3]uint32{0xff0000, 0xff00, 0xff} {
			return 0, unsupported(KindBMP, "the colour masks %08x of 24 bits a pixel", p.masks)
		}
	case bmpJPEG, bmpPNG:
		return 0, unsupported(KindBMP, "an embedded JPEG or PNG")
	default:
		return 0, unsupported(KindBMP, "compression %d", p.packing)
	}
	return end, nil
}

func (d *Decoder) bmp(b []byte, gray bool) (canvas, error) {
	p, err := bmpHeader(b)
	if err != nil {
		return canvas{}, err
	}
	if p.bits <= 8 {
		d.pal = palette{}
		for i := 0; i < 256 && (i+1)*p.palStep <= len(p.palette); i++ {
			e := p.palette[i*p.palStep:]
			d.pal.set(i, e[2], e[1], e[0])
		}
	}
	if p.runLength() {
		return d.bmpRuns(p, b, gray)
	}
	used, stride := p.rows()
	c := d.canvas(p.w, p.h, gray)
	wide := p.bmpWiden()
	for i := range p.h {
		y := i
		if !p.topDown {
			y = p.h - 1 - i
		}
		row := b[int64(p.data)+int64(i)*stride:][:used]
		switch {
		case p.bits <= 8:
			d.row = sized(d.row, p.w)
			unpack(d.row, row, p.bits, p.w)
			c.indexed(c.row(y), d.row, &d.pal)
		case wide != nil:
			d.row = sized(d.row, 3*p.w)
			wide(d.row, row)
			c.colour(c.row(y), d.row, 3, 0, 1, 2)
		default: // whole bytes
			at := func(mask uint32) int { return bits.TrailingZeros32(mask) / 8 }
			c.colour(c.row(y), row, p.bits/8, at(p.masks[0]), at(p.masks[1]), at(p.masks[2]))
		}
	}
	return c, nil
}

// bmpWiden returns how a row whose samples are not whole bytes becomes RGB; nil if
// they are whole bytes. Samples below 8 bits are stretched rounding down, as Pillow
// does; longer ones keep their high bits.
func (p bmpInfo) bmpWiden() func(dst, src []byte) {
	whole := p.bits == 24
	if p.bits == 32 {
		whole = true
		for _, m := range p.masks {
			whole = whole && m>>bits.TrailingZeros32(m) == 0xff && bits.TrailingZeros32(m)%8 == 0
		}
	}
	if p.bits <= 8 || whole {
		return nil
	}
	sample := func(v, mask uint32) byte {
		v = v & mask >> bits.TrailingZeros32(mask)
		n := bits.OnesCount32(mask)
		if n > 8 {
			return byte(v >> (n - 8))
		}
		return byte(v * 255 / (1<<n - 1))
	}
	return func(dst, src []byte) {
		for i := 0; 3*i < len(dst); i++ {
			var v uint32
			if p.bits == 16 {
				v = uint32(binary.LittleEndian.Uint16(src[2*i:]))
			} else {
				v = binary.LittleEndian.Uint32(src[4*i:])
			}
			dst[3*i], dst[3*i+1], dst[3*i+2] = sample(v, p.masks[0]), sample(v, p.masks[1]), sample(v, p.masks[2])
		}
	}
}

// bmpRuns reads run-length compressed rows. Runs are cut at the end of the row,
// literals continue in the next row, as in Pillow; a picture that the data does not
// fill is damaged.
func (d *Decoder) bmpRuns(p bmpInfo, b []byte, gray bool) (canvas, error) {
	d.idx = sized(d.idx, p.w*p.h)
	if n := p.runs(b, d.idx); n < len(d.idx) {
		return canvas{}, malformed(KindBMP, "the run-length data ends in row %d of %d", n/p.w, p.h)
	}
	c := d.canvas(p.w, p.h, gray)
	for y := range p.h {
		row := d.idx[y*p.w : (y+1)*p.w]
		if p.topDown {
			c.indexed(c.row(y), row, &d.pal)
		} else {
			c.indexed(c.row(p.h-1-y), row, &d.pal)
		}
	}
	return c, nil
}

// runs fills idx, with rows in the order of the file, and returns how much of it.
func (p bmpInfo) runs(b, idx []byte) (n int) {
	skip := func(count int) {
		count = min(count, len(idx)-n)
		clear(idx[n : n+count])
		n += count
	}
	x := 0
	for at := p.data; n < len(idx) && at+2 <= len(b); {
		count, v := int(b[at]), b[at+1]
		at += 2
		switch {
		case count > 0:
			count = min(max(0, p.w-x), count, len(idx)-n)
			if p.packing == bmpRLE8 {
				for i := range count {
					idx[n+i] = v
				}
			} else {
				for i := range count {
					idx[n+i] = v >> (4 * (^i & 1)) & 15
				}
			}
			n, x = n+count, x+count
		case v == 0: // end of row
			if over := n % p.w; over > 0 {
				skip(p.w - over)
			}
			x = 0
		case v == 1: // end of picture
			return n
		case v == 2: // jump
			if at+2 > len(b) {
				return n
			}
			skip(int(b[at]) + int(b[at+1])*p.w)
			x = n % p.w
			at += 2
		default: // literals, padded to an even offset
			count = min(int(v), len(idx)-n)
			bits := 8
			if p.packing == bmpRLE4 {
				bits = 4
			}
			size := (count*bits + 7) / 8
			if at+size > len(b) {
				return n
			}
			unpack(idx[n:], b[at:at+size], bits, count)
			n, x = n+count, x+int(v)
			at += size
			at += at & 1
		}
	}
	return n
}
