package order

import (
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// member is one dataset of a mixture, with its epochs. They are called passes here,
// because they are independent of the mixture's epochs. Safe for concurrent use.
type member struct {
	plan   Plan
	first  int64 // id of its first sample
	stride int64 // places of the member that one epoch of the mixture uses

	building sync.Mutex // so that a pass is built only once; readers do not lock it
	recent   [2]atomic.Pointer[pass]
}

// pass is one epoch of a member.
type pass struct {
	number int64
	seq    sequence
}

// at is the id at one of the member's places, counted over all passes. Places wrap
// around after 2^64, and so are never negative.
func (d *member) at(place uint64) int64 {
	n := uint64(d.plan.places)
	return d.first + d.pass(int64(place/n)).at(int64(place%n))
}

func (d *member) pass(number int64) sequence {
	if seq := d.built(number); seq != nil {
		return seq
	}
	d.building.Lock()
	defer d.building.Unlock()
	if seq := d.built(number); seq != nil {
		return seq
	}
	p := &pass{number: number, seq: d.plan.Epoch(number).seq}
	d.recent[1].Store(d.recent[0].Load())
	d.recent[0].Store(p)
	return p.seq
}

func (d *member) built(number int64) sequence {
	for i := range d.recent {
		if p := d.recent[i].Load(); p != nil && p.number == number {
			return p.seq
		}
	}
	return nil
}

// recentCycles is how many cycles an epoch remembers: those of the places that are
// in flight at one time.
const recentCycles = 16

// mixOrder is one epoch of a mixture. Safe for concurrent use.
//
// The position of a run in its member's own order depends on the runs before it in
// the cycle. So a whole cycle is computed at once, 12 KiB in some microseconds, for
// its thousand runs. If a member's runs could come in any order within a cycle, no
// place would depend on its neighbours, but a member that is not shuffled would no
// longer come as it is stored.
type mixOrder struct {
	mix    *mix
	epoch  int64
	key    rng.Key
	recent [recentCycles]atomic.Pointer[cycle] // cycle c is at c mod recentCycles
}

// cycle has the owners of its runs.
type cycle struct {
	number int64
	owner  []int32 // member
	nth    []int64 // which of that member's runs of the epoch
}

func (m *mix) epoch(e int64, key rng.Key) sequence {
	return &mixOrder{mix: m, epoch: e, key: key.With(wordMix)}
}

func (o *mixOrder) at(place int64) int64 {
	m := o.mix
	run, offset := place/m.run, place%m.run
	c := o.cycle(run / cycleRuns)
	d := &m.members[c.owner[run%cycleRuns]]
	begin := uint64(o.epoch) * uint64(d.stride)
	return d.at(begin + uint64(c.nth[run%cycleRuns]*m.run+offset))
}

func (o *mixOrder) cycle(number int64) *cycle {
	slot := &o.recent[number%recentCycles]
	if c := slot.Load(); c != nil && c.number == number {
		return c
	}
	c := o.newCycle(number)
	slot.Store(c)
	return c
}

// newCycle shuffles the runs of a cycle. A run that is cut short by the end of the
// epoch stays last and belongs to the same member in every epoch: otherwise what an
// epoch uses of a member would depend on the epoch, and the start of the next one
// would not be a product.
func (o *mixOrder) newCycle(number int64) *cycle {
	m := o.mix
	runs := min(cycleRuns, m.runs-number*cycleRuns)
	c := &cycle{number: number, owner: make([]int32, 0, runs), nth: make([]int64, runs)}
	next := make([]int64, len(m.members))
	free := runs
	cut := (number*cycleRuns+runs)*m.run > m.places
	for d := range m.members {
		next[d] = m.schedule.before(d, number)
		has := m.schedule.within(d, number, runs)
		if cut && d == m.short {
			has--
		}
		for range has {
			c.owner = append(c.owner, int32(d))
		}
	}
	if cut {
		c.owner = append(c.owner, int32(m.short))
		free--
	}
	key := o.key.With(uint64(number))
	for i := free - 1; i > 0; i-- { // Fisher, Yates; Durstenfeld 1964
		j := key.Intn(uint64(i), i+1)
		c.owner[i], c.owner[j] = c.owner[j], c.owner[i]
	}
	for i, d := range c.owner {
		c.nth[i] = next[d]
		next[d]++
	}
	return c
}

// mixBatches groups the runs of an epoch of a Mix into batches; nil if that is not
// asked for.
func (p *Plan) mixBatches(seq sequence) grouping {
	if p.mix == nil || !p.mix.batches {
		return nil
	}
	return runBatches{mix: p.mix, seq: seq}
}

// runBatches is an item for every run.
type runBatches struct {
	mix *mix
	seq sequence
}

func (b runBatches) len() int64 { return b.mix.runs }
func (b runBatches) rows() bool { return false }

func (b runBatches) item(i int64, dst []Piece) []Piece {
	from := i * b.mix.run
	for place := from; place < min(from+b.mix.run, b.mix.places); place++ {
		dst = append(dst, Piece{Place: place, Sample: b.seq.at(place)})
	}
	return dst
}
