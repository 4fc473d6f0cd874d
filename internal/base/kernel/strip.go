package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
)

// Strip is the part of a JPEG that a box of its picture needs, as a JPEG of its own: the
// segments between restart markers that have a block of the box, one below the other. Its
// rows are one segment each, so it is as wide as the restart interval.
//
// Block column and row count MCUs. Segment s of the picture begins at its MCU s*Interval,
// and MCU m is in row m / Cols of the picture. Sent are, for each row of MCUs from Top on,
// the segments that have its MCUs First to Last; a segment that two rows share is sent once.
type Strip struct {
	W, H       int // of what is sent, in pixels
	Interval   int // MCUs in a segment; 0: the whole picture is sent, and nothing below is set
	Cols       int // MCUs in a row of the picture
	MCUW, MCUH int // pixels of an MCU
	First      int // column of MCUs in which the box begins
	Last       int // in which it ends
	Top        int // row in which it begins
}

// ErrElsewhere means that a JPEG is of a kind that other decoders may read differently, or
// that its restart markers are wrong: this package decodes it, or says what is wrong.
var ErrElsewhere = errors.New("a JPEG that only this package decodes")

// Strip appends to dst the part of a JPEG that a box needs, for another decoder, or all of
// the picture, if it has no restart markers, if its strip would be as large, or if the
// segments cannot be put below each other. What applications have added, such as Exif, is left
// out, except for what says which colours there are. Nothing is decoded.
//
// An interpolating decoder makes the chroma of a pixel of several samples, which in a strip
// are of other parts of the picture. So a picture with subsampled chroma is only divided if
// the decoder repeats samples.
//
// It returns ErrElsewhere for what is not a sequential, Huffman-coded JPEG of one scan, grey
// or YCbCr, and for one whose restart markers are wrong.
func (l *Lane) Strip(dst, jpeg []byte, x, y, w, h int, repeats bool) ([]byte, Strip, error) {
	f, ok := readFrame(jpeg)
	if !ok || len(f.comp) == 3 && !f.ycc {
		return dst, Strip{}, ErrElsewhere
	}
	if w <= 0 || h <= 0 || x < 0 || y < 0 || x > f.x-w || y > f.y-h {
		return dst, Strip{}, JobError(fmt.Sprintf("the box %d,%d %dx%d is not inside %dx%d", x, y, w, h, f.x, f.y))
	}
	end := bytes.LastIndex(jpeg[f.scan:], []byte{0xff, mEOI})
	if end < 0 {
		return dst, Strip{}, ErrElsewhere
	}
	end += f.scan
	cols, rows := f.mcusAcross(), f.mcusDown()
	cut := cutting{f: f, cols: cols, mcus: cols * rows, w: 8 * f.hmax, h: 8 * f.vmax, end: end}
	if f.ri == 0 || f.ri >= cut.mcus {
		return cut.whole(dst), Strip{W: f.x, H: f.y}, nil
	}
	var err error
	if cut.segments, err = l.segments(f); err != nil {
		return dst, Strip{}, err
	}
	if repeats || f.hmax*f.vmax == 1 {
		s := Strip{Interval: f.ri, Cols: cols, MCUW: cut.w, MCUH: cut.h, First: x / cut.w, Last: (x + w - 1) / cut.w, Top: y / cut.h}
		if dst, ok = cut.strip(dst, &s, (y+h-1)/cut.h); ok {
			return dst, s, nil
		}
	}
	return cut.whole(dst), Strip{W: f.x, H: f.y}, nil
}

// cutting is a JPEG that is cut.
type cutting struct {
	f          *frame
	segments   []uint32 // where they begin, from the beginning of the scan
	cols, mcus int
	w, h       int // of an MCU
	end        int // offset of the end marker
}

// whole appends the picture.
func (c *cutting) whole(dst []byte) []byte {
	dst = c.head(dst, 0, 0)
	return append(dst, c.f.file[c.f.scan:c.end+2]...)
}

// mostSide is the limit of a JPEG's sides.
const mostSide = 65535

// strip appends the segments of a box that ends in row bottom of MCUs; false, and nothing, if
// that is not a legal JPEG, or not less than the picture.
func (c *cutting) strip(dst []byte, s *Strip, bottom int) ([]byte, bool) {
	n, last := 0, 0
	for k := range c.needed(s, bottom) {
		n, last = n+1, k
	}
	s.W, s.H = s.Interval*c.w, n*c.h
	whole := len(c.segments)
	short := c.mcus%s.Interval != 0 && last == whole-1 // a segment of fewer MCUs than a row of the strip
	if short || s.W > mostSide || s.H > mostSide || n >= whole {
		return dst, false
	}
	dst, n = c.head(dst, s.W, s.H), 0
	for k := range c.needed(s, bottom) {
		if n > 0 {
			dst = append(dst, 0xff, mRST0+byte((n-1)&7))
		}
		dst = append(dst, c.segment(k)...)
		n++
	}
	return append(dst, 0xff, mEOI), true
}

// needed lists the segments of a box that ends in row bottom of MCUs, each once.
func (c *cutting) needed(s *Strip, bottom int) iter.Seq[int] {
	return func(yield func(int) bool) {
		next := 0
		for row := s.Top; row <= bottom; row++ {
			from, to := (row*c.cols+s.First)/s.Interval, (row*c.cols+s.Last)/s.Interval
			for next = max(next, from); next <= to; next++ {
				if !yield(next) {
					return
				}
			}
		}
	}
}

// segment is the bytes of segment k, without markers.
func (c *cutting) segment(k int) []byte {
	from := c.f.scan + int(c.segments[k])
	if k+1 < len(c.segments) {
		return c.f.file[from : c.f.scan+int(c.segments[k+1])-2]
	}
	return c.f.file[from:c.end]
}

// head appends the markers before the scan, with another width and height unless they are 0,
// and without those of applications, except JFIF's and Adobe's.
func (c *cutting) head(dst []byte, w, h int) []byte {
	b := c.f.file
	dst = append(dst, 0xff, mSOI)
	for at := 2; at < c.f.scan; {
		for b[at+1] == 0xff { // fill bytes
			at++
		}
		m, n := b[at+1], 2+word(b[at+2:])
		if m == mAPP0 || m == mAPP14 || m < mAPP0 {
			dst = append(dst, b[at:at+n]...)
		}
		if (m == mSOF0 || m == mSOF1) && w > 0 {
			sof := dst[len(dst)-n:]
			binary.BigEndian.PutUint16(sof[5:], uint16(h))
			binary.BigEndian.PutUint16(sof[7:], uint16(w))
		}
		at += n
	}
	return dst
}

// segments are where the segments of the frame's scan begin, from its beginning on; or
// ErrElsewhere, if their markers are wrong. They are valid until the lane's next call.
func (l *Lane) segments(f *frame) ([]uint32, error) {
	n := ceilDiv(f.mcusAcross()*f.mcusDown(), f.ri)
	if l.target == "go" {
		return segmentsGo(f, n)
	}
	return l.engine.segments(f.file, n)
}

// segmentsGo is the twin of stk_segments: it finds n segments if the scan has so many,
// numbered in turn, the first of which has as many MCUs as it must.
func segmentsGo(f *frame, n int) ([]uint32, error) {
	found := []uint32{0}
	data := f.file[f.scan:]
	for at := 0; ; at += 2 {
		i := bytes.IndexByte(data[at:], 0xff)
		if i < 0 || at+i+1 >= len(data) {
			break
		}
		at += i
		m := data[at+1]
		if m == mEOI {
			break
		}
		if m == 0xff {
			at-- // the next byte may begin a marker
			continue
		}
		if m < mRST0 || m > mRST0+7 {
			continue
		}
		if len(found) == n || m != mRST0+byte((len(found)-1)&7) {
			return nil, ErrElsewhere
		}
		found = append(found, uint32(at+2))
	}
	if len(found) != n {
		return nil, ErrElsewhere
	}
	return found, f.keepsInterval()
}

// keepsInterval returns ErrElsewhere unless the first segment has exactly as many MCUs as it
// must, and no byte more.
func (f *frame) keepsInterval() error {
	s := scan{f: f, next: f.scan}
	if s.tables() != nil || s.segment() != nil {
		return ErrElsewhere
	}
	var pred [3]int32
	for range f.ri {
		for i := range f.comp {
			for range f.comp[i].h * f.comp[i].v {
				if s.decodeBlock(&f.comp[i], &pred[i]) != nil {
					return ErrElsewhere
				}
			}
		}
	}
	if (s.bits.end-s.bits.pos)/8 != 0 {
		return ErrElsewhere
	}
	return nil
}
