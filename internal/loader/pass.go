package loader

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Pass is one walk through an epoch: parallel work, delivered in order.
//
// Its prefetcher opens batches ahead of the consumer, as far as prefetch and slots
// allow, and submits their samples to fetch in the order of the plan. Lanes take
// samples of the oldest open batch first. The lane that fills the last row of a
// batch completes it. Next delivers the oldest batch once it is complete.
// Two invariants: batches are delivered in the order of steps; and every task of an
// open batch is finished exactly once, by a lane or as given up, so that its slot
// always comes back. A pool of finished samples with a reorder buffer would be
// simpler, but needs a copy of every sample.
//
// Everything below is guarded by Shared.mu, except for what is said to be atomic.
type Pass struct {
	l      *Loader
	number int64 // of the loader's passes, from 1
	walk   compose.Walk

	started   bool          // its prefetcher runs
	alone     bool          // over a List: no other epoch follows
	list      order.List    // of a pass over one: what a sampler gave
	looked    bool          // it began the next epoch, or tried to
	draft     compose.Draft // of the next step; only the prefetcher uses it
	plan      *fetch.Plan   // what later steps need; nil: that is not read before they are open
	before    tally         // what the consumer got of the same pass by others, which this one goes on after
	gave      tally         // what this one delivered
	open      []*openBatch  // in order; the first is the next to be delivered
	nextStep  int64         // the next to open, counted from the start of slice
	delivered int64         // steps delivered, counted from the start of slice
	bundles   bundles       // how many steps are made together
	turns     *turns        // its workers iterate the dataset; nil: they do not
	waiting   int           // consumers in Next
	heldSince time.Time     // when Next first found every slot leased
	ahead     bool          // begun before it was asked for
	resting   bool          // its batches were given up for other passes; Next wakes it
	cancelled bool
	failed    error
	ctx       context.Context // of its reads: it ends with the pass, and hung reads with it
	stop      context.CancelFunc
	lastBad   *errs.Error
	asked     int64 // when Next was last called: Shared.clock

	// For statistics: stats.Monotonic; 0: unknown.
	askedAt, givenAt int64
	began            bool        // its first batch was delivered
	planning         stats.Shift // of its prefetcher: choosing the samples of a batch, locating them and beginning the batch
}

// openBatch is a batch in the making, or a bundle of batches, and the work on it.
type openBatch struct {
	compose.Batch
	work
}

// work is what is done for an open batch, and what is left to do.
type work struct {
	pass    *Pass
	bunches fill.Bunches // if the samples are small
	ready   []*fill.Task // fetched, not yet taken by a lane; guarded by Shared.mu
	left    int          // tasks not yet finished

	begun, filled int64 // stats.Monotonic

	portion *portion // what it is for, if Python workers get it

	completing bool // a lane is completing it; only that lane may touch its slot
	done       bool
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
	Bad      []compose.Bad // empty for a bundle

	compose.Count // for a bundle, of its first step
	// Counts is what each step of a bundle adds to a receipt, and where it ends;
	// nil for a single step.
	Counts []compose.Count
	// Mixed is what the batch transform chose, for the client to do; nil: there is nothing to
	// mix, or the engine has done it.
	Mixed *transform.Mixed
	// Structure says what the columns of samples are that only the user's code knows; nil
	// for others.
	Structure []byte

	span      stats.Span
	bytes     int64 // of the slot
	delivered int64 // stats.Monotonic when Next returned it
	onThread  bool  // the CPU time of delivering and sending it is measured
	cpu       time.Duration
	l         *Loader
}

// Release gives the slot back for the next batch.
func (b *Batch) Release() { b.l.slots.release(b.Slot, true) }

// Discard gives the slot back, never to be written to again.
func (b *Batch) Discard() { b.l.slots.release(b.Slot, false) }

// Steps is the number of batches of the whole pass.
func (p *Pass) Steps() int64 { return p.walk.Slice.Steps() }

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
		p.leaveOut()
		if len(p.open) > 0 && p.open[0].done {
			return p.deliver(now)
		}
		if p.failed != nil {
			return nil, p.failed
		}
		if p.cancelled {
			return nil, errs.New(errs.Config, "the pass was cancelled")
		}
		if p.over() || p.nextStep >= p.walk.Slice.Steps() && len(p.open) == 0 {
			return nil, io.EOF
		}
		wait := p.patience(time.Duration(now - begin))
		if deadline > 0 {
			still := time.Duration(now - max(begin, p.l.moved))
			if still >= deadline {
				if !p.l.waitsForServer() {
					return nil, p.stalled(still)
				}
				p.l.moved, still = now, 0
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
	if p.leaveOut(); ctx.Err() != nil || len(p.open) == 0 || !p.open[0].done {
		return nil, nil, false
	}
	s.clock++
	p.asked, p.resting = s.clock, false
	now := int64(0)
	if p.l.stats.Wait != nil {
		now = stats.Monotonic()
	}
	p.asks(now)
	b, err = p.deliver(now)
	p.given(now, b)
	return b, err, true
}

// Moved is when a sample of this loader was last finished (stats.Monotonic).
func (p *Pass) Moved() int64 {
	p.l.shared.mu.Lock()
	defer p.l.shared.mu.Unlock()
	return p.l.moved
}

// removeOldest takes the oldest batch, which is complete. Shared.mu is held.
func (p *Pass) removeOldest(now int64) (*Batch, error) {
	ob := p.open[0]
	p.open[0] = nil
	p.open = p.open[1:]
	p.l.inflight--
	p.l.shared.reconsider()
	p.l.shared.changed.Broadcast()
	if err := p.judge(ob); err != nil {
		p.failed = err
		p.giveUp(0)
		p.l.slots.put(ob.Slot)
		return nil, err
	}
	step := p.at(ob)
	p.delivered += int64(ob.Steps)
	p.gave.batches += int64(ob.Steps)
	p.gave.rows += int64(ob.samples())
	p.l.slots.leased++
	p.l.samples.Add(anew(&p.l.again.rows, int64(ob.samples())))
	defer func() { p.l.spare = append(p.l.spare, ob) }()
	out := &Batch{
		Epoch: p.walk.Epoch, Step: step, Position: p.walk.Slice.After(ob.Step + int64(ob.Steps) - 1), Rows: ob.samples() / ob.Steps,
		Slot: ob.Slot, Structure: ob.structure(), Columns: ob.Columns, Bad: ob.Bad, Count: ob.Counts[0], Mixed: ob.Mixed(), l: p.l,
	}
	if ob.Steps > 1 {
		out.Counts = slices.Clone(ob.Counts)
	}
	p.book(ob, out, now)
	return out, nil
}

// tally counts batches, their rows, and bad samples among these.
type tally struct{ batches, rows, bad int64 }

// Before says how many rows the consumer has got of the same pass by others, after which this one
// goes on, and how many bad samples were among them, for the limits. It is called before the
// first Next.
func (p *Pass) Before(rows, bad int64) {
	s := p.l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	p.before.rows, p.before.bad = rows, bad
}

// CancelAfter is Cancel by a consumer that keeps only the batches before a step; rows and bad are
// what it has got up to there, with what Before said. The others are delivered again, and are
// not counted twice in the statistics of the loader.
func (p *Pass) CancelAfter(step, rows, bad int64) {
	s := p.l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, a := max(step-p.walk.From, 0), &p.l.again
	a.batches += max(p.gave.batches-kept, 0)
	a.rows += max(p.before.rows+p.gave.rows-rows, 0)
	a.bad += max(p.before.bad+p.gave.bad-bad, 0)
	if p.began && kept == 0 && p.before.rows == 0 {
		a.passes++
	}
	p.cancel()
}

// anew is how much of n was not delivered and given back before; owed is what was.
func anew(owed *int64, n int64) int64 {
	old := min(*owed, n)
	*owed -= old
	return n - old
}

// judge returns the error of a batch, its own or that of too many bad samples. Bad
// samples are counted here, in the order of delivery, so that the batch that ends a
// run does not depend on lanes or prefetch.
func (p *Pass) judge(ob *openBatch) error {
	if ob.Err != nil {
		return p.located(ob)
	}
	p.gave.bad += int64(len(ob.Bad))
	p.l.stats.Bad.Add(anew(&p.l.again.bad, int64(len(ob.Bad))))
	if len(ob.Bad) > 0 {
		p.lastBad = errs.From(ob.Bad[len(ob.Bad)-1].Err)
	}
	end := p.delivered+int64(ob.Steps) == p.walk.Slice.Steps()
	return p.l.maker.Limit(p.before.bad+p.gave.bad, p.before.rows+p.gave.rows+int64(ob.samples()), end, p.lastBad)
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
	if p.cancelled || p.over() || p.delivered >= p.walk.Slice.Steps() && !p.ahead {
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
		ob.drop()
	}
	if from < len(p.open) {
		p.nextStep = p.open[from].Step
	}
	p.open = slices.Delete(p.open, from, len(p.open))
	p.l.budget.Wake()
	if w, ok := p.l.crew.(fill.Watcher); ok {
		w.GivenUp()
	}
	for _, f := range p.l.inner {
		f.giveUp()
	}
}

// drop gives up what no lane has begun of a batch, and its slot once the rest has come back.
// Shared.mu is held.
func (ob *openBatch) drop() {
	ob.Gone.Store(true)
	for _, t := range ob.ready {
		t.Req.Release()
		ob.left--
	}
	ob.ready = nil
	ob.settle()
}

// waitsForServer reports whether samples are late because a server is tried again, which
// the deadline of fetch ends. Shared.mu is held.
func (l *Loader) waitsForServer() bool {
	if l.network == nil || !l.network.Waits() {
		return false
	}
	stage, _, _ := l.shared.Board.Oldest(uint32(l.id))
	return stage == wire.StageIdle || stage == wire.StageRead
}

// limited is the hint if fetch limits the bandwidth of what a stalled read waits for; "" if
// not.
func (l *Loader) limited(stage uint32) string {
	rate := int64(l.spec.Fetch.Bandwidth)
	if rate == 0 || stage != wire.StageIdle && stage != wire.StageRead || l.network == nil || len(l.network.Counts()) == 0 {
		return ""
	}
	return fmt.Sprintf("fetch.bandwidth allows %s per second: raise it or leave it out, check that the store answers, or raise timeout=", mem.Size(rate))
}

// stalled returns an error that names what has been in work for longest.
func (p *Pass) stalled(after time.Duration) error {
	l := p.l
	stage, sample, since := l.shared.Board.Oldest(uint32(l.id))
	e := errs.New(errs.Stalled, "no batch for %s", errs.InSeconds(after))
	hint := l.limited(stage)
	if stage == 0 {
		return e.Try("%s", cmp.Or(hint, "no sample is being worked on: the engine waits for memory or for its lanes; see loader.stats(), or raise timeout="))
	}
	e.Where = l.data.Where(sample)
	e.Where.Moment = &errs.Moment{Epoch: p.walk.Epoch, Step: p.walk.From + p.delivered, Rank: l.spec.Rank}
	e.What += ": stage " + wire.StageNames[stage] + " has been at one sample for " + errs.InSeconds(time.Duration(stats.Monotonic()-since))
	return e.Try("%s", cmp.Or(hint, "check that its storage answers (a hung mount shows here as stage read), or raise timeout="))
}
