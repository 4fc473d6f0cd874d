package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/fetch"
)

// maxAttempts is how many samples are tried for one place under Replace.
const maxAttempts = 16

// wordReplace separates the randomness of replacements from that of augmentation.
const wordReplace = 1<<63 + 1

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

// sampleError returns the error of a sample as users see it, and whether on_bad may
// skip it: damage may be skipped, a failing source may not.
func (l *Loader) sampleError(t *fill.Task, err error) (*errs.Error, bool) {
	if batchOf(t).pass.turns != nil { // located says where
		return errs.From(err), false
	}
	e := *l.data.Located(err, t.Req.Sample)
	p := batchOf(t).pass
	e.Where.Moment = &errs.Moment{Epoch: p.epoch, Step: p.from + batchOf(t).step, Rank: l.spec.Rank}
	if overall := (fill.Overall{}); errors.As(err, &overall) {
		e.Where.Sample = errs.Number{}
		return &e, false
	}
	switch {
	case e.Code == errs.NotFound:
		e.Code = errs.Changed
		e.Hint = "it was removed after the dataset was indexed: put it back, or start again without it; on_bad=\"skip\" skips such samples"
	case errors.Is(err, fs.ErrPermission):
		e.Code = errs.Forbidden
		e.Hint = "give the user who runs the training permission to read it, or pass on_bad=\"skip\""
	}
	if e.Code == errs.Changed {
		part, _ := l.data.Of(t.Req.Sample)
		part.Stale() // the next start makes a new index
	}
	var user *errs.CodeError
	if errors.As(err, &user) {
		return &e, user.Skippable
	}
	class := errs.Classes[e.Code]
	if class.Python == "DataError" && e.Hint == "" {
		e.Hint = "replace the file, or pass on_bad=\"skip\" or \"replace\" to go on without it"
	}
	if class.Python == "SourceError" && e.Hint == "" {
		e.Hint = "check the storage: a failed read never counts as a bad sample, so on_bad does not skip it"
	}
	return &e, class.Python == "DataError"
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
		bad, may = l.sampleError(t, err)
	}
	s.mu.Lock()
	if lane {
		l.running--
	}
	if bad != nil {
		ob.pass.single()
	}
	if bad != nil && !ob.Gone.Load() && l.onBad(t, bad, may) {
		s.mu.Unlock()
		l.crew.Again(t)
		return true
	}
	if bad == nil && !ob.Gone.Load() {
		l.stamp(t)
	}
	return l.counted(ob, 1, now)
}

// filled is finish for tasks of one batch without an error.
func (l *Loader) filled(tasks []*fill.Task, now int64) {
	ob := batchOf(tasks[0])
	l.shared.mu.Lock()
	if !ob.Gone.Load() {
		for _, t := range tasks {
			l.stamp(t)
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
		if last := l.fillIn(ob); last != nil {
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
	if ob.err == nil {
		ob.err = failed
	}
	ob.Trim()
	ob.settle()
	s.changed.Broadcast()
}

// completeTimed calls complete and measures its time from begin (stats.Monotonic) on.
func (l *Loader) completeTimed(ob *openBatch, begin int64) error {
	st := l.stats.Batch
	if st == nil {
		return l.complete(ob)
	}
	var thread stats.Thread
	onThread := l.completing.due(begin)
	if onThread {
		thread = stats.OnThread()
	}
	ob.enter()
	err := l.complete(ob)
	if onThread {
		used := thread.Used()
		st.CPU(used, 1)
		l.completing.tookBatch(used)
	}
	ob.filled = stats.Monotonic()
	st.Add(time.Duration(ob.filled-begin), 1, ob.Layout.Bytes())
	return err
}

// stamp marks a row as holding its sample. Under Skip, a sample that replaces a
// skipped one leaves the id and mark unchanged.
func (l *Loader) stamp(t *fill.Task) {
	ob := batchOf(t)
	ob.good[t.Row] = true
	if t.Attempt > 0 && l.spec.OnBad.Policy == spec.Skip {
		ob.Layout.Stamp(ob.Slot.Mem, t.Row, t.Sample, false)
		return
	}
	ob.Layout.Stamp(ob.Slot.Mem, t.Row, t.Req.Sample, ob.pass.order.Real(t.Place))
}

// onBad applies the policy to a sample that failed, and reports whether the task
// continues with another sample. Shared.mu is held.
func (l *Loader) onBad(t *fill.Task, e *errs.Error, may bool) (again bool) {
	ob := batchOf(t)
	if !may || l.spec.OnBad.Policy == spec.Fail {
		ob.fail(e)
		return false
	}
	// A replacement that is bad too counts in its own place of the epoch; a sample
	// that was split counts with its first run.
	if t.Attempt == 0 && t.From == 0 {
		ob.bad = append(ob.bad, Bad{Place: t.Place, Sample: t.Req.Sample, Put: -1, Err: e})
	}
	return (l.spec.OnBad.Policy == spec.Replace || t.Attempt > 0) && l.another(t, e)
}

// another gives a task another sample of the epoch, chosen by key, unless too many
// were bad. If batches are of one dataset each, the other sample is of that
// dataset.
func (l *Loader) another(t *fill.Task, e *errs.Error) bool {
	if t.Attempt++; t.Attempt > maxAttempts {
		batchOf(t).fail(errs.New(errs.BadLimit, "%d samples in a row, drawn for one place, are bad; the last: %s", maxAttempts, e.What).
			At(e.Where).Because(e.Cause).
			Try("most of this dataset cannot be read: %s", look(e)))
		return false
	}
	epoch, key := batchOf(t).pass.order, t.Key.With(wordReplace)
	t.Req.Sample = epoch.At(epoch.Places() + key.Intn(uint64(t.Attempt), epoch.Places()))
	if l.spec.Mix.Batches == spec.BatchesSingle {
		own, _ := l.data.Of(t.Sample)
		t.Req.Sample = own.First + key.Intn(uint64(t.Attempt), own.N)
	}
	return true
}

// look says how to look at samples like e's.
func look(e *errs.Error) string {
	var user *errs.CodeError
	if !errors.As(e.Cause, &user) {
		return "list what is damaged with `stoker inspect --all`, and repair it"
	}
	if sample, known := e.Where.Sample.Get(); known {
		return fmt.Sprintf("its code raised the error, so call dataset[%d] by itself to see why", sample)
	}
	return "its code raised the error, so call that by itself to see why"
}

// fillIn finds a row to copy from for a batch in which every sample is skipped:
// another sample is decoded into the row of the last one, which stays marked as not
// valid. Last means last by place, because which task ends last depends on the
// lanes. It returns nil if there is nothing to do. Shared.mu is held.
func (l *Loader) fillIn(ob *openBatch) *fill.Task {
	if ob.Gone.Load() || l.spec.Batch.Pack > 0 || len(ob.bad) < ob.rows || ob.err != nil || slices.Contains(ob.good[:ob.rows], true) {
		return nil
	}
	t := &ob.Tasks[ob.rows-1]
	if !l.another(t, errs.From(ob.bad[0].Err)) {
		return nil
	}
	ob.left++
	return t
}

// fail keeps the error of the first bad row of the batch, independent of which lane
// finishes first.
func (ob *openBatch) fail(e *errs.Error) {
	if old, ok := ob.err.(*errs.Error); ok && old.Where.Sample.Or(-1) <= e.Where.Sample.Or(-1) { //nolint:errorlint // ours alone
		return
	}
	ob.err = e
	ob.Failed.Store(true)
}
