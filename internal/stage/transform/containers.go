package transform

import (
	"github.com/stoker-data/stoker/internal/base/errs"
)

// container is an operation that holds others. It is a step of the program, followed
// by the steps of its parts: step.holds is how many each has. Its choice depends on
// the key alone, so a picture's way through the program is known before its size.
type container interface {
	operation
	// turns appends the numbers of the parts that are done for a choice, in the order
	// in which they are done.
	turns(c choice, to []int) []int
	// before is what is known before a part, k before the container.
	before(k known, part int) known
	// after moves k past the container. past is what is known after each part.
	after(k *known, past []known) *problem
}

// head has the methods of an operation that a container does not need.
type head struct{}

func (head) plan(*known) (operation, *problem) { return nil, nil } // the compiler calls before and after
func (head) do(*run, choice) *errs.Error       { return nil }

// mostDepth bounds Compose in Compose.
const mostDepth = 32

// nest compiles Compose, which leaves no trace, and containers.
func (c *compiler) nest(d *descriptor, a *arguments, where string, number uint64, k *known) []step {
	if c.depth == mostDepth {
		c.note(where, *problemf("write them in one list", "transforms in transforms, more than %d deep", mostDepth))
		return nil
	}
	c.depth++
	defer func() { c.depth-- }()
	ops, in := a.nested(), " in "+where
	if d.hold == nil {
		c.note(where, a.problems...)
		return c.list(ops, in, k)
	}
	op := d.hold(c, a, number, ops)
	c.note(where, a.problems...)
	parts := 1
	if d.each {
		parts = len(ops)
	}
	within := []step{{descriptor: d, op: op, in: *k}}
	past := make([]known, parts)
	for i := range past {
		var steps []step
		past[i] = op.before(*k, i)
		if d.each {
			steps = c.nth(ops, i, in, &past[i])
		} else {
			steps = c.list(ops, in, &past[i])
		}
		within[0].holds = append(within[0].holds, len(steps))
		within = append(within, steps...)
	}
	if problem := op.after(k, past); problem != nil && !c.lost {
		c.note(where, *problem)
	}
	if len(within) == 1 {
		return nil // nothing in it does anything
	}
	return within
}

// join makes k what is known if the container called name leaves either k or other.
func (k *known) join(other known, name string) *problem {
	if k.size != other.size {
		k.size = size{}
	}
	k.laid, k.erased = k.laid || other.laid, k.erased || other.erased
	switch {
	case k.c != other.c:
		return problemf("use RandomGrayscale, which keeps the channels, or Grayscale(num_output_channels=3)",
			"the number of channels would be %d or %d at random", k.c, other.c)
	case k.tone.dtype() != other.tone.dtype():
		one, two := k.tone.dtype(), other.tone.dtype()
		return problemf("move it out of "+name, "the type of the result would be %s or %s at random", min(one, two), max(one, two))
	}
	k.wild = k.wild || other.wild || !k.tone.same(&other.tone)
	return nil
}

// span is how many of the following steps are in the step.
func (s *step) span() (n int) {
	for _, many := range s.holds {
		n += many
	}
	return n
}

// follow appends to r's way the numbers of the steps that it takes, of those from
// first to before end, in order. Containers are among them.
func (p *Program) follow(r *run, first, end int) {
	for i := first; i < end; i++ {
		s := &p.steps[i]
		r.way = append(r.way, i)
		if len(s.holds) == 0 {
			continue
		}
		mark := len(r.turns)
		c, _ := s.op.choose(r.key, extent{}) // a container's does not fail
		r.turns = s.op.(container).turns(c, r.turns)
		for _, part := range r.turns[mark:] {
			from := i + 1
			for _, many := range s.holds[:part] {
				from += many
			}
			p.follow(r, from, from+s.holds[part])
		}
		r.turns = r.turns[:mark]
		i += s.span()
	}
}

// canon appends steps to the text of the digest, each followed by end. Bars divide
// the parts of a container.
func canon(b []byte, steps []step, end byte) []byte {
	for i := 0; i < len(steps); i++ {
		s := &steps[i]
		b = s.op.canon(b)
		for part, many := range s.holds {
			b = append(b, "{|"[min(part, 1)])
			b = canon(b, steps[i+1:i+1+many], ';')
			i += many
		}
		if len(s.holds) > 0 {
			b = append(b, '}')
		}
		b = append(b, end)
	}
	return b
}

func describeCompose() descriptor {
	return descriptor{
		name: "Compose", params: []string{"transforms"}, cost: nothing, says: silent,
		example: `{"transforms": [{"op": "CenterCrop", "size": 64}]}`,
	}
}

// longest is how many operations a picture goes through in steps, and how many of them
// may resize it, at most.
func longest(steps []step) (ops, sizes int) {
	for i := 0; i < len(steps); i++ {
		s := &steps[i]
		ops += s.many()
		if s.resizes {
			sizes++
		}
		var inOps, inSizes int
		for _, many := range s.holds {
			o, z := longest(steps[i+1 : i+1+many])
			if s.one {
				inOps, inSizes = max(inOps, o), max(inSizes, z)
			} else {
				inOps, inSizes = inOps+o, inSizes+z
			}
			i += many
		}
		ops, sizes = ops+inOps, sizes+inSizes
	}
	return ops, sizes
}

// effects is what an operation, or one in it, may do to what is known.
type effects struct{ resizes, converts, erases bool }

// effects are those of op and of the operations in it.
func (c *compiler) effects(op Op, depth int) (e effects) {
	d := c.find(op.Name)
	if d == nil || depth > mostDepth {
		return e // a problem, which is noted elsewhere
	}
	e = effects{d.resizes, d.cost == converts, d.erases}
	if d.build == nil {
		for _, inner := range (&arguments{op: op}).nested() {
			in := c.effects(inner, depth+1)
			e.resizes, e.converts, e.erases = e.resizes || in.resizes, e.converts || in.converts, e.erases || in.erases
		}
	}
	return e
}
