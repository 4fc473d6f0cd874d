package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// compiler turns the operations of a Spec into steps, and collects every problem.
type compiler struct {
	catalog  []descriptor
	problems []problem
	drawn    uint64 // operations that draw, so far
	depth    int    // of Compose and RandomApply
	lost     bool   // an operation could not be read, so known is no longer valid
}

func (c *compiler) note(place string, problems ...problem) {
	for _, p := range problems {
		p.place = place
		c.problems = append(c.problems, p)
	}
}

// list compiles ops and moves k past them. in is where they are, as a phrase for
// errors, empty at the top.
func (c *compiler) list(ops []Op, in string, k *known) []step {
	var out []step
	for i, op := range ops {
		place := fmt.Sprintf("transform %d of %d%s (%s)", i+1, len(ops), in, op.Name)
		out = append(out, c.one(op, place, k)...)
	}
	return out
}

func (c *compiler) one(op Op, place string, k *known) []step {
	var found *descriptor
	for i := range c.catalog {
		if c.catalog[i].name == op.Name {
			found = &c.catalog[i]
		}
	}
	if found == nil {
		c.note(place, *unknownOperation(c.catalog, op.Name))
		c.lost = true
		return nil
	}
	number := c.drawn
	if found.draws {
		c.drawn++
	}
	a := &arguments{op: op}
	a.checkNames(found.params)
	if found.build == nil {
		return c.nest(found, a, place, number, k)
	}
	built := found.build(a, number)
	c.note(place, a.problems...)
	if len(a.problems) > 0 {
		c.lost = true
		return nil
	}
	in := *k
	done, p := built.plan(k)
	if p != nil && !c.lost {
		c.note(place, *p)
	}
	if done == nil || p != nil {
		return nil
	}
	return []step{{descriptor: found, op: done, in: in}}
}

// mostDepth bounds Compose in Compose.
const mostDepth = 32

// nest compiles Compose, which leaves no trace, and RandomApply, which is followed
// by the operations in it.
func (c *compiler) nest(d *descriptor, a *arguments, place string, number uint64, k *known) []step {
	if c.depth == mostDepth {
		c.note(place, *problemf("write them in one list", "transforms in transforms, more than %d deep", mostDepth))
		return nil
	}
	c.depth++
	defer func() { c.depth-- }()
	ops := a.nested()
	p := 1.0
	if d.draws {
		p = a.probability(0.5)
	}
	c.note(place, a.problems...)
	inner := *k
	within := c.list(ops, " in "+place, &inner)
	if !d.draws {
		*k = inner
		return within
	}
	in := *k
	if problem := k.join(inner); problem != nil && !c.lost {
		c.note(place, *problem)
	}
	if len(within) == 0 {
		return nil
	}
	head := step{descriptor: d, op: &apply{p: p, number: number}, in: in, span: len(within)}
	return append([]step{head}, within...)
}

// mostOps bounds the operations of a program: each gives the kernel at most two
// steps and one pass over the picture, of which the kernel allows 64 and 15.
const mostOps, mostSizeOps = 30, 15

// checkCount notes programs that are too long for the kernel.
func (c *compiler) checkCount(steps []step) {
	sizes := 0
	for i := range steps {
		if steps[i].resizes {
			sizes++
		}
	}
	if len(steps) > mostOps || sizes > mostSizeOps {
		c.note("", *problemf("leave some out, or apply them once and store the result",
			"%d operations, %d of which change the size: the limits are %d and %d", len(steps), sizes, mostOps, mostSizeOps))
	}
}

// join makes k what is known after an operation that may or may not have been
// applied.
func (k *known) join(past known) *problem {
	if k.size != past.size {
		k.size = size{}
	}
	k.laid = k.laid || past.laid
	switch {
	case k.c != past.c:
		return problemf("use RandomGrayscale, which keeps the channels, or Grayscale(num_output_channels=3)",
			"the number of channels would be %d or %d at random", k.c, past.c)
	case k.tone.float != past.tone.float:
		return problemf("move it out of RandomApply", "the type of the result would be uint8 or float32 at random")
	}
	k.wild = k.wild || past.wild || k.tone != past.tone
	return nil
}

func describeCompose() descriptor {
	return descriptor{
		name: "Compose", params: []string{"transforms"}, cost: nothing, says: silent,
		example: `{"transforms": [{"op": "CenterCrop", "size": 64}]}`,
	}
}

// apply is RandomApply: the steps in it follow it, and are left out unless it acts.
type apply struct {
	p      float64
	number uint64
}

func describeRandomApply() descriptor {
	return descriptor{
		name: "RandomApply", params: []string{"transforms", "p"},
		draws: true, cost: held, says: facts, numbers: []string{"applied"},
		example: `{"transforms": [{"op": "CenterCrop", "size": 64}]}`,
	}
}

func (o *apply) plan(*known) (operation, *problem) { return o, nil } // the compiler has checked it

func (o *apply) choose(key rng.Key, _ extent) (choice, *errs.Error) {
	return acted(happens(key, o.number, o.p)), nil
}

func (o *apply) do(*run, choice) *errs.Error { return nil }

func (o *apply) canon(b []byte) []byte {
	return fmt.Appendf(b, "apply %d %x", o.number, math.Float64bits(o.p))
}

// canon appends steps to the text of the digest, each followed by end.
func canon(b []byte, steps []step, end byte) []byte {
	for i := 0; i < len(steps); i++ {
		s := &steps[i]
		b = s.op.canon(b)
		if s.span > 0 {
			b = append(canon(append(b, '{'), steps[i+1:i+1+s.span], ';'), '}')
			i += s.span
		}
		b = append(b, end)
	}
	return b
}

// happens is the choice of an operation that acts with probability p.
func happens(key rng.Key, number uint64, p float64) bool {
	return key.With(number).Float64(0) < p
}

// identity does nothing, and leaves no trace.
type identity struct{}

func describeIdentity() descriptor {
	return descriptor{
		name: "Identity", cost: nothing, settled: true, says: silent, example: `{}`,
		build: func(*arguments, uint64) operation { return identity{} },
	}
}

func (identity) plan(*known) (operation, *problem)                { return nil, nil }
func (identity) choose(rng.Key, extent) (c choice, _ *errs.Error) { return c, nil }
func (identity) do(*run, choice) *errs.Error                      { return nil }
func (identity) canon(b []byte) []byte                            { return b }
