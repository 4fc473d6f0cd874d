package kernel

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// A sum of pictures is what its definition says, in torchvision's arithmetic.
func TestSumOfPictures(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	each(t, func(t *testing.T, l *Lane) {
		for range 200 {
			p := random(r, 1+r.IntN(70), 1+r.IntN(40), 1+2*r.IntN(2))
			w := [3]float32{r.Float32(), r.Float32(), r.Float32()}
			if r.IntN(2) == 0 { // weights that add up to 1
				all := w[0] + w[1] + w[2]
				w = [3]float32{w[0] / all, w[1] / all, w[2] / all}
			}
			j := Job{Src: p, Steps: []Step{
				{Op: OpKeep, N: float64(w[0])},
				{Op: OpInvert},
				{Op: OpAdd, N: float64(w[1])},
				{Op: OpPosterize, N: 2},
				{Op: OpSum, N: float64(w[2])},
				{Op: OpInvert},
			}}
			for i, v := range run(t, l, j) {
				x := p.Pix[i]
				sum := float32(x) * w[0]
				sum += float32(float32(255-x) * w[1])
				sum += float32(float32(x&0xc0) * w[2])
				if want := 255 - uint8(min(sum, 255)); v != want {
					t.Fatalf("%v of %d is %d, not %d", w, x, v, want)
				}
			}
		}
	})
}

func TestSumsRefuse(t *testing.T) {
	l := NewLane()
	defer l.Close()
	for _, steps := range [][]Step{
		{{Op: OpKeep, N: 1}},
		{{Op: OpSum, N: 1}},
		{{Op: OpAdd, N: 1}},
		{{Op: OpKeep, N: 1}, {Op: OpAdd, N: 1}},
		{{Op: OpKeep, N: 1}, {Op: OpKeep, N: 1}, {Op: OpSum, N: 1}},
		{{Op: OpKeep, N: 1}, {Op: OpSum, N: 1}, {Op: OpSum, N: 1}},
		{{Op: OpKeep, N: 1}, {Op: OpCrop, W: 1, H: 2}, {Op: OpSum, N: 1}},
		{{Op: OpKeep, N: 1}, {Op: OpGray, C: 1}, {Op: OpAdd, N: 1}, {Op: OpSum, N: 1}},
		{{Op: OpKeep, N: -1}, {Op: OpSum, N: 1}},
	} {
		var bad JobError
		if err := l.Run(&Job{Src: Pixels{Pix: make([]byte, 12), W: 2, H: 2, C: 3}, Steps: steps, Dst: make([]byte, 12)}); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", steps, err)
		}
	}
}
