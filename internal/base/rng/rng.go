// Package rng is the keyed, counter-based generator: every random number is a pure
// function of (seed, epoch, place, operation, draw), so that workers, restarts and
// machines cannot change it.
//
// A key is a 64-bit state into which each word is mixed by the finaliser of
// MurmurHash3 in David Stafford's variant 13; the draws of a key are SplitMix64
// (Steele, Lea, Flood 2014) started at it. Orders and crops that users have seen
// depend on every constant here: testdata/rng.json locks them, and they may never
// change.
package rng

import "math/bits"

const golden = 0x9E3779B97F4A7C15 // 2^64 / the golden ratio

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Key is a point in the space of random numbers. Keys are values.
type Key uint64

// New returns the key of a seed.
func New(seed uint64) Key { return Key(mix(seed + golden)) }

// With returns the key one level down, named by word.
func (k Key) With(word uint64) Key {
	return Key(mix(uint64(k) ^ mix(word+golden)*0xD6E8FEB86659FD93 + golden))
}

// Sample returns the key of everything random about one place of one epoch.
func Sample(seed uint64, epoch, place int64) Key {
	return New(seed).With(uint64(epoch)).With(uint64(place))
}

// Uint64 is draw number n of the key.
func (k Key) Uint64(n uint64) uint64 { return mix(uint64(k) + (n+1)*golden) }

// Float64 is draw number n, uniform in [0, 1) on a grid of 2^-53. The conversion forbids fusing.
func (k Key) Float64(n uint64) float64 { return float64(float64(k.Uint64(n)>>11) * 0x1p-53) }

// Uniform is draw number n, uniform in [lo, hi). The conversion forbids fusing.
func (k Key) Uniform(n uint64, lo, hi float64) float64 { return lo + float64((hi-lo)*k.Float64(n)) }

// Intn is draw number n, uniform in [0, bound); bound must be positive. The
// bias of the multiply-high reduction is below bound/2^64.
func (k Key) Intn(n uint64, bound int64) int64 {
	hi, _ := bits.Mul64(k.Uint64(n), uint64(bound))
	return int64(hi)
}
