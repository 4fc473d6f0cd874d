package loader

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// What is measured and how often: a lane takes the time of every sample; its CPU of
// about one in cpuTime of work, and what each transform took of it of one in
// splitTime, so that what measuring costs does not depend on how small samples are.
// Readers of small samples take the time of bunches, and the CPU of about one in
// bunchCPU of work. Batches are planned, closed and sent with their time taken, and
// the CPU of as few. Everything is scaled by counts, which are
// exact. The first sample of a lane is not measured: it makes the lane's memory.
//
// To ask a clock takes as long as to move a small sample, so who has just asked one
// says what it was to whoever comes next.
const (
	cpuTime   = int64(8 * time.Millisecond)
	splitTime = int64(20 * time.Millisecond)
	bunchCPU  = int64(4 * time.Millisecond)

	mostBatches = 64 // one in so many at least: there are few of them
)

// seldom chooses what CPU is measured of: about one in so much of the work. By chance,
// which the last digits of the clock are: what is due by time is the first after a
// pause too often, and what is due by count may be the first of each pass, or of what
// a collection of garbage took away; those find their caches cold. The first of all is
// chosen. Safe for concurrent use.
type seldom struct{ every atomic.Int64 }

// due says whether this one is; now is stats.Monotonic.
func (s *seldom) due(now int64) bool {
	every := s.every.Load()
	return every == 0 || now%every == 0
}

// took is what one took that was due, of which so much comes to each.
func (s *seldom) took(took, each int64) { s.every.Store(max(each/max(took, 1), 1)) }

// tookBatch is took for what is done once a batch.
func (s *seldom) tookBatch(d time.Duration) {
	s.took(int64(d), min(cpuTime, mostBatches*int64(d)))
}

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
	for _, part := range l.data.Parts {
		for _, prog := range slices.Concat(part.Programs, l.cutsOf(part).before, l.cutsOf(part).after) {
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
	l.costs = make(map[*transform.Program]*costs, len(programs))
	for prog, own := range programs {
		c := &costs{}
		for _, name := range own {
			c.stages = append(c.stages, l.stats.Transforms[slices.Index(names, name)])
		}
		l.costs[prog] = c
	}
}

// filler is what filling in samples takes: of one goroutine.
type filler struct {
	lane   *transform.Lane
	sample format.Sample
	tally  tally
}

// tally is what a lane has counted and not yet put into the books of a loader: the
// words there are all lanes', and adding to them for every sample would cost more
// the more lanes there are.
type tally struct {
	l        *Loader
	took     [16]int64 // ns, of n samples
	n        int
	programs []done
	jpeg     stats.Ways
}

type done struct {
	*costs
	n int64
}

// flush puts it there.
func (y *tally) flush(book *stats.Worker) {
	if y.n == 0 {
		return
	}
	y.l.stats.Decode.AddEach(y.took[:y.n])
	for _, p := range y.programs {
		for _, stage := range p.stages {
			stage.Count(p.n)
		}
	}
	y.l.stats.Decoded(y.jpeg)
	book.Done(y.l.id, int64(y.n))
	y.n, y.programs, y.jpeg = 0, y.programs[:0], stats.Ways{}
}

// worker is what a lane keeps for itself.
type worker struct {
	filler
	book   *stats.Worker
	hand   fetch.Hand
	asleep bool
	woke   bool // it has woken somebody, who may be on its thread's queue

	mean           int64 // ns, of the last samples
	cpuIn, splitIn int64 // samples until one is measured
}

func newWorker(lane *transform.Lane) *worker {
	return &worker{filler: filler{lane: lane}, cpuIn: 1, splitIn: 1}
}

// timed is fill, with its time taken from begin (stats.Monotonic) on; it says when it
// ended.
func (l *Loader) timed(w *worker, t *task, begin int64) (end int64, err error) {
	if l.stats.Decode == nil {
		err = l.fill(&w.filler, t)
		return stats.Monotonic(), err
	}
	if w.tally.l != l {
		w.tally.flush(w.book)
		w.tally.l = l
	}
	split, onThread := w.splitIn == 0 && len(l.costs) > 0, w.cpuIn == 0
	w.lane.Timed(split)
	var thread stats.Thread
	if onThread {
		thread = stats.OnThread()
	}
	err = l.fill(&w.filler, t)
	end = stats.Monotonic()
	took := end - begin
	if onThread {
		l.stats.Decode.CPU(thread.Used(), 1)
	}
	w.tally.took[w.tally.n] = took
	if w.tally.n++; w.tally.n == len(w.tally.took) {
		w.tally.flush(w.book)
	}
	w.mean += (took - w.mean) / 8
	w.cpuIn, w.splitIn = countdown(w.cpuIn, cpuTime/max(w.mean, 1)), countdown(w.splitIn, splitTime/max(w.mean, 1))
	return end, err
}

// spent is what one bunch took, ns, to read and to fill so many items.
type spent struct{ read, fill, items, bytes int64 }

// enter puts what a batch's bunches took into the books, together: every reader
// writes the words there, and a bunch may take no more than some microseconds. Once
// their last task is done; again it does nothing.
func (ob *openBatch) enter() {
	l := ob.pass.l
	if len(ob.bunches) == 0 || l.stats.Decode == nil {
		return
	}
	var read, fill stats.Sum
	var bytes int64
	for i := range ob.bunches {
		at := &ob.bunches[i].spent
		l.stats.Read.Several(&read, at.read, at.items)
		l.stats.Decode.Several(&fill, at.fill, at.items)
		bytes += at.bytes
	}
	l.stats.Read.Put(&read, bytes)
	l.stats.Decode.Put(&fill, 0)
	ob.bunches = ob.bunches[:0]
}

// countdown goes to the next sample to measure, one in every so many. Not the first
// after some time: a lane that has slept finds its caches cold.
func countdown(in, every int64) int64 {
	if in == 0 {
		return every
	}
	return in - 1
}

// readNow reads a sample whose bytes are at hand; else it goes to the readers.
func (l *Loader) readNow(w *worker, work *stats.Work, t *task) bool {
	if t.unread = false; t.batch.gone.Load() {
		return true // and nothing is done with it
	}
	read := l.stats.Read
	begin := work.Begin(wire.StageRead, uint32(l.id), t.req.Sample)
	var thread stats.Thread
	onThread := read != nil && w.cpuIn == 0
	if onThread {
		thread = stats.OnThread()
	}
	hot := l.fetch.Now(t.batch.pass.ctx, &w.hand, &t.req)
	work.End()
	if hot && read != nil && len(t.req.Extents) > 0 { // a sample that is kept has none
		read.Add(time.Duration(stats.Monotonic()-begin), 1, t.req.Bytes())
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
	// Where a whole batch has to be read after all, that keeps to the budget, and a lane
	// never waits for it.
	go l.send([]*fetch.Request{&t.req}, false, t.batch)
	return false
}

// counted counts a JPEG by its decoder, and a program's transforms, which have just been
// done for a sample.
func (l *Loader) counted(f *filler, prog *transform.Program) {
	if way, ok := f.lane.Way(); ok && prog.Kind() == "image" && l.stats.Decode != nil {
		switch way {
		case kernel.WayOwn:
			f.tally.jpeg.Own++
		case kernel.WayLibjpeg:
			f.tally.jpeg.Libjpeg++
		case kernel.WayGo:
			f.tally.jpeg.Go++
		}
	}
	c := l.costs[prog]
	if c == nil {
		return
	}
	y := &f.tally
	i := slices.IndexFunc(y.programs, func(d done) bool { return d.costs == c })
	if i < 0 {
		i = len(y.programs)
		y.programs = append(y.programs, done{costs: c})
	}
	y.programs[i].n++
	var few [8]time.Duration // of most programs: nothing is allocated
	if spent, timed := prog.Divide(f.lane, few[:0]); timed {
		for k, stage := range c.stages {
			stage.Timed(spent[k])
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
	w.tally.flush(w.book)
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

// asks books a request for a batch at the moment now: until then the consumer was at
// work. Shared.mu is held.
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

// given books the answer, which the consumer has waited for until now; nil: there was
// no batch. Shared.mu is held.
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
		p.givenAt = 0 // what comes behind the end is nobody's
	}
	waited := time.Duration(now - p.askedAt)
	st.Wait.Add(waited, items, 0)
	st.Deliver.Blocked(stats.Input, waited)
}

// hand takes the oldest batch, which is done, at the moment now. Shared.mu is held.
func (p *Pass) hand(now int64) (*Batch, error) {
	l := p.l
	if l.stats.Deliver == nil || !l.sending.due(now) {
		return p.handOut(now)
	}
	thread := stats.OnThread()
	b, err := p.handOut(now)
	if used := thread.Used(); b != nil {
		b.onThread, b.cpu = true, used
		l.sending.tookBatch(4 * used) // to send it takes more
	}
	return b, err
}

// book puts a batch that is handed out now, and how far the loader has come, into the
// page. Shared.mu is held.
func (p *Pass) book(ob *openBatch, b *Batch, now int64) {
	l := p.l
	if l.stats.Batch == nil {
		return
	}
	l.stats.Batch.Blocked(stats.Input, time.Duration(ob.filled-ob.begun))
	l.stats.Batch.Blocked(stats.Output, time.Duration(now-ob.filled))
	b.span = stats.Span{
		Loader: l.id, Epoch: p.epoch, Step: b.Step, Steps: int64(ob.steps), Rows: int64(b.Rows),
		Begun: ob.begun, Filled: ob.filled, Asked: p.askedAt,
	}
	b.bytes, b.handed = int64(len(ob.slot.Mem)), now
	l.batches += int64(ob.steps)
	at := stats.Progress{
		At: now, Epoch: p.epoch, Step: b.Step + int64(ob.steps) - 1, Samples: l.samples.Load(), Batches: l.batches,
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
		at.Begins, at.First = true, max(now-p.askedAt, 0)
	}
	l.stats.Hand(at)
}

// Sending is the books of a batch on its way to its consumer.
type Sending struct {
	b      *Batch
	thread stats.Thread
}

// Sending is to be called where sending the batch begins, by the goroutine that got it
// of Next; the same calls Done when it is sent. Both are one stage with handing it out.
func (b *Batch) Sending() Sending {
	s := Sending{b: b}
	if b.onThread {
		s.thread = stats.OnThread()
	}
	return s
}

// Done ends it. The slot may be the consumer's by now, or another batch's.
func (s *Sending) Done() {
	st := s.b.l.stats
	if st.Deliver == nil {
		return
	}
	if s.b.onThread {
		st.Deliver.CPU(s.b.cpu+s.thread.Used(), s.b.span.Steps)
	}
	now, span := stats.Monotonic(), s.b.span
	st.Deliver.Add(time.Duration(now-s.b.handed), span.Steps, s.b.bytes)
	span.Delivered = now
	st.Span(span)
}
