package decode

import (
	"encoding/binary"
	"hash/crc32"
)

// PNG is decoded by hand rather than by image/png: rows go from the inflater
// through their filter straight into the result, for two thirds of the time and
// without a picture of garbage, and files that are odd but whole (a short
// palette, a transparency table that does not fit) are read as Pillow reads
// them. image/png is what the tests compare with.

const pngSignature = "\x89PNG\r\n\x1a\n"

type pngInfo struct {
	w, h       int
	depth      int // bits a sample
	colour     int // IHDR's colour type
	interlaced bool
}

// Colour types.
const (
	pngGray      = 0
	pngRGB       = 2
	pngPalette   = 3
	pngGrayAlpha = 4
	pngRGBA      = 6
)

// samples is the number of samples a pixel, 0 for colour types that are not.
func (p pngInfo) samples() int {
	switch p.colour {
	case pngGray, pngPalette:
		return 1
	case pngRGB:
		return 3
	case pngGrayAlpha:
		return 2
	case pngRGBA:
		return 4
	}
	return 0
}

// rowBytes is the size of n filtered pixels, without the filter's own byte.
func (p pngInfo) rowBytes(n int) int { return (n*p.samples()*p.depth + 7) / 8 }

// pngChunk cuts the first chunk off b and checks it.
func pngChunk(b []byte) (kind, data, rest []byte, err error) {
	if len(b) < 12 {
		return nil, nil, nil, malformed(KindPNG, "the file ends before the end of the picture")
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n > uint64(len(b)-12) {
		return nil, nil, nil, malformed(KindPNG, "the file ends inside chunk %s: it has %d bytes, %d remain", shown(b[4:8]), n, len(b)-12)
	}
	data, rest = b[8:8+n], b[12+n:]
	if crc32.ChecksumIEEE(b[4:8+n]) != binary.BigEndian.Uint32(b[8+n:]) {
		return nil, nil, nil, malformed(KindPNG, "the checksum of chunk %s does not match", shown(b[4:8]))
	}
	return b[4:8], data, rest, nil
}

func pngHeader(b []byte) (p pngInfo, rest []byte, err error) {
	kind, data, rest, err := pngChunk(b[len(pngSignature):])
	if err != nil {
		return p, nil, err
	}
	if string(kind) == "CgBI" {
		return p, nil, unsupported(KindPNG, "Apple's CgBI variant; save it as a standard PNG")
	}
	if string(kind) != "IHDR" || len(data) != 13 {
		return p, nil, malformed(KindPNG, "the first chunk is %s of %d bytes, not IHDR of 13", shown(kind), len(data))
	}
	w, h := binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:])
	if err := checkSize(KindPNG, int64(w), int64(h)); err != nil {
		return p, nil, err
	}
	p = pngInfo{w: int(w), h: int(h), depth: int(data[8]), colour: int(data[9]), interlaced: data[12] == 1}
	fits := false
	switch p.colour {
	case pngGray:
		fits = p.depth == 1 || p.depth == 2 || p.depth == 4 || p.depth == 8 || p.depth == 16
	case pngPalette:
		fits = p.depth == 1 || p.depth == 2 || p.depth == 4 || p.depth == 8
	case pngRGB, pngGrayAlpha, pngRGBA:
		fits = p.depth == 8 || p.depth == 16
	}
	if !fits {
		return p, nil, malformed(KindPNG, "colour type %d with %d bits is not defined", p.colour, p.depth)
	}
	if data[10] != 0 || data[11] != 0 || data[12] > 1 {
		return p, nil, malformed(KindPNG, "compression %d, filter %d, interlace %d is not defined", data[10], data[11], data[12])
	}
	return p, rest, nil
}

// pngReader is a Decoder's scratch for PNG.
type pngReader struct {
	cur, prev []byte // filter byte and pixels of this row and the one above
	wide      []byte // samples below 8 bits, one a byte
}

func (d *Decoder) png(b []byte, gray bool) (canvas, error) {
	p, rest, err := pngHeader(b)
	if err != nil {
		return canvas{}, err
	}
	packed, err := d.pngChunks(p, rest)
	if err != nil {
		return canvas{}, err
	}
	if int64(p.rowBytes(p.w)+1)*int64(p.h)/deflateRatio > int64(len(packed)) {
		return canvas{}, malformed(KindPNG, "%d bytes cannot hold %d x %d pixels", len(packed), p.w, p.h)
	}
	if err := d.inflate.open(packed); err != nil {
		return canvas{}, packedError(KindPNG, err)
	}
	c := d.canvas(p.w, p.h, gray)
	if p.interlaced {
		// Adam7: each pass is a picture of its own; empty ones have no bytes.
		for _, s := range [7]struct{ x, y, dx, dy int }{{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}} {
			n := (p.w - s.x + s.dx - 1) / s.dx
			if n <= 0 {
				continue
			}
			if err := d.pngRows(p, c, span{s.x, s.y, s.dx, n}, s.dy); err != nil {
				return canvas{}, err
			}
		}
	} else if err := d.pngRows(p, c, c.row(0), 1); err != nil {
		return canvas{}, err
	}
	if err := d.inflate.close(); err != nil {
		return canvas{}, packedError(KindPNG, err)
	}
	return c, nil
}

// pngChunks checks every chunk up to the end mark, takes the palette, and
// returns the compressed pixels.
func (d *Decoder) pngChunks(p pngInfo, rest []byte) (packed []byte, err error) {
	var pieces int
	hasPalette, ended := false, false
	for {
		var kind, data []byte
		kind, data, rest, err = pngChunk(rest)
		if err != nil {
			return nil, err
		}
		if string(kind) == "IDAT" {
			if ended {
				return nil, malformed(KindPNG, "the pixels lie in pieces that do not follow each other")
			}
			switch pieces++; pieces {
			case 1:
				packed = data
			case 2:
				d.joined = append(append(d.joined[:0], packed...), data...)
				packed = d.joined
			default:
				d.joined = append(d.joined, data...)
				packed = d.joined
			}
			continue
		}
		ended = pieces > 0
		switch string(kind) {
		case "PLTE":
			if len(data)%3 != 0 || len(data) > 768 {
				return nil, malformed(KindPNG, "a palette of %d bytes", len(data))
			}
			if p.colour == pngPalette {
				d.pal.setRGB(data)
				hasPalette = true
			}
		case "IEND":
			if pieces == 0 {
				return nil, malformed(KindPNG, "no pixels")
			}
			if p.colour == pngPalette && !hasPalette {
				return nil, malformed(KindPNG, "the palette is missing")
			}
			return packed, nil
		}
	}
}

// pngRows reads the rows of one pass, the first at s, dy apart.
func (d *Decoder) pngRows(p pngInfo, c canvas, s span, dy int) error {
	r := &d.pngr
	n := p.rowBytes(s.n)
	r.cur, r.prev = sized(r.cur, n+1), sized(r.prev, n+1)
	clear(r.prev)
	back := max(1, p.samples()*p.depth/8)
	for ; s.y < p.h; s.y += dy {
		if err := d.inflate.fill(r.cur); err != nil {
			return packedError(KindPNG, err)
		}
		if !unfilter(r.cur[0], r.cur[1:], r.prev[1:], back) {
			return malformed(KindPNG, "row filter %d is not defined", r.cur[0])
		}
		d.pngRow(p, c, s, r.cur[1:])
		r.cur, r.prev = r.prev, r.cur
	}
	return nil
}

// pngRow writes one unfiltered row. Alpha is dropped, 16-bit samples are taken
// by their high byte, which comes first.
func (d *Decoder) pngRow(p pngInfo, c canvas, s span, row []byte) {
	k := p.depth / 8 // bytes a sample
	switch {
	case p.colour == pngRGB || p.colour == pngRGBA:
		c.colour(s, row, p.samples()*k, 0, k, 2*k)
	case k > 0 && p.colour != pngPalette:
		c.gray(s, row, p.samples()*k)
	default:
		d.pngr.wide = sized(d.pngr.wide, s.n)
		unpack(d.pngr.wide, row, p.depth, s.n)
		if p.colour == pngPalette {
			c.indexed(s, d.pngr.wide, &d.pal)
		} else {
			widen(d.pngr.wide, p.depth)
			c.gray(s, d.pngr.wide, 1)
		}
	}
}

// unfilter undoes a row's filter in place; up is the row above, back the
// distance to the pixel at the left. It reports whether the filter is known.
func unfilter(filter byte, row, up []byte, back int) bool {
	up = up[:len(row)]
	switch filter {
	case 0:
	case 1:
		for i := back; i < len(row); i++ {
			row[i] += row[i-back]
		}
	case 2:
		for i, v := range up {
			row[i] += v
		}
	case 3:
		head := min(back, len(row))
		for i := range head {
			row[i] += up[i] / 2
		}
		for i := head; i < len(row); i++ {
			row[i] += byte((int(row[i-back]) + int(up[i])) / 2)
		}
	case 4:
		unfilterPaeth(row, up, back)
	default:
		return false
	}
	return true
}

// unfilterPaeth undoes filter 4. Each byte waits for the one at its left, so
// the channels of the usual pixels run side by side.
func unfilterPaeth(row, up []byte, back int) {
	head := min(back, len(row))
	for i := range head {
		row[i] += up[i]
	}
	if back == 3 && len(row) >= 3 {
		a0, a1, a2 := int(row[0]), int(row[1]), int(row[2])
		c0, c1, c2 := int(up[0]), int(up[1]), int(up[2])
		for i := 3; i+3 <= len(row) && i+3 <= len(up); i += 3 {
			r, u := row[i:i+3:i+3], up[i:i+3:i+3]
			b0, b1, b2 := int(u[0]), int(u[1]), int(u[2])
			a0 = (int(r[0]) + paeth(a0, b0, c0)) & 255
			a1 = (int(r[1]) + paeth(a1, b1, c1)) & 255
			a2 = (int(r[2]) + paeth(a2, b2, c2)) & 255
			r[0], r[1], r[2] = byte(a0), byte(a1), byte(a2)
			c0, c1, c2 = b0, b1, b2
		}
		return
	}
	if back == 4 && len(row) >= 4 {
		a0, a1, a2, a3 := int(row[0]), int(row[1]), int(row[2]), int(row[3])
		c0, c1, c2, c3 := int(up[0]), int(up[1]), int(up[2]), int(up[3])
		for i := 4; i+4 <= len(row) && i+4 <= len(up); i += 4 {
			r, u := row[i:i+4:i+4], up[i:i+4:i+4]
			b0, b1, b2, b3 := int(u[0]), int(u[1]), int(u[2]), int(u[3])
			a0 = (int(r[0]) + paeth(a0, b0, c0)) & 255
			a1 = (int(r[1]) + paeth(a1, b1, c1)) & 255
			a2 = (int(r[2]) + paeth(a2, b2, c2)) & 255
			a3 = (int(r[3]) + paeth(a3, b3, c3)) & 255
			r[0], r[1], r[2], r[3] = byte(a0), byte(a1), byte(a2), byte(a3)
			c0, c1, c2, c3 = b0, b1, b2, b3
		}
		return
	}
	for i := head; i < len(row); i++ {
		row[i] += byte(paeth(int(row[i-back]), int(up[i]), int(up[i-back])))
	}
}

// paeth is whichever of left (a), above (b) and above left (c) lies nearest to
// a + b - c, the first of equals. It is written to compile without jumps.
func paeth(a, b, c int) int {
	pa, pb := b-c, a-c
	pc := pa + pb
	pa, pb, pc = max(pa, -pa), max(pb, -pb), max(pc, -pc)
	if pb <= pc {
		c, pc = b, pb
	}
	if pa <= pc {
		c = a
	}
	return c
}
