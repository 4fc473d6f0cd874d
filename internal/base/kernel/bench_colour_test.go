package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func blurOf(size int, sigma float64) Step {
	return Step{Op: OpBlur, W: size, H: size, N: math.Exp(-1 / (2 * sigma * sigma))}
}

// BenchmarkColours is the time of one step over a picture of 256 x 256 pixels.
func BenchmarkColours(b *testing.B) {
	p := random(rand.New(rand.NewPCG(1, 2)), 256, 256, 3)
	for _, s := range []Step{
		{},
		{Op: OpInvert},
		{Op: OpBrightness, N: 1.3},
		{Op: OpContrast, N: 1.3},
		{Op: OpSaturation, N: 1.3},
		{Op: OpHue, N: 0.1},
		{Op: OpAutocontrast},
		{Op: OpEqualize},
		{Op: OpPermute, Perm: [3]uint8{2, 0, 1}},
		{Op: OpSharpness, N: 1.5},
		blurOf(9, 1),
		blurOf(9, 2),
		blurOf(23, 1),
		blurOf(23, 3.8),
		blurOf(23, 8),
		{Op: OpAffine, W: 256, H: 256, Map: Map{0.966, -0.259, 37.5, 0.259, 0.966, -28.8}},
		{Op: OpAffine, W: 256, H: 256, Map: Map{0.707, -0.707, 128, 0.707, 0.707, -53}},
		{Op: OpAffine, W: 256, H: 256, Map: Map{0.966, -0.259, 37.5, 0.259, 0.966, -28.8}, Filter: Nearest},
		{Op: OpPerspective, W: 256, H: 256, Map: Map{1.1, 0.1, -20, 0.05, 1.2, -20, 1e-4, 5e-4}},
	} {
		b.Run(fmt.Sprintf("%d,%d,%.3g", s.Op, s.W, s.N), func(b *testing.B) {
			l := NewLane()
			defer l.Close()
			j := Job{Src: p, Dst: make([]byte, len(p.Pix))}
			if s.Op == OpPad {
				j.Dst = make([]byte, s.W*s.H*3)
			}
			if s.Op != 0 {
				j.Steps = []Step{s}
			}
			for range b.N {
				if err := l.Run(&j); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
