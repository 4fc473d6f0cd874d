package order

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Block is the shuffle for data that is too large for random reads. The blocks
// (shards, or runs of samples) are permuted every epoch. The permuted sequence is
// cut into Streams ranges, range s with N/Streams + (s < N mod Streams) samples,
// which are read concurrently. Inside each range, windows of Window samples are
// permuted. Place p draws from stream p mod Streams.
//
// If the world size divides Streams, every block is read by one rank, and blocks at
// the cuts by two. Streams does not depend on the world: other world sizes get the
// same sequence.
type Block struct {
	Sizes   []int64 // samples of each block, in the order of ids; they add up to n. nil: one block
	Streams int64   // 0: 1
	Window  int64   // samples; 0 and 1: windows are not permuted
}

// Words that keep the randomness of the parts of a block shuffle apart; the words
// of windows are always smaller.
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
		return fmt.Errorf("order: a window shuffle has no blocks and no streams: use shuffle %q for them", BlockWise)
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
			return fmt.Errorf("order: blocks 0 to %d have more samples than the dataset, which has %d", i, p.samples)
		}
		sum += size
	}
	if sum != p.samples {
		return fmt.Errorf("order: the blocks have %d samples in all, but the dataset has %d", sum, p.samples)
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
	key     rng.Key  // for the windows
	blocks  []placed // the permuted sequence
	// guide[g] is the block that has the sequence's place g<<shift. Finding a place
	// searches the few blocks between two entries, and not all, which are far apart
	// in memory.
	guide []int
	shift uint
}

// placed is a block in the permuted sequence.
type placed struct {
	begin int64 // in the permuted sequence
	from  int64 // id of its first sample
}

func newBlockOrder(n int64, b Block, starts []int64, key rng.Key) *blockOrder {
	o := &blockOrder{n: n, streams: b.Streams, window: b.Window, key: key.With(wordWindows)}
	permuted := newPermutation(int64(len(b.Sizes)), key.With(wordBlocks))
	o.blocks = make([]placed, len(b.Sizes))
	for (n-1)>>o.shift >= int64(len(b.Sizes)) {
		o.shift++
	}
	o.guide = make([]int, 0, (n-1)>>o.shift+2)
	var at int64
	for i := range o.blocks {
		which := permuted.at(int64(i))
		o.blocks[i] = placed{begin: at, from: starts[which]}
		for at += b.Sizes[which]; int64(len(o.guide)) <= (at-1)>>o.shift; {
			o.guide = append(o.guide, i)
		}
	}
	o.guide = append(o.guide, len(o.blocks)-1)
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
	return o.sample(start + i)
}

// sample is the sample at a position of the permuted sequence.
func (o *blockOrder) sample(at int64) int64 {
	low, high := o.guide[at>>o.shift], o.guide[at>>o.shift+1]
	for low < high { // the last block that does not begin after at
		middle := (low + high + 1) / 2
		if o.blocks[middle].begin > at {
			high = middle - 1
		} else {
			low = middle
		}
	}
	return o.blocks[low].from + at - o.blocks[low].begin
}
