// Package order is the plan: which sample is in which place of which epoch. It is
// arithmetic. A Plan has no iterator, no buffer and no state; every answer is a
// pure function of its arguments, so that resuming, jumping and resizing the world
// cost nothing. It does no I/O, and after New it returns no error.
//
// Every epoch has one global sequence of places, 0 to N-1, and ranks take turns
// along it (Slice). Workers, restarts and the size of the world cannot change the
// sample of a place.
//
//	permutation   full: a keyed bijection of [0, n)
//	block         two levels: blocks permuted, streams read concurrently, windows
//	draw          weights, with and without replacement
//	mix           several datasets in exact shares: the policy, the length of an epoch
//	schedule      how many runs of each member come before any place
//	mixorder      one epoch of a mix: the owner of each run
//	shares        how many samples of each member of a mix a range has
//	lengths       places sorted by length; batches cut by tokens; packs
//	list          an order that came from elsewhere
//	slice         a rank's part of all that
//	receipt       sums that prove what was delivered
package order

import (
	"errors"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Shuffle is how an epoch's places are permuted.
type Shuffle string

// The shuffles.
const (
	None        Shuffle = "none"   // place p has sample p
	Full        Shuffle = "full"   // a keyed permutation of all samples
	BlockWise   Shuffle = "block"  // see Block
	WindowAlone Shuffle = "window" // windows of Block.Window samples, each permuted
)

// Policy is everything that decides an order, except the samples. The zero value is
// every sample once, in the order of storage.
type Policy struct {
	Shuffle Shuffle
	Seed    uint64
	Block   Block
	Draw    Draw
	// Subset are the samples to use: Shuffle and Draw order its positions. nil: all
	// n. It is not copied, and must not change.
	Subset  []int64
	Mix     *Mix // several datasets, which then have their own Shuffle, Block and Draw
	Lengths Lengths
}

// Plan is the order of every epoch over n samples. Safe for concurrent use.
type Plan struct {
	all     int64 // samples of the dataset
	samples int64 // samples that Shuffle and Draw order: those of a Subset, or all
	places  int64 // of an epoch
	policy  Policy
	starts  []int64   // first sample of each block
	cdf     []float64 // cumulative weights
	mix     *mix
	counts  *recent[[]int64] // first items of the windows of recent epochs (Lengths)
}

// New returns the plan over n samples; none are allowed in the order of the storage
// only. It returns an error for an invalid policy.
func New(n int64, p Policy) (Plan, error) {
	if p.Shuffle == "" {
		p.Shuffle = None
	}
	if n == 0 && (p.Shuffle != None || p.Draw.any() || p.Mix != nil || p.Subset != nil || p.Lengths.Of != nil) {
		return Plan{}, errors.New("order: the dataset is empty: there is nothing to shuffle, draw or choose")
	}
	if n < 0 {
		return Plan{}, fmt.Errorf("order: %d samples", n)
	}
	plan := Plan{all: n, samples: n, places: n, policy: p}
	if p.Subset != nil {
		if err := plan.newSubset(); err != nil {
			return Plan{}, err
		}
	}
	if p.Mix != nil {
		if err := plan.newMix(); err != nil {
			return Plan{}, err
		}
		err := plan.newLengths()
		return plan, err
	}
	switch p.Shuffle {
	case None, Full:
	case BlockWise, WindowAlone:
		if err := plan.newBlock(); err != nil {
			return Plan{}, err
		}
	default:
		return Plan{}, fmt.Errorf("order: unknown shuffle %q: the choices are %q, %q, %q and %q", p.Shuffle, None, Full, BlockWise, WindowAlone)
	}
	if err := plan.newDraw(); err != nil {
		return Plan{}, err
	}
	err := plan.newLengths()
	return plan, err
}

// newSubset checks the policy's Subset.
func (p *Plan) newSubset() error {
	if p.policy.Mix != nil || p.policy.Shuffle == BlockWise {
		return errors.New("order: a subset cannot have blocks or be a mixture")
	}
	if len(p.policy.Subset) == 0 {
		return errors.New("order: the subset is empty")
	}
	for i, id := range p.policy.Subset {
		if id < 0 || id >= p.all {
			return fmt.Errorf("order: the subset names sample %d at %d, but the dataset has %s", id, i, many(p.all, "sample"))
		}
	}
	p.samples = int64(len(p.policy.Subset))
	p.places = p.samples
	return nil
}

// picked is a sequence of positions in a Subset, as samples.
type picked struct {
	sequence
	subset []int64
}

func (s picked) at(place int64) int64 { return s.subset[s.sequence.at(place)] }

// Samples is the number of samples of the plan.
func (p Plan) Samples() int64 { return p.samples }

// Places is the number of places of an epoch, without padding.
func (p Plan) Places() int64 { return p.places }

// Epoch is the order of epoch e >= 0. It costs O(1) for full and window shuffles (a
// table of at most smallN samples), O(blocks) for block shuffles, O(n log n) for
// weights without replacement, and for Lengths what is said there.
func (p Plan) Epoch(e int64) Epoch {
	out := Epoch{places: p.places, seed: p.policy.Seed, epoch: e}
	key := rng.New(p.policy.Seed).With(uint64(e))
	switch {
	case p.mix != nil:
		out.seq = p.mix.epoch(e, key)
	case p.policy.Draw.any():
		out.seq = p.draw(key)
	case p.policy.Shuffle == Full:
		out.seq = newPermutation(p.samples, key.With(wordShuffle))
	case p.policy.Shuffle == BlockWise || p.policy.Shuffle == WindowAlone:
		out.seq = newBlockOrder(p.samples, p.policy.Block, p.starts, key.With(wordShuffle))
	default:
		out.seq = identity{}
	}
	if p.policy.Subset != nil {
		out.seq = picked{out.seq, p.policy.Subset}
	}
	p.group(&out, key)
	return out
}

// Epoch is the order of one epoch. It is a value and safe for concurrent use.
//
// Items, numbered from 0 to Len-1, are dealt to ranks. An item is one place, unless
// the policy groups places: then it is a whole batch (Batches) or one row of a
// batch that several samples share (Rows).
type Epoch struct {
	seq    sequence
	places int64
	first  int64    // the first place of seq; not 0 for a part of a List
	begin  int64    // the first item of groups, likewise
	groups grouping // nil: an item is a place
	seed   uint64
	epoch  int64
}

// sequence gives the sample at a place, 0 <= place < number of places. Safe for
// concurrent use.
type sequence interface{ at(place int64) int64 }

// grouping is places put together into items. Safe for concurrent use.
type grouping interface {
	// len is the number of items of the epoch.
	len() int64
	// item appends the pieces of item i, 0 <= i < len.
	item(i int64, dst []Piece) []Piece
	// rows reports whether an item is a row of a batch, and not a whole batch.
	rows() bool
}

// Piece is a part of an item: a place, its sample, and, in a row of runs, the run of
// the sample's tokens that is there.
type Piece struct {
	Place  int64
	Sample int64
	From   int64 // first token of the run
	Len    int64 // tokens; 0: all of the sample, if rows do not have runs
}

type identity struct{}

func (identity) at(place int64) int64 { return place }

// Len is the number of items: of places, unless the policy groups them.
func (e Epoch) Len() int64 {
	if e.groups != nil {
		return e.groups.len()
	}
	return e.places
}

// Places is the number of places, without padding.
func (e Epoch) Places() int64 { return e.places }

// Batches reports whether an item is a whole batch.
func (e Epoch) Batches() bool { return e.groups != nil && !e.groups.rows() }

// Rows reports whether an item is a row of runs, which several samples share.
func (e Epoch) Rows() bool { return e.groups != nil && e.groups.rows() }

// Item appends the pieces of item i >= 0 to dst. Items from Len on are padding:
// they repeat item i mod Len, with places of their own, not below Places. A part of
// a List repeats only itself: it does not know what came before.
func (e Epoch) Item(i int64, dst []Piece) []Piece {
	if e.groups == nil {
		return append(dst, Piece{Place: i, Sample: e.At(i)})
	}
	item, turn := again(i, e.begin, e.groups.len())
	begin := len(dst)
	dst = e.groups.item(item, dst)
	for j := range dst[begin:] {
		dst[begin+j].Place += turn * e.places
	}
	return dst
}

// At is the sample at a place, 0 <= place. A padding place, place >= N, has the
// sample of place mod N; in a part of a List, it repeats that part from its first
// place on.
func (e Epoch) At(place int64) int64 {
	if place >= e.places {
		place, _ = again(place, e.first, e.places)
	}
	return e.seq.at(place - e.first)
}

// again is the position in [first, n) that padding position i repeats, and the
// number of the repetition; 0 means that i is not padding.
func again(i, first, n int64) (at, turn int64) {
	if i < n {
		return i, 0
	}
	return first + (i-n)%(n-first), 1 + (i-n)/(n-first)
}

// Real reports whether a place is one of the epoch's own, and not padding.
func (e Epoch) Real(place int64) bool { return place < e.places }

// Key is the key of everything random about a place. A padding place has a key of
// its own, so its sample is augmented differently.
func (e Epoch) Key(place int64) rng.Key { return rng.Sample(e.seed, e.epoch, place) }
