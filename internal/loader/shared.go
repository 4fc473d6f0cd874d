package loader

import (
	"runtime"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Shared is what all loaders of one process share: lanes, the memory of batches,
// buffers, the statistics page. One lock guards all of it and all passes: it is
// taken a few times per sample, for less than a microsecond.
type Shared struct {
	Arena batch.Arena
	// Poison overwrites slots that come back, for tests: see batch.Slot.
	Poison bool
	Board  *stats.Board
	Pool   *mem.Pool
	Page   *stats.Page // nil: statistics are not shared with other processes

	mu      sync.Mutex
	changed sync.Cond // a batch, a slot, a pass, a consumer: rare events
	work    sync.Cond // a sample is ready for a lane
	loaders []*Loader
	lanes   int // running
	resting int // those of lanes that wait for work
	clock   int64
	lastID  int64
	closed  bool
	done    sync.WaitGroup
	closing sync.WaitGroup // loaders that were closed, and have not closed their data yet
	auto    int64          // bytes that the batches of all loaders without their own limit may take together
	taken   int64          // of auto

	scratch mem.Scratch // memory of lanes for large pictures

	asleep []*worker // lanes with nothing to do
	cause  cause     // why
	quiet  bool      // nothing is measured; for finding out what measuring costs
}

// NewShared returns the shared part of loaders whose batches are allocated in
// arena.
func NewShared(arena batch.Arena, board *stats.Board) *Shared {
	s := &Shared{Arena: arena, Board: board, Pool: &mem.Pool{KeepBytes: 64 << 20}}
	s.changed.L, s.work.L = &s.mu, &s.mu
	return s
}

// Close ends the lanes after their current samples. All loaders must be closed.
func (s *Shared) Close() {
	s.mu.Lock()
	s.closed = true
	s.work.Broadcast()
	s.changed.Broadcast()
	s.mu.Unlock()
	s.done.Wait()
	s.Settle(settling)
}

// settling is how long Close waits for loaders that are being closed: a read of theirs may
// hang.
const settling = 2 * time.Second

// Settle waits until the loaders that were closed have let go of their data, and have written
// the entry points that lanes found in it, at most so long.
func (s *Shared) Settle(most time.Duration) {
	done := make(chan struct{})
	go func() {
		s.closing.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(most):
	}
}

// grow makes sure that at least n lanes run.
func (s *Shared) grow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; s.lanes < n; s.lanes++ {
		s.done.Go(s.lane)
	}
}

// Lanes is the number of lanes that run.
func (s *Shared) Lanes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lanes
}

// lane is one worker. It takes the next sample that is ready, of the batch that is
// needed first, and decodes it into its row.
func (s *Shared) lane() {
	kernel := transform.NewLane()
	defer kernel.Close()
	work := s.Board.Take()
	defer s.Board.Give(work)
	w := &worker{State: fill.State{Lane: kernel}}
	if !s.quiet {
		w.book = s.Page.Worker(stats.LaneWorker)
		w.book.Turn(stats.Busy, stats.Monotonic())
		defer w.book.Free()
		defer func() { w.Flush(w.book) }()
	}
	for t := s.take(w); t != nil; t = s.take(w) {
		// Let the goroutine that this lane has woken run now. It would wait on this
		// thread's run queue while the sample is decoded in C; Go's monitor thread
		// takes such queues away, and then looks for more of them every 70 µs for a
		// while, which costs a twentieth of a core. This is not done for every
		// sample, because yielding also wakes another thread, which looks for work.
		if w.woke {
			runtime.Gosched()
		}
		l := batchOf(t).pass.l
		if t.Unread && !l.readNow(w, work, t) {
			w.woke = true
			continue
		}
		begin := work.Begin(wire.StageDecode, uint32(l.id), l.first+t.Req.Sample)
		end, err := l.filler.FillTimed(&w.State, t, w.book, begin)
		work.End()
		w.woke = l.finish(t, err, end, true)
	}
}

// take waits for the next task. It returns nil if the lanes end. If tasks are left
// that may be taken, it wakes another sleeping lane: nobody else does when a loader
// was at its limit of lanes and the lane that finished its sample goes on with
// another loader's.
func (s *Shared) take(w *worker) *fill.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			s.wakes(w)
			return nil
		}
		if ob := s.next(); ob != nil {
			t := ob.ready[0]
			copy(ob.ready, ob.ready[1:])
			ob.ready = ob.ready[:len(ob.ready)-1]
			ob.pass.l.running++
			s.wakes(w)
			if len(s.loaders) > 1 && s.resting > 0 && s.next() != nil {
				s.work.Signal()
				w.woke = true
			}
			return t
		}
		if !s.quiet {
			s.sleeps(w)
		}
		s.resting++
		s.work.Wait()
		s.resting--
	}
}

// next returns the batch with the next task: the oldest batch of the pass that is
// needed most, of loaders that may have one more lane. nil: there is none.
// Shared.mu is held.
func (s *Shared) next() (best *openBatch) {
	bestRank := 1 << 30
	for _, l := range s.loaders {
		if l.running >= l.lanes {
			continue
		}
		for _, p := range l.passes {
			if ob, rank := p.oldestReady(); ob != nil && rank < bestRank {
				best, bestRank = ob, rank
			}
		}
	}
	return best
}

// oldestReady returns the oldest batch of the pass with a sample to decode, and how
// urgent it is: smaller is more urgent.
func (p *Pass) oldestReady() (*openBatch, int) {
	for i, ob := range p.open {
		if len(ob.ready) > 0 {
			rank := 2 * i // twice the batches between it and the consumer
			if p.waiting == 0 && p.l.feeds == nil {
				rank += 1000
			}
			if p.ahead {
				rank += 10000
			}
			return ob, rank
		}
	}
	return nil, 0
}

// fetched is called by fetch when a sample's bytes have arrived.
func (s *Shared) fetched(t *fill.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := batchOf(t).pass.l; l.fetching == 1 {
		l.fetching = 0
		s.reconsider()
	} else {
		l.fetching--
	}
	if t.Batch.Gone.Load() {
		t.Req.Release()
		batchOf(t).left--
		batchOf(t).settle()
		return
	}
	batchOf(t).ready = append(batchOf(t).ready, t)
	s.work.Signal()
}

// unread passes the unread samples of a batch to the lanes, which read them.
func (s *Shared) unread(ob *openBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ob.Tasks {
		switch t := &ob.Tasks[i]; {
		case t.Sample < 0 || !t.Unread:
		case ob.Gone.Load():
			ob.left--
		default:
			ob.ready = append(ob.ready, t)
		}
	}
	ob.settle()
	s.work.Broadcast()
}

// settle gives back the slot of a batch that was given up, once no task of it is in
// work. Shared.mu is held.
func (ob *openBatch) settle() {
	if ob.Gone.Load() && ob.left == 0 && !ob.completing && ob.Slot != nil {
		ob.bunches.Enter(ob.pass.l.stats)
		ob.Trim()
		ob.pass.l.slots.put(ob.Slot)
		ob.Slot = nil
		ob.pass.l.inflight--
		if f := ob.pass.l.feeds; f != nil {
			f.gone(ob)
		}
	}
}
