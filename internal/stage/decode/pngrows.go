package decode

import (
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// The kernel unpacks and unfilters the rows of a PNG some 100 KiB at a time, so
// that they are still in the CPU cache when they are unfiltered. Rows that the
// stream may still refer to, its last 32 KiB, are not unfiltered in place.
const (
	pngBatch  = 96 << 10
	pngWindow = 32 << 10
)

// back is the distance in bytes to the pixel on the left.
func (p pngInfo) back() int { return max(1, p.samples()*p.depth/8) }

// inPlace reports whether rows as stored are rows of the result. Unpacked a few
// rows ahead of their position, they then need no memory of their own. In pictures
// of few long rows, those few rows would be the whole picture.
func (p pngInfo) inPlace(gray bool) bool {
	n := p.rowBytes(p.w)
	fits := p.colour == pngRGB && !gray || p.colour == pngGray && gray
	return fits && p.depth == 8 && !p.interlaced && kernel.UnfilterRows*n <= max(1<<20, n*p.h/8)
}

// pngInPlace decodes a picture that is inPlace.
func (d *Decoder) pngInPlace(p pngInfo, gray bool) (canvas, error) {
	n := p.rowBytes(p.w)
	total, ahead := p.h*(n+1), min(kernel.UnfilterRows, p.h)*n
	c := canvas{w: p.w, h: p.h, c: p.samples()}
	d.pix = sized(d.pix, ahead+total+kernel.InflateSlack)
	c.pix = d.pix[: n*p.h : n*p.h]
	raw := d.pix[ahead:]
	d.row = sized(d.row, n+8)
	clear(d.row)
	up, done := d.row, 0
	for at := 0; done < p.h; {
		// One more than expected, so that the end of the stream is seen.
		now, end, err := d.inflate.Run(raw, at, min(at+pngBatch, total+1))
		if err != nil {
			return canvas{}, compressedError(KindPNG, err)
		}
		d.inflate.Sum(raw[at:now])
		if at = now; end {
			if err := d.pngEnd(at, total); err != nil {
				return canvas{}, err
			}
		}
		to := p.h
		if at < total {
			to = max(done, (at-pngWindow)/(n+1)/kernel.UnfilterRows*kernel.UnfilterRows)
		}
		if to == done {
			continue
		}
		if err := kernel.Unfilter(d.pix[done*n:to*n], raw[done*(n+1):to*(n+1)], up, n, p.back()); err != nil {
			return canvas{}, malformed(KindPNG, "%v", err)
		}
		up, done = d.pix[(to-1)*n:to*n+8], to
	}
	return c, nil
}

// pngEnd checks a stream that ended after some of total bytes. Extra bytes are not
// an error and not unpacked: libpng and Pillow ignore them too.
func (d *Decoder) pngEnd(at, total int) error {
	if at < total {
		return compressedError(KindPNG, kernel.InflateCut)
	}
	if at > total {
		return nil
	}
	if err := d.inflate.Check(); err != nil {
		return compressedError(KindPNG, err)
	}
	return nil
}

// pngReader is a Decoder's scratch for rows that are not those of the result: a
// window of unpacked bytes, and unfiltered rows after the one above them.
type pngReader struct {
	raw   []byte
	r, w  int // raw[r:w] is not unfiltered yet
	got   int // total bytes unpacked
	ended bool
	rows  []byte
}

// adam7 are the passes of an interlaced picture, each a picture of its own.
var adam7 = [7]struct{ x, y, dx, dy int }{{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}

// pngPass is the first row of a pass, dy, and the number of rows; a pass without
// pixels has no bytes.
type pngPass struct {
	first    span
	dy, rows int
}

func (p pngInfo) passes() []pngPass {
	if !p.interlaced {
		return []pngPass{{span{0, 0, 1, p.w}, 1, p.h}}
	}
	var all []pngPass
	for _, s := range adam7 {
		n, rows := (p.w-s.x+s.dx-1)/s.dx, (p.h-s.y+s.dy-1)/s.dy
		if n > 0 && rows > 0 {
			all = append(all, pngPass{span{s.x, s.y, s.dx, n}, s.dy, rows})
		}
	}
	return all
}

// pngByRows decodes a picture whose rows are converted.
func (d *Decoder) pngByRows(p pngInfo, gray bool) (canvas, error) {
	r := &d.pngr
	r.r, r.w, r.got, r.ended = 0, 0, 0, false
	total := 0
	passes := p.passes()
	for _, s := range passes {
		total += s.rows * (p.rowBytes(s.first.n) + 1)
	}
	c := d.canvas(p.w, p.h, gray)
	for _, s := range passes {
		n := p.rowBytes(s.first.n)
		batch := min(s.rows, (pngBatch/(n+1)+kernel.UnfilterRows-1)/kernel.UnfilterRows*kernel.UnfilterRows)
		if batch*n > 4*pngBatch { // long rows: as few as possible
			batch = max(1, min(s.rows, 4*pngBatch/n))
		}
		r.rows = sized(r.rows, (batch+1)*n+8)
		clear(r.rows[:n])
		for left := s.rows; left > 0; left -= batch {
			batch = min(batch, left)
			raw, err := d.pngNext(batch*(n+1), total)
			if err != nil {
				return canvas{}, err
			}
			if err := kernel.Unfilter(r.rows[n:(batch+1)*n], raw, r.rows[:n+8], n, p.back()); err != nil {
				return canvas{}, malformed(KindPNG, "%v", err)
			}
			for i := range batch {
				d.pngRow(p, c, s.first, r.rows[(i+1)*n:(i+2)*n])
				s.first.y += s.dy
			}
			copy(r.rows[:n], r.rows[batch*n:(batch+1)*n])
		}
	}
	for !r.ended && r.got <= total {
		if err := d.pngUnpack(1, total); err != nil {
			return canvas{}, err
		}
	}
	return c, nil
}

// pngNext returns the next n unpacked bytes.
func (d *Decoder) pngNext(n, total int) ([]byte, error) {
	r := &d.pngr
	for r.w-r.r < n {
		if err := d.pngUnpack(n-(r.w-r.r), total); err != nil {
			return nil, err
		}
	}
	r.r += n
	return r.raw[r.r-n : r.r], nil
}

// pngUnpack unpacks at least n bytes, and up to one more than expected in total.
func (d *Decoder) pngUnpack(n, total int) error {
	r := &d.pngr
	if keep := min(r.r, r.w-pngWindow); keep > 0 {
		copy(r.raw, r.raw[keep:r.w])
		r.r, r.w = r.r-keep, r.w-keep
	}
	if need := r.w + max(n, pngBatch) + kernel.InflateSlack; need > len(r.raw) {
		raw := sized(nil, need)
		copy(raw, r.raw[:r.w])
		mem.Unmap(r.raw)
		r.raw = raw
	}
	now, end, err := d.inflate.Run(r.raw, r.w, r.w+min(max(n, pngBatch), total+1-r.got))
	if err != nil {
		return compressedError(KindPNG, err)
	}
	d.inflate.Sum(r.raw[r.w:now])
	r.got, r.w, r.ended = r.got+now-r.w, now, end
	if end {
		return d.pngEnd(r.got, total)
	}
	return nil
}
