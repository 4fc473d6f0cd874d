package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
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
			s = Step{Op: OpResize, W: 1 + r.IntN(side), H: 1 + r.IntN(side), Filter: Filter(r.IntN(4) / 3)}
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
	for o.Float && r.IntN(3) > 0 && len(o.Erased) < maxErased {
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
			s := anyColour(r)
			if r.IntN(2) == 0 {
				s = anyWarp(r, w, h, 1)
				s.W, s.H = w, h
			}
			steps = append(steps, s)
		}
		steps = append(steps, Step{Op: OpAdd, N: weight()})
	}
	steps[len(steps)-1].Op = OpSum
	return steps
}

func anyOutput(r *rand.Rand) Output {
	return Output{
		Float: r.IntN(2) == 0, CHW: r.IntN(2) == 0,
		Scale: [3]float32{r.Float32() / 50, r.Float32() / 60, r.Float32() / 70},
		Bias:  [3]float32{-r.Float32() * 2, -r.Float32() * 3, r.Float32()},
	}
}

// Every target makes the twin's bytes of any chain.
func TestTargetsEqualTwin(t *testing.T) {
	twin := newLane("go")
	each(t, func(t *testing.T, l *Lane) {
		if l.target == "go" {
			return
		}
		r := rand.New(rand.NewPCG(3, 4))
		for i := range 1000 {
			w, h, side := 1+r.IntN(90), 1+r.IntN(90), 90
			switch i % 50 {
			case 0:
				w, h, side = 1+r.IntN(900), 1+r.IntN(400), 300
			case 1:
				w, h = 1, 1+r.IntN(500)
			case 2:
				w, h = 1+r.IntN(2000), 1
			case 3:
				w, side = 500+r.IntN(1500), 5
			}
			p := random(r, w, h, 1+2*r.IntN(2))
			j := Job{Src: p, Steps: chain(r, w, h, p.C, r.IntN(6), side), Out: anyOutput(r)}
			ow, oh, _, err := ResultSize(j.Steps, w, h, p.C)
			if err != nil {
				t.Fatal(err)
			}
			j.Out = withErased(r, j.Out, ow, oh)
			if d := diff(run(t, l, j), run(t, twin, j)); d != "" {
				t.Fatalf("case %d: %dx%dx%d %s: %s", i, w, h, p.C, describe(&j), d)
			}
		}
	})
}

// Every target makes the twin's bytes of any chain that begins with a JPEG.
func TestTargetsEqualTwinOfJPEGs(t *testing.T) {
	twin := newLane("go")
	each(t, func(t *testing.T, l *Lane) {
		if l.target == "go" {
			return
		}
		r := rand.New(rand.NewPCG(65, 66))
		for range 500 {
			d := drawJPEG(r, true)
			j := Job{JPEG: d.bytes(r), Gray: r.IntN(4) == 0, Steps: chain(r, d.x, d.y, 3, r.IntN(5), 60), Out: anyOutput(r)}
			if diff := diff(run(t, l, j), run(t, twin, j)); diff != "" {
				t.Fatalf("%+v: %s: %s", d, describe(&j), diff)
			}
		}
	})
}

func describe(j *Job) string { return fmt.Sprintf("%+v %+v", j.Steps, j.Out) }
