package kernel

import (
	"fmt"
	"math"
)

// A sum of pictures: OpKeep begins it with the picture that it is given, the steps after it
// change that picture, OpAdd adds what they made and returns to the picture that was kept,
// and OpSum, the last, gives the sum. Weights and sum are float32, products are rounded
// before they are added, and the fraction of the sum is cut off: torchvision's AugMix.
//
// All pictures of a sum have the size and the channels of the one that was kept. Sums do not
// nest.

// summing reports whether the step is one of this file.
func (o Op) summing() bool { return o >= OpKeep && o <= OpSum }

// sumCheck finds steps of sums in a wrong order.
type sumCheck struct {
	open bool
	w, h int
	c    int
}

// step checks the next step, which is given a picture of w x h x c.
func (k *sumCheck) step(s *Step, w, h, c int) error {
	switch {
	case !s.Op.summing():
		return nil
	case !(s.N >= 0 && s.N <= math.MaxFloat32):
		return JobError(fmt.Sprintf("a weight of %v", s.N))
	case (s.Op == OpKeep) == k.open:
		return JobError(fmt.Sprintf("operation %d in a wrong place of a sum of pictures", s.Op))
	case s.Op == OpKeep:
		*k = sumCheck{true, w, h, c}
		return nil
	case w != k.w || h != k.h || c != k.c:
		return JobError(fmt.Sprintf("a sum of %dx%dx%d and %dx%dx%d", k.w, k.h, k.c, w, h, c))
	}
	k.open = s.Op == OpAdd
	return nil
}

// end checks that the sum, if there is one, has ended.
func (k *sumCheck) end() error {
	if k.open {
		return JobError("a sum of pictures without its end")
	}
	return nil
}

// pictureSum is the twin's.
type pictureSum struct {
	kept Pixels
	sum  []float32
}

// step is the picture after a step of the sum.
func (b *pictureSum) step(p Pixels, s *Step) Pixels {
	if s.Op == OpKeep {
		b.kept, b.sum = p, make([]float32, len(p.Pix))
	}
	w := float32(s.N)
	for i, v := range p.Pix {
		b.sum[i] += float32(float32(v) * w)
	}
	if s.Op != OpSum {
		return b.kept
	}
	q := newPixels(p.W, p.H, p.C)
	for i, x := range b.sum {
		q.Pix[i] = clipped(x)
	}
	return q
}
