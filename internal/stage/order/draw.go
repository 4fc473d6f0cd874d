package order

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Draw takes samples at random, or fewer than the dataset has. The zero value takes
// each sample once. Num alone takes the first Num places of the shuffled order.
type Draw struct {
	// Weights has one weight per sample, 0 or above; nil: all equal. Their sum does
	// not matter. They are not copied, and must not change.
	Weights []float64
	// Replacement draws every place independently: a sample may come again. Without
	// it, weighted samples come in the order of a weighted draw without
	// replacement.
	Replacement bool
	// Num is the number of places of an epoch; 0: one per sample. Without
	// replacement it is at most the number of samples with a weight above 0.
	Num int64
}

// wordDraw separates draws from the other randomness of an epoch.
const wordDraw = 1<<64 - 16

// Bounds of the weights of a draw without replacement, so that no key of a race
// overflows or loses precision.
const (
	lightest = 1e-150
	heaviest = 1e150
)

// any reports whether a Draw, and not a shuffle, decides the order.
func (d Draw) any() bool { return d.Weights != nil || d.Replacement }

// newDraw checks the policy and sets up what all epochs share.
func (p *Plan) newDraw() error {
	d := p.policy.Draw
	if d.Num < 0 {
		return fmt.Errorf("order: draw: num is %d; it is the number of places of an epoch, where 0 means one per sample", d.Num)
	}
	if s := p.policy.Shuffle; d.any() && s != None && s != Full {
		return fmt.Errorf("order: draw: shuffle %q cannot be combined with weights or replacement, which draw every place at random: use %q or %q", s, None, Full)
	}
	there := p.samples
	if d.Weights != nil {
		if int64(len(d.Weights)) != p.samples {
			return fmt.Errorf("order: draw: %s for %s", many(int64(len(d.Weights)), "weight"), many(p.samples, "sample"))
		}
		positive, err := checkWeights(d.Weights)
		if err != nil {
			return fmt.Errorf("order: draw: %w", err)
		}
		there = int64(positive)
	}
	if d.Num > 0 {
		p.places = d.Num
	}
	switch {
	case d.Replacement:
		p.cdf = cumulate(d.Weights)
		return nil
	case p.places > there && d.Weights != nil:
		return fmt.Errorf("order: draw: an epoch has %d places, but only %d of the %d samples have a weight above 0: without replacement no sample comes twice; set num to at most %d, or draw with replacement", p.places, there, p.samples, there)
	case p.places > there:
		return fmt.Errorf("order: draw: an epoch has %d places, but there are %d samples: without replacement no sample comes twice; set num to at most %d, or draw with replacement", p.places, there, there)
	}
	for i, w := range d.Weights {
		if w != 0 && (w < lightest || w > heaviest) {
			return fmt.Errorf("order: draw: weight %d is %v: without replacement a weight is 0 or between %g and %g; scale them all", i, w, lightest, heaviest)
		}
	}
	return nil
}

// checkWeights counts the weights above 0. There must be at least one, and their
// sum must be finite.
func checkWeights(weights []float64) (positive int, err error) {
	var sum float64
	for i, w := range weights {
		if math.IsNaN(w) || math.IsInf(w, 0) || w < 0 {
			return 0, fmt.Errorf("weight %d is %v; weights are numbers from 0 up", i, w)
		}
		if w > 0 {
			positive++
		}
		sum += w
		if math.IsInf(sum, 0) {
			return 0, fmt.Errorf("weights 0 to %d add up to more than a float64 holds; scale them all", i)
		}
	}
	if positive == 0 {
		return 0, fmt.Errorf("all %d weights are 0: nothing can be drawn", len(weights))
	}
	return positive, nil
}

// cumulate returns the cumulative sums of the weights, up to the last weight above
// 0: a number above all other sums draws that sample, whatever the rounding.
func cumulate(weights []float64) []float64 {
	for len(weights) > 0 && weights[len(weights)-1] == 0 {
		weights = weights[:len(weights)-1]
	}
	if len(weights) == 0 {
		return nil
	}
	cdf := make([]float64, len(weights))
	var sum float64
	for i, w := range weights {
		sum += w
		cdf[i] = sum
	}
	return cdf
}

// draw is the sequence of one epoch.
func (p *Plan) draw(key rng.Key) sequence {
	key = key.With(wordDraw)
	switch {
	case p.cdf != nil:
		return weighted{cdf: p.cdf, key: key}
	case p.policy.Draw.Replacement:
		return uniform{n: p.samples, key: key}
	}
	first := race(p.policy.Draw.Weights, p.places, key)
	if p.samples <= math.MaxInt32 {
		ids := make(table32, len(first))
		for i, a := range first {
			ids[i] = int32(a.id)
		}
		return ids
	}
	ids := make(table, len(first))
	for i, a := range first {
		ids[i] = a.id
	}
	return ids
}

// uniform draws every place independently, all samples with equal probability.
type uniform struct {
	n   int64
	key rng.Key
}

func (u uniform) at(place int64) int64 { return u.key.Intn(uint64(place), u.n) }

// weighted draws every place independently: the first sample whose cumulative
// weight is above a number that is uniform below the total. A weight of 0 adds
// nothing to the sum before it, so such a sample is never the first.
type weighted struct {
	cdf []float64
	key rng.Key
}

func (w weighted) at(place int64) int64 {
	last := len(w.cdf) - 1
	x := w.key.Float64(uint64(place)) * w.cdf[last]
	return int64(sort.Search(last, func(i int) bool { return w.cdf[i] > x }))
}

// table32 is a table of ids that takes half the memory.
type table32 []int32

func (t table32) at(place int64) int64 { return int64(t[place]) }

// arrival is a sample and the time at which it arrives.
type arrival struct {
	time float64
	id   int64
}

// compare orders arrivals; those at the same time by id.
func (a arrival) compare(b arrival) int {
	switch {
	case a.time < b.time:
		return -1
	case a.time > b.time:
		return 1
	case a.id < b.id:
		return -1
	}
	return 1
}

// race returns the k samples that arrive first, each at an exponential time with
// its weight as the rate: that is a weighted draw without replacement (Efraimidis,
// Spirakis 2006). It keeps at most 2k arrivals: those after the k-th so far have no
// chance.
func race(weights []float64, k int64, key rng.Key) []arrival {
	room := min(int64(len(weights)), 2*k)
	first := make([]arrival, 0, room)
	limit := math.Inf(1)
	for id, w := range weights {
		if w == 0 {
			continue
		}
		// An odd multiple of 2^-53: never 0, never 1.
		u := (float64(key.Uint64(uint64(id))>>12) + 0.5) * 0x1p-52
		a := arrival{time: -logarithm(u) / w, id: int64(id)}
		if a.time >= limit { // as late as the k-th, with a higher id
			continue
		}
		if int64(len(first)) == room {
			slices.SortFunc(first, arrival.compare)
			first = first[:k]
			limit = first[k-1].time
			if a.time >= limit {
				continue
			}
		}
		first = append(first, a)
	}
	slices.SortFunc(first, arrival.compare)
	return first[:k]
}

// The natural logarithm of 2, in two parts: a small integer times the first is
// exact.
const (
	ln2High = 0x1.62e42feep-1
	ln2Low  = 0x1.a39ef35793c76p-33
)

// logarithm is ln(x) for x > 0, with the same bits on every machine: math.Log is
// assembly on some, and a compiler may fuse a multiplication with an addition. With
// x = m * 2^e, m in [1/√2, √2), and s = (m-1)/(m+1),
//
//	ln x = e ln 2 + 2 artanh s = e ln 2 + 2 (s + s³/3 + s⁵/5 + ...)
//
// where |s| < 0.172, so that the term after s²³/23 is below 2^-66.
func logarithm(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	s := (m - 1) / (m + 1)
	square := s * s
	sum := 0.0
	for k := 23; k >= 3; k -= 2 {
		sum = float64((sum + 1/float64(k)) * square)
	}
	tail := float64(2*s*sum) + float64(float64(e)*ln2Low)
	return float64(float64(e)*ln2High) + (2*s + tail)
}

// many is n things: "1 sample", "20 samples".
func many(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
