// Package order is the plan: which sample stands at which place of which
// epoch. It is arithmetic. A Plan holds no iterator, no buffer and no state;
// every answer is a pure function of its arguments, so that resuming, jumping
// and resizing the world cost nothing. It does no I/O, and after New it returns
// no error.
//
// There is one global sequence of places an epoch, 0 to N-1, and ranks take
// turns along it (Slice). Workers, restarts and the size of the world cannot
// change what a place holds.
package order

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Shuffle is how an epoch's places are permuted.
type Shuffle string

// The shuffles.
const (
	None Shuffle = "none" // place p holds sample p
	Full Shuffle = "full" // a keyed permutation of all samples
)

// Policy is everything that decides an order, apart from the samples.
type Policy struct {
	Shuffle Shuffle
	Seed    uint64
}

// Plan is the order of every epoch over n samples.
type Plan struct {
	n      int64
	policy Policy
}

// New is the plan over n samples, n > 0.
func New(n int64, p Policy) (Plan, error) {
	if n <= 0 {
		return Plan{}, fmt.Errorf("order: %d samples", n)
	}
	switch p.Shuffle {
	case None, Full:
	case "":
		p.Shuffle = None
	default:
		return Plan{}, fmt.Errorf("order: no shuffle %q: there are %q and %q", p.Shuffle, None, Full)
	}
	return Plan{n: n, policy: p}, nil
}

// Len is the number of places of an epoch, padding apart.
func (p Plan) Len() int64 { return p.n }

// Epoch is the order of epoch e >= 0. It costs O(1), but for epochs of at most
// smallN samples, whose permutation is a table.
func (p Plan) Epoch(e int64) Epoch {
	out := Epoch{n: p.n, seed: p.policy.Seed, epoch: e}
	if p.policy.Shuffle == Full {
		out.perm = newPermutation(p.n, rng.New(p.policy.Seed).With(uint64(e)).With(wordShuffle))
	}
	return out
}

// Epoch is the order of one epoch. It is a value and safe for concurrent use.
type Epoch struct {
	n     int64
	seed  uint64
	epoch int64
	perm  permutation
}

// At is the sample at a place, 0 <= place. A padding place, place >= N, holds
// the sample of place mod N.
func (e Epoch) At(place int64) int64 {
	if place >= e.n {
		place %= e.n
	}
	return e.perm.at(place)
}

// Key is the key of everything random about a place. A padding place has a key
// of its own: its sample is augmented anew.
func (e Epoch) Key(place int64) rng.Key { return rng.Sample(e.seed, e.epoch, place) }
