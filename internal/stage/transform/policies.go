package transform

import (
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// Policies that do a list of operations, which is their choice.

// list is a policy of this file.
type list struct{ augmenter }

func (o *list) do(r *run, c choice) *errs.Error {
	o.augment(r, &c, 0)
	return nil
}

// mostAdded bounds the operations that one policy may do: more are too long for the kernel
// in any program, and a choice has no room for them.
const mostAdded = mostOps

// randAugment is RandAugment. Draw 2i gives operation i, and draw 2i+1 its sign.
type randAugment struct {
	list
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
	o := &randAugment{list: list{a.augmenter(number, wide(), kernel.Nearest)}}
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

// bins reads num_magnitude_bins. With one bin torchvision divides by zero for Posterize.
func (a *arguments) bins() int { return a.whole("num_magnitude_bins", 31, 2, 1<<20) }

func (o *randAugment) plan(k *known) (operation, *problem) {
	if o.ops == 0 {
		return nil, nil
	}
	return o, o.check(k)
}

func (o *randAugment) adds() int { return o.ops }

func (o *randAugment) choose(key rng.Key, at extent) (c choice, _ *errs.Error) {
	key = key.With(o.number)
	for i := range uint64(o.ops) {
		o.append(&c, 0, o.any(key, 2*i), o.magnitude, o.bins, at, key, 2*i+1)
	}
	return c, nil
}

func (o *randAugment) canon(b []byte) []byte {
	return o.augmenter.canon(fmt.Appendf(b, "rand augment %d %d %d", o.ops, o.magnitude, o.bins))
}

// trivialAugment is TrivialAugmentWide. Draw 0 gives the operation, draw 1 the bin of its
// magnitude, and draw 2 its sign.
type trivialAugment struct {
	list
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
	return &trivialAugment{list{a.augmenter(number, widest(), kernel.Nearest)}, a.bins()}
}

func (o *trivialAugment) plan(k *known) (operation, *problem) { return o, o.check(k) }

func (o *trivialAugment) choose(key rng.Key, at extent) (c choice, _ *errs.Error) {
	key = key.With(o.number)
	o.append(&c, 0, o.any(key, 0), int(key.Intn(1, int64(o.bins))), o.bins, at, key, 2)
	return c, nil
}

func (o *trivialAugment) canon(b []byte) []byte {
	return o.augmenter.canon(fmt.Appendf(b, "trivial augment %d", o.bins))
}

// autoAugment is AutoAugment. Draw 0 gives the pair of operations; operation i of it acts
// by draw 2i+1, and has its sign by draw 2i+2.
type autoAugment struct {
	list
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
	o := &autoAugment{list: list{a.augmenter(number, wide(), kernel.Nearest)}}
	names := []string{"imagenet", "cifar10", "svhn"}
	o.policy, _ = a.text("policy", names...)
	o.pairs = [...]*[25]autoPair{&imagenetPairs, &cifar10Pairs, &svhnPairs}[max(0, slices.Index(names, o.policy))]
	return o
}

func (o *autoAugment) plan(k *known) (operation, *problem) { return o, o.check(k) }

func (o *autoAugment) adds() int { return 2 }

// autoBins is how many magnitudes AutoAugment knows of each operation.
const autoBins = 10

func (o *autoAugment) choose(key rng.Key, at extent) (c choice, _ *errs.Error) {
	key = key.With(o.number)
	for i, one := range o.pairs[key.Intn(0, int64(len(o.pairs)))] {
		if draw := uint64(2*i + 1); key.Float64(draw) < one.p {
			o.append(&c, 0, one.a, one.bin, autoBins, at, key, draw+1)
		}
	}
	return c, nil
}

func (o *autoAugment) canon(b []byte) []byte {
	return o.augmenter.canon(fmt.Appendf(b, "auto augment %s", o.policy))
}
