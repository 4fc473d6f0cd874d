package transform

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// rest is the operations of a program that are left to the client. All choices are made
// here, so a picture is augmented in the same way on either side. What is left is the kernel's
// steps, as numbers: the client knows no operation, policy or container.
type rest struct {
	whole   *Program // both halves
	program *Program // the operations that are left, and the conversions before them
	given   extent   // of what is delivered: all pictures have one size
	steps   int      // the kernel's steps of one picture, at most
}

// StepNumbers is how many numbers a step has. The first is its kernel.Op; 0 is the end. What
// the others are depends on it:
//
//	OpCrop        x, y, w, h
//	OpResize      w, h, filter
//	OpPad         x, y, w, h, mode, fill
//	OpGray        channels
//	OpPermute     three channels
//	OpBlur        w, h, N
//	OpErase       x, y, w, h, fill
//	OpAffine      w, h, filter, filled, fill, map
//	OpPerspective the same
//	OpErased      x, y, w, h, three floats, and of normal numbers 1, key, three scales
//	others        N
//
// A fill is three bytes, a map eight numbers.
const StepNumbers = 16

// OpErased is the step that erases a box of the floats: after all others, and after the
// conversion. It is not of the kernel, which has Output.Erased for it.
const OpErased = 255

// Leave returns a program that does the operations before number n, as Steps counts them,
// and gives bytes, HWC, and how floats are made of the bytes that the other operations give;
// nil if these stay bytes. StepsOf makes the steps of the others. Explain explains all of
// them. The digest is that of p, because the numbers are the same wherever they are made, except
// where a Resize or RandomResizedCrop with draft is left: the client has no JPEG to decode
// smaller. asks is the keyword that asks for it, for errors.
func (p *Program) Leave(n int, asks string) (*Program, *Left, error) {
	if p.of != "image" {
		return nil, nil, errs.New(errs.Config, "%s is for pictures, and this field is %s", asks, p.of)
	}
	n = p.outside(n)
	in := p.at
	if n < len(p.steps) {
		in = p.steps[n].in
	}
	whole := *p
	if k, ok := p.kind.(*picture); ok && k.stored != (size{}) && !in.sized() && keeps(p.steps[:n]) {
		in.size = k.stored
	}
	if in.sized() && !whole.at.sized() && keeps(p.steps[n:]) {
		whole.at.size = in.size
	}
	switch {
	case !in.sized():
		return nil, nil, errs.New(errs.Config, "%s is given pictures of many sizes, and a batch needs one", asks).
			Try("end transform= with RandomResizedCrop, or with Resize and CenterCrop")
	case !whole.at.sized():
		return nil, nil, errs.New(errs.Config, "%s gives pictures of many sizes, and a batch needs one", asks).
			Try("end the transform with CenterCrop, or with Resize to two numbers")
	}
	if err := p.mayLeave(n, asks); err != nil {
		return nil, nil, err
	}
	var left *Left
	if p.at.tone.float {
		var why string
		if left, why = p.left(); left == nil {
			return nil, nil, errs.New(errs.Config, "%s, and %s makes floats in one way for all samples", why, asks).
				Try("take ToDtype and Normalize out of RandomApply, RandomChoice and RandomOrder; their numbers are finite")
		}
	}
	first, after := p.Cut(n)
	first.shown, first.at.size = p.shown, in.size
	most := mostSteps(after.steps)
	if most == 0 { // only conversions are left, or nothing
		if left != nil {
			whole.unfinished()
		}
		return &whole, left, nil
	}
	first.rest = &rest{whole: &whole, program: after, given: extent{in.size, in.c}, steps: most}
	first.digest = p.digest
	if drafts(after.steps) {
		first.digest = digest(fmt.Appendf(nil, "stoker transform 1, %d steps and the rest\n%s\n", n, p.digest))
	}
	return first, left, nil
}

// keeps reports whether no operation may give a picture of another size.
func keeps(steps []step) bool {
	return !slices.ContainsFunc(steps, func(s step) bool { return s.resizes })
}

// mayLeave refuses operations that only the engine does.
func (p *Program) mayLeave(n int, asks string) error {
	for i := range p.steps[n:] {
		_, ok := p.steps[n+i].op.(*augMix)
		switch {
		case !ok:
		case asks == "decode_device":
			return errs.New(errs.Config, "decode_device has all steps after the crop done on the device, and AugMix runs in the engine only").
				Try("leave out decode_device, or AugMix")
		default:
			return errs.New(errs.Config, "AugMix cannot be in %s", asks).Try("put it into transform=")
		}
	}
	return nil
}

// Given is what the client is given, and becomes what it makes of it, as numbers of rows,
// columns and channels; false if no steps are left.
func (p *Program) Given() (given, becomes mem.Shape, ok bool) {
	if p.rest == nil {
		return nil, nil, false
	}
	g, at := p.rest.given, p.rest.whole.at
	return mem.Shape{g.h, g.w, g.c}, mem.Shape{at.h, at.w, at.c}, true
}

// StepsLeft is how many steps are left of a picture, at most.
func (p *Program) StepsLeft() int {
	if p.rest == nil {
		return 0
	}
	return p.rest.steps
}

// StepsOf writes the steps that are left of a picture with this key, the one that Begin was
// given, to dst: rows of StepNumbers float64, little-endian, as many as fit. What follows the
// last one is zero. The lane forgets the sample that was begun.
func (p *Program) StepsOf(l *Lane, key rng.Key, dst []byte) error {
	l.program = nil
	r, rest := &l.run, p.rest
	if rest == nil {
		clear(dst)
		return nil
	}
	r.chain.Reset(rest.given.w, rest.given.h, rest.given.c)
	r.tone, r.exacts.used, r.erased = plain(), 0, r.erased[:0]
	r.key, r.way = key, r.way[:0]
	rest.program.follow(r, 0, len(rest.program.steps))
	if err := rest.program.through(r); err != nil {
		return err
	}
	w := stepWriter{left: dst}
	steps := r.chain.Steps()
	for i := range steps {
		w.step(&steps[i])
	}
	for _, e := range r.boxes() {
		w.erased(&e)
	}
	if w.full {
		return errs.New(errs.Bug, "transform: a picture has more than %d steps", rest.steps)
	}
	clear(w.left)
	return nil
}

// stepWriter writes rows of numbers.
type stepWriter struct {
	left []byte
	full bool
}

func (w *stepWriter) row(op kernel.Op, numbers ...float64) {
	const size = 8 * StepNumbers
	if len(w.left) < size {
		w.full = true
		return
	}
	row := w.left[:size]
	w.left = w.left[size:]
	clear(row)
	binary.LittleEndian.PutUint64(row, math.Float64bits(float64(op)))
	for i, v := range numbers {
		binary.LittleEndian.PutUint64(row[8*(i+1):], math.Float64bits(v))
	}
}

func (w *stepWriter) erased(e *kernel.Erased) {
	of := func(v [3]float32) [3]float64 { return [3]float64{float64(v[0]), float64(v[1]), float64(v[2])} }
	x, y, wide, high, b, s := float64(e.X), float64(e.Y), float64(e.W), float64(e.H), of(e.Bias), of(e.Scale)
	if !e.Noise {
		w.row(OpErased, x, y, wide, high, b[0], b[1], b[2])
		return
	}
	w.row(OpErased, x, y, wide, high, b[0], b[1], b[2], 1, float64(e.Key), s[0], s[1], s[2]) // the key has 53 bits
}

func (w *stepWriter) step(s *kernel.Step) {
	x, y, wide, high := float64(s.X), float64(s.Y), float64(s.W), float64(s.H)
	fill := [3]float64{float64(s.Fill[0]), float64(s.Fill[1]), float64(s.Fill[2])}
	switch s.Op {
	case kernel.OpCrop:
		w.row(s.Op, x, y, wide, high)
	case kernel.OpResize:
		w.row(s.Op, wide, high, float64(s.Filter))
	case kernel.OpPad:
		w.row(s.Op, x, y, wide, high, float64(s.Mode), fill[0], fill[1], fill[2])
	case kernel.OpGray:
		w.row(s.Op, float64(s.C))
	case kernel.OpPermute:
		w.row(s.Op, float64(s.Perm[0]), float64(s.Perm[1]), float64(s.Perm[2]))
	case kernel.OpBlur:
		w.row(s.Op, wide, high, s.N)
	case kernel.OpErase:
		w.row(s.Op, x, y, wide, high, fill[0], fill[1], fill[2])
	case kernel.OpAffine, kernel.OpPerspective:
		filled := 0.0
		if s.Filled {
			filled = 1
		}
		m := &s.Map
		w.row(s.Op, wide, high, float64(s.Filter), filled, fill[0], fill[1], fill[2], m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7])
	default:
		w.row(s.Op, s.N)
	}
}

// mostSteps is how many of the kernel's steps these operations give a picture, at most.
func mostSteps(steps []step) (n int) {
	for i := 0; i < len(steps); i++ {
		s := &steps[i]
		most := 0
		for _, many := range s.holds {
			in := mostSteps(steps[i+1 : i+1+many])
			if s.one {
				most = max(most, in)
			} else {
				most += in
			}
			i += many
		}
		switch {
		case len(s.holds) > 0 || s.cost == converts:
		case s.kernels > 0:
			most = s.kernels
		default:
			most = 2 * s.many() // a warp may be a crop and a pad, a half turn is two flips
		}
		n += most
	}
	return n
}
