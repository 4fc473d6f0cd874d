package transform

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// recolour is the operations that do one thing to the colours, or nothing: RandomInvert,
// RandomPosterize, RandomSolarize, RandomAdjustSharpness, RandomAutocontrast, RandomEqualize.
type recolour struct {
	name   string
	step   kernel.Step
	p      float64
	number uint64
}

func describeRecolour(name string, op kernel.Op, param, example string) descriptor {
	params := []string{"p"}
	if param != "" {
		params = []string{param, "p"}
	}
	return descriptor{
		name: name, params: params,
		build: func(a *arguments, number uint64) operation {
			o := &recolour{name: name, step: kernel.Step{Op: op}, p: a.probability(0.5), number: number}
			switch op {
			case kernel.OpPosterize:
				const wanted = "a whole number from 0 to 8"
				if n := a.wholes(param, wanted, 0, 8); a.required(param, wanted) && len(n) == 1 {
					o.step.N = float64(n[0])
				}
			case kernel.OpSolarize:
				const wanted = "a number up to 255"
				if n := a.numbers(param, wanted); a.required(param, wanted) && len(n) == 1 {
					if o.step.N = n[0]; n[0] > 255 {
						a.wrong("", "%s must be %s, not %v", param, wanted, n[0])
					}
				}
			case kernel.OpSharpness:
				const wanted = "a number from 0 to 1e30"
				if n := a.numbers(param, wanted); a.required(param, wanted) && len(n) == 1 {
					if o.step.N = n[0]; !(n[0] >= 0 && n[0] <= mostFactor) {
						a.wrong("", "%s must be %s, not %v", param, wanted, n[0])
					}
				}
			}
			return o
		},
		draws: true, cost: colours, slides: op == kernel.OpInvert,
		says: facts, numbers: []string{"applied"}, example: example,
	}
}

func (o *recolour) plan(k *known) (operation, *problem) {
	if k.tone.float {
		return nil, before(o.name, k)
	}
	return o, nil
}

func (o *recolour) choose(key rng.Key, _ extent) (choice, *errs.Error) {
	return acted(happens(key, o.number, o.p)), nil
}

func (o *recolour) do(r *run, c choice) *errs.Error {
	if c[0] == 0 {
		return nil
	}
	step := o.step
	if step.Op == kernel.OpSolarize {
		step.N = max(0, float64(float32(step.N))) // torch compares in float32; all that is below 0 inverts every byte
	}
	r.chain.Apply(step)
	return nil
}

func (o *recolour) canon(b []byte) []byte {
	if o.step.Op == kernel.OpSharpness { // saved states have this text
		return fmt.Appendf(b, "sharpness %d %x %x", o.number, math.Float64bits(o.step.N), math.Float64bits(o.p))
	}
	return fmt.Appendf(b, "colour %d %x %d %x", o.step.Op, math.Float64bits(o.step.N), o.number, math.Float64bits(o.p))
}

// permuted is the order of n things: of all orders, each equally often, from n-1 draws.
// It exchanges the last with one of all, the last but one with one of those up to it, and
// so on (Fisher and Yates).
func permuted(key rng.Key, first uint64, n int) (order [4]int) {
	for i := range order {
		order[i] = i
	}
	for i := n - 1; i > 0; i-- {
		j := key.Intn(first+uint64(n-1-i), int64(i+1))
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// digits is an order as a number for explanations: 1 for the first thing, and so on.
func digits(order []int) float64 {
	n := 0
	for _, i := range order {
		n = 10*n + i + 1
	}
	return float64(n)
}

// ordered is the inverse of digits, for n things.
func ordered(digits float64, n int) (order [4]int) {
	for i := n - 1; i >= 0; i-- {
		order[i] = int(digits)%10 - 1
		digits = math.Floor(digits / 10)
	}
	return order
}

// channelPermutation is RandomChannelPermutation. Draws 0 and 1 give the order.
type channelPermutation struct{ number uint64 }

func describeChannelPermutation() descriptor {
	return descriptor{
		name: "RandomChannelPermutation", cost: colours, draws: true, slides: true,
		build: func(_ *arguments, number uint64) operation { return &channelPermutation{number} },
		says:  counts, numbers: []string{"order"}, example: `{}`,
	}
}

func (o *channelPermutation) plan(k *known) (operation, *problem) {
	if k.tone.float {
		return nil, before("RandomChannelPermutation", k)
	}
	return o, nil
}

func (o *channelPermutation) choose(key rng.Key, at extent) (choice, *errs.Error) {
	order := permuted(key.With(o.number), 0, at.c)
	return choice{digits(order[:at.c])}, nil
}

func (o *channelPermutation) do(r *run, c choice) *errs.Error {
	permute(r, c[0])
	return nil
}

// permute reorders the channels of a colour picture.
func permute(r *run, digits float64) {
	if r.at().c == 1 {
		return
	}
	order := ordered(digits, 3)
	r.chain.Apply(kernel.Step{Op: kernel.OpPermute, Perm: [3]uint8{uint8(order[0]), uint8(order[1]), uint8(order[2])}})
}

func (o *channelPermutation) canon(b []byte) []byte {
	return fmt.Appendf(b, "permute channels %d", o.number)
}

// jitter is ColorJitter. Draws 0 to 3 give brightness, contrast, saturation and hue, and
// draws 4 to 6 the order in which they are changed.
type jitter struct {
	ranges [4][2]float64
	number uint64
}

// adjustments are the kernel's steps for what jitter changes.
func adjustments() [4]kernel.Op {
	return [4]kernel.Op{kernel.OpBrightness, kernel.OpContrast, kernel.OpSaturation, kernel.OpHue}
}

// adjusted are the names of adjustments as parameters and as numbers of choices.
func adjusted(more ...string) []string {
	return append([]string{"brightness", "contrast", "saturation", "hue"}, more...)
}

func describeColorJitter() descriptor {
	return descriptor{
		name: "ColorJitter", params: adjusted(), build: buildColorJitter,
		draws: true, cost: colours, slides: true, kernels: 4, says: amounts, numbers: adjusted("order"),
		example: `{"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}`,
	}
}

func buildColorJitter(a *arguments, number uint64) operation {
	o := &jitter{number: number}
	for i, name := range adjusted() {
		o.ranges[i] = a.around(name, i == 3)
	}
	return o
}

// mostFactor bounds factors of brightness, contrast, saturation and sharpness. It is the kernel's.
const mostFactor = 1e30

// around reads a range of ColorJitter: a number d for 1 - d to 1 + d (hue: -d to d), or
// both ends.
func (a *arguments) around(name string, hue bool) [2]float64 {
	centre, least, most, wanted := 1.0, 0.0, mostFactor, "a number that is not negative, or two, the smaller first, at most 1e30"
	if hue {
		centre, least, most, wanted = 0, -0.5, 0.5, "a number from 0 to 0.5, or two from -0.5 to 0.5, the smaller first"
	}
	v := a.numbers(name, wanted, 2)
	r := [2]float64{centre, centre}
	switch len(v) {
	case 0:
		return r
	case 1:
		r = [2]float64{centre - v[0], centre + v[0]}
		if !hue {
			r[0] = max(r[0], 0)
		}
	case 2:
		r = [2]float64{v[0], v[1]}
	}
	if len(v) == 1 && v[0] < 0 || !(least <= r[0] && r[0] <= r[1] && r[1] <= most) {
		a.wrong("", "%s must be %s, not %s", name, wanted, shown(a.op.Args[name]))
	}
	return r
}

func (o *jitter) plan(k *known) (operation, *problem) {
	if o.ranges == [4][2]float64{{1, 1}, {1, 1}, {1, 1}, {0, 0}} {
		return nil, nil
	}
	if k.tone.float {
		return nil, before("ColorJitter", k)
	}
	return o, nil
}

func (o *jitter) choose(key rng.Key, _ extent) (c choice, _ *errs.Error) {
	key = key.With(o.number)
	for i, r := range o.ranges {
		c[i] = between(r, key.Float64(uint64(i)))
	}
	order := permuted(key, 4, 4)
	c[4] = digits(order[:])
	return c, nil
}

func (o *jitter) do(r *run, c choice) *errs.Error {
	for _, i := range ordered(c[4], 4) {
		r.chain.Apply(kernel.Step{Op: adjustments()[i], N: c[i]})
	}
	return nil
}

func (o *jitter) canon(b []byte) []byte {
	return fmt.Appendf(b, "jitter %d %v", o.number, o.ranges)
}

// distort is RandomPhotometricDistort. Draw 2i says whether adjustment i acts, and draw
// 2i+1 by how much; draw 8 whether contrast is before saturation; draw 9 whether the
// channels are permuted, and draws 10 and 11 how.
type distort struct {
	ranges [4][2]float64
	p      float64
	number uint64
}

func describePhotometricDistort() descriptor {
	return descriptor{
		name: "RandomPhotometricDistort", params: adjusted("p"), build: buildPhotometricDistort,
		draws: true, cost: colours, slides: true, kernels: 5, says: amounts,
		numbers: adjusted("contrast_first", "order"), example: `{}`,
	}
}

func buildPhotometricDistort(a *arguments, number uint64) operation {
	o := &distort{p: a.probability(0.5), number: number}
	standard := [4]string{"[0.875, 1.125]", "[0.5, 1.5]", "[0.5, 1.5]", "[-0.05, 0.05]"}
	for i, name := range adjusted() {
		if _, given := a.raw(name); !given {
			a.op.Args = with(a.op.Args, name, standard[i])
		}
		o.ranges[i] = a.around(name, i == 3)
	}
	return o
}

// with is args and one more.
func with(args map[string]json.RawMessage, name, value string) map[string]json.RawMessage {
	all := map[string]json.RawMessage{name: json.RawMessage(value)}
	for k, v := range args {
		if k != name {
			all[k] = v
		}
	}
	return all
}

func (o *distort) plan(k *known) (operation, *problem) {
	if k.tone.float {
		return nil, before("RandomPhotometricDistort", k)
	}
	return o, nil
}

func (o *distort) choose(key rng.Key, at extent) (choice, *errs.Error) {
	key = key.With(o.number)
	c := choice{1, 1, 1, 0, 0, digits([]int{0, 1, 2}[:at.c])}
	for i, r := range o.ranges {
		if key.Float64(uint64(2*i)) < o.p {
			c[i] = between(r, key.Float64(uint64(2*i+1)))
		}
	}
	if key.Float64(8) < 0.5 {
		c[4] = 1
	}
	if key.Float64(9) < o.p {
		order := permuted(key, 10, at.c)
		c[5] = digits(order[:at.c])
	}
	return c, nil
}

func (o *distort) do(r *run, c choice) *errs.Error {
	order := [4]int{0, 2, 3, 1}
	if c[4] != 0 {
		order = [4]int{0, 1, 2, 3}
	}
	for _, i := range order {
		r.chain.Apply(kernel.Step{Op: adjustments()[i], N: c[i]})
	}
	permute(r, c[5])
	return nil
}

func (o *distort) canon(b []byte) []byte {
	return fmt.Appendf(b, "distort %d %v %x", o.number, o.ranges, math.Float64bits(o.p))
}
