package transform

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// compiler turns the operations of a Spec into steps, and collects every problem.
type compiler struct {
	catalog  []descriptor
	problems []problem
	drawn    uint64 // operations that draw, so far
	depth    int    // of operations that hold others
	lost     bool   // an operation could not be read, so known is no longer valid
}

func (c *compiler) note(where string, problems ...problem) {
	for _, p := range problems {
		p.where = where
		c.problems = append(c.problems, p)
	}
}

// list compiles ops and moves k past them. in is where they are, as a phrase for
// errors, empty at the top.
func (c *compiler) list(ops []Op, in string, k *known) []step {
	var out []step
	for i := range ops {
		out = append(out, c.nth(ops, i, in, k)...)
	}
	return out
}

// nth compiles the operation with number i of ops.
func (c *compiler) nth(ops []Op, i int, in string, k *known) []step {
	where := fmt.Sprintf("transform %d of %d%s (%s)", i+1, len(ops), in, ops[i].Name)
	return c.one(ops[i], where, k)
}

func (c *compiler) one(op Op, where string, k *known) []step {
	found := c.find(op.Name)
	if found == nil {
		c.note(where, *unknownOperation(c.catalog, op.Name))
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
		return c.nest(found, a, where, number, k)
	}
	built := found.build(a, number)
	c.note(where, a.problems...)
	if len(a.problems) > 0 {
		c.lost = true
		return nil
	}
	in := *k
	done, p := built.plan(k)
	if p != nil && !c.lost {
		c.note(where, *p)
	}
	if done == nil || p != nil {
		return nil
	}
	if in.erased && !afterErasing(done) {
		c.note(where, *problemf("move RandomErasing after "+op.Name, "%s after RandomErasing of floats: these are erased last, when pixels no longer move", op.Name))
		return nil
	}
	return []step{{descriptor: found, op: done, in: in}}
}

// find is the descriptor of an operation; nil if there is none.
func (c *compiler) find(name string) *descriptor {
	for i := range c.catalog {
		if c.catalog[i].name == name {
			return &c.catalog[i]
		}
	}
	return nil
}

// mostOps bounds the operations that a picture goes through, and mostSizeOps those of them that
// change its size. An operation gives the kernel at most five steps (RandomPhotometricDistort)
// and two passes over the picture, of which the kernel allows 160 and 64.
const mostOps, mostSizeOps = 30, 15

// checkCount notes programs that are too long for the kernel.
func (c *compiler) checkCount(steps []step) {
	ops, sizes := longest(steps)
	if ops > mostOps || sizes > mostSizeOps {
		c.note("", *problemf("leave some out, or apply them once and store the result",
			"%d operations, %d of which change the size: the limits are %d and %d", ops, sizes, mostOps, mostSizeOps))
	}
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
