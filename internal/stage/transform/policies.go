package transform

import (
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// Policies whose list is one of operations.

func (o *augmenter) do(r *run, _ choice) *errs.Error {
	o.augment(r, 0)
	return nil
}

// mostAdded bounds the operations that one policy may do: no program may have more.
const mostAdded = mostOps

// randAugment is RandAugment. Draw 2i gives operation i, and draw 2i+1 its sign.
type randAugment struct {
	augmenter
	ops, magnitude, bins int
}

func describeRandAugment() descriptor {
	return descriptor{
		name: "RandAugment", params: []string{"num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill"},
		build: buildRandAugment, draws: true, cost: colours, says: operations,
		numbers: []string{"operations", "magnitudes"}, example: `{"fill": 30}`,
	}
}

func buildRandAugment(a *arguments, number uint64) operation {
	o := &randAugment{augmenter: a.augmenter(number, wide(), kernel.Nearest)}
	o.ops = a.whole("num_ops", 2, 0, mostAdded)
	o.bins = a.bins()
	o.magnitude = a.whole("magnitude", 9, -o.bins, o.bins-1)
	if o.magnitude >= o.bins {
		a.wrong("", "magnitude 9, the default, is not below num_magnitude_bins, %d", o.bins)
	}
	if o.magnitude < 0 {
		o.magnitude += o.bins // as Python counts
	}
	return o
}

// whole reads one whole number.
func (a *arguments) whole(name string, standard, least, most int) int {
	v := a.wholes(name, fmt.Sprintf("a whole number from %d to %d", least, most), least, most)
	if len(v) == 0 {
		return standard
	}
	return v[0]
}

// alpha reads the parameter of a law of Dirichlet or Beta.
func (a *arguments) alpha() float64 {
	alpha := 1.0
	if v := a.numbers("alpha", "a positive number"); len(v) == 1 {
		alpha = v[0]
	}
	if f := float32(alpha); !(f > 0) || math.IsInf(float64(f), 0) { // torch keeps it as float32
		a.wrong("", "alpha must be a positive number, not %v", alpha)
	}
	return alpha
}

// bins reads num_magnitude_bins. With one bin torchvision divides by zero for Posterize.
func (a *arguments) bins() int { return a.whole("num_magnitude_bins", 31, 2, 1<<20) }

func (o *randAugment) plan(k *known) (operation, *problem) {
	if o.ops == 0 {
		return nil, nil
	}
	return o, o.check(k)
}

func (o *randAugment) adds() int { return o.ops }

func (o *randAugment) list(key rng.Key, at extent, to list) list {
	key, to = key.With(o.number), append(to, 0)
	for i := range uint64(o.ops) {
		to = o.append(to, 0, o.any(key, 2*i), o.magnitude, o.bins, at, key, 2*i+1)
	}
	return to
}

func (o *randAugment) canon(b []byte) []byte {
	return o.augmenter.canon(fmt.Appendf(b, "rand augment %d %d %d", o.ops, o.magnitude, o.bins))
}

// trivialAugment is TrivialAugmentWide. Draw 0 gives the operation, draw 1 the bin of its
// magnitude, and draw 2 its sign.
type trivialAugment struct {
	augmenter
	bins int
}

func describeTrivialAugment() descriptor {
	return descriptor{
		name: "TrivialAugmentWide", params: []string{"num_magnitude_bins", "interpolation", "fill"},
		build: buildTrivialAugment, draws: true, cost: colours, says: operations,
		numbers: []string{"operations", "magnitudes"}, example: `{"interpolation": "bilinear"}`,
	}
}

func buildTrivialAugment(a *arguments, number uint64) operation {
	return &trivialAugment{a.augmenter(number, widest(), kernel.Nearest), a.bins()}
}

func (o *trivialAugment) plan(k *known) (operation, *problem) { return o, o.check(k) }

func (o *trivialAugment) adds() int { return 1 }

func (o *trivialAugment) list(key rng.Key, at extent, to list) list {
	key = key.With(o.number)
	return o.append(append(to, 0), 0, o.any(key, 0), int(key.Intn(1, int64(o.bins))), o.bins, at, key, 2)
}

func (o *trivialAugment) canon(b []byte) []byte {
	return o.augmenter.canon(fmt.Appendf(b, "trivial augment %d", o.bins))
}

// autoAugment is AutoAugment. Draw 0 gives the pair of operations; operation i of it acts
// by draw 2i+1, and has its sign by draw 2i+2.
type autoAugment struct {
	augmenter
	policy string
	pairs  *[25]autoPair
}

func describeAutoAugment() descriptor {
	return descriptor{
		name: "AutoAugment", params: []string{"policy", "interpolation", "fill"},
		build: buildAutoAugment, draws: true, cost: colours, says: operations,
		numbers: []string{"operations", "magnitudes"}, example: `{}`,
	}
}

func buildAutoAugment(a *arguments, number uint64) operation {
	o := &autoAugment{augmenter: a.augmenter(number, wide(), kernel.Nearest)}
	names := []string{"imagenet", "cifar10", "svhn"}
	o.policy, _ = a.text("policy", names...)
	o.pairs = [...]*[25]autoPair{&imagenetPairs, &cifar10Pairs, &svhnPairs}[max(0, slices.Index(names, o.policy))]
	return o
}

func (o *autoAugment) plan(k *known) (operation, *problem) { return o, o.check(k) }

func (o *autoAugment) adds() int { return 2 }

// autoBins is how many magnitudes AutoAugment has for each operation.
const autoBins = 10

func (o *autoAugment) list(key rng.Key, at extent, to list) list {
	key, to = key.With(o.number), append(to, 0)
	for i, one := range o.pairs[key.Intn(0, int64(len(o.pairs)))] {
		if draw := uint64(2*i + 1); key.Float64(draw) < one.p {
			to = o.append(to, 0, one.a, one.bin, autoBins, at, key, draw+1)
		}
	}
	return to
}

func (o *autoAugment) canon(b []byte) []byte {
	return o.augmenter.canon(fmt.Appendf(b, "auto augment %s", o.policy))
}
