package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Erasing: a rectangle becomes one colour. OpErase erases bytes, at its place among the
// steps. Output.Erased erases a result of floats, where the colour may be one that no byte
// gives.

// Erased is a rectangle of a result of floats: every pixel becomes Bias, or, with Noise, Bias
// plus Scale times a normal number, product and sum rounded to float32, and then to the type
// of the result. The rectangle is in the result, and the normal numbers follow from Key, the
// position in the rectangle and the channel.
type Erased struct {
	X, Y, W, H  int
	Noise       bool
	Key         uint64
	Scale, Bias [3]float32
	Owner       uint8 // as that of a Step
}

// maxErased is STK_MAX_ERASED.
const maxErased = 32

// inside reports whether a rectangle, which may be empty, is inside a picture.
func (s *Step) inside(w, h int) bool {
	return s.X >= 0 && s.Y >= 0 && s.W >= 0 && s.H >= 0 && s.W <= w && s.H <= h && s.X <= w-s.W && s.Y <= h-s.H
}

// check refuses rectangles that are not in a w x h result, and two types at once.
func (o *Output) check(w, h int) error {
	if o.Halves != nil && o.Float {
		return JobError("a result of float32 and of 16 bits")
	}
	if len(o.Erased) > maxErased {
		return JobError(fmt.Sprintf("%d erased rectangles: there may be %d", len(o.Erased), maxErased))
	}
	if len(o.Erased) > 0 && !o.Float && (o.Halves == nil || o.Half.Size() != 2) {
		return JobError("erased rectangles need a result of float32, or of 16 bits whose type is named")
	}
	for _, e := range o.Erased {
		if s := (Step{X: e.X, Y: e.Y, W: e.W, H: e.H}); !s.inside(w, h) {
			return JobError(fmt.Sprintf("an erased rectangle %d,%d %dx%d is not inside %dx%d", e.X, e.Y, e.W, e.H, w, h))
		}
	}
	return nil
}

// erase is the twin of OpErase.
func erase(p Pixels, s *Step) Pixels {
	q := newPixels(p.W, p.H, p.C)
	copy(q.Pix, p.Pix)
	for y := s.Y; y < s.Y+s.H; y++ {
		for x := s.X; x < s.X+s.W; x++ {
			copy(q.row(y)[x*p.C:(x+1)*p.C], s.Fill[:])
		}
	}
	return q
}

// erase is the twin of Output.Erased, in the result that p was written to.
func (e *Erased) erase(dst []byte, p Pixels, o *Output) {
	line := make([]float32, e.W)
	for c := range p.C {
		for y := range e.H {
			if e.Noise {
				normals(e.Key, uint64(c*e.H+y), line)
			}
			for x, v := range line {
				at := ((e.Y+y)*p.W+e.X+x)*p.C + c
				if o.CHW {
					at = (c*p.H+e.Y+y)*p.W + e.X + x
				}
				v = float32(v*e.Scale[c]) + e.Bias[c]
				if !e.Noise {
					v = e.Bias[c]
				}
				if o.Float {
					binary.NativeEndian.PutUint32(dst[4*at:], math.Float32bits(v))
				} else {
					binary.NativeEndian.PutUint16(dst[2*at:], o.Half.Bits(v))
				}
			}
		}
	}
}
