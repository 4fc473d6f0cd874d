package loader

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Pass is one walk through an epoch: parallel work, delivered in order.
//
// Its planner opens batches ahead of the consumer, as far as prefetch and slots
// allow, and submits their samples to fetch in the order of the plan. Lanes take
// samples of the oldest open batch first. The lane that fills the last row of a
// batch closes it. Next delivers the oldest batch once it is closed.
// Two invariants: batches are delivered in the order of steps; and every task of an
// open batch is finished exactly once, by a lane or as given up, so that its slot
// always comes back. A pool of finished samples with a reorder buffer would be
// simpler, but needs a copy of every sample.
//
// Everything below is guarded by Shared.mu, except for what is said to be atomic.
type Pass struct {
	l     *Loader
	epoch int64
	order order.Epoch
	slice order.Slice
	from  int64 // number of the first step; not 0 for a resumed epoch

	started   bool         // its planner runs
	alone     bool         // over a List: no other epoch follows
	looked    bool         // it began the next epoch, or tried to
	draft     draft        // of the next step; only the planner uses it
	seen      int64        // samples of the batches delivered
	open      []*openBatch // in order; the first is the next to be delivered
	nextStep  int64        // the next to open, counted from the start of slice
	delivered int64        // steps delivered, counted from the start of slice
	bundles   bundles      // how many steps are made together
	waiting   int          // consumers in Next
	heldSince time.Time    // when Next first found every slot leased
	ahead     bool         // begun before it was asked for
	resting   bool         // its batches were given up for other passes; Next wakes it
	cancelled bool
	failed    error
	ctx       context.Context // of its reads: it ends with the pass, and hung reads with it
	stop      context.CancelFunc
	bad       int64 // samples that could not be delivered, up to the last batch delivered
	lastBad   *errs.Error
	asked     int64 // when Next was last called: Shared.clock

	// For statistics: stats.Monotonic; 0: unknown.
	askedAt, givenAt int64
	began            bool // its first batch was delivered
	planning         planning
}

// openBatch is a batch in the making, or a bundle of batches: the rows of several
// steps, one step after the other.
type openBatch struct {
	pass    *Pass
	step    int64 // the first, counted from the start of the slice
	steps   int   // all have the same number of rows
	rows    int   // of all steps
	slot    *batch.Slot
	layout  *batch.Layout
	tasks   []task
	bunches []bunch       // of tasks, if the samples are small
	ready   []*task       // fetched, not yet taken by a lane; guarded by Shared.mu
	left    int           // tasks not yet finished
	loose   []batch.Loose // one per field
	bad     []Bad         // guarded by Shared.mu
	counts  []Count       // for its receipt, one per step
	good    []bool        // rows that have their sample; each has a single writer

	begun, filled int64 // stats.Monotonic

	closing bool // a lane is closing it; only that lane may touch its slot
	done    bool
	err     error
	columns []batch.Column
	gone    atomic.Bool // given up: its tasks come back undone

	collected atomic.Int64 // bytes of loose rows
}

// task is one row of an open batch.
type task struct {
	req     fetch.Request
	batch   *openBatch
	row     int
	place   int64
	sample  int64 // as ordered; req.Sample may be its replacement
	from    int64 // packed: first token of the run
	length  int64 // packed: tokens of the run
	at      int64 // packed: where the run begins in the column, in tokens
	key     rng.Key
	attempt int  // replacements so far
	apart   bool // not in a bunch
	unread  bool // the lane that takes it also reads it
}

// Bad is one sample that was not delivered as ordered. It comes once per epoch,
// even if several packed rows have runs of it.
type Bad struct {
	Place  int64
	Sample int64 // the one that failed
	Put    int64 // its replacement
	Err    error
}

// Batch is a batch as it is delivered, or a bundle of consecutive batches if the
// consumer asked for bundles. Release gives its slot back; nothing of the batch may
// be read afterwards.
type Batch struct {
	Epoch    int64
	Step     int64
	Position int64 // places of the epoch that all ranks have received after it; for a bundle, after its last step
	Rows     int   // of each step; the steps of a bundle follow each other in every column
	Slot     *batch.Slot
	Columns  []batch.Column
	Bad      []Bad // empty for a bundle
	Count          // for a bundle, of its first step
	// Counts is what each step of a bundle adds to a receipt, and where it ends;
	// nil for a single step.
	Counts []Count

	span     stats.Span
	bytes    int64 // of the slot
	handed   int64 // stats.Monotonic when it was taken from the pass
	onThread bool  // the CPU time of delivering and sending it is measured
	cpu      time.Duration
	l        *Loader
}

// Count is what one step adds to a receipt: the sum of the hashes of the samples in
// places of the epoch, and their number. After is the step's Position.
type Count struct {
	Sum   order.Sum
	Real  int64
	After int64
}

// Release gives the slot back for the next batch.
func (b *Batch) Release() { b.l.slots.release(b.Slot, true) }

// Discard gives the slot back, never to be written to again.
func (b *Batch) Discard() { b.l.slots.release(b.Slot, false) }

// Steps is the number of batches of the whole pass.
func (p *Pass) Steps() int64 { return p.slice.Steps() }

// Next waits for the next batch. It returns io.EOF at the end of the pass. A
// deadline of 0 never reports a stall.
func (p *Pass) Next(ctx context.Context, deadline time.Duration) (b *Batch, err error) {
	s := p.l.shared
	if b, err, ready := p.nextReady(ctx); ready {
		return b, err
	}
	begin := stats.Monotonic()
	wake := func() { s.mu.Lock(); s.changed.Broadcast(); s.mu.Unlock() }
	defer context.AfterFunc(ctx, wake)()
	alarm := time.AfterFunc(time.Hour, wake)
	defer alarm.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.waiting++
	s.clock++
	p.asked, p.resting = s.clock, false
	p.asks(begin)
	s.reconsider()
	s.changed.Broadcast()
	var now int64
	defer func() {
		p.waiting--
		p.given(now, b)
	}()
	for {
		now = stats.Monotonic()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(p.open) > 0 && p.open[0].done {
			return p.hand(now)
		}
		if p.failed != nil {
			return nil, p.failed
		}
		if p.cancelled {
			return nil, errs.New(errs.Config, "the pass was cancelled")
		}
		if p.nextStep >= p.slice.Steps() && len(p.open) == 0 {
			return nil, io.EOF
		}
		wait := p.patience(time.Duration(now - begin))
		if deadline > 0 {
			still := time.Duration(now - max(begin, p.l.moved))
			if still >= deadline {
				return nil, p.stalled(still)
			}
			wait = min(wait, deadline-still)
		}
		alarm.Reset(wait)
		s.changed.Wait()
	}
}

// nextReady is Next for a batch that is complete already, without the cost of
// waiting.
func (p *Pass) nextReady(ctx context.Context) (b *Batch, err error, ready bool) { //nolint:revive // the error is b's
	s := p.l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || len(p.open) == 0 || !p.open[0].done {
		return nil, nil, false
	}
	s.clock++
	p.asked, p.resting = s.clock, false
	now := int64(0)
	if p.l.stats.Wait != nil {
		now = stats.Monotonic()
	}
	p.asks(now)
	b, err = p.hand(now)
	p.given(now, b)
	return b, err, true
}

// Moved is when a sample of this loader was last finished (stats.Monotonic).
func (p *Pass) Moved() int64 {
	p.l.shared.mu.Lock()
	defer p.l.shared.mu.Unlock()
	return p.l.moved
}

// handOut takes the oldest batch, which is complete. Shared.mu is held.
func (p *Pass) handOut(now int64) (*Batch, error) {
	ob := p.open[0]
	p.open[0] = nil
	p.open = p.open[1:]
	p.l.inflight--
	p.l.shared.reconsider()
	p.l.shared.changed.Broadcast()
	if err := p.judge(ob); err != nil {
		p.failed = err
		p.giveUp(0)
		p.l.slots.put(ob.slot)
		return nil, err
	}
	p.delivered += int64(ob.steps)
	p.l.slots.leased++
	p.l.samples.Add(int64(ob.rows))
	defer func() { p.l.spare = append(p.l.spare, ob) }()
	out := &Batch{
		Epoch: p.epoch, Step: p.from + ob.step, Position: p.slice.After(ob.step + int64(ob.steps) - 1), Rows: ob.rows / ob.steps,
		Slot: ob.slot, Columns: ob.columns, Bad: ob.bad, Count: ob.counts[0], l: p.l,
	}
	if ob.steps > 1 {
		out.Counts = slices.Clone(ob.counts)
	}
	p.book(ob, out, now)
	return out, nil
}

// judge returns the error of a batch, its own or that of too many bad samples. Bad
// samples are counted here, in the order of delivery, so that the batch that ends a
// run does not depend on lanes or prefetch.
func (p *Pass) judge(ob *openBatch) error {
	if ob.err != nil {
		return ob.err
	}
	on := p.l.spec.OnBad
	p.bad += int64(len(ob.bad))
	p.l.stats.Bad.Add(int64(len(ob.bad)))
	p.seen += int64(ob.rows)
	seen := p.seen
	tooMany := on.MaxBad > 0 && p.bad > on.MaxBad
	enough := seen >= 100 || p.delivered+int64(ob.steps) == p.slice.Steps()
	tooOften := on.MaxBadRate > 0 && enough && float64(p.bad) > on.MaxBadRate*float64(seen)
	if len(ob.bad) > 0 {
		p.lastBad = errs.From(ob.bad[len(ob.bad)-1].Err)
	}
	if !tooMany && !tooOften {
		return nil
	}
	last := p.lastBad
	return errs.New(errs.BadLimit, "%d of %d samples of this pass are bad, more than on_bad allows; the last: %s", p.bad, seen, last.What).
		At(last.Where).Because(last.Cause).
		Try("list them with `stoker inspect` and repair them, or raise max_bad or max_bad_rate")
}

// Cancel ends the pass and drops what it had prefetched. It does not wait. A pass
// that has ended by itself is left alone, and so is the next epoch, which is being
// prefetched.
func (p *Pass) Cancel() {
	s := p.l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	p.cancel()
}

func (p *Pass) cancel() {
	if p.cancelled || p.delivered >= p.slice.Steps() && !p.ahead {
		return
	}
	p.cancelled = true
	p.giveUp(0)
	p.stop()
	p.l.drop(p)
	p.l.shared.changed.Broadcast()
}

// giveUp drops what is prefetched, from open batch number from on. It will be made
// again, with the same bytes. Shared.mu is held.
func (p *Pass) giveUp(from int) {
	for _, ob := range p.open[from:] {
		ob.gone.Store(true)
		for _, t := range ob.ready {
			t.req.Release()
			ob.left--
		}
		ob.ready = nil
		ob.settle()
	}
	if from < len(p.open) {
		p.nextStep = p.open[from].step
	}
	p.open = slices.Delete(p.open, from, len(p.open))
	p.l.budget.Wake()
}

// plan is the planner of one pass.
func (p *Pass) plan() {
	l := p.l
	s := l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	p.planning = planning{stage: l.stats.Plan, due: &l.planning}
	for {
		switch {
		case p.cancelled || p.failed != nil:
			p.planning.rests()
			return
		case p.nextStep >= p.slice.Steps():
			l.lookAhead(p)
			if p.cancelled || p.nextStep < p.slice.Steps() {
				continue // the lock was released
			}
			if p.delivered >= p.slice.Steps() && !p.ahead {
				l.drop(p)
				return
			}
		case !p.resting && p.mayOpen():
			p.planning.works()
			if p.draft.step != p.nextStep || p.draft.pieces == nil || p.draft.steps > p.together() {
				step, most := p.nextStep, p.together()
				s.mu.Unlock()
				p.prepare(step, most)
				s.mu.Lock()
				continue
			}
			slot, err := l.slots.take(p)
			if err == nil && slot != nil {
				err = l.grow(p.draft.rows)
			}
			if err != nil {
				if slot != nil {
					l.slots.put(slot)
				}
				p.failed = err
				p.planning.rests()
				s.changed.Broadcast()
				return
			}
			switch { // the lock was released while memory was allocated
			case slot == nil:
			case p.cancelled || p.resting || p.failed != nil || p.draft.step != p.nextStep || p.draft.steps > p.together() || int64(len(slot.Mem)) < l.layout.Bytes():
				l.slots.put(slot)
				continue
			default:
				p.begin(slot)
				continue
			}
		}
		p.planning.rests()
		s.changed.Wait()
	}
}

// mayOpen reports whether prefetch has room for one more batch. There is always
// room for the batch that the consumer waits for.
func (p *Pass) mayOpen() bool {
	room := p.l.prefetch
	if p.together() > 1 {
		room = min(room, bundlesOpen)
	}
	if p.ahead && p.l.current != nil {
		room -= len(p.l.current.open)
	}
	return len(p.open) < room
}

// begin opens the next step in slot and submits its samples. Shared.mu is held, and
// released while fetch waits.
func (p *Pass) begin(slot *batch.Slot) {
	l := p.l
	ob := l.newBatch(p, slot)
	p.nextStep += int64(ob.steps)
	l.inflight++
	p.open = append(p.open, ob)
	steps := int64(ob.steps)
	l.shared.mu.Unlock()
	waited := l.crew.begin(ob) // the batch may already be reused
	p.planning.done(waited, steps)
	l.shared.mu.Lock()
}

// stalled returns an error that names what has been in work for longest.
func (p *Pass) stalled(after time.Duration) error {
	l := p.l
	stage, sample, since := l.shared.Board.Oldest(uint32(l.id))
	e := errs.New(errs.Stalled, "no batch for %.0f s", after.Seconds())
	if stage == 0 {
		return e.Try("no sample is being worked on: the engine waits for memory or for its lanes; see loader.stats(), or raise timeout=")
	}
	e.Where = l.data.Where(sample)
	e.Where.Moment = &errs.Moment{Epoch: p.epoch, Step: p.from + p.delivered, Rank: l.spec.Rank}
	e.What += ": stage " + wire.StageNames[stage] + " has been at one sample for " + time.Duration(stats.Monotonic()-since).Round(time.Second).String()
	return e.Try("check that its storage answers (a hung mount shows here as stage read), or raise timeout=")
}
