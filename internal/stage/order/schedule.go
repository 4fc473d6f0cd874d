package order

import (
	"math/bits"
	"sort"
)

// A mixture's stream is cut into cycles of cycleRuns runs; a run is consecutive
// places that one member fills. Weights are whole units, of which there are
// cycleRuns*turn: from here on everything is integers. A cycle of m runs, the c-th
// of its segment, gives the members before d together
//
//	floor((m*upto[d] + cycleRuns*phase(c)) / units)
//
// runs, where phase(c) is the ten bits of c mod turn reversed. So every whole cycle
// has each member's share rounded to a whole run, and because the phases of a turn
// of 1,024 cycles are 0 to 1,023, each once, a turn has it exactly. Reversing the
// bits spreads the phases: any range of cycles is near its share too (van der
// Corput 1935). Sums over cycles need no table, see crossings.
const (
	cycleRuns = 1000
	turn      = 1024
	units     = cycleRuns * turn
	// mostSteps steps of constant weights approximate a linear change between two
	// points.
	mostSteps = 256
)

// schedule is the number of runs of each member in the cycles of an epoch. An
// answer about one member costs O(log segments).
type schedule struct {
	segments []segment // sorted by first, which begins with 0
}

// segment is the cycles from first on that have the same weights.
type segment struct {
	first  int64
	upto   []int64 // upto[d] is the units of all members before d; len is members + 1
	before []int64 // runs of each member in all cycles before first
}

// newSchedule is the schedule of the points, with cycles of cycle places.
//
// A change at a place in the middle of a cycle happens at the next. A linear change
// becomes at most mostSteps steps of whole cycles, each with the weights of its
// middle: the result is never further from the line than half a step, which is
// 1/512 of the change between the points, or half a cycle.
func newSchedule(points []Point, linear bool, cycle int64) schedule {
	var s schedule
	for i, p := range points {
		here := fit(cumulate(p.Weights), p.Weights)
		first := cyclesTo(p.Place, cycle)
		if !linear || i == len(points)-1 {
			s.add(first, here)
			continue
		}
		next := points[i+1]
		there := fit(cumulate(next.Weights), next.Weights)
		length := cyclesTo(next.Place, cycle) - first
		steps := min(mostSteps, length)
		for k := range steps {
			s.add(first+stepStart(length, steps, k), between(here, there, 2*k+1, 2*steps))
		}
	}
	return s
}

// cyclesTo is the number of cycles that begin before a place.
func cyclesTo(place, cycle int64) int64 { return (place + cycle - 1) / cycle }

// stepStart is the cycle with which step k of steps begins.
func stepStart(length, steps, k int64) int64 {
	return length/steps*k + length%steps*k/steps
}

// add appends a segment. It replaces the last one if that has no cycles.
func (s *schedule) add(first int64, upto []int64) {
	if n := len(s.segments); n > 0 && s.segments[n-1].first == first {
		s.segments[n-1].upto = upto
		return
	}
	before := make([]int64, len(upto)-1)
	for d := range before {
		before[d] = s.before(d, first)
	}
	s.segments = append(s.segments, segment{first: first, upto: upto, before: before})
}

// of is the segment that a cycle is in.
func (s *schedule) of(cycle int64) *segment {
	after := sort.Search(len(s.segments), func(i int) bool { return s.segments[i].first > cycle })
	return &s.segments[after-1]
}

// before is the number of runs of member d in the first cycles cycles.
func (s *schedule) before(d int, cycles int64) int64 {
	if cycles == 0 {
		return 0
	}
	return s.of(cycles-1).until(d, cycles)
}

// within is the number of runs of member d in a cycle of m runs.
func (s *schedule) within(d int, cycle, m int64) int64 {
	g := s.of(cycle)
	return g.upTo(d+1, cycle, m) - g.upTo(d, cycle, m)
}

// total is the number of runs of member d in the first runs runs of an epoch.
func (s *schedule) total(d int, runs int64) int64 {
	cycles, m := runs/cycleRuns, runs%cycleRuns
	return s.before(d, cycles) + s.within(d, cycles, m)
}

// until is before for cycles that end in the segment or at its end.
func (g *segment) until(d int, cycles int64) int64 {
	c := cycles - g.first
	return g.before[d] + whole(g.upto[d+1], c) - whole(g.upto[d], c)
}

// upTo is the runs of all members before d in a cycle of m runs.
func (g *segment) upTo(d int, cycle, m int64) int64 {
	return (m*g.upto[d] + cycleRuns*reversed(cycle-g.first)) / units
}

// whole is the sum of (w + phase(i)) / turn, rounded down, over cycles i < c: the
// part of w that turn divides, and one more each time that the rest and the phase
// reach turn.
func whole(w, c int64) int64 {
	rest := w % turn
	return c*(w/turn) + c/turn*rest + crossings(c%turn, rest)
}

// crossings is how many of the phases of cycles i < c <= turn are at least
// turn-rest. For each bit that is set in c there is a block of cycles: the higher
// bits as in c, that bit 0, the b lower ones free. Reversed, the free bits are the
// top ones, so the phases are evenly spaced and are counted by a division.
func crossings(c, rest int64) int64 {
	var n int64
	for left := c; left != 0; left &= left - 1 {
		b := bits.TrailingZeros64(uint64(left))
		fixed := reversed(left & (left - 1))
		spacing := int64(turn) >> b
		n += 1<<b - (turn-rest-fixed+spacing-1)/spacing
	}
	return n
}

// reversed is the ten bits of c mod turn, reversed.
func reversed(c int64) int64 { return int64(bits.Reverse16(uint16(c%turn)) >> 6) }

// fit turns the sums of weights into sums of units. Each is rounded, so a share is
// at most one unit, 1e-6, from what was asked for, unless it must be moved up so
// that every member with a weight has some.
func fit(cdf, weights []float64) []int64 {
	sums := make([]int64, len(weights))
	total := cdf[len(cdf)-1]
	for d := range sums {
		sums[d] = units
		if d < len(cdf) {
			sums[d] = int64(float64(cdf[d]/total*units) + 0.5)
		}
	}
	return spread(sums, func(d int) bool { return weights[d] > 0 })
}

// between is the weights at a/b of the way from one list to the other.
func between(from, to []int64, a, b int64) []int64 {
	sums := make([]int64, len(from)-1)
	for d := range sums {
		sums[d] = (from[d+1]*(b-a) + to[d+1]*a + b/2) / b
	}
	return spread(sums, func(d int) bool { return from[d+1] > from[d] || to[d+1] > to[d] })
}

// spread changes sums so that every member with a weight has at least one unit, the
// others have none, and all units are used. It changes as few as possible.
func spread(sums []int64, has func(d int) bool) []int64 {
	var left int64 // later members that have weight
	for d := range sums {
		if has(d) {
			left++
		}
	}
	upto := make([]int64, len(sums)+1)
	for d, sum := range sums {
		upto[d+1] = upto[d]
		if has(d) {
			left--
			upto[d+1] = min(max(sum, upto[d]+1), units-left)
		}
	}
	return upto
}
