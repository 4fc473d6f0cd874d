package decode

import (
	"encoding/binary"
	"errors"
	"io"
)

// GIF is parsed here because image/gif drops the colour of the transparent index,
// which Pillow's convert("RGB") shows.

// gifInfo is the first frame and its screen.
type gifInfo struct {
	w, h           int // the screen, enlarged if the frame is larger
	x, y, fw, fh   int // the frame
	interlaced     bool
	colours        []byte // RGB triples; nil: greys
	fill           byte   // the index of pixels outside the frame
	codeBits, data int    // LZW's first code size; offset of the blocks
}

func gifHeader(b []byte) (p gifInfo, err error) {
	if len(b) < 13 {
		return p, malformed(KindGIF, "the file ends inside its header")
	}
	le := binary.LittleEndian
	p.w, p.h = int(le.Uint16(b[6:])), int(le.Uint16(b[8:]))
	at := 13
	if b[10]&0x80 != 0 {
		if p.colours, at, err = gifColours(b, at, b[10]); err != nil {
			return p, err
		}
	}
	for at < len(b) && b[at] != ',' {
		switch b[at] {
		case ';':
			return p, malformed(KindGIF, "it has no picture")
		case '!': // extension: label, blocks
			if at+8 <= len(b) && b[at+1] == 0xf9 && b[at+2] >= 4 && b[at+3]&1 != 0 {
				p.fill = b[at+6]
			}
			if at, err = gifSkip(b, at+2); err != nil {
				return p, err
			}
		default: // stray bytes between blocks
			at++
		}
	}
	if at+10 > len(b) {
		return p, malformed(KindGIF, "the file ends before its first picture")
	}
	f := b[at+1:]
	p.x, p.y, p.fw, p.fh = int(le.Uint16(f)), int(le.Uint16(f[2:])), int(le.Uint16(f[4:])), int(le.Uint16(f[6:]))
	p.interlaced = f[8]&0x40 != 0
	at += 10
	if f[8]&0x80 != 0 {
		if p.colours, at, err = gifColours(b, at, f[8]); err != nil {
			return p, err
		}
	}
	if at >= len(b) {
		return p, malformed(KindGIF, "the file ends before its first picture")
	}
	p.codeBits, p.data = int(b[at]), at+1
	if p.fw == 0 || p.fh == 0 {
		return p, malformed(KindGIF, "the first frame is %d x %d pixels", p.fw, p.fh)
	}
	p.w, p.h = max(p.w, p.x+p.fw), max(p.h, p.y+p.fh)
	if err := checkSize(KindGIF, int64(p.w), int64(p.h)); err != nil {
		return p, err
	}
	if p.codeBits < 1 || p.codeBits > 8 {
		return p, malformed(KindGIF, "codes begin with %d bits, not 1 to 8", p.codeBits)
	}
	// A code of at least 2 bits gives at most 4096 pixels.
	if p.fw*p.fh > (len(b)-p.data)*lzwRatio {
		return p, malformed(KindGIF, "%d bytes cannot hold %d x %d pixels", len(b)-p.data, p.fw, p.fh)
	}
	return p, nil
}

// gifColours reads a colour table; its size is in flags.
func gifColours(b []byte, at int, flags byte) (triples []byte, next int, err error) {
	next = at + 3<<(flags&7+1)
	if next > len(b) {
		return nil, 0, malformed(KindGIF, "the file ends inside a colour table")
	}
	return b[at:next], next, nil
}

// gifSkip skips a chain of blocks.
func gifSkip(b []byte, at int) (next int, err error) {
	for at < len(b) {
		n := int(b[at])
		if at += 1 + n; n == 0 {
			return at, nil
		}
	}
	return 0, malformed(KindGIF, "the file ends inside a block")
}

// gifJoin appends the data of a chain of blocks to dst.
func gifJoin(dst, b []byte, at int) (joined []byte, err error) {
	for at < len(b) {
		n := int(b[at])
		at++
		if n == 0 {
			return dst, nil
		}
		if at+n > len(b) {
			break
		}
		dst = append(dst, b[at:at+n]...)
		at += n
	}
	return nil, malformed(KindGIF, "the file ends inside its first picture")
}

// gif decodes the first frame on its screen. Around it is the transparent colour,
// or index 0 if there is none: Pillow ignores the background index.
func (d *Decoder) gif(b []byte, gray bool) (canvas, error) {
	p, err := gifHeader(b)
	if err != nil {
		return canvas{}, err
	}
	n := p.fw * p.fh
	if d.joined, err = gifJoin(d.joined[:0], b, p.data); err != nil {
		return canvas{}, err
	}
	d.idx = sized(d.idx, n)
	switch got, err := d.lzw.Decode(d.idx, d.joined, p.codeBits, false); {
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return canvas{}, compressedError(KindGIF, err)
	case got < n:
		return canvas{}, malformed(KindGIF, "the compressed pixels end in row %d of %d", got/p.fw, p.fh)
	}
	if d.pal = (palette{}); p.colours == nil {
		d.pal.setRamp()
	} else {
		d.pal.setRGB(p.colours)
	}
	c := d.canvas(p.w, p.h, gray)
	if p.fw < p.w || p.fh < p.h {
		d.row = sized(d.row, p.w)
		for i := range d.row {
			d.row[i] = p.fill
		}
		for y := range p.h {
			c.indexed(c.row(y), d.row, &d.pal)
		}
	}
	for i := range p.fh {
		y := i
		if p.interlaced {
			y = gifRow(i, p.fh)
		}
		c.indexed(span{p.x, p.y + y, 1, p.fw}, d.idx[i*p.fw:(i+1)*p.fw], &d.pal)
	}
	return c, nil
}

// gifRow is the position of the i-th stored row of an interlaced frame: every 8th
// from 0, every 8th from 4, every 4th from 2, every 2nd from 1.
func gifRow(i, h int) int {
	for _, pass := range [3]struct{ from, step int }{{0, 8}, {4, 8}, {2, 4}} {
		n := max(0, (h-pass.from+pass.step-1)/pass.step)
		if i < n {
			return pass.from + i*pass.step
		}
		i -= n
	}
	return 1 + 2*i
}
