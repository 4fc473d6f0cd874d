package transform

import (
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Left is what a program that was made Bare leaves to whoever gets its bytes: how the
// floats that it would give follow from them. Lists have a number for each channel.
type Left struct {
	DType mem.DType
	// Scale and Bias make float32: byte*Scale + Bias, product and sum rounded apart.
	Scale, Bias []float32
	// Steps make halves, each of the result of the one before, in the type that this has.
	Steps []LeftStep
}

// LeftStep is a conversion or, with Mean and Std, what Normalize does: it subtracts, rounds,
// divides and rounds.
type LeftStep struct {
	To        mem.DType
	Scale     bool // after the conversion of bytes: multiplies by float32(1.0/255), and rounds
	Mean, Std []float32
}

// Bare returns a program that gives bytes, HWC, where p gives floats, and what it leaves
// undone; nil if p gives no floats, or floats that do not follow from bytes in the same way
// for every sample. Its digest is that of p: what a user gets in the end is the same.
func (p *Program) Bare() (*Program, *Left) {
	if p.of != "image" || !p.at.tone.float || p.at.erased {
		return nil, nil
	}
	left, _ := p.left()
	if left == nil {
		return nil, nil
	}
	bare := *p
	bare.unfinished()
	return &bare, left
}

// unfinished has p give bytes, HWC, where it gives floats.
func (p *Program) unfinished() { p.dtype, p.chw, p.undone = mem.Uint8, false, true }

// left is how the program's floats follow from bytes, or why that cannot be said.
func (p *Program) left() (left *Left, why string) {
	const depends, odd = "how floats are made depends on the sample", "Normalize gives a number that cannot be sent (infinite, or -0)"
	if p.at.wild {
		return nil, depends
	}
	left = &Left{DType: p.dtype}
	n := p.at.c
	for i := 0; i < len(p.steps); i += 1 + p.steps[i].span() {
		s := &p.steps[i]
		switch o := s.op.(type) {
		case *convert:
			if o.to == mem.Uint8 {
				left.Steps = nil
			} else {
				left.Steps = append(left.Steps, LeftStep{To: o.to, Scale: o.scale})
			}
		case *normalize:
			if slices.ContainsFunc(o.mean[:n], func(v float64) bool { return !told(float32(v)) }) {
				return nil, odd
			}
			left.Steps = append(left.Steps, LeftStep{Mean: singles(o.mean[:n]), Std: singles(o.std[:n])})
		}
		for _, in := range p.steps[i+1 : i+1+s.span()] {
			if in.cost == converts {
				return nil, depends // as far as is known here
			}
		}
	}
	if p.at.tone.half == 0 {
		left.Steps, left.Scale, left.Bias = nil, singles(p.at.tone.a[:n]), singles(p.at.tone.b[:n])
		for i := range n {
			if !told(left.Scale[i]) || !told(left.Bias[i]) {
				return nil, odd
			}
		}
	}
	return left, ""
}

// told reports whether a number arrives as it is in JSON, which has none that is infinite, and
// in which Python reads -0 as a whole number.
func told(v float32) bool {
	return !math.IsInf(float64(v), 0) && (v != 0 || !math.Signbit(float64(v)))
}

// singles are numbers as float32.
func singles(of []float64) []float32 {
	out := make([]float32, len(of))
	for i, v := range of {
		out[i] = float32(v)
	}
	return out
}
