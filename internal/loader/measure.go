package loader

import (
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/fetch"
)

// What lanes and readers do is measured in package fill, and that of the prefetcher by a
// stats.Shift. Here are the consumer, and what idle lanes wait for. The CPU time of completing
// and sending a batch is measured as seldom as stats.Seldom says.
//
// Reading the clock costs as much as moving a small sample, so the last reading is
// passed on.

// worker is the state of one lane. Only the lane uses it, except for asleep, which
// Shared.mu guards.
type worker struct {
	fill.State
	book   *stats.Worker
	read   fetch.ReadContext
	asleep bool
	woke   bool // it has woken a goroutine, which may be on the run queue of its thread
}

// readNow reads a sample whose bytes are in memory and returns true; otherwise it
// sends the sample to the readers.
func (l *Loader) readNow(w *worker, work *stats.Work, t *fill.Task) bool {
	if t.Unread = false; t.Batch.Gone.Load() {
		return true // nothing will be done with the sample
	}
	read := l.stats.Read
	begin := work.Begin(wire.StageRead, uint32(l.id), l.first+t.Req.Sample)
	var thread stats.Thread
	onThread := read != nil && w.CPUDue()
	if onThread {
		thread = stats.OnThread()
	}
	hot := l.fetch.Now(batchOf(t).pass.ctx, &w.read, &t.Req)
	work.End()
	if hot && read != nil && len(t.Req.Extents) > 0 { // a cached sample has none
		read.Add(time.Duration(stats.Monotonic()-begin), 1, t.Req.Bytes())
	}
	if onThread {
		if used := thread.Used(); hot {
			read.CPU(used, 1)
		}
	}
	if hot {
		return true
	}
	l.shared.mu.Lock()
	l.running--
	l.shared.mu.Unlock()
	// A new goroutine, because Submit may wait for read-ahead memory if the whole
	// batch has to be read after all, and a lane must never wait for that.
	go l.send([]*fetch.Request{&t.Req}, false, batchOf(t))
	return false
}

// cause is why lanes sleep: a state of package stats, and the loader that waits for
// its consumer or its storage (nil: none).
type cause struct {
	l     *Loader
	state int
}

// why returns the cause if there is no sample to decode now. Samples that are being
// read mean input. Without any, batches that may not be opened, because enough are
// ready or the user holds all slots, mean output. Shared.mu is held.
func (s *Shared) why() (found cause) {
	for _, l := range s.loaders {
		switch {
		case l.closed || l.running >= l.lanes:
		case l.fetching > 0:
			return cause{l, stats.Input}
		case found.l == nil && !l.small && l.more():
			found = cause{l, stats.Output}
		}
	}
	return found
}

// more reports whether a pass has batches that were not begun.
func (l *Loader) more() bool {
	if l.feeds != nil {
		return len(l.feeds.queue) > 0
	}
	return slices.ContainsFunc(l.passes, func(p *Pass) bool {
		return !p.cancelled && p.failed == nil && !p.resting && p.nextStep < p.walk.Slice.Steps()
	})
}

// sleeps records that a lane finds nothing to do, or that it works again. Shared.mu
// is held.
func (s *Shared) sleeps(w *worker) {
	s.reconsider()
	if w.asleep {
		return
	}
	w.asleep = true
	w.Flush(w.book)
	if s.asleep = append(s.asleep, w); len(s.asleep) == 1 {
		s.cause = s.why()
	}
	w.book.Turn(s.cause.state, stats.Monotonic())
}

func (s *Shared) wakes(w *worker) {
	if !w.asleep {
		return
	}
	w.asleep = false
	i := slices.Index(s.asleep, w)
	s.asleep = slices.Delete(s.asleep, i, i+1)
	s.turn(w, stats.Busy, stats.Monotonic())
}

// turn ends a sleeping lane's state and charges the time to its cause.
func (s *Shared) turn(w *worker, state int, now int64) {
	was, took := w.book.Turn(state, now)
	if l := s.cause.l; l != nil {
		l.stats.Decode.Blocked(was, time.Duration(took))
	}
}

// reconsider is called wherever the cause may have changed; lanes that are still
// asleep are charged to the new one. Shared.mu is held.
func (s *Shared) reconsider() {
	if len(s.asleep) == 0 {
		return
	}
	now := s.why()
	if now == s.cause {
		return
	}
	at := stats.Monotonic()
	for _, w := range s.asleep {
		s.turn(w, now.state, at)
	}
	s.cause = now
}

// queues records what waits before each stage, at a request of the consumer.
// Shared.mu is held.
func (p *Pass) queues() {
	l := p.l
	if l.stats.Decode == nil {
		return
	}
	ready, done := 0, 0
	for _, ob := range p.open {
		ready += len(ob.ready)
		if ob.done {
			done++
		}
	}
	l.stats.Read.Queue(l.fetching)
	l.stats.Decode.Queue(ready)
	l.stats.Wait.Queue(done)
}

// asks records a request for a batch at now; until then the consumer was working.
// Shared.mu is held.
func (p *Pass) asks(now int64) {
	if p.l.stats.Wait == nil {
		return
	}
	p.askedAt = now
	if p.givenAt != 0 {
		p.l.stats.Wait.Blocked(stats.Output, time.Duration(now-p.givenAt))
		p.l.stats.Deliver.Blocked(stats.Output, time.Duration(now-p.givenAt))
	}
	p.queues()
}

// given records the answer to a request; b is nil if there was no batch. Shared.mu
// is held.
func (p *Pass) given(now int64, b *Batch) {
	st := p.l.stats
	if st.Wait == nil {
		return
	}
	p.givenAt = now
	items := int64(0)
	if b != nil {
		items = b.span.Steps
	} else {
		p.givenAt = 0 // time after the end is not counted
	}
	waited := time.Duration(now - p.askedAt)
	st.Wait.Add(waited, items, 0)
	st.Deliver.Blocked(stats.Input, waited)
}

// deliver takes the oldest batch, which is complete, at the time now. Shared.mu is
// held.
func (p *Pass) deliver(now int64) (*Batch, error) {
	l := p.l
	if l.stats.Deliver == nil || !l.sending.Due(now) {
		return p.removeOldest(now)
	}
	thread := stats.OnThread()
	b, err := p.removeOldest(now)
	if used := thread.Used(); b != nil {
		b.onThread, b.cpu = true, used
		l.sending.TookBatch(4 * used) // sending it takes longer
	}
	return b, err
}

// book records a delivered batch, and how far the loader has come, on the
// statistics page. Shared.mu is held.
func (p *Pass) book(ob *openBatch, b *Batch, now int64) {
	l := p.l
	if l.stats.Batch == nil {
		return
	}
	l.stats.Batch.Blocked(stats.Input, time.Duration(ob.filled-ob.begun))
	l.stats.Batch.Blocked(stats.Output, time.Duration(now-ob.filled))
	b.span = stats.Span{
		Loader: l.id, Epoch: p.walk.Epoch, Step: b.Step, Steps: int64(ob.Steps), Rows: int64(b.Rows),
		Begun: ob.begun, Filled: ob.filled, Asked: p.askedAt,
	}
	b.bytes, b.delivered = int64(len(ob.Slot.Mem)), now
	l.batches += anew(&l.again.batches, int64(ob.Steps))
	at := stats.Progress{
		At: now, Epoch: p.walk.Epoch, Step: b.Step + int64(ob.Steps) - 1, Samples: l.samples.Load(), Batches: l.batches,
		Slots: l.slots.count, Leased: l.slots.leased, Memory: l.slots.bytes,
	}
	for _, q := range l.passes {
		for _, other := range q.open {
			if other.done {
				at.Ready++
			}
		}
	}
	if !p.began {
		p.began = true
		if p.before.rows == 0 && anew(&l.again.passes, 1) > 0 {
			at.Begins, at.First = true, max(now-p.askedAt, 0)
		}
	}
	l.stats.Delivered(at)
}

// Sending measures the sending of a batch to its consumer.
type Sending struct {
	b      *Batch
	thread stats.Thread
}

// Sending begins the measurement. The goroutine that got the batch from Next calls
// it, and calls Done when the batch is sent. Delivering and sending are one stage.
func (b *Batch) Sending() Sending {
	s := Sending{b: b}
	if b.onThread {
		s.thread = stats.OnThread()
	}
	return s
}

// Done ends the measurement. The slot may already belong to the consumer or to
// another batch.
func (s *Sending) Done() {
	st := s.b.l.stats
	if st.Deliver == nil {
		return
	}
	if s.b.onThread {
		st.Deliver.CPU(s.b.cpu+s.thread.Used(), s.b.span.Steps)
	}
	now, span := stats.Monotonic(), s.b.span
	st.Deliver.Add(time.Duration(now-s.b.delivered), span.Steps, s.b.bytes)
	span.Delivered = now
	st.Span(span)
}
