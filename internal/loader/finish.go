package loader

import (
	"errors"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/fetch"
)

// send passes samples of a batch to fetch, and returns how long it waited for room.
func (l *Loader) send(reqs []*fetch.Request, force bool, ob *openBatch) (waited time.Duration) {
	l.shared.mu.Lock()
	l.fetching += len(reqs)
	l.shared.reconsider()
	l.shared.mu.Unlock()
	return l.fetch.Submit(ob.Ctx, reqs, force, ob.Gone.Load)
}

// submit is send for the samples of a whole batch, with so many steps from step on, that
// may be planned.
func (l *Loader) submit(reqs []*fetch.Request, ob *openBatch, p *Pass, step, steps int64) (waited time.Duration) {
	if p.plan == nil {
		if len(reqs) == 0 { // the batch may already be reused
			return 0
		}
		return l.send(reqs, false, ob)
	}
	if len(reqs) == 0 {
		return p.plan.Submit(p.ctx, nil, nil, step, steps)
	}
	l.shared.mu.Lock()
	l.fetching += len(reqs)
	l.shared.reconsider()
	l.shared.mu.Unlock()
	return p.plan.Submit(ob.Ctx, reqs, ob.Gone.Load, step, steps)
}

// sampleError is that of package compose; located says where a turn of a worker failed.
func (ob *openBatch) sampleError(t *fill.Task, err error) (*errs.Error, bool) {
	if ob.pass.turns != nil {
		return errs.From(err), false
	}
	return ob.SampleError(t, err)
}

// finish is called exactly once for every task, by who did it, with its error. now is
// the current stats.Monotonic; lane says that a lane did it. It reports whether it woke
// other goroutines.
func (l *Loader) finish(t *fill.Task, err error, now int64, lane bool) (woke bool) {
	if l.feeds != nil {
		return l.feeds.finish(t, err, now, lane)
	}
	s := l.shared
	ob := batchOf(t)
	var bad *errs.Error
	var may bool
	if err != nil && !ob.Gone.Load() {
		bad, may = ob.sampleError(t, err)
	}
	s.mu.Lock()
	if lane {
		l.running--
	}
	if bad != nil {
		ob.pass.single()
	}
	if bad != nil && !ob.Gone.Load() && ob.OnBad(t, bad, may) {
		s.mu.Unlock()
		l.crew.Again(t)
		return true
	}
	if bad == nil && !ob.Gone.Load() {
		ob.Stamp(t)
	}
	return l.counted(ob, 1, now)
}

// filled is finish for tasks of one batch without an error.
func (l *Loader) filled(tasks []*fill.Task, now int64) {
	ob := batchOf(tasks[0])
	l.shared.mu.Lock()
	if !ob.Gone.Load() {
		for _, t := range tasks {
			ob.Stamp(t)
		}
	}
	l.counted(ob, len(tasks), now)
}

// counted goes on when n more tasks of a batch have been finished, and reports whether it
// woke other goroutines. Shared.mu is held, and released.
func (l *Loader) counted(ob *openBatch, n int, now int64) (woke bool) {
	s := l.shared
	l.moved = now
	ob.left -= n
	if ob.left == 0 {
		if last := ob.FillIn(); last != nil {
			ob.left++
			s.mu.Unlock()
			l.crew.Again(last)
			return true
		}
	}
	if ob.left > 0 || ob.Gone.Load() {
		ob.settle()
		s.mu.Unlock()
		return false
	}
	l.finishBatch(ob, now)
	return true
}

// finishBatch completes a batch whose tasks have all been done since now. Shared.mu is
// held, and released meanwhile.
func (l *Loader) finishBatch(ob *openBatch, now int64) {
	s := l.shared
	ob.completing = true
	s.mu.Unlock()
	failed := l.completeTimed(ob, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	ob.completing = false
	if i := slices.Index(ob.pass.open, ob); errors.Is(failed, errLater) && i >= 0 {
		ob.pass.giveUp(i)
		s.changed.Broadcast()
		return
	}
	ob.done = true
	if ob.Err == nil {
		ob.Err = failed
	}
	ob.Trim()
	ob.settle()
	s.changed.Broadcast()
}

// completeTimed calls complete and measures its time from begin (stats.Monotonic) on.
func (l *Loader) completeTimed(ob *openBatch, begin int64) error {
	st := l.stats.Batch
	if st == nil {
		return ob.Complete(l.slots.replace)
	}
	var thread stats.Thread
	onThread := l.completing.Due(begin)
	if onThread {
		thread = stats.OnThread()
	}
	ob.bunches.Enter(l.stats)
	err := ob.Complete(l.slots.replace)
	if onThread {
		used := thread.Used()
		st.CPU(used, 1)
		l.completing.TookBatch(used)
	}
	ob.filled = stats.Monotonic()
	st.Add(time.Duration(ob.filled-begin), 1, ob.Layout.Bytes())
	return err
}
