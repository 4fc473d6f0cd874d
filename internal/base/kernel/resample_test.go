package kernel

import (
	"math/rand/v2"
	"testing"
)

// Every target makes the twin's bytes of a resampling by any filter, ratio, layout, mirror
// and window: ratios next to 1 (weights that fill 15 bits), many taps, black and white pixels
// (sums that touch both ends), rows of every length modulo the registers.
func TestResampleEqualsTwin(t *testing.T) {
	twin := newLane("go")
	each(t, func(t *testing.T, l *Lane) {
		if l.target == "go" {
			return
		}
		r := rand.New(rand.NewPCG(71, 72))
		for i := range 3000 {
			w, h := 1+r.IntN(400), 1+r.IntN(24)
			c := 1 + 2*r.IntN(2)
			s := Step{Op: OpResize, W: max(1, w+r.IntN(9)-4), H: 1 + r.IntN(24), Filter: Filter(i / 4 % 4)}
			switch i % 4 {
			case 0:
				s.W = 1 + r.IntN(300)
			case 1:
				s.W = max(1, int(float64(w)/(1+2*r.Float64())))
			case 2:
				w = 1 + r.IntN(4000)
			case 3:
				if i%16 == 3 {
					w = 600 + r.IntN(2000)
					s.W = w - 1 - r.IntN(2)
				}
			}
			p := random(r, w, h, c)
			if r.IntN(3) == 0 {
				for k := range p.Pix {
					p.Pix[k] = uint8(int8(p.Pix[k]) >> 7)
				}
			}
			steps := []Step{s}
			if r.IntN(3) == 0 {
				x, y, cw, ch := box(r, s.W, s.H)
				steps = append(steps, Step{Op: OpCrop, X: x, Y: y, W: cw, H: ch})
			}
			for k := range 2 {
				if flip := (Step{Op: OpFlipH + Op(r.IntN(2))}); r.IntN(2) == 0 {
					steps = append(append(append([]Step{}, steps[:k*len(steps)]...), flip), steps[k*len(steps):]...)
				}
			}
			j := Job{Src: p, Steps: steps, Out: anyOutput(r)}
			if d := diff(run(t, l, j), run(t, twin, j)); d != "" {
				t.Fatalf("case %d: %dx%dx%d %s: %s", i, w, h, c, describe(&j), d)
			}
		}
	})
}
