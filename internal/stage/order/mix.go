package order

import (
	"errors"
	"fmt"
	"sort"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Mix is several datasets in one stream. The samples of member d are numbered after
// those of the members before it.
//
// Every thousand runs, counted from the start of the epoch, have each member's
// share rounded to a whole run, and so has the rest at the end. They come in a
// random order, different in every thousand and every epoch, and each member's runs
// come in the member's own order. Weights are rounded to a millionth of the total,
// but none above 0 to nothing.
type Mix struct {
	Members []Member
	// Points are the members' weights from a place of the epoch on; the first has
	// Place 0. Every list of weights is as long as Members. A change at a place
	// inside a thousand runs happens with the next thousand.
	Points []Point
	// Linear moves the shares evenly from each point to the next, in up to 256
	// steps, instead of changing them at once.
	Linear bool
	Stop   Stop
	// Num is the number of places of an epoch with Repeat; 0: one for every sample
	// of every member, or of its Subset.
	Num int64
	// Run is the number of consecutive places that one member fills; 0: 1.
	Run int64
	// Batches makes every run an item: a batch of its own.
	Batches bool
}

// Member is one dataset of a Mix. Its Policy's Seed is not used: it is derived from
// the mixture's seed and the member's number. It has no Mix and no Lengths.
type Member struct {
	Samples int64
	Policy  Policy
}

// Point is a place where the weights of a Mix change.
type Point struct {
	Place   int64
	Weights []float64
}

// Stop decides when an epoch of a Mix ends.
type Stop string

// The rules. All of a member is one epoch of its own Policy: all its samples,
// unless a Draw says otherwise.
const (
	FirstExhausted Stop = "first_exhausted" // before any member would begin again
	AllExhausted   Stop = "all_exhausted"   // when all have been used completely; smaller ones begin again meanwhile
	Repeat         Stop = "repeat"          // after Num places; the rest of a member comes in the next epoch
)

// Words that separate a mixture's randomness from other randomness.
const (
	wordMix    = 1<<64 - 17 // the order of the runs of a cycle
	wordMember = 1<<64 - 18 // the seeds of members
)

// Limits of a mixture, so that no product overflows.
const (
	mostMixed  = 1 << 40 // samples, places of a member's epoch, places of a run
	mostPlaces = 1 << 60 // of an epoch, and of a point
)

// newMix checks the policy and sets up what all epochs share.
func (p *Plan) newMix() error {
	policy := p.policy.Mix
	if p.policy.Draw.any() || p.policy.Draw.Num != 0 {
		return errors.New("order: mix: a draw belongs to a member: a mixture has none of its own; set its places in Mix.Num and its weights by member")
	}
	if err := policy.check(); err != nil {
		return fmt.Errorf("order: mix: %w", err)
	}
	m := &mix{members: make([]member, len(policy.Members)), run: max(policy.Run, 1), batches: policy.Batches}
	if err := m.open(policy.Members, p.samples, rng.New(p.policy.Seed).With(wordMember)); err != nil {
		return fmt.Errorf("order: mix: %w", err)
	}
	m.schedule = newSchedule(policy.Points, policy.Linear, cycleRuns*m.run)
	if err := m.end(policy); err != nil {
		return fmt.Errorf("order: mix: %w", err)
	}
	p.places, p.mix = m.places, m
	return nil
}

// check checks what can be checked without the members' plans.
func (x *Mix) check() error {
	switch {
	case len(x.Members) == 0:
		return fmt.Errorf("a mixture needs members")
	case len(x.Members) > units:
		return fmt.Errorf("%d members; the limit is %d", len(x.Members), units)
	case x.Stop != FirstExhausted && x.Stop != AllExhausted && x.Stop != Repeat:
		return fmt.Errorf("unknown stop rule %q: the choices are %q, %q and %q", x.Stop, FirstExhausted, AllExhausted, Repeat)
	case x.Num < 0 || x.Num > mostPlaces:
		return fmt.Errorf("num is %d; it is the number of places of an epoch, at most %d, where 0 means one per sample", x.Num, mostPlaces)
	case x.Num > 0 && x.Stop != Repeat:
		return fmt.Errorf("num is %d, but the stop rule %q decides how long an epoch is; num needs %q", x.Num, x.Stop, Repeat)
	case x.Run < 0 || x.Run > mostMixed:
		return fmt.Errorf("runs of %d places; the range is 1 to %d, where 0 means 1", x.Run, mostMixed)
	case len(x.Points) == 0:
		return fmt.Errorf("no weights: at least one list of them is needed, from place 0 on")
	case x.Points[0].Place != 0:
		return fmt.Errorf("the first weights apply from place %d on; they must apply from place 0", x.Points[0].Place)
	}
	for i, p := range x.Points {
		if i > 0 && p.Place <= x.Points[i-1].Place {
			return fmt.Errorf("weights %d apply from place %d on, and those before them from %d; places must increase", i, p.Place, x.Points[i-1].Place)
		}
		if p.Place > mostPlaces {
			return fmt.Errorf("weights %d apply from place %d on; an epoch has at most %d places", i, p.Place, mostPlaces)
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

// ever reports whether member d has a weight above 0 at some point.
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
	runs     int64 // of an epoch; the last one may be cut short
	places   int64 // of an epoch: runs*run, minus what the last run lacks
	short    int   // the member of the run that is cut short
}

// open makes the plans of the members.
func (m *mix) open(members []Member, samples int64, key rng.Key) error {
	var sum int64
	for d, from := range members {
		if from.Samples < 1 || from.Samples > mostMixed-sum {
			return fmt.Errorf("member %d has %d samples; each needs at least one, and all together can have at most %d", d, from.Samples, int64(mostMixed))
		}
		if from.Policy.Mix != nil || from.Policy.Lengths.Of != nil {
			return fmt.Errorf("member %d has a mixture or lengths of its own; set them for the whole mixture", d)
		}
		from.Policy.Seed = key.Uint64(uint64(d))
		plan, err := New(from.Samples, from.Policy)
		if err != nil {
			return fmt.Errorf("member %d: %w", d, err)
		}
		if plan.places > mostMixed {
			return fmt.Errorf("member %d has %d places per epoch; the limit is %d", d, plan.places, int64(mostMixed))
		}
		m.members[d].plan, m.members[d].first = plan, sum
		sum += from.Samples
	}
	if sum != samples {
		return fmt.Errorf("the members have %d samples in all, but the dataset has %d", sum, samples)
	}
	return nil
}

// end decides how long an epoch is, and where each member continues in the next.
func (m *mix) end(x *Mix) error {
	var err error
	switch x.Stop {
	case FirstExhausted:
		m.runs, err = m.beforeFirst(x)
	case AllExhausted:
		m.runs, err = m.afterAll(x)
	case Repeat:
		m.places = x.Num
		for d := 0; x.Num == 0 && d < len(m.members); d++ {
			m.places += m.members[d].plan.samples
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

// beforeFirst is the largest number of runs in which no member begins again: whole
// cycles, and the longest part of one that fits.
func (m *mix) beforeFirst(x *Mix) (int64, error) {
	limit := make([]int64, len(m.members)) // runs
	var sum int64
	for d := range m.members {
		limit[d] = m.members[d].plan.places / m.run
		sum += limit[d]
		if limit[d] == 0 && x.ever(d) {
			return 0, fmt.Errorf("member %d has %d places per epoch, less than one run of %d, so with %q it would never be used: make runs shorter, or set its weight to 0", d, m.members[d].plan.places, m.run, FirstExhausted)
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

// afterAll is the smallest number of runs in which every member that ever has a
// weight is used completely: whole cycles, and the shortest part of one that is
// enough.
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
				return 0, fmt.Errorf("member %d has weight 0 from place %d to the end, and before that only %d of its %d places are used: with %q the epoch would never end", d, final.first*cycleRuns*m.run, final.before[d]*m.run, n, AllExhausted)
			}
			most += (left + share - 1) / share * turn
		}
		cycles = max(cycles, search(most, func(c int64) bool { return m.schedule.before(d, c) >= need[d] }))
	}
	slowest := 0 // the member that last had too few is tried first
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

// search returns the least c in [0, n] for which is(c) holds. is must hold for n
// and for everything above the least.
func search(n int64, is func(c int64) bool) int64 {
	return int64(sort.Search(int(n), func(c int) bool { return is(int64(c)) }))
}
