package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// augMix is AugMix: the weighted sum of the picture and of what chains of operations make
// of it. Its choice is the weight of the picture and the number of chains, then for each
// the weight and the list of operations.
//
// With k for the operation's key: the picture has the weight 1 - beta(k.With(0)), and the
// chains share the rest by dirichlet(k.With(1)). Chain i draws with k.With(2+i): draw 0
// gives its depth, and draws 3j+1, 3j+2 and 3j+3 operation j, the bin of its magnitude and
// its sign.
type augMix struct {
	augmenter
	severity, width, depth int // depth 0: 1 to 3
	alpha                  float64
}

// mixBins is how many magnitudes AugMix has for each operation.
const mixBins = 10

func describeAugMix() descriptor {
	return descriptor{
		name:   "AugMix",
		params: []string{"severity", "mixture_width", "chain_depth", "alpha", "all_ops", "interpolation", "fill"},
		build:  buildAugMix, draws: true, cost: colours, says: mixture,
		numbers: []string{"weights", "operations", "magnitudes"}, example: `{"severity": 8}`,
	}
}

func buildAugMix(a *arguments, number uint64) operation {
	space := &augmentations{
		of: []augmentation{
			augShearX, augShearY, augTranslateX, augTranslateY, augRotate, augPosterize, augSolarize, augAutoContrast, augEqualize,
		},
		shear: 0.3, share: 1, parts: 3, rotate: 30, factor: 0.9, bits: [2]float64{4, 4},
	}
	if a.flag("all_ops", true) {
		space.of = append(space.of, augBrightness, augColor, augContrast, augSharpness)
	}
	o := &augMix{augmenter: a.augmenter(number, space, kernel.Bilinear)}
	o.severity = a.whole("severity", 3, 1, mixBins)
	o.width = a.whole("mixture_width", 3, 1, mostAdded)
	o.depth = max(0, a.whole("chain_depth", -1, math.MinInt32, mostAdded))
	o.alpha = a.alpha()
	return o
}

func (o *augMix) plan(k *known) (operation, *problem) { return o, o.check(k) }

func (o *augMix) adds() int {
	deepest := o.depth
	if deepest == 0 {
		deepest = 3
	}
	return 1 + o.width*(deepest+1)
}

func (o *augMix) list(key rng.Key, at extent, to list) list {
	key = key.With(o.number)
	mixed := beta(key.With(0), 0, o.alpha)
	var shares [mostAdded]float64
	dirichlet(key.With(1), o.alpha, shares[:o.width])
	to = append(to, 1-mixed, float64(o.width))
	for i, share := range shares[:o.width] {
		chain := key.With(uint64(2 + i))
		to = append(to, mixed*share, 0)
		count := len(to) - 1
		depth := uint64(o.depth)
		if depth == 0 {
			depth = uint64(1 + chain.Intn(0, 3))
		}
		for j := range depth {
			bin := int(chain.Intn(3*j+2, int64(o.severity)))
			to = o.append(to, count, o.any(chain, 3*j+1), bin, mixBins, at, chain, 3*j+3)
		}
	}
	return to
}

func (o *augMix) do(r *run, _ choice) *errs.Error {
	r.chain.Apply(kernel.Step{Op: kernel.OpKeep, N: r.list[0]})
	at := 2
	for left := int(r.list[1]); left > 0; left-- {
		weight := r.list[at]
		at = o.augment(r, at+1)
		op := kernel.OpAdd
		if left == 1 {
			op = kernel.OpSum
		}
		r.chain.Apply(kernel.Step{Op: op, N: weight})
	}
	return nil
}

func (o *augMix) canon(b []byte) []byte {
	b = fmt.Appendf(b, "augment mix %d %d %d %x %d", o.severity, o.width, o.depth, math.Float64bits(o.alpha), len(o.space.of))
	return o.augmenter.canon(b)
}

// chains are the choice of AugMix, for explanations.
func (l list) chains() (weights []float64, names [][]string, magnitudes [][]float64) {
	weights = append(weights, l[0])
	at := 2
	for range int(l[1]) {
		weights = append(weights, l[at])
		n, m, end := l.operations(at + 1)
		names, magnitudes = append(names, n), append(magnitudes, m)
		at = end
	}
	return weights, names, magnitudes
}

// dirichlet draws shares of 1 from the law of Dirichlet with all parameters alpha: gamma
// variates in proportion, each with a key of its own. They are kept as logarithms, for small
// alphas.
func dirichlet(k rng.Key, alpha float64, shares []float64) {
	top := math.Inf(-1)
	for i := range shares {
		shares[i] = logGamma(k.With(uint64(i)), alpha)
		top = max(top, shares[i])
	}
	sum := 0.0
	for i := range shares {
		shares[i] = expDown(shares[i] - top)
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
}

// gammaTries bounds the tries of logGamma. Each ends with a probability of at least 1/2.
const gammaTries = 128

// logGamma draws the logarithm of a gamma variate of shape alpha.
//
//   - alpha = 1: it is -log u, with u from draw 0.
//   - alpha < 1: a variate of shape alpha + 1 times u^(1/alpha), with u from draw 0.
//   - alpha > 1 (Best 1978): try t takes u and v from the draws 2t+1 and 2t+2, and with b =
//     alpha-1, w = u(1-u), y = sqrt((3 alpha - 3/4)/w) (u - 1/2) the result is b + y, if
//     that is positive and log(64 w^3 v^2) <= 2(b log((b+y)/b) - y).
//
// u and v are 1 - Float64, which is never zero. Arithmetic is as in draw.go.
func logGamma(k rng.Key, alpha float64) float64 {
	const tiny = 0x1p-54 // for u = 1, whose logarithm is 0
	first := max(-log(1-k.Float64(0)), tiny)
	if alpha == 1 {
		return log(first)
	}
	shape, more := alpha, 0.0
	if alpha < 1 {
		shape, more = alpha+1, -first/alpha
	}
	b := shape - 1
	if b == 0 { // alpha is below the precision of 1
		return more
	}
	for t := uint64(0); t < gammaTries; t++ {
		u, v := 1-k.Float64(2*t+1), 1-k.Float64(2*t+2)
		w := u * (1 - u)
		if w == 0 {
			continue
		}
		y := float64(math.Sqrt((float64(3*shape)-0.75)/w) * (u - 0.5))
		x := b + y
		if x > 0 && log(64*w*w*w*v*v) <= 2*(float64(b*log(x/b))-y) {
			return log(x) + more
		}
	}
	return log(shape) + more
}
