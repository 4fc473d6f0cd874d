package loader

import (
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Samples of a few kilobytes that need no decoding are filled in by the reader that
// reads them, several at a time: passing each to a lane would cost several times
// what reading and converting it costs. A sample that fails takes the usual way by
// itself, so that errors and the policy for bad samples are the same.

const (
	// directBytes is the length of the longest sample that takes this way.
	directBytes = 64 << 10
	// bunchBytes is how much one bunch reads before it fills rows; it should stay
	// in the CPU cache.
	bunchBytes = 64 << 10
	// bunchTime is how long the reads of one bunch may take: if they are slow,
	// several readers should share a batch.
	bunchTime = 200 * time.Microsecond
)

// plain is a dataset whose Parse only returns slices of what was read.
type plain interface{ Plain() bool }

// direct reports whether all samples of the loader may take this way.
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

// bunch is a group of tasks of one batch that one reader works on.
type bunch struct {
	l     *Loader
	batch *openBatch
	tasks []fill.Task
	spent spent
}

// pace is how long one read takes, in ns, as far as that is known.
type pace struct{ ns atomic.Int64 }

func (p *pace) add(d time.Duration) { p.ns.Store(p.ns.Load() + (int64(d)-p.ns.Load())/8) }

// rows is the number of reads in a bunch.
func (p *pace) rows() int { return max(1, int(int64(bunchTime)/max(p.ns.Load(), 1))) }

// Begin sends a batch's samples to the readers in bunches; long samples, and those of a
// store that a link leads to, where neighbours should be read together, take the
// usual way. Every bunch has at least one sample of its own: the batch would not
// wait for a bunch without any, which could then run when the batch is reused. It
// returns how long it waited.
func (c readers) Begin(b *fill.Batch) (waited time.Duration) {
	l, ob := c.l, b.Owner.(*openBatch) //nolint:forcetypeassert // newBatch sets it
	p, step, steps := ob.pass, ob.Step, int64(ob.Steps)
	most := l.pace.rows()
	ob.bunches = ob.bunches[:0]
	var long []*fetch.Request
	begin, own, bytes := 0, 0, int64(0)
	send := func(end int) {
		if own > 0 {
			ob.bunches = append(ob.bunches, bunch{l: l, batch: ob, tasks: ob.Tasks[begin:end]})
		}
		begin, own, bytes = end, 0, 0
	}
	for i := range ob.Tasks {
		t := &ob.Tasks[i]
		if t.Apart = t.Sample < 0; t.Apart {
			continue
		}
		l.filler.Locate(t)
		n := t.Req.Bytes()
		if n > directBytes || l.fetch.Waits(&t.Req) {
			t.Apart = true
			long = append(long, &t.Req)
			continue
		}
		if bytes+n > bunchBytes || i-begin >= most {
			send(i)
		}
		own, bytes = own+1, bytes+n
	}
	send(len(ob.Tasks))
	for i := range ob.bunches {
		l.fetch.Do(&ob.bunches[i])
	}
	return l.submit(long, ob, p, step, steps)
}

// rowState is the state with which a reader fills rows.
type rowState struct {
	lane   transform.Lane // for all but pictures
	fill   fill.State
	failed []*fill.Task
}

// Run reads and fills the tasks of a bunch, and sends those that fail the usual
// way. As soon as finishBunch has counted the batch's last task, the batch, and r
// with it, may be reused.
func (r *bunch) Run(rc *fetch.ReadContext) {
	l, ob := r.l, r.batch
	own := l.rowStates.Get().(*rowState)
	defer l.rowStates.Put(own)
	own.fill.Lane, own.failed = &own.lane, own.failed[:0]
	var thread stats.Thread
	begin := stats.Monotonic()
	onThread := l.stats.Decode != nil && l.filling.Due(begin)
	if onThread {
		thread = stats.OnThread()
	}
	count, bytes := r.read(rc)
	read := stats.Monotonic()
	if onThread {
		l.stats.Read.CPU(thread.Lap(), int64(count))
	}
	for i := range r.tasks {
		t := &r.tasks[i]
		if t.Apart || ob.Gone.Load() {
			continue
		}
		rc.Next(wire.StageDecode, t.Req.Sample)
		if err := l.filler.Fill(&own.fill, t); err != nil {
			own.failed = append(own.failed, t)
			continue
		}
		ob.Stamp(t)
	}
	rc.At(0, 0)
	if onThread {
		l.stats.Decode.CPU(thread.Used(), int64(count))
	}
	end := stats.Monotonic()
	if count > 0 {
		l.pace.add(time.Duration(read-begin) / time.Duration(count))
	}
	r.spent = spent{read: read - begin, fill: end - read, items: int64(count), bytes: bytes}
	if onThread {
		l.filling.Took(end-begin, bunchCPU)
	}
	l.finishBunch(ob, r.tasks, own.failed, end)
}

// read reads what the tasks need: first everything, to be checked together. If that
// finds a file that was changed, it reads each by itself, to find out whose file it
// is.
func (r *bunch) read(rc *fetch.ReadContext) (count int, bytes int64) {
	rc.Together()
	count, bytes = r.readEach(rc)
	if !rc.Checked() {
		rc.Reset()
		count, bytes = r.readEach(rc)
	}
	return count, bytes
}

func (r *bunch) readEach(rc *fetch.ReadContext) (count int, bytes int64) {
	for i := range r.tasks {
		t := &r.tasks[i]
		if t.Apart || r.batch.Gone.Load() {
			continue
		}
		rc.At(wire.StageRead, t.Req.Sample)
		raw, err := rc.Read(r.batch.pass.ctx, t.Req.Extents)
		t.Req.Raw, t.Req.Err = append(t.Req.Raw[:0], raw...), err
		for _, p := range raw {
			bytes += int64(len(p))
		}
		count++
	}
	return count, bytes
}

// finishBunch counts the tasks of a bunch, and sends the failed ones again. In a
// batch that was given up some tasks were not done; otherwise all were, and those
// that did not fail were stamped. now is the current stats.Monotonic.
func (l *Loader) finishBunch(ob *openBatch, tasks []fill.Task, failed []*fill.Task, now int64) {
	s := l.shared
	s.mu.Lock()
	gone := ob.Gone.Load()
	l.moved = now
	for i := range tasks {
		if !tasks[i].Apart {
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
			l.send([]*fetch.Request{&t.Req}, true, ob)
		}
		return
	}
	l.finishBatch(ob, now)
}
