package order_test

import (
	"fmt"
	"slices"
	"strconv"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
)

const (
	wordMix    = 1<<64 - 17
	wordMember = 1<<64 - 18

	cycleRuns = 1000
	phases    = 1024
	shareAll  = cycleRuns * phases
)

// naiveMix plays a mixture from its first epoch on: streams that are taken
// from, and know how far they are.
func naiveMix(m order.Mix, samples int64, seed uint64, epoch int64) naiveEpoch {
	p := newPlayer(m, samples, seed)
	var e naiveEpoch
	for number := range epoch + 1 {
		e = p.play(number)
	}
	return e
}

type player struct {
	mix     order.Mix
	seed    uint64
	run     int64
	shares  []stretch
	streams []*stream
	runs    int64 // of an epoch
	places  int64
}

// stretch is the cycles from first on, in which sum[d] of shareAll is the share
// of the members before d.
type stretch struct {
	first int64
	sum   []int64
}

// stream is one member, pass after pass.
type stream struct {
	order.Member
	first int64
	pass  int64
	rest  []int64
}

func (s *stream) next() int64 {
	if len(s.rest) == 0 {
		s.rest = s.fresh()
		s.pass++
	}
	id := s.rest[0]
	s.rest = s.rest[1:]
	return s.first + id
}

func (s *stream) fresh() []int64 { return naive(s.Samples, s.Policy, s.pass).ids }

func newPlayer(m order.Mix, samples int64, seed uint64) *player {
	p := &player{mix: m, seed: seed, run: max(1, m.Run)}
	seeds := rng.New(seed).With(wordMember)
	var first int64
	for d, member := range m.Members {
		member.Policy.Seed = seeds.Uint64(uint64(d))
		p.streams = append(p.streams, &stream{Member: member, first: first})
		first += member.Samples
	}
	p.shares = stretches(m, p.run)
	p.length(samples)
	return p
}

// stretches is what the points say, cycle by cycle.
func stretches(m order.Mix, run int64) []stretch {
	var out []stretch
	set := func(first int64, sum []int64) {
		out = slices.DeleteFunc(out, func(s stretch) bool { return s.first == first })
		out = append(out, stretch{first, sum})
	}
	cycle := func(place int64) int64 { // that begins at the place, or next after it
		c := int64(0)
		for c*cycleRuns*run < place {
			c++
		}
		return c
	}
	for i, point := range m.Points {
		from := cycle(point.Place)
		if !m.Linear || i == len(m.Points)-1 {
			set(from, sharesOf(point.Weights))
			continue
		}
		a, b := sharesOf(point.Weights), sharesOf(m.Points[i+1].Weights)
		cycles := cycle(m.Points[i+1].Place) - from
		steps := min(256, cycles)
		for k := range steps {
			sum := make([]int64, len(a)-1) // in the middle of step k
			for d := range sum {
				sum[d] = (a[d+1]*(2*steps-2*k-1) + b[d+1]*(2*k+1) + steps) / (2 * steps)
			}
			set(from+cycles*k/steps, atLeastOne(sum, func(d int) bool { return a[d] < a[d+1] || b[d] < b[d+1] }))
		}
	}
	return out
}

func sharesOf(weights []float64) []int64 {
	var all float64
	for _, w := range weights {
		all += w
	}
	sum, so := make([]int64, len(weights)), 0.0
	for d, w := range weights {
		so += w
		sum[d] = int64(so/all*shareAll + 0.5)
	}
	return atLeastOne(sum, func(d int) bool { return weights[d] > 0 })
}

// atLeastOne moves sums up if a member would have nothing, and down if those after
// it would.
func atLeastOne(sum []int64, has func(d int) bool) []int64 {
	out := []int64{0}
	for d := range sum {
		least, most := out[d], int64(shareAll)
		if has(d) {
			least++
		} else {
			most = least
		}
		for next := d + 1; next < len(sum) && has(d); next++ {
			if has(next) {
				most--
			}
		}
		out = append(out, min(max(sum[d], least), most))
	}
	return out
}

// has is the runs of each member in the first so many runs of a cycle.
func (p *player) has(cycle, runs int64) []int64 {
	var here stretch
	for _, s := range p.shares {
		if s.first <= cycle {
			here = s
		}
	}
	digits := fmt.Sprintf("%010b", (cycle-here.first)%phases)
	turned := []byte(digits)
	slices.Reverse(turned)
	phase, _ := strconv.ParseInt(string(turned), 2, 64)
	out := make([]int64, len(p.streams))
	for d := range out {
		until := func(d int) int64 { return (runs*here.sum[d] + cycleRuns*phase) / shareAll }
		out[d] = until(d+1) - until(d)
	}
	return out
}

// length decides how many runs and places an epoch has.
func (p *player) length(samples int64) {
	if p.mix.Stop == order.Repeat {
		if p.places = p.mix.Num; p.places == 0 {
			p.places = samples
		}
		for p.runs*p.run < p.places {
			p.runs++
		}
		return
	}
	// right reports whether so many runs of a cycle are right after the whole
	// cycles so far: not too many, or enough.
	before := make([]int64, len(p.streams))
	var wholes []int64
	for _, s := range p.streams {
		wholes = append(wholes, int64(len(s.fresh())))
	}
	right := func(cycle, runs int64) bool {
		for d, n := range p.has(cycle, runs) {
			taken, whole := (before[d]+n)*p.run, wholes[d]
			switch {
			case p.mix.Stop == order.FirstExhausted && taken > whole:
				return false
			case p.mix.Stop == order.AllExhausted && taken < whole && p.ever(d):
				return false
			}
		}
		return true
	}
	first := p.mix.Stop == order.FirstExhausted
	cycle := int64(0)
	for ; right(cycle, cycleRuns) == first; cycle++ {
		for d, n := range p.has(cycle, cycleRuns) {
			before[d] += n
		}
	}
	runs := int64(1)
	if first {
		runs = cycleRuns - 1
	}
	for !right(cycle, runs) {
		if first {
			runs--
		} else {
			runs++
		}
	}
	p.runs = cycle*cycleRuns + runs
	p.places = p.runs * p.run
}

func (p *player) ever(d int) bool {
	return slices.ContainsFunc(p.mix.Points, func(x order.Point) bool { return x.Weights[d] > 0 })
}

// play is the next epoch.
func (p *player) play(number int64) naiveEpoch {
	var e naiveEpoch
	key := rng.New(p.seed).With(uint64(number)).With(wordMix)
	for left, cycle := p.runs, int64(0); left > 0; cycle++ {
		runs := min(left, cycleRuns)
		left -= runs
		short := left == 0 && p.runs*p.run > p.places
		for _, d := range p.owners(cycle, runs, short, key.With(uint64(cycle))) {
			var item []order.Piece
			for range min(p.run, p.places-int64(len(e.ids))) {
				id := p.streams[d].next()
				item = append(item, order.Piece{Place: int64(len(e.ids)), Sample: id})
				e.ids = append(e.ids, id)
			}
			if p.mix.Batches {
				e.items = append(e.items, item)
			}
		}
	}
	if p.mix.Stop != order.Repeat { // the next epoch begins with passes of its own
		for _, s := range p.streams {
			s.rest = nil
		}
	}
	return e
}

// owners is whose the runs of a cycle are. A run that is cut short comes last,
// and is of the member with most runs.
func (p *player) owners(cycle, runs int64, short bool, key rng.Key) []int {
	has := p.has(cycle, runs)
	most := slices.Index(has, slices.Max(has))
	if short {
		has[most]--
		runs--
	}
	var sorted, out []int
	for d, n := range has {
		for range n {
			sorted = append(sorted, d)
		}
	}
	for _, i := range naivePermutation(runs, cycleRuns, key) {
		out = append(out, sorted[i])
	}
	if short {
		out = append(out, most)
	}
	return out
}

// drawnMix is members of all kinds, none of them so light that an epoch would
// take long to write down.
func drawnMix(t *rapid.T) (int64, order.Policy) {
	m := &order.Mix{
		Stop:    rapid.SampledFrom([]order.Stop{order.FirstExhausted, order.AllExhausted, order.Repeat}).Draw(t, "stop"),
		Run:     rapid.SampledFrom([]int64{0, 1, 2, 7}).Draw(t, "run"),
		Batches: rapid.Bool().Draw(t, "batches"),
		Linear:  rapid.Bool().Draw(t, "linear"),
	}
	var n int64
	for range rapid.IntRange(1, 4).Draw(t, "members") {
		draw := rapid.SampledFrom([]func(*rapid.T) (int64, order.Policy){drawFull, drawBlock, drawnDraw}).Draw(t, "member")
		size, policy := draw(t)
		if m.Stop == order.FirstExhausted && size < 7 {
			size, policy = 7, order.Policy{Shuffle: order.Full}
		}
		if m.Stop == order.FirstExhausted && policy.Draw.Num > 0 && policy.Draw.Num < 7 {
			policy.Draw = order.Draw{}
		}
		m.Members = append(m.Members, order.Member{Samples: size, Policy: policy})
		n += size
	}
	weight := rapid.OneOf(rapid.SampledFrom([]float64{1, 2, 0.05}), rapid.Float64Range(0.05, 1))
	for place := int64(0); place < 9000; place += rapid.Int64Range(1, 5000).Draw(t, "later") {
		weights := rapid.SliceOfN(weight, len(m.Members), len(m.Members)).Draw(t, "shares")
		if d := rapid.IntRange(0, 2*len(m.Members)).Draw(t, "none of"); m.Stop != order.AllExhausted && len(m.Members) > 1 && d < len(m.Members) {
			weights[d] = 0
		}
		m.Points = append(m.Points, order.Point{Place: place, Weights: weights})
	}
	if m.Stop == order.Repeat {
		m.Num = rapid.Int64Range(0, 5000).Draw(t, "num")
	}
	return n, order.Policy{Mix: m}
}
