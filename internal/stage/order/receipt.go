package order

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Sum proves delivery in a receipt: the sum modulo 2^128 of a hash of every (place,
// sample) that was delivered. Sums add up over ranks and over parts of an epoch, in
// any order. Two different deliveries have equal sums with a probability of 2^-128,
// unless somebody constructs them.
type Sum struct{ Hi, Lo uint64 }

// Add counts one sample in one place. The halves use different keys: two draws with
// one key of 64 bits would be equal whenever the keys are.
func (s *Sum) Add(place, sample int64) {
	s.Plus(Sum{
		Hi: rng.New(uint64(place)).With(uint64(sample)).Uint64(0),
		Lo: rng.New(^uint64(sample)).With(uint64(place)).Uint64(0),
	})
}

// Less removes one sample in one place.
func (s *Sum) Less(place, sample int64) {
	var other Sum
	other.Add(place, sample)
	var borrow uint64
	s.Lo, borrow = bits.Sub64(s.Lo, other.Lo, 0)
	s.Hi, _ = bits.Sub64(s.Hi, other.Hi, borrow)
}

// Plus adds another sum.
func (s *Sum) Plus(other Sum) {
	var carry uint64
	s.Lo, carry = bits.Add64(s.Lo, other.Lo, 0)
	s.Hi, _ = bits.Add64(s.Hi, other.Hi, carry)
}

// String is 32 hexadecimal digits, the highest first.
func (s Sum) String() string { return fmt.Sprintf("%016x%016x", s.Hi, s.Lo) }

// MarshalText returns String.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Sum) UnmarshalText(text []byte) error {
	if len(text) != 32 {
		return fmt.Errorf("order: a sum has 32 digits, not %q", text)
	}
	var err error
	if s.Hi, err = strconv.ParseUint(string(text[:16]), 16, 64); err == nil {
		s.Lo, err = strconv.ParseUint(string(text[16:]), 16, 64)
	}
	return err
}

// Sum is the plan's own sum over the items [from, to): what the ranks' sums add up
// to if they delivered exactly these. Pieces of one sample count once, with the
// first.
func (e Epoch) Sum(from, to int64) (sum Sum, samples int64) {
	var pieces []Piece
	for i := from; i < to; i++ {
		pieces = e.Item(i, pieces[:0])
		for _, p := range pieces {
			if e.Real(p.Place) && p.From == 0 {
				sum.Add(p.Place, p.Sample)
				samples++
			}
		}
	}
	return sum, samples
}
