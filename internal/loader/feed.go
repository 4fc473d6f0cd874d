package loader

import (
	"errors"
	"slices"

	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// feed makes samples for the Python workers of a loader, as far as the engine can: stored
// fields, decoded and transformed. It is a loader beside that loader, over the same data,
// with lanes, readers and slots like any other. Only its batches are not delivered: each
// goes to the workers as it is, and comes back when they have returned its last row.
//
// Its one pass has no order and no prefetcher: the crew says what it needs next.
type feed struct {
	l  *Loader // makes the samples; its slots hold them
	to *Loader // whose workers get them
	p  *Pass   // lists what is being made

	number int  // of the feeds of that loader
	own    bool // the data are this feed's own: those of a dataset of a mixture

	queue []*portion // not begun; guarded by Shared.mu
}

// portion is samples of one batch of the loader that is fed, and what became of them.
type portion struct {
	tasks  []*fill.Task // of the loader that is fed
	urgent bool         // others wait for it
	errs   []error      // one per task; each has a single writer
}

// gone reports whether nobody needs the samples any more.
func (o *portion) gone() bool { return o.tasks[0].Batch.Gone.Load() }

// newFeed returns a feed that makes samples as l says, which has what is made. run begins to
// make them.
func newFeed(l, to *Loader) *feed {
	f := &feed{l: l, to: to}
	l.shared, l.stats, l.most, l.lanes, l.patient = to.shared, to.stats, to.most, to.spec.Workers, true
	l.feeds = f
	for _, c := range l.data.Layout() {
		if c.Form == batch.Padded && c.Loose {
			c.Form = batch.Ragged // each sample has its own length
		}
		l.fields = append(l.fields, c)
	}
	l.layout = batch.NewLayout(l.fields, to.layout.Rows)
	l.slotBytes = l.layout.Bytes()
	l.slots = slots{l: l, limit: to.slots.limit, auto: to.slots.auto}
	l.prefetch = 1
	l.maker = compose.New(l.Stream, l.data, l.filler)
	l.choose(false)
	f.p = l.newPass(0, 0, order.Epoch{}, order.Slice{})
	l.passes = []*Pass{f.p}
	return f
}

// Feed implements crew.Feeder.
func (f *feed) Feed(tasks []*fill.Task, urgent bool) {
	s := f.l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.l.closed { // run may have ended
		go f.to.workers.Fed(tasks, nil, nil)
		return
	}
	o := &portion{tasks: tasks, urgent: urgent, errs: make([]error, len(tasks))}
	at := len(f.queue)
	if urgent {
		at = slices.IndexFunc(f.queue, func(o *portion) bool { return !o.urgent })
		at = max(at, 0)
	}
	f.queue = slices.Insert(f.queue, at, o)
	s.changed.Broadcast()
}

// run begins what is in the queue, as memory for it comes free, until the loader is closed.
func (f *feed) run() {
	l, s := f.l, f.l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	for !l.closed || len(f.queue) > 0 {
		if len(f.queue) == 0 {
			s.changed.Wait()
			continue
		}
		o := f.queue[0]
		if l.closed || o.gone() {
			f.queue = f.queue[1:]
			go f.to.workers.Fed(o.tasks, nil, nil)
			continue
		}
		slot, err := f.slot(o)
		switch {
		case err != nil:
			f.queue = slices.DeleteFunc(f.queue, func(x *portion) bool { return x == o })
			for i := range o.errs {
				o.errs[i] = err
			}
			go f.to.workers.Fed(o.tasks, nil, o.errs)
		case slot == nil:
			s.changed.Wait()
		case l.closed || o.gone() || len(f.queue) == 0 || f.queue[0] != o || int64(len(slot.Mem)) < l.layout.Bytes(): // the lock was released
			l.slots.put(slot)
		default:
			f.queue = f.queue[1:]
			f.begin(o, slot)
		}
	}
}

// slot returns memory for a portion; nil: there is none now. What others wait for gets
// memory beyond the limit: what has the rest may be waiting for it. Shared.mu is held, and
// released while memory is allocated.
func (f *feed) slot(o *portion) (*batch.Slot, error) {
	if err := f.l.grow(len(o.tasks)); err != nil {
		return nil, err
	}
	slot, err := f.l.slots.take(f.p)
	if slot == nil && err == nil && o.urgent {
		return f.l.slots.alloc(f.l.slotBytes)
	}
	return slot, err
}

// begin opens the batch of a portion and submits its samples. Shared.mu is held, and
// released while fetch waits.
func (f *feed) begin(o *portion, slot *batch.Slot) {
	l := f.l
	first := o.tasks[0].Batch
	ob := l.emptyBatch(f.p, slot, len(o.tasks))
	ob.portion, ob.Ctx, ob.Steps = o, first.Ctx, 1
	for i, from := range o.tasks {
		t := &ob.Tasks[i]
		t.Batch, t.Row, t.Attempt, t.Unread, t.Apart = &ob.Batch.Batch, i, 0, false, false
		t.Place, t.Sample, t.Key = from.Place, from.Req.Sample-f.l.first, f.key(from)
		t.Req.Owner, t.Req.Sample = t, t.Sample
	}
	ob.left = len(o.tasks)
	l.inflight++
	f.p.open = append(f.p.open, ob)
	l.shared.mu.Unlock()
	l.crew.Begin(&ob.Batch.Batch)
	l.shared.mu.Lock()
}

// finish takes a sample that has been made, or could not be.
func (f *feed) finish(t *fill.Task, err error, now int64, lane bool) (woke bool) {
	s := f.l.shared
	ob := batchOf(t)
	if err != nil && f.own {
		err = f.l.data.Located(err, t.Req.Sample)
	}
	ob.portion.errs[t.Row] = err
	s.mu.Lock()
	defer s.mu.Unlock()
	if lane {
		f.l.running--
	}
	f.l.moved, f.to.moved = now, now
	ob.left--
	if ob.left > 0 || ob.Gone.Load() {
		ob.settle()
		return false
	}
	ob.completing = true
	s.mu.Unlock()
	about, failed := ob.Inputs(f.l.slots.replace, f.number)
	s.mu.Lock()
	ob.completing = false
	if ob.Gone.Load() {
		ob.settle()
		return true
	}
	f.p.open = slices.DeleteFunc(f.p.open, func(x *openBatch) bool { return x == ob })
	o := ob.portion
	switch {
	case errors.Is(failed, errLater): // again, in a larger slot, when there is one
		f.free(ob)
		f.queue = slices.Insert(f.queue, 0, o)
		return true
	case failed != nil:
		f.free(ob)
		for i := range o.errs {
			o.errs[i] = failed
		}
		go f.to.workers.Fed(o.tasks, nil, o.errs)
		return true
	}
	in := &crew.Input{Slot: ob.Slot, Rows: ob.Rows, About: about, Release: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.free(ob)
	}}
	go f.to.workers.Fed(o.tasks, in, o.errs)
	return true
}

// free gives back the memory of a batch that nobody uses any more. Shared.mu is held.
func (f *feed) free(ob *openBatch) {
	ob.Trim()
	f.l.slots.put(ob.Slot)
	ob.Slot = nil
	f.l.inflight--
	f.l.spare = append(f.l.spare, ob)
	f.l.shared.changed.Broadcast()
}

// giveUp drops what is made for batches that were given up. Shared.mu is held.
func (f *feed) giveUp() {
	f.p.open = slices.DeleteFunc(f.p.open, func(ob *openBatch) bool {
		if !ob.portion.gone() {
			return false
		}
		ob.drop()
		return true
	})
	f.l.budget.Wake()
	f.l.shared.changed.Broadcast()
}

// gone follows when the last sample of a batch that was dropped is back. Shared.mu is held.
func (f *feed) gone(ob *openBatch) { go f.to.workers.Fed(ob.portion.tasks, nil, nil) }
