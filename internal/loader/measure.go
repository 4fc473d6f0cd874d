package loader

import (
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// What is measured and how often: a lane takes the time of every sample, its CPU
// of one sample in cpuEvery (of pictures; of others, which cost less, one in
// cheapEvery), and what of it each transform took of one in splitEvery. Readers of
// small samples measure bunches. Everything is scaled by counts, which are exact.
const (
	cpuEvery   = 4
	cheapEvery = 16
	splitEvery = 16
)

// costs are where the transforms of one program are counted.
type costs struct{ stages []*stats.Stage }

// measure begins the loader's books, and says where each program's transforms
// stand in them: transforms of one name count together.
func (l *Loader) measure() {
	if l.shared.quiet {
		l.stats = stats.Off()
		return
	}
	var names []string
	programs := map[*transform.Program][]string{}
	for _, part := range l.data.parts {
		for _, prog := range slices.Concat(part.programs, part.before, part.after) {
			if prog == nil || prog.Kind() != "image" || len(prog.Names()) == 0 {
				continue
			}
			programs[prog] = prog.Names()
			for _, name := range prog.Names() {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	l.stats = l.shared.Page.Stream(l.id, l.lanes, names)
	l.costs = make(map[*transform.Program]costs, len(programs))
	for prog, own := range programs {
		var c costs
		for _, name := range own {
			c.stages = append(c.stages, l.stats.Transforms[slices.Index(names, name)])
		}
		l.costs[prog] = c
	}
}

// worker is what a lane keeps for itself.
type worker struct {
	book   *stats.Worker
	kernel *transform.Lane
	sample format.Sample
	hand   fetch.Hand
	reads  int
	n      int // samples done
	asleep bool
}

// timed is fill, with its time taken.
func (l *Loader) timed(w *worker, t *task) error {
	decode := l.stats.Decode
	if decode == nil {
		return l.fill(w.kernel, &w.sample, t)
	}
	every := cheapEvery
	if len(l.costs) > 0 {
		every = cpuEvery
		w.kernel.Timed(w.n%splitEvery == 0)
	}
	var thread stats.Thread
	onThread := w.n%every == 0
	w.n++
	if onThread {
		thread = stats.OnThread()
	}
	lap := decode.Begin()
	err := l.fill(w.kernel, &w.sample, t)
	lap.End(1, 0)
	if onThread {
		decode.CPU(thread.Used(), 1)
	}
	w.book.Done(l.id)
	return err
}

// readNow reads a sample whose bytes are at hand; else it goes to the readers.
func (l *Loader) readNow(w *worker, work *stats.Work, t *task) bool {
	if t.unread = false; t.batch.gone.Load() {
		return true // and nothing is done with it
	}
	read := l.stats.Read
	work.Begin(wire.StageRead, uint32(l.id), t.req.Sample)
	var thread stats.Thread
	onThread := read != nil && w.reads%cheapEvery == 0
	w.reads++
	if onThread {
		thread = stats.OnThread()
	}
	lap := read.Begin()
	hot := l.fetch.Now(&w.hand, &t.req)
	work.End()
	if hot {
		lap.End(1, t.req.Bytes())
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
	l.send([]*fetch.Request{&t.req}, true, t.batch)
	return false
}

// counted counts a program's transforms, which a lane has just done for a sample.
func (l *Loader) counted(lane *transform.Lane, prog *transform.Program) {
	c, ok := l.costs[prog]
	if !ok {
		return
	}
	var few [8]time.Duration // of most programs: nothing is allocated
	spent, timed := prog.Divide(lane, few[:0])
	for i, stage := range c.stages {
		stage.Count(1)
		if timed {
			stage.Timed(spent[i])
		}
	}
}

// cause is what lanes that sleep wait for: a state of package stats, and the
// loader whose decoding it is that waits (nil: nobody's).
type cause struct {
	l     *Loader
	state int
}

// why is the cause of there being no sample to decode now. Samples that are being
// read are input; without any, batches that may not be opened, because enough are
// ready or the user holds all slots, are output. Shared.mu is held.
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

// more says whether a pass has batches that were not begun.
func (l *Loader) more() bool {
	return slices.ContainsFunc(l.passes, func(p *Pass) bool {
		return !p.cancelled && p.failed == nil && !p.resting && p.nextStep < p.slice.Steps()
	})
}

// sleeps books a lane that finds nothing to do, and wakes one that does.
// Shared.mu is held.
func (s *Shared) sleeps(w *worker) {
	s.reconsider()
	if w.asleep {
		return
	}
	w.asleep = true
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

// turn ends a sleeping lane's state: it is charged to the cause it had.
func (s *Shared) turn(w *worker, state int, now int64) {
	was, took := w.book.Turn(state, now)
	if l := s.cause.l; l != nil {
		l.stats.Decode.Blocked(was, time.Duration(took))
	}
}

// reconsider is called where the cause may have changed; lanes that sleep on are
// booked on the new one. Shared.mu is held.
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

// queues notes what waits in front of each stage, as the consumer asks. Shared.mu
// is held.
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

// asks books a request for a batch: until now the consumer was at work. Shared.mu
// is held.
func (p *Pass) asks() {
	if p.l.stats.Wait == nil {
		return
	}
	p.askedAt = stats.Monotonic()
	if p.givenAt != 0 {
		p.l.stats.Wait.Blocked(stats.Output, time.Duration(p.askedAt-p.givenAt))
		p.l.stats.Deliver.Blocked(stats.Output, time.Duration(p.askedAt-p.givenAt))
	}
	p.queues()
}

// given books the answer, which the consumer has waited for; nil: there was no
// batch. Shared.mu is held.
func (p *Pass) given(waited time.Duration, b *Batch) {
	st := p.l.stats
	if st.Wait == nil {
		return
	}
	p.givenAt = p.askedAt + int64(waited)
	items := int64(0)
	if b != nil {
		items = b.span.Steps
	} else {
		p.givenAt = 0 // what comes behind the end is nobody's
	}
	st.Wait.Add(waited, items, 0)
	st.Deliver.Blocked(stats.Input, waited)
}

// book puts a batch that is handed out, and how far the loader has come, into the
// page. Shared.mu is held.
func (p *Pass) book(ob *openBatch, b *Batch) {
	l := p.l
	if l.stats.Batch == nil {
		return
	}
	now := stats.Monotonic()
	l.stats.Batch.Blocked(stats.Input, time.Duration(ob.filled-ob.begun))
	l.stats.Batch.Blocked(stats.Output, time.Duration(now-ob.filled))
	b.span = stats.Span{
		Loader: l.id, Epoch: p.epoch, Step: b.Step, Steps: int64(ob.steps), Rows: int64(b.Rows),
		Begun: ob.begun, Filled: ob.filled, Asked: p.askedAt,
	}
	b.bytes = int64(len(ob.slot.Mem))
	l.batches += int64(ob.steps)
	at := stats.Progress{
		Epoch: p.epoch, Step: b.Step + int64(ob.steps) - 1, Samples: l.samples.Load(), Batches: l.batches,
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
		at.First = max(now-p.askedAt, 1)
	}
	l.stats.Hand(at)
}

// Sending is the books of a batch on its way to its consumer.
type Sending struct {
	b        *Batch
	begin    int64
	onThread bool
	thread   stats.Thread
}

// Sending is to be called where sending the batch begins; the same goroutine calls
// Done when it is sent. What is done before Next returned is not in it.
func (b *Batch) Sending() Sending {
	s := Sending{b: b}
	if b.l.stats.Deliver == nil {
		return s
	}
	if s.onThread = b.Step%cheapEvery == 0; s.onThread {
		s.thread = stats.OnThread()
	}
	s.begin = stats.Monotonic()
	return s
}

// Done ends it. The slot may be the consumer's by now, or another batch's.
func (s *Sending) Done() {
	st := s.b.l.stats
	if st.Deliver == nil {
		return
	}
	now, span := stats.Monotonic(), s.b.span
	if s.onThread {
		st.Deliver.CPU(s.thread.Used(), span.Steps)
	}
	st.Deliver.Add(time.Duration(now-s.begin), span.Steps, s.b.bytes)
	span.Delivered = now
	st.Span(span)
}
