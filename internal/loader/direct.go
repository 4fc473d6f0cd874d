package loader

import (
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Samples of a few kilobytes that need no decoding are filled in by the reader
// that reads them, several at a time: to hand each to a lane would cost several
// times what it costs to read and convert it. What fails goes the way of all
// others, by itself, so that errors and the policy for bad samples are the same.

const (
	// directBytes is the longest sample that goes this way.
	directBytes = 64 << 10
	// bunchBytes is what one bunch reads before it fills: it stays in the cache.
	bunchBytes = 64 << 10
	// bunchTime is what the reads of one bunch may take: where they are slow, several
	// readers shall share a batch.
	bunchTime = 200 * time.Microsecond
)

// plain is a dataset whose Parse does no more than point into what was read.
type plain interface{ Plain() bool }

// direct says whether all samples of the loader may go this way.
func (l *Loader) direct() bool {
	for _, p := range l.data.Parts {
		ds, ok := p.Dataset.(plain)
		if !ok || !ds.Plain() || p.N == 0 {
			return false
		}
		for _, prog := range p.Programs {
			if prog.Kind() == "image" {
				return false
			}
		}
	}
	return true
}

// bunch is tasks of one batch that a reader does.
type bunch struct {
	l     *Loader
	batch *openBatch
	tasks []task
	spent spent
}

// pace is what one read takes, ns, as far as it is known.
type pace struct{ ns atomic.Int64 }

func (p *pace) add(d time.Duration) { p.ns.Store(p.ns.Load() + (int64(d)-p.ns.Load())/8) }

// rows is how many reads fit into a bunch.
func (p *pace) rows() int { return max(1, int(int64(bunchTime)/max(p.ns.Load(), 1))) }

// begin sends a batch's samples to the readers in bunches; long ones go the usual
// way. A bunch has a sample of its own at least: one without would hold nothing that the
// batch waits for, and run when the batch is another's. It says how long it waited.
func (c readers) begin(ob *openBatch) (waited time.Duration) {
	l := c.l
	most := l.pace.rows()
	ob.bunches = ob.bunches[:0]
	var long []*fetch.Request
	begin, own, bytes := 0, 0, int64(0)
	send := func(end int) {
		if own > 0 {
			ob.bunches = append(ob.bunches, bunch{l: l, batch: ob, tasks: ob.tasks[begin:end]})
		}
		begin, own, bytes = end, 0, 0
	}
	for i := range ob.tasks {
		t := &ob.tasks[i]
		if t.apart = t.sample < 0; t.apart {
			continue
		}
		l.locate(t)
		n := t.req.Bytes()
		if n > directBytes {
			t.apart = true
			long = append(long, &t.req)
			continue
		}
		if bytes+n > bunchBytes || i-begin >= most {
			send(i)
		}
		own, bytes = own+1, bytes+n
	}
	send(len(ob.tasks))
	for i := range ob.bunches {
		l.fetch.Do(&ob.bunches[i])
	}
	if long != nil {
		return l.send(long, false, ob)
	}
	return 0
}

// hand is what a reader fills with.
type hand struct {
	lane   transform.Lane // for all but pictures
	fill   filler
	failed []*task
}

// Run reads and fills the tasks of a bunch, and sends those that fail the usual way.
// Once finishBunch has counted the last of them the batch, and r with it, may be
// another's.
func (r *bunch) Run(h *fetch.Hand) {
	l, ob := r.l, r.batch
	own := l.hands.Get().(*hand)
	defer l.hands.Put(own)
	own.fill.lane, own.failed = &own.lane, own.failed[:0]
	var thread stats.Thread
	begin := stats.Monotonic()
	onThread := l.stats.Decode != nil && l.filling.due(begin)
	if onThread {
		thread = stats.OnThread()
	}
	count, bytes := r.read(h)
	read := stats.Monotonic()
	if onThread {
		l.stats.Read.CPU(thread.Lap(), int64(count))
	}
	for i := range r.tasks {
		t := &r.tasks[i]
		if t.apart || ob.gone.Load() {
			continue
		}
		h.Next(wire.StageDecode, t.req.Sample)
		if err := l.fill(&own.fill, t); err != nil {
			own.failed = append(own.failed, t)
			continue
		}
		l.stamp(t)
	}
	h.At(0, 0)
	if onThread {
		l.stats.Decode.CPU(thread.Used(), int64(count))
	}
	end := stats.Monotonic()
	if count > 0 {
		l.pace.add(time.Duration(read-begin) / time.Duration(count))
	}
	r.spent = spent{read: read - begin, fill: end - read, items: int64(count), bytes: bytes}
	if onThread {
		l.filling.took(end-begin, bunchCPU)
	}
	l.finishBunch(ob, r.tasks, own.failed, end)
}

// read reads what the tasks want: first all of it, to be checked together. Where that
// finds a file that was changed, each is read by itself, so that it is known whose it is.
func (r *bunch) read(h *fetch.Hand) (count int, bytes int64) {
	h.Together()
	count, bytes = r.readEach(h)
	if !h.Checked() {
		h.Reset()
		count, bytes = r.readEach(h)
	}
	return count, bytes
}

func (r *bunch) readEach(h *fetch.Hand) (count int, bytes int64) {
	for i := range r.tasks {
		t := &r.tasks[i]
		if t.apart || r.batch.gone.Load() {
			continue
		}
		h.At(wire.StageRead, t.req.Sample)
		raw, err := h.Read(r.batch.pass.ctx, t.req.Extents)
		t.req.Raw, t.req.Err = append(t.req.Raw[:0], raw...), err
		for _, p := range raw {
			bytes += int64(len(p))
		}
		count++
	}
	return count, bytes
}

// finishBunch counts the tasks of a bunch, and begins those anew that failed. A batch
// that was given up has tasks that were not done; else all were, and those that did
// not fail were stamped. It is now the moment now.
func (l *Loader) finishBunch(ob *openBatch, tasks []task, failed []*task, now int64) {
	s := l.shared
	s.mu.Lock()
	gone := ob.gone.Load()
	l.moved = now
	for i := range tasks {
		if !tasks[i].apart {
			ob.left--
		}
	}
	if !gone {
		ob.left += len(failed)
	}
	if gone || ob.left > 0 {
		ob.settle()
		s.mu.Unlock()
		if gone {
			return
		}
		for _, t := range failed {
			l.send([]*fetch.Request{&t.req}, true, ob)
		}
		return
	}
	l.finishBatch(ob, now)
}
