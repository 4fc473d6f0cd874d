package kernel

import (
	"math/rand/v2"
	"testing"
)

// TestFlatLuma: the float with which C cuts the fraction off is exact for every sum.
func TestFlatLuma(t *testing.T) {
	for sum := range 255*10000 + 1 {
		if int(float32(sum)*1e-4) != sum/10000 {
			t.Fatalf("%d ten thousandths are %v", sum, float32(sum)*1e-4)
		}
	}
}

// TestEveryColour: all 2^24 colours through a turn of the hue, a blend with their luma and
// a contrast are the twin's.
func TestEveryColour(t *testing.T) {
	p := newPixels(4096, 512, 3)
	r := rand.New(rand.NewPCG(7, 8))
	steps := []Step{{Op: OpSaturation, N: 2.7}, {Op: OpHue, N: 0.137}, {Op: OpContrast, N: 0.6}, {Op: OpHue, N: -0.5}}
	twin := newLane("go")
	for part := range 8 {
		for i := range p.W * p.H {
			colour := part*p.W*p.H + i
			p.Pix[3*i], p.Pix[3*i+1], p.Pix[3*i+2] = byte(colour>>16), byte(colour>>8), byte(colour)
		}
		s := steps[r.IntN(len(steps))]
		want := run(t, twin, Job{Src: p, Steps: []Step{s}})
		each(t, func(t *testing.T, l *Lane) {
			if d := diff(run(t, l, Job{Src: p, Steps: []Step{s}}), want); d != "" {
				t.Fatalf("%+v of part %d: %s", s, part, d)
			}
		})
	}
}
