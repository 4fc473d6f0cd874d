package decode

import (
	"errors"
	"fmt"
	"math"
)

// pnmInfo is the header of a portable bitmap (P1, P4), greymap (P2, P5) or
// pixmap (P3, P6); P1 to P3 are plain text.
type pnmInfo struct {
	magic  byte // '1' to '6'
	w, h   int
	maxval int // 1 for bitmaps
	data   int // offset of the samples
}

func (p pnmInfo) plain() bool  { return p.magic <= '3' }
func (p pnmInfo) bitmap() bool { return p.magic == '1' || p.magic == '4' }

func (p pnmInfo) samples() int {
	if p.magic == '3' || p.magic == '6' {
		return 3
	}
	return 1
}

func pnmHeader(b []byte) (p pnmInfo, err error) {
	p.magic, p.maxval, p.data = b[1], 1, 2
	if p.w, p.data, err = pnmNumber(b, p.data); err != nil {
		return p, malformed(KindPNM, "the header's width: %v", err)
	}
	if p.h, p.data, err = pnmNumber(b, p.data); err != nil {
		return p, malformed(KindPNM, "the header's height: %v", err)
	}
	if !p.bitmap() {
		if p.maxval, p.data, err = pnmNumber(b, p.data); err != nil {
			return p, malformed(KindPNM, "the header's maxval: %v", err)
		}
	}
	if p.maxval < 1 || p.maxval > 65535 {
		return p, malformed(KindPNM, "maxval is %d, not 1 to 65535", p.maxval)
	}
	if err := checkSize(KindPNM, int64(p.w), int64(p.h)); err != nil {
		return p, err
	}
	if need := p.need(); int64(len(b)-p.data) < need {
		return p, malformed(KindPNM, "%d bytes of samples, but %d x %d pixels take at least %d", len(b)-p.data, p.w, p.h, need)
	}
	return p, nil
}

// row is the size in bytes of a row of raw samples: a bit, a byte or two each.
func (p pnmInfo) row() int {
	n := p.w * p.samples()
	switch {
	case p.bitmap():
		return (n + 7) / 8
	case p.maxval > 255:
		return 2 * n
	}
	return n
}

// need is the smallest size in bytes of the samples. As text that is a digit per
// sample and, except for bits, a space.
func (p pnmInfo) need() int64 {
	n := int64(p.w*p.samples()) * int64(p.h)
	switch {
	case !p.plain():
		return int64(p.row()) * int64(p.h)
	case p.bitmap():
		return n
	}
	return 2 * n
}

// pnmNumber reads a header field from b[at:] and the one byte of white space after
// it. A comment runs to the end of its line, even inside a number.
func pnmNumber(b []byte, at int) (n, next int, err error) {
	digits := 0
	for ; at < len(b); at++ {
		c := b[at]
		switch {
		case c == '#':
			for at < len(b) && b[at] != '\n' && b[at] != '\r' {
				at++
			}
		case isSpace(c):
			if digits > 0 {
				return n, at + 1, nil
			}
		case c < '0' || c > '9':
			return 0, at, fmt.Errorf("found %s, not a number", shown(b[at:min(at+1, len(b))]))
		default:
			if digits++; digits > 10 {
				return 0, at, errors.New("the number has more than 10 digits")
			}
			n = n*10 + int(c-'0')
		}
	}
	return 0, at, errors.New("the file ends")
}

// pnmScale is the table from stored samples to bytes. Pillow rounds to 0..255,
// except that greys of more than 8 bits become 16-bit first; here their high byte
// is used.
type pnmScale struct {
	maxval int
	high   bool
	table  []byte
}

func (s *pnmScale) set(maxval int, high bool) []byte {
	if s.maxval == maxval && s.high == high {
		return s.table
	}
	s.maxval, s.high = maxval, high
	s.table = sized(s.table, maxval+1)
	for v := range s.table {
		if part := float64(v) / float64(maxval); high {
			s.table[v] = byte(int(math.RoundToEven(part*65535)) >> 8)
		} else {
			s.table[v] = byte(math.RoundToEven(part * 255))
		}
	}
	return s.table
}

func (d *Decoder) pnm(b []byte, gray bool) (canvas, error) {
	p, err := pnmHeader(b)
	if err != nil {
		return canvas{}, err
	}
	data, n, row := b[p.data:], p.w*p.samples(), p.row()
	if p.maxval == 255 && (p.magic == '6' && !gray || p.magic == '5' && gray) {
		return canvas{pix: data[: row*p.h : row*p.h], w: p.w, h: p.h, c: p.samples()}, nil // as it is stored
	}
	c := d.canvas(p.w, p.h, gray)
	if p.plain() {
		return c, d.pnmPlain(p, c, data)
	}
	var scale []byte
	if p.maxval != 255 {
		scale = d.pnmScale.set(p.maxval, p.maxval > 255 && p.samples() == 1)
	}
	d.row = sized(d.row, n)
	for y := range p.h {
		src := data[y*row : (y+1)*row]
		switch {
		case p.bitmap():
			unpack(d.row, src, 1, n)
			for i, v := range d.row {
				d.row[i] = v - 1 // 0 is white
			}
			src = d.row
		case p.maxval > 255:
			for i := range d.row {
				v := int(src[2*i])<<8 | int(src[2*i+1])
				d.row[i] = scale[min(v, p.maxval)]
			}
			src = d.row
		case p.maxval < 255:
			for i, v := range src {
				d.row[i] = scale[min(int(v), p.maxval)]
			}
			src = d.row
		}
		c.samples(y, src, p.samples())
	}
	return c, nil
}

// samples writes row y with 1 or 3 samples per pixel.
func (c canvas) samples(y int, row []byte, n int) {
	if n == 1 {
		c.gray(c.row(y), row, 1)
	} else {
		c.colour(c.row(y), row, 3, 0, 1, 2)
	}
}

// pnmPlain reads samples written as text.
func (d *Decoder) pnmPlain(p pnmInfo, c canvas, data []byte) error {
	scale := d.pnmScale.set(p.maxval, p.maxval > 255 && p.samples() == 1)
	d.row = sized(d.row, p.w*p.samples())
	at := 0
	for y := range p.h {
		for i := range d.row {
			v, next, err := pnmSample(data, at, p.bitmap())
			if err != nil {
				return malformed(KindPNM, "sample %d of row %d: %v", i, y, err)
			}
			if v > p.maxval {
				return malformed(KindPNM, "sample %d of row %d is %d, above maxval %d", i, y, v, p.maxval)
			}
			if at = next; p.bitmap() {
				v = 1 - v
			}
			d.row[i] = scale[v]
		}
		c.samples(y, d.row, p.samples())
	}
	return nil
}

// pnmSample reads one number, or one digit if bits may follow each other directly.
// Comments are allowed between samples. Something must follow a number, or a file
// that is truncated inside its last one would give a picture (netpbm requires it
// too, Pillow does not).
func pnmSample(b []byte, at int, bit bool) (v, next int, err error) {
	for at < len(b) && (isSpace(b[at]) || b[at] == '#') {
		if b[at] == '#' {
			for at < len(b) && b[at] != '\n' && b[at] != '\r' {
				at++
			}
			continue
		}
		at++
	}
	if at == len(b) {
		return 0, at, errors.New("the file ends")
	}
	from := at
	for ; at < len(b) && '0' <= b[at] && b[at] <= '9' && (!bit || at == from); at++ {
		if at-from == 10 {
			return 0, at, errors.New("the number has more than 10 digits")
		}
		v = v*10 + int(b[at]-'0')
	}
	if !bit && at == len(b) {
		return 0, at, errors.New("the file ends inside a number, or without the newline after it")
	}
	if at == from || !bit && !isSpace(b[at]) && b[at] != '#' {
		return 0, at, fmt.Errorf("found %s, not a number", shown(b[at:at+1]))
	}
	return v, at, nil
}
