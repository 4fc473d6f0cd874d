package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// chain draws steps that fit a w x h x c picture.
func chain(r *rand.Rand, w, h, c, n, side int) []Step {
	var steps []Step
	for len(steps) < n {
		var s Step
		switch r.IntN(15) {
		case 14:
			steps = append(steps, anySum(r, w, h)...)
			continue
		case 0, 1:
			s.Op = OpCrop
			s.X, s.Y, s.W, s.H = box(r, w, h)
		case 2:
			s = Step{Op: OpResize, W: 1 + r.IntN(side), H: 1 + r.IntN(side), Filter: Filter(r.IntN(4))}
			switch r.IntN(8) {
			case 0:
				s.W = w
			case 1:
				s.H = h
			case 2:
				s.W, s.H = 2*w, 2*h
			}
		case 3:
			x, y := r.IntN(12), r.IntN(12)
			s = Step{Op: OpPad, X: x, Y: y, W: w + x + r.IntN(12), H: h + y + r.IntN(12), Mode: PadMode(r.IntN(4))}
			s.Fill = [3]uint8{uint8(r.IntN(256)), uint8(r.IntN(256)), uint8(r.IntN(256))}
		case 4:
			s.Op = OpFlipH
		case 5:
			s.Op = OpFlipV
		case 6:
			if r.IntN(3) > 0 {
				continue
			}
			s = Step{Op: OpGray, C: 1 + 2*r.IntN(2)}
		case 12:
			s = anyErase(r, w, h)
		case 7:
			s = anyBlur(r, w, h)
		case 8, 13:
			s = anyWarp(r, w, h, side)
		default:
			s = anyColour(r)
		}
		steps = append(steps, s)
		w, h, c, _ = resultSize(w, h, c, []Step{s})
	}
	return steps
}

// anyColour draws a step that keeps the size.
func anyColour(r *rand.Rand) Step {
	s := Step{Op: OpInvert + Op(r.IntN(int(OpSharpness-OpInvert)+1)), N: 3 * r.Float64()}
	switch s.Op {
	case OpPosterize:
		s.N = float64(r.IntN(9))
	case OpSolarize:
		s.N = float64(r.IntN(270) - 5)
	case OpHue:
		s.N = r.Float64() - 0.5
	case OpPermute:
		for i, c := range r.Perm(3) {
			s.Perm[i] = uint8(c)
		}
	}
	return s
}

// anyBlur draws a blur that fits a w x h picture: of few pixels, of many, and with weights
// that round to nothing.
func anyBlur(r *rand.Rand, w, h int) Step {
	odd := func(n int) int { return 1 + 2*r.IntN(min(n, 1+r.IntN(200))) }
	sigma := math.Exp(6*r.Float64() - 2)
	return Step{Op: OpBlur, W: odd(w), H: odd(h), N: math.Exp(-1 / (2 * sigma * sigma))}
}

// anyErase draws a box, which may be empty.
func anyErase(r *rand.Rand, w, h int) Step {
	s := Step{Op: OpErase, W: r.IntN(w + 1), H: r.IntN(h + 1), Fill: [3]uint8{uint8(r.IntN(256)), 2, 250}}
	s.X, s.Y = r.IntN(w-s.W+1), r.IntN(h-s.H+1)
	return s
}

// withErased adds boxes to a result of floats.
func withErased(r *rand.Rand, o Output, w, h int) Output {
	for (o.Float || o.Halves != nil) && r.IntN(3) > 0 && len(o.Erased) < maxErased {
		s := anyErase(r, w, h)
		o.Erased = append(o.Erased, Erased{
			X: s.X, Y: s.Y, W: s.W, H: s.H, Noise: r.IntN(2) == 0, Key: r.Uint64(),
			Scale: [3]float32{1, r.Float32(), 2}, Bias: [3]float32{r.Float32(), 0, -1},
		})
	}
	return o
}

// anySum draws the steps of a sum of w x h pictures.
func anySum(r *rand.Rand, w, h int) []Step {
	weight := func() float64 { return r.Float64() / 2 }
	steps := []Step{{Op: OpKeep, N: weight()}}
	for left := 1 + r.IntN(3); left > 0; left-- {
		for range r.IntN(3) {
			steps = append(steps, anySame(r, w, h)...)
		}
		steps = append(steps, Step{Op: OpAdd, N: weight()})
	}
	steps[len(steps)-1].Op = OpSum
	return steps
}

// anySame draws steps whose result has the size of the w x h picture.
func anySame(r *rand.Rand, w, h int) []Step {
	switch r.IntN(12) {
	case 0:
		return []Step{anyBlur(r, w, h)}
	case 1:
		return []Step{anyErase(r, w, h)}
	case 2:
		return []Step{{Op: OpFlipH + Op(r.IntN(2))}}
	case 3:
		crop := Step{Op: OpCrop}
		crop.X, crop.Y, crop.W, crop.H = box(r, w, h)
		back := Step{Op: OpResize, W: w, H: h, Filter: Filter(r.IntN(4))}
		if r.IntN(2) == 0 {
			back = Step{Op: OpPad, X: r.IntN(w - crop.W + 1), Y: r.IntN(h - crop.H + 1), W: w, H: h, Mode: PadMode(r.IntN(4))}
		}
		return []Step{crop, back}
	case 4, 5, 6, 7:
		s := anyWarp(r, w, h, 1)
		s.W, s.H = w, h
		return []Step{s}
	}
	return []Step{anyColour(r)}
}

func anyOutput(r *rand.Rand) Output {
	o := Output{
		Float: r.IntN(2) == 0, CHW: r.IntN(2) == 0,
		Scale: [3]float32{r.Float32() / 50, r.Float32() / 60, r.Float32() / 70},
		Bias:  [3]float32{-r.Float32() * 2, -r.Float32() * 3, r.Float32()},
	}
	if r.IntN(4) == 0 {
		o = Output{CHW: o.CHW, Halves: anyHalves(r), Half: Float16 + Float(r.IntN(2))}
	}
	return o
}

// anyHalves draws a table in which no two values are equal, so that no other byte or channel
// can take one's place.
func anyHalves(r *rand.Rand) *Halves {
	all, t := r.Perm(1<<16), &Halves{}
	for c := range t {
		for x := range t[c] {
			t[c][x] = uint16(all[c<<8|x])
		}
	}
	return t
}

func describe(j *Job) string {
	out := j.Out
	out.Halves = nil
	return fmt.Sprintf("%+v %+v, numbers of %d bytes", j.Steps, out, j.Out.size())
}
