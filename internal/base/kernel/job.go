package kernel

import (
	"errors"
	"fmt"
)

// JobError means that a job is invalid or does not fit its picture: a box outside it, a
// destination of the wrong length. It is the caller's mistake.
type JobError string

func (e JobError) Error() string { return string(e) }

// ErrMemory means that there is no memory for a job's scratch buffers.
var ErrMemory = errors.New("out of memory for the picture")

// maxSteps is the limit of steps in a job; maxSide is the limit of the width and height
// that a resampling reads and a step makes, and so of the size of its tables.
const (
	maxSteps = 160 // STK_MAX_OP
	maxSide  = 1 << 20
)

// ResultSize is the size of the result of steps for a w x h picture of c channels
// (1 or 3).
func ResultSize(steps []Step, w, h, c int) (ow, oh, oc int, err error) {
	return resultSize(w, h, c, steps)
}

func checkSource(p *Pixels) error {
	if err := CheckLimit(p.W, p.H, MostPixels); err != nil {
		return err
	}
	if p.C != 1 && p.C != 3 {
		return JobError(fmt.Sprintf("a source of %d channels: it must have 1 or 3", p.C))
	}
	if len(p.Pix) != p.W*p.H*p.C {
		return JobError(fmt.Sprintf("a source of %d x %d x %d has %d bytes, not %d", p.H, p.W, p.C, p.W*p.H*p.C, len(p.Pix)))
	}
	return nil
}

// resultSize checks every step against the size of the picture before it.
func resultSize(w, h, c int, steps []Step) (int, int, int, error) {
	if len(steps) > maxSteps {
		return 0, 0, 0, JobError(fmt.Sprintf("%d steps; the limit is %d", len(steps), maxSteps))
	}
	var sum sumCheck
	for i := range steps {
		s := &steps[i]
		if err := sum.step(s, w, h, c); err != nil {
			return 0, 0, 0, fmt.Errorf("step %d: %w", i, err)
		}
		switch s.Op {
		case OpCrop:
			// Written so that no sum can overflow.
			if s.W <= 0 || s.H <= 0 || s.X < 0 || s.Y < 0 || s.W > w || s.H > h || s.X > w-s.W || s.Y > h-s.H {
				return 0, 0, 0, JobError(fmt.Sprintf("step %d: the box %d,%d %dx%d is not inside %dx%d", i, s.X, s.Y, s.W, s.H, w, h))
			}
			w, h = s.W, s.H
		case OpResize, OpPad:
			if s.W <= 0 || s.H <= 0 || s.W > maxSide || s.H > maxSide || int64(s.W)*int64(s.H) > MaxPixels {
				return 0, 0, 0, JobError(fmt.Sprintf("step %d: a result of %dx%d", i, s.W, s.H))
			}
			if s.Op == OpResize && (w > maxSide || h > maxSide) {
				return 0, 0, 0, UnsupportedError(fmt.Sprintf("cannot resize a picture of %d x %d: its sides can have at most %d pixels", w, h, maxSide))
			}
			if s.Op == OpResize && s.Filter > NearestExact {
				return 0, 0, 0, JobError(fmt.Sprintf("step %d: unknown filter %d", i, s.Filter))
			}
			if s.Op == OpPad && (s.Mode > PadSymmetric || s.X < 0 || s.Y < 0 || s.X > s.W-w || s.Y > s.H-h) {
				return 0, 0, 0, JobError(fmt.Sprintf("step %d: %dx%d at %d,%d is not inside %dx%d", i, w, h, s.X, s.Y, s.W, s.H))
			}
			w, h = s.W, s.H
		case OpFlipH, OpFlipV, OpKeep, OpAdd, OpSum:
		case OpGray:
			if s.C != 1 && s.C != 3 {
				return 0, 0, 0, JobError(fmt.Sprintf("step %d: grey of %d channels", i, s.C))
			}
			c = s.C
		case OpSharpness:
			if !(s.N >= 0 && s.N <= mostFactor) {
				return 0, 0, 0, JobError(fmt.Sprintf("step %d: sharpness %v", i, s.N))
			}
		case OpErase:
			if !s.inside(w, h) {
				return 0, 0, 0, JobError(fmt.Sprintf("step %d: the box %d,%d %dx%d is not inside %dx%d", i, s.X, s.Y, s.W, s.H, w, h))
			}
		case OpBlur:
			if err := s.checkBlur(w, h); err != nil {
				return 0, 0, 0, fmt.Errorf("step %d: %w", i, err)
			}
		case OpAffine, OpPerspective:
			if err := s.checkWarp(w, h); err != nil {
				return 0, 0, 0, fmt.Errorf("step %d: %w", i, err)
			}
			w, h = s.W, s.H
		default:
			if !s.Op.colour() {
				return 0, 0, 0, JobError(fmt.Sprintf("step %d: unknown operation %d", i, s.Op))
			}
			if err := s.checkColour(); err != nil {
				return 0, 0, 0, fmt.Errorf("step %d: %w", i, err)
			}
		}
	}
	return w, h, c, sum.end()
}
