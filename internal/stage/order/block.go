package order

import (
	"fmt"
	"sort"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Block is the shuffle for data that is too large for random reads. The blocks
// (shards, or runs of samples) are permuted every epoch; the permuted sequence
// is cut into Streams ranges, range s of N/Streams + (s < N mod Streams)
// samples, which are read side by side; inside each, windows of Window samples
// are permuted. Place p draws from stream p mod Streams.
//
// A world that divides Streams reads every block on one rank, those at the cuts
// on two. Streams does not depend on the world: any other gets the same
// sequence.
type Block struct {
	Sizes   []int64 // samples of each block, in the order of ids; they add up to n. nil: one block
	Streams int64   // 0: 1
	Window  int64   // samples; 0 and 1: none is permuted
}

// words keep the parts of a block shuffle apart; a word of a window is never as
// large.
const (
	wordBlocks  = 1<<64 - 2
	wordWindows = 1<<64 - 3
)

// newBlock checks the policy.
func (p *Plan) newBlock() error {
	b := &p.policy.Block
	if b.Streams == 0 {
		b.Streams = 1
	}
	if p.policy.Shuffle == WindowAlone && (len(b.Sizes) > 0 || b.Streams != 1) {
		return fmt.Errorf("order: a window shuffle has no blocks and no streams: that is shuffle %q", BlockWise)
	}
	if p.policy.Shuffle == WindowAlone && b.Window < 2 {
		return fmt.Errorf("order: a window of %d samples shuffles nothing: it needs at least 2", b.Window)
	}
	if b.Streams < 1 || b.Window < 0 {
		return fmt.Errorf("order: %d streams, windows of %d samples", b.Streams, b.Window)
	}
	if len(b.Sizes) == 0 {
		b.Sizes = []int64{p.samples}
	}
	var sum int64
	for i, size := range b.Sizes {
		if size < 0 {
			return fmt.Errorf("order: block %d has %d samples", i, size)
		}
		if size > p.samples-sum {
			return fmt.Errorf("order: blocks 0 to %d have more samples than the %d that there are", i, p.samples)
		}
		sum += size
	}
	if sum != p.samples {
		return fmt.Errorf("order: blocks of %d samples in all, and there are %d", sum, p.samples)
	}
	p.starts = make([]int64, len(b.Sizes))
	for i, size := range b.Sizes[:len(b.Sizes)-1] {
		p.starts[i+1] = p.starts[i] + size
	}
	return nil
}

// blockOrder is the block shuffle of one epoch.
type blockOrder struct {
	n       int64
	streams int64
	window  int64
	key     rng.Key // of the windows
	begin   []int64 // where the permuted block i begins in the permuted sequence
	from    []int64 // its first sample
}

func newBlockOrder(n int64, b Block, starts []int64, key rng.Key) *blockOrder {
	o := &blockOrder{n: n, streams: b.Streams, window: b.Window, key: key.With(wordWindows)}
	blocks := newPermutation(int64(len(b.Sizes)), key.With(wordBlocks))
	o.begin = make([]int64, len(b.Sizes))
	o.from = make([]int64, len(b.Sizes))
	var at int64
	for i := range b.Sizes {
		which := blocks.at(int64(i))
		o.begin[i], o.from[i] = at, starts[which]
		at += b.Sizes[which]
	}
	return o
}

func (o *blockOrder) at(place int64) int64 {
	stream, i := place%o.streams, place/o.streams
	share, more := o.n/o.streams, o.n%o.streams
	start, size := stream*share+min(stream, more), share
	if stream < more {
		size++
	}
	if o.window > 1 {
		first := i - i%o.window
		key := o.key.With(uint64(stream)).With(uint64(first))
		i = first + shuffled(min(o.window, size-first), i-first, key)
	}
	at := start + i
	block := sort.Search(len(o.begin), func(b int) bool { return o.begin[b] > at }) - 1
	return o.from[block] + at - o.begin[block]
}
