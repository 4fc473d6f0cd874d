package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// chain draws steps that fit a w x h x c picture.
func chain(r *rand.Rand, w, h, c, n, side int) []Step {
	var steps []Step
	for len(steps) < n {
		var s Step
		switch r.IntN(7) {
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
		}
		steps = append(steps, s)
		w, h, c, _ = resultSize(w, h, c, []Step{s})
	}
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
