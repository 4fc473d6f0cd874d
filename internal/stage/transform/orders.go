package transform

import (
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// apply is RandomApply.
type apply struct {
	head
	p      float64
	number uint64
}

func describeRandomApply() descriptor {
	return descriptor{
		name: "RandomApply", params: []string{"transforms", "p"}, hold: holdApply,
		draws: true, cost: held, says: facts, numbers: []string{"applied"},
		example: `{"transforms": [{"op": "CenterCrop", "size": 64}]}`,
	}
}

func holdApply(_ *compiler, a *arguments, number uint64, _ []Op) container {
	return &apply{p: a.probability(0.5), number: number}
}

func (o *apply) before(k known, _ int) known { return k }

func (o *apply) after(k *known, past []known) *problem { return k.join(past[0], "RandomApply") }

func (o *apply) choose(key rng.Key, _ extent) (choice, *errs.Error) {
	return acted(happens(key, o.number, o.p)), nil
}

func (o *apply) turns(c choice, to []int) []int {
	if c[0] != 0 {
		to = append(to, 0)
	}
	return to
}

func (o *apply) canon(b []byte) []byte {
	return fmt.Appendf(b, "apply %d %x", o.number, math.Float64bits(o.p))
}

// oneOf is RandomChoice.
type oneOf struct {
	head
	p      []float64 // of each part; the sum is 1
	upto   []float64 // sums of p: a part is chosen below its own and not below those before it
	number uint64
}

func describeRandomChoice() descriptor {
	return descriptor{
		name: "RandomChoice", params: []string{"transforms", "p"}, hold: holdChoice, each: true, one: true,
		draws: true, cost: held, says: counts, numbers: []string{"chosen"},
		example: `{"transforms": [{"op": "CenterCrop", "size": 64}, "RandomVerticalFlip", "Identity"], "p": [1, 2, 1]}`,
	}
}

func holdChoice(_ *compiler, a *arguments, number uint64, ops []Op) container {
	o := &oneOf{number: number}
	a.checkSome(ops)
	if o.p = a.weights(len(ops)); len(a.problems) > 0 {
		return o
	}
	sum, last := 0.0, 0
	for i, p := range o.p {
		sum += p
		o.upto = append(o.upto, sum)
		if p > 0 {
			last = i
		}
	}
	o.upto[last] = 1 // whatever was lost by rounding
	return o
}

// weights reads p of a RandomChoice of n, as torchvision keeps it: the sum is 1.
func (a *arguments) weights(n int) []float64 {
	p := slices.Repeat([]float64{1}, n)
	if _, ok := a.raw("p"); ok {
		p = a.numbers("p", "a list of numbers, one for each transform", a.count("p"))
	}
	if len(p) != n {
		if len(p) > 0 {
			a.wrong("", "p has %d numbers, and there are %d transforms", len(p), n)
		}
		return nil
	}
	total := 0.0
	for _, w := range p {
		total += w
	}
	if slices.ContainsFunc(p, func(w float64) bool { return w < 0 }) || n > 0 && !(total > 0) || math.IsInf(total, 0) {
		a.wrong("", "p must be numbers of which none is negative and not all are 0, not %s", shown(a.op.Args["p"]))
		return nil
	}
	for i := range p {
		p[i] /= total
	}
	return p
}

// checkSome notes transforms that are empty.
func (a *arguments) checkSome(ops []Op) {
	if len(ops) == 0 && len(a.problems) == 0 {
		a.wrong("", "transforms is empty: it needs at least one")
	}
}

func (o *oneOf) before(k known, _ int) known { return k }

func (o *oneOf) after(k *known, past []known) *problem {
	for i, p := range past {
		if i == 0 {
			*k = p
		} else if problem := k.join(p, "RandomChoice"); problem != nil {
			return problem
		}
	}
	return nil
}

func (o *oneOf) choose(key rng.Key, _ extent) (choice, *errs.Error) {
	u := key.With(o.number).Float64(0)
	return choice{float64(slices.IndexFunc(o.upto, func(sum float64) bool { return u < sum }))}, nil
}

func (o *oneOf) turns(c choice, to []int) []int { return append(to, int(c[0])) }

func (o *oneOf) canon(b []byte) []byte {
	return fmt.Appendf(b, "choice %d %v", o.number, o.p)
}

// inOrder is RandomOrder.
type inOrder struct {
	head
	parts  int
	number uint64
	may    []effects // of each part, for the compiler
}

// mostOrder bounds the parts of a RandomOrder: the number of an order is a number of a
// choice, and 18! is the last factorial below 2^53.
const mostOrder = 18

func describeRandomOrder() descriptor {
	return descriptor{
		name: "RandomOrder", params: []string{"transforms"}, hold: holdOrder, each: true,
		draws: true, cost: held, says: order, numbers: []string{"order"},
		example: `{"transforms": [{"op": "CenterCrop", "size": 64}, {"op": "Pad", "padding": 8}, "RandomVerticalFlip"]}`,
	}
}

func holdOrder(c *compiler, a *arguments, number uint64, ops []Op) container {
	o := &inOrder{parts: len(ops), number: number}
	a.checkSome(ops)
	if len(ops) > mostOrder {
		a.wrong("put some of them into a Compose, which counts as one", "%d transforms in random order: the limit is %d", len(ops), mostOrder)
	}
	for _, op := range ops {
		o.may = append(o.may, c.effects(op, c.depth))
	}
	return o
}

// before: any of the others may have been done, or not.
func (o *inOrder) before(k known, part int) known {
	for i, other := range o.may {
		if i != part && other.resizes {
			k.size = size{}
		}
		k.wild = k.wild || i != part && other.converts
		k.erased = k.erased || i != part && other.erases && k.tone.float
	}
	return k
}

// after: channels and type are the same at every point. The size is that of the only
// part that resizes, or what all of these give whatever they are given.
func (o *inOrder) after(k *known, past []known) *problem {
	to, first := k.size, true
	for i, p := range past {
		if o.may[i].resizes && first {
			to, first = p.size, false
		} else if o.may[i].resizes && p.size != to {
			to = size{}
		}
		p.size = k.size
		if problem := k.join(p, "RandomOrder"); problem != nil {
			return problem
		}
	}
	k.size = to
	return nil
}

func (o *inOrder) choose(key rng.Key, _ extent) (choice, *errs.Error) {
	all := int64(1)
	for i := 2; i <= o.parts; i++ {
		all *= int64(i)
	}
	return choice{float64(key.With(o.number).Intn(0, all)), float64(o.parts)}, nil
}

func (o *inOrder) turns(c choice, to []int) []int { return permutation(int(c[0]), int(c[1]), to) }

// permutation appends order number rank of 0 to n-1, among all in the order of texts.
func permutation(rank, n int, to []int) []int {
	mark, all := len(to), 1
	for i := range n {
		to, all = append(to, i), all*(i+1)
	}
	for left := to[mark:]; len(left) > 1; left = left[1:] {
		all /= len(left)
		k := rank / all
		rank %= all
		next := left[k]
		copy(left[1:k+1], left[:k])
		left[0] = next
	}
	return to
}

func (o *inOrder) canon(b []byte) []byte { return fmt.Appendf(b, "order %d", o.number) }
