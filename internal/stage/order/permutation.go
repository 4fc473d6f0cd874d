package order

import (
	"math/bits"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// wordShuffle separates the shuffle's randomness from that of places, which are
// never negative.
const wordShuffle = 1<<64 - 1

const (
	// smallN is the largest epoch that is shuffled with a table: with so few bits,
	// the bias of a Feistel network would be measurable.
	smallN = 4096
	// tracedN is the largest window that is shuffled like a table. Below it the
	// halves of the network have too few functions to choose from: with 5 to 8
	// samples, places were measured to be off from uniform by 5%, neighbours by
	// 30%.
	tracedN = 64
	// rounds of the network. Four make a pseudo-random permutation out of a good
	// round function (Luby, Rackoff 1988); the others are a margin for unequal
	// halves of few bits.
	rounds = 8
)

// permutation is a keyed bijection of [0, n).
//
// Above smallN it is a Feistel network over the smallest 2^(a+b) >= n, where a and
// b are the bits of the two halves, applied until the result is below n (Black,
// Rogaway 2002): at most two steps on average, because 2^(a+b) < 2n.
type permutation struct {
	n     int64
	table []uint16 // small n
	keys  [rounds]uint64
	a, b  uint // bits of the left and right half; a+b is the whole, b-a is 0 or 1
}

func newPermutation(n int64, key rng.Key) *permutation {
	p := &permutation{n: n}
	if n <= smallN {
		p.table = make([]uint16, n)
		for i := range p.table {
			p.table[i] = uint16(i)
		}
		for i := n - 1; i > 0; i-- { // Fisher, Yates; Durstenfeld 1964
			j := key.Intn(uint64(i), i+1)
			p.table[i], p.table[j] = p.table[j], p.table[i]
		}
		return p
	}
	p.network(key)
	return p
}

// network sets up the keys and halves.
func (p *permutation) network(key rng.Key) {
	whole := uint(bits.Len64(uint64(p.n - 1)))
	p.a = whole / 2
	p.b = whole - p.a
	for i := range p.keys {
		p.keys[i] = key.Uint64(uint64(i))
	}
}

// shuffled is where a permutation of [0, n) takes i, computed once and without a
// table. Up to tracedN it is the table's permutation: the swaps of Fisher and
// Yates, undone from the last to the first, for this one place. Above that it is
// the network: its first and second order are uniform as far as can be measured,
// and tracing would cost n hashes.
func shuffled(n, i int64, key rng.Key) int64 {
	if n > tracedN {
		p := permutation{n: n}
		p.network(key)
		return p.at(i)
	}
	for k := max(i, 1); k < n; k++ {
		switch j := key.Intn(uint64(k), k+1); i {
		case k:
			i = j
		case j:
			i = k
		}
	}
	return i
}

func (p *permutation) at(place int64) int64 {
	if p.table != nil {
		return int64(p.table[place])
	}
	x := uint64(place)
	for {
		x = p.walk(x)
		if x < uint64(p.n) {
			return int64(x)
		}
	}
}

// walk applies the network once. In each pair of rounds, the left half of a bits
// and the right half of b bits take turns being changed by the other, so that
// unequal halves need no swap.
func (p *permutation) walk(x uint64) uint64 {
	maskA, maskB := uint64(1)<<p.a-1, uint64(1)<<p.b-1
	left, right := x>>p.b, x&maskB
	for i := 0; i < rounds; i += 2 {
		left ^= round(right, p.keys[i]) & maskA
		right ^= round(left, p.keys[i+1]) & maskB
	}
	return left<<p.b | right
}

// round is the keyed function of the network: a folded multiplication, whose high
// and low halves both depend on every bit of x and of the key.
func round(x, key uint64) uint64 {
	hi, lo := bits.Mul64(x^key, 0x9E3779B97F4A7C15)
	hi, lo = bits.Mul64(hi^lo^key>>32, 0xD6E8FEB86659FD93)
	return hi ^ lo
}
