package order

import (
	"errors"
	"fmt"
	"sort"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Mix is several datasets in one stream. The samples of member d are numbered
// on from those of the members before it.
//
// Every thousand runs, counted from the epoch's first, have each member's share
// to the next whole run; so has what is left at the end. They come in a random
// order that is another in every thousand and every epoch, and each member's
// runs in the member's own order. Weights are rounded to a millionth of the
// whole, and none above 0 to nothing.
type Mix struct {
	Members []Member
	// Points are the members' weights from a place of the epoch on; the first
	// has Place 0. Every weight list is as long as Members. A change at a place
	// that is inside a thousand runs happens with the next thousand.
	Points []Point
	// Linear moves the shares evenly from each point to the next, in up to 256
	// steps, and not at once when the next is reached.
	Linear bool
	Stop   Stop
	// Num is the number of places of an epoch under Repeat; 0: one for every
	// sample of every member.
	Num int64
	// Run is the number of places in a row that one member fills; 0: 1.
	Run int64
	// Batches makes every run an item: a batch of its own.
	Batches bool
}

// Member is one dataset of a Mix. Its Policy's Seed is not used: that of the
// mixture and the member's number take its place. It has no Mix and no Lengths.
type Member struct {
	Samples int64
	Policy  Policy
}

// Point is where weights of a Mix change.
type Point struct {
	Place   int64
	Weights []float64
}

// Stop is when an epoch of a Mix ends.
type Stop string

// The rules. A member's whole is an epoch of its own Policy: all its samples,
// unless a Draw says otherwise.
const (
	FirstExhausted Stop = "first_exhausted" // before any member would begin anew
	AllExhausted   Stop = "all_exhausted"   // when all have been seen whole; smaller ones begin anew meanwhile
	Repeat         Stop = "repeat"          // after Num places; what is left of a member comes in the next epoch
)

// Words keep a mixture's randomness apart from other.
const (
	wordMix    = 1<<64 - 17 // the order of the runs of a cycle
	wordMember = 1<<64 - 18 // the seeds of members
)

// What a mixture may be at most, so that no product overflows.
const (
	mostMixed  = 1 << 40 // samples, places of a member's epoch, and of a run
	mostPlaces = 1 << 60 // of an epoch, and of a point
)

// newMix checks the policy and sets up what all epochs share.
func (p *Plan) newMix() error {
	policy := p.policy.Mix
	if p.policy.Draw.any() || p.policy.Draw.Num != 0 {
		return errors.New("order: mix: a draw is a member's: the mixture's own has no effect, say its places as Mix.Num and its weights by member")
	}
	if err := policy.check(); err != nil {
		return fmt.Errorf("order: mix: %w", err)
	}
	m := &mix{members: make([]member, len(policy.Members)), run: max(policy.Run, 1), batches: policy.Batches}
	if err := m.open(policy.Members, p.samples, rng.New(p.policy.Seed).With(wordMember)); err != nil {
		return fmt.Errorf("order: mix: %w", err)
	}
	m.schedule = newSchedule(policy.Points, policy.Linear, cycleRuns*m.run)
	if err := m.end(policy, p.samples); err != nil {
		return fmt.Errorf("order: mix: %w", err)
	}
	p.places, p.mix = m.places, m
	return nil
}

// check is what can be said of a Mix without opening its members.
func (x *Mix) check() error {
	switch {
	case len(x.Members) == 0:
		return fmt.Errorf("no members")
	case len(x.Members) > units:
		return fmt.Errorf("%d members; there are at most %d", len(x.Members), units)
	case x.Stop != FirstExhausted && x.Stop != AllExhausted && x.Stop != Repeat:
		return fmt.Errorf("no stop rule %q: there are %q, %q and %q", x.Stop, FirstExhausted, AllExhausted, Repeat)
	case x.Num < 0 || x.Num > mostPlaces:
		return fmt.Errorf("num is %d; it is the places of an epoch, at most %d, and 0 is one a sample", x.Num, mostPlaces)
	case x.Num > 0 && x.Stop != Repeat:
		return fmt.Errorf("num is %d, but the stop rule %q decides how long an epoch is; num goes with %q", x.Num, x.Stop, Repeat)
	case x.Run < 0 || x.Run > mostMixed:
		return fmt.Errorf("runs of %d places; they have 1 to %d, and 0 is 1", x.Run, mostMixed)
	case len(x.Points) == 0:
		return fmt.Errorf("no weights: there is one list of them at least, from place 0 on")
	case x.Points[0].Place != 0:
		return fmt.Errorf("the first weights hold from place %d on; they must from place 0", x.Points[0].Place)
	}
	for i, p := range x.Points {
		if i > 0 && p.Place <= x.Points[i-1].Place {
			return fmt.Errorf("weights %d hold from place %d on, and those before them from %d; places must increase", i, p.Place, x.Points[i-1].Place)
		}
		if p.Place > mostPlaces {
			return fmt.Errorf("weights %d hold from place %d on; no epoch has more than %d", i, p.Place, mostPlaces)
		}
		if len(p.Weights) != len(x.Members) {
			return fmt.Errorf("%d weights from place %d on for %d members", len(p.Weights), p.Place, len(x.Members))
		}
		if _, err := checkWeights(p.Weights); err != nil {
			return fmt.Errorf("from place %d on: %w", p.Place, err)
		}
	}
	return nil
}

// ever says that member d has a weight above 0 at some point.
func (x *Mix) ever(d int) bool {
	for _, p := range x.Points {
		if p.Weights[d] > 0 {
			return true
		}
	}
	return false
}

// mix is what the epochs of a Mix share. Safe for concurrent use.
type mix struct {
	members  []member
	schedule schedule
	run      int64 // places
	batches  bool
	runs     int64 // of an epoch, the last one perhaps cut
	places   int64 // of an epoch: runs*run, or less than a run fewer
	short    int   // the member that a cut run is of
}

// open makes the members' plans.
func (m *mix) open(members []Member, samples int64, key rng.Key) error {
	var sum int64
	for d, from := range members {
		if from.Samples < 1 || from.Samples > mostMixed-sum {
			return fmt.Errorf("member %d has %d samples; each has one at least, and all together have at most %d", d, from.Samples, int64(mostMixed))
		}
		if from.Policy.Mix != nil || from.Policy.Lengths.Of != nil {
			return fmt.Errorf("member %d has a mixture or lengths of its own; say them for the whole", d)
		}
		from.Policy.Seed = key.Uint64(uint64(d))
		plan, err := New(from.Samples, from.Policy)
		if err != nil {
			return fmt.Errorf("member %d: %w", d, err)
		}
		if plan.places > mostMixed {
			return fmt.Errorf("member %d has %d places an epoch; there are at most %d", d, plan.places, int64(mostMixed))
		}
		m.members[d].plan, m.members[d].first = plan, sum
		sum += from.Samples
	}
	if sum != samples {
		return fmt.Errorf("the members have %d samples in all, and there are %d", sum, samples)
	}
	return nil
}

// end decides how long an epoch is, and where each member goes on in the next.
func (m *mix) end(x *Mix, samples int64) error {
	var err error
	switch x.Stop {
	case FirstExhausted:
		m.runs, err = m.beforeFirst(x)
	case AllExhausted:
		m.runs, err = m.afterAll(x)
	case Repeat:
		m.places = samples
		if x.Num > 0 {
			m.places = x.Num
		}
		m.runs = (m.places + m.run - 1) / m.run
	}
	if err != nil {
		return err
	}
	if x.Stop != Repeat {
		m.places = m.runs * m.run
	}
	cut := m.runs*m.run - m.places
	last := (m.runs - 1) / cycleRuns
	var most int64
	for d := range m.members {
		if n := m.schedule.within(d, last, m.runs-last*cycleRuns); n > most {
			m.short, most = d, n
		}
	}
	for d := range m.members {
		use := m.schedule.total(d, m.runs) * m.run
		if cut > 0 && d == m.short {
			use -= cut
		}
		if n := m.members[d].plan.places; x.Stop != Repeat {
			use = (use + n - 1) / n * n
		}
		m.members[d].stride = use
	}
	return nil
}

// beforeFirst is the most runs in which no member would begin anew: whole
// cycles, and the longest part of one that fits.
func (m *mix) beforeFirst(x *Mix) (int64, error) {
	limit := make([]int64, len(m.members)) // runs
	var sum int64
	for d := range m.members {
		limit[d] = m.members[d].plan.places / m.run
		sum += limit[d]
		if limit[d] == 0 && x.ever(d) {
			return 0, fmt.Errorf("member %d has %d places an epoch, less than one run of %d, so that under %q it would never come: make runs shorter, or its weight 0", d, m.members[d].plan.places, m.run, FirstExhausted)
		}
	}
	fits := func(runs int64) bool {
		for d := range limit {
			if m.schedule.total(d, runs) > limit[d] {
				return false
			}
		}
		return true
	}
	cycles := search(sum/cycleRuns+1, func(c int64) bool { return !fits(c * cycleRuns) }) - 1
	runs := (cycles+1)*cycleRuns - 1
	for !fits(runs) {
		runs--
	}
	return runs, nil
}

// afterAll is the fewest runs in which every member that ever has a weight is
// seen whole: whole cycles, and the shortest part of one that is enough.
func (m *mix) afterAll(x *Mix) (int64, error) {
	need := make([]int64, len(m.members)) // runs
	final := m.schedule.segments[len(m.schedule.segments)-1]
	var cycles int64
	for d := range m.members {
		if !x.ever(d) {
			continue
		}
		n := m.members[d].plan.places
		need[d] = (n + m.run - 1) / m.run
		if m.schedule.before(d, cycles) >= need[d] {
			continue
		}
		most := final.first
		if left := need[d] - final.before[d]; left > 0 {
			share := final.upto[d+1] - final.upto[d]
			if share == 0 {
				return 0, fmt.Errorf("member %d has weight 0 from place %d on for ever, and before that %d of its %d places come: under %q the epoch would never end", d, final.first*cycleRuns*m.run, final.before[d]*m.run, n, AllExhausted)
			}
			most += (left + share - 1) / share * turn
		}
		cycles = max(cycles, search(most, func(c int64) bool { return m.schedule.before(d, c) >= need[d] }))
	}
	slowest := 0 // what one more run does not help is tried first
	enough := func(runs int64) bool {
		for i := range need {
			d := (slowest + i) % len(need)
			if m.schedule.total(d, runs) < need[d] {
				slowest = d
				return false
			}
		}
		return true
	}
	runs := (cycles-1)*cycleRuns + 1
	for !enough(runs) {
		runs++
	}
	return runs, nil
}

// search is the least c in [0, n] for which is holds, as it does for n and for
// all above the least.
func search(n int64, is func(c int64) bool) int64 {
	return int64(sort.Search(int(n), func(c int) bool { return is(int64(c)) }))
}
