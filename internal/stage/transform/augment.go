package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// Automatic policies apply operations of a fixed list, each with one number, its magnitude,
// in torchvision's units. What a policy chooses is a list of operations and magnitudes; doing
// them one after the other, by torchvision's _apply_image_or_video_transform, gives the
// picture.

// many is how many operations the step counts for.
func (s *step) many() int {
	if a, ok := s.op.(policy); ok {
		return a.adds()
	}
	return 1
}

// augmentation is one of these operations. Its number is part of choices and may not change.
type augmentation uint8

const (
	augIdentity augmentation = iota
	augShearX
	augShearY
	augTranslateX
	augTranslateY
	augRotate
	augBrightness
	augColor
	augContrast
	augSharpness
	augPosterize
	augSolarize
	augAutoContrast
	augEqualize
	augInvert
)

// String is torchvision's name.
func (a augmentation) String() string {
	return [...]string{
		"Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
		"Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert",
	}[a]
}

// signed reports whether the magnitude is negated at random.
func (a augmentation) signed() bool { return a >= augShearX && a <= augSharpness }

// augmentations are the operations that a policy may draw, in torchvision's order, and the
// ranges of their magnitudes.
type augmentations struct {
	of     []augmentation
	shear  float64
	pixels float64 // translation, at most: pixels + share * side / parts
	share  float64
	parts  float64
	rotate float64    // degrees
	factor float64    // brightness, colour, contrast, sharpness: the largest change
	bits   [2]float64 // posterize: the most bits, and how many fewer there may be
}

// magnitude is that of bin i of bins, before its sign, for a picture of the size.
func (s *augmentations) magnitude(a augmentation, i, bins int, at size) float64 {
	switch a {
	case augShearX, augShearY:
		return linspace(0, s.shear, i, bins)
	case augTranslateX:
		return linspace(0, s.farthest(at.w), i, bins)
	case augTranslateY:
		return linspace(0, s.farthest(at.h), i, bins)
	case augRotate:
		return linspace(0, s.rotate, i, bins)
	case augBrightness, augColor, augContrast, augSharpness:
		return linspace(0, s.factor, i, bins)
	case augPosterize:
		lost := float32(i) / float32(float64(bins-1)/s.bits[1])
		return math.RoundToEven(float64(float32(s.bits[0]) - lost))
	case augSolarize:
		return linspace(1, 0, i, bins)
	}
	return 0
}

// farthest is the largest translation along a side of n pixels.
func (s *augmentations) farthest(n int) float64 { return s.pixels + s.share*float64(n)/s.parts }

// linspace is element i of torch.linspace(from, to, n): in float32, from the nearer end,
// with a fused multiply-add, which processors without one lack in torch too. It is computed
// in float64, where the product is exact and the sum nearly.
func linspace(from, to float64, i, n int) float64 {
	a, b := float32(from), float32(to)
	step := float64(float32(b-a) / float32(max(n-1, 1)))
	if i < n/2 {
		return float64(float32(float64(a) + float64(step*float64(i))))
	}
	return float64(float32(float64(b) - float64(step*float64(n-1-i))))
}

// wide is the operations of RandAugment.
func wide() *augmentations {
	return &augmentations{
		of: []augmentation{
			augIdentity, augShearX, augShearY, augTranslateX, augTranslateY, augRotate, augBrightness, augColor, augContrast,
			augSharpness, augPosterize, augSolarize, augAutoContrast, augEqualize,
		},
		shear: 0.3, share: 150.0 / 331, parts: 1, rotate: 30, factor: 0.9, bits: [2]float64{8, 4},
	}
}

// widest is the operations of TrivialAugmentWide.
func widest() *augmentations {
	return &augmentations{
		of:    wide().of,
		shear: 0.99, pixels: 32, parts: 1, rotate: 135, factor: 0.99, bits: [2]float64{8, 6},
	}
}

// augmenter is what all policies have in common: what they may draw, and how it is done.
type augmenter struct {
	warper
	name   string
	space  *augmentations
	number uint64
}

// augmenter reads interpolation and fill. Without a fill, nothing is blended with it.
func (a *arguments) augmenter(number uint64, space *augmentations, standard kernel.Filter) augmenter {
	o := augmenter{a.warper(standard), a.op.Name, space, number}
	_, o.filled = a.raw("fill")
	return o
}

func (o *augmenter) check(k *known) *problem { return o.warper.plan(o.name, k) }

func (o *augmenter) canon(b []byte) []byte {
	return o.warper.canon(fmt.Appendf(b, " %d ", o.number))
}

// choose: what it chooses is a list.
func (o *augmenter) choose(rng.Key, extent) (c choice, _ *errs.Error) { return c, nil }

// list is the choice of a policy. A list of operations in it is their count, and the
// operation and the magnitude of each.
type list []float64

// any is the operation that a draw gives.
func (o *augmenter) any(key rng.Key, draw uint64) augmentation {
	return o.space.of[key.Intn(draw, int64(len(o.space.of)))]
}

// append adds an operation to l, and one to its count of operations, l[at]. The magnitude is
// that of the bin; if it may be negative, it is in half of all draws.
func (o *augmenter) append(l list, at int, a augmentation, bin, bins int, of extent, key rng.Key, draw uint64) list {
	m := o.space.magnitude(a, bin, bins, of.size)
	if m != 0 && a.signed() && key.Float64(draw) < 0.5 {
		m = -m
	}
	l[at]++
	return append(l, float64(a), m)
}

// augment does the operations of the run's list whose count is list[at], and returns where
// they end.
func (o *augmenter) augment(r *run, at int) int {
	end := at + 1 + 2*int(r.list[at])
	for i := at + 1; i < end; i += 2 {
		o.one(r, augmentation(r.list[i]), r.list[i+1])
	}
	return end
}

// one does one operation, as torchvision's _apply_image_or_video_transform does.
func (o *augmenter) one(r *run, a augmentation, m float64) {
	step := kernel.Step{N: 1 + m}
	switch a {
	case augIdentity:
		return
	case augShearX:
		o.shear(r, m, 0)
		return
	case augShearY:
		o.shear(r, 0, m)
		return
	case augTranslateX:
		o.affine(r, affinity{shift: point{math.Trunc(m), 0}, scale: 1})
		return
	case augTranslateY:
		o.affine(r, affinity{shift: point{0, math.Trunc(m)}, scale: 1})
		return
	case augRotate:
		o.rotate(r, m, false, nil)
		return
	case augBrightness:
		step.Op = kernel.OpBrightness
	case augColor:
		step.Op = kernel.OpSaturation
	case augContrast:
		step.Op = kernel.OpContrast
	case augSharpness:
		step.Op = kernel.OpSharpness
	case augPosterize:
		step.Op, step.N = kernel.OpPosterize, m
	case augSolarize:
		step.Op, step.N = kernel.OpSolarize, float64(float32(255*m)) // torch compares in float32
	case augAutoContrast:
		step.Op = kernel.OpAutocontrast
	case augEqualize:
		step.Op = kernel.OpEqualize
	case augInvert:
		step.Op = kernel.OpInvert
	}
	r.chain.Apply(step)
}

// shear is torchvision's affine with center=[0, 0] and the shear whose tangent is x or y: the
// row, or the column, of the upper left corner stays.
func (o *augmenter) shear(r *run, x, y float64) {
	at := r.at().size
	m := [6]float64{1, x, x * float64(at.h) / 2, y, 1, y * float64(at.w) / 2}
	for i := range m {
		m[i] = float64(float32(m[i]))
	}
	o.to(r, at.around(m, at), at)
}

// operations are those whose count is l[at], for explanations, and where they end.
func (l list) operations(at int) (names []string, magnitudes []float64, end int) {
	end = at + 1 + 2*int(l[at])
	names, magnitudes = []string{}, []float64{}
	for i := at + 1; i < end; i += 2 {
		names, magnitudes = append(names, augmentation(l[i]).String()), append(magnitudes, l[i+1])
	}
	return names, magnitudes, end
}
