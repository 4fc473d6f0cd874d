package decode

import (
	"encoding/binary"
	"hash/crc32"
)

// PNG is decoded here and not by image/png: the kernel unpacks and unfilters many
// rows at a time, without garbage of the size of the picture, and files that are
// odd but complete (a short palette, a transparency table of the wrong length) are
// read as Pillow reads them. The tests compare with image/png.

const pngSignature = "\x89PNG\r\n\x1a\n"

type pngInfo struct {
	w, h       int
	depth      int // bits per sample
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

// samples is the number of samples per pixel, 0 for invalid colour types.
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

// pngChunk splits the first chunk off b and checks it.
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
	return p, rest, p.holds(len(rest))
}

// holds rejects a picture whose rows cannot come from n compressed bytes.
func (p pngInfo) holds(n int) error {
	if int64(p.rowBytes(p.w)+1)*int64(p.h)/deflateRatio > int64(n) {
		return malformed(KindPNG, "%d bytes cannot hold %d x %d pixels", n, p.w, p.h)
	}
	return nil
}

// scratch is the memory that decoding a file of n bytes needs besides the pixels:
// its pieces joined, and some rows with their filters.
func (p pngInfo) scratch(n int) int64 {
	return int64(n) + int64(p.h) + 2*int64(min(p.h, 64))*int64(p.rowBytes(p.w)+1) + int64(p.w) + 1<<20
}

func (d *Decoder) png(b []byte, gray bool) (canvas, error) {
	p, rest, err := pngHeader(b)
	if err != nil {
		return canvas{}, err
	}
	compressed, err := d.pngChunks(p, rest)
	if err != nil {
		return canvas{}, err
	}
	if err := p.holds(len(compressed)); err != nil {
		return canvas{}, err
	}
	if err := d.inflate.OpenZlib(compressed); err != nil {
		return canvas{}, compressedError(KindPNG, err)
	}
	defer d.inflate.Close()
	if p.inPlace(gray) {
		return d.pngInPlace(p, gray)
	}
	return d.pngByRows(p, gray)
}

// pngChunks checks every chunk up to the end mark, reads the palette, and returns
// the compressed pixels.
func (d *Decoder) pngChunks(p pngInfo, rest []byte) (compressed []byte, err error) {
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
				return nil, malformed(KindPNG, "the chunks of the pixels are not consecutive")
			}
			switch pieces++; pieces {
			case 1:
				compressed = data
			case 2:
				d.joined = append(append(d.joined[:0], compressed...), data...)
				compressed = d.joined
			default:
				d.joined = append(d.joined, data...)
				compressed = d.joined
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
				return nil, malformed(KindPNG, "it has no pixels")
			}
			if p.colour == pngPalette && !hasPalette {
				return nil, malformed(KindPNG, "the palette is missing")
			}
			return compressed, nil
		}
	}
}

// pngRow writes one unfiltered row. Alpha is dropped, and of 16-bit samples the
// high byte is used, which comes first.
func (d *Decoder) pngRow(p pngInfo, c canvas, s span, row []byte) {
	k := p.depth / 8 // bytes per sample
	switch {
	case p.colour == pngRGB || p.colour == pngRGBA:
		c.colour(s, row, p.samples()*k, 0, k, 2*k)
	case k > 0 && p.colour != pngPalette:
		c.gray(s, row, p.samples()*k)
	default:
		d.row = sized(d.row, s.n)
		unpack(d.row, row, p.depth, s.n)
		if p.colour == pngPalette {
			c.indexed(s, d.row, &d.pal)
		} else {
			widen(d.row, p.depth)
			c.gray(s, d.row, 1)
		}
	}
}
