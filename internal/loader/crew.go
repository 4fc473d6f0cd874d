package loader

import (
	"errors"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
)

// lanes are the crew that decodes: readers fetch the bytes of a sample, and a lane
// takes the sample when they have arrived. Bytes that are in memory already are
// read by the lanes themselves.
type lanes struct{ l *Loader }

// readers are the crew for small samples that need no decoding: the goroutine that
// reads them also fills them in. What is not small takes the way of lanes.
type readers struct {
	lanes
	small *fill.Readers
}

// choose selects one of the loader's own crews.
func (l *Loader) choose(small bool) {
	l.small = small
	l.crew = lanes{l}
	if small {
		l.crew = readers{lanes{l}, fill.NewReaders(l.filler, desk{l})}
	}
}

// hire makes a crew of Python workers. What batches have is not known yet, unless the
// user's code makes whole batches, of which the engine sees nothing but bytes.
func (l *Loader) hire(opt crew.Options) {
	l.stats.WithPython()
	opt.Workers = max(opt.Workers, 1)
	if opt.Iterates {
		opt.Whole, opt.Turns = true, true
	}
	opt.Board, opt.Stage, opt.Engine = l.shared.Board, l.stats.Python, l.stats.Batch
	l.patient = true
	l.feed(&opt)
	if l.data.Native() {
		l.fields, l.prefetch = nil, 1 // until the first sample has told what the workers make
		l.layout = batch.NewLayout(nil, l.layout.Rows)
		l.slotBytes = l.layout.Bytes()
	}
	l.lanes = opt.Workers
	if opt.Whole {
		l.fields = []batch.Field{{Name: fill.ColumnName(0), DType: mem.Object, Placed: true}}
		l.layout = batch.NewLayout(l.fields, l.layout.Rows)
		l.slotBytes = l.layout.Bytes()
		l.setPrefetch(l.slots.limit)
	}
	if opt.Iterates {
		l.iterates = opt.Workers
	}
	l.workers = crew.New(desk{l}, l.id, opt)
	l.crew = l.workers
}

// desk is where a crew returns tasks, if it is in another package.
type desk struct{ l *Loader }

func (d desk) Finish(t *fill.Task, err error, now int64) { d.l.finish(t, err, now, false) }

func (d desk) Filled(tasks []*fill.Task, now int64) { d.l.filled(tasks, now) }

// Stamp marks the row of a small sample.
func (d desk) Stamp(t *fill.Task) { batchOf(t).Stamp(t) }

// Read counts the tasks of a bunch, and sends the failed ones again. In a
// batch that was given up some tasks were not done; otherwise all were, and those
// that did not fail were stamped.
func (d desk) Read(b *fill.Batch, tasks []fill.Task, failed []*fill.Task, now int64) {
	l, s := d.l, d.l.shared
	ob := b.Owner.(*openBatch) //nolint:forcetypeassert // newBatch sets it
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

// Shape sets the columns of batches: a crew has found out what samples have.
func (d desk) Shape(fields []batch.Field, structure []byte) error {
	l, s := d.l, d.l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	layout := batch.NewLayout(fields, l.layout.Rows)
	if err := l.fits(layout.Bytes(), l.slots.limit); err != nil {
		return err
	}
	l.fields, l.layout, l.structure, l.slotBytes = fields, layout, structure, layout.Bytes()
	l.spare = nil // they have the old columns
	l.setPrefetch(l.slots.limit)
	l.slots.drain()
	for _, p := range l.passes {
		p.giveUp(0)
	}
	s.changed.Broadcast()
	return nil
}

// Grow gives a batch a larger slot.
func (d desk) Grow(b *fill.Batch, bytes int64) error {
	l, s := d.l, d.l.shared
	ob := b.Owner.(*openBatch) //nolint:forcetypeassert // newBatch sets it
	slot, err := l.slots.replace(b.Slot, b.Layout.Bytes(), bytes+bytes/8)
	if err == nil {
		b.Slot = slot
		return nil
	}
	if !errors.Is(err, errLater) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(ob.pass.open, ob); i >= 0 {
		ob.pass.giveUp(i)
		s.changed.Broadcast()
	}
	return nil
}

// Moment is where a batch is in the stream.
func (d desk) Moment(b *fill.Batch) crew.Moment {
	ob := b.Owner.(*openBatch) //nolint:forcetypeassert // newBatch sets it
	p := ob.pass
	at := crew.Moment{Pass: p.number, Epoch: p.walk.Epoch, Step: p.walk.From + ob.Step}
	if p.list.Items != nil {
		at.Item = p.list.ItemOf
	}
	if p.turns != nil {
		at.Step = ob.turn()
	}
	return at
}

// structure says what the columns of samples are that only the user's code knows. If the
// crew has written the batch as a whole, it is what its worker said of it.
func (ob *openBatch) structure() []byte {
	if ob.Placed.Bytes > 0 {
		return ob.Placed.Told
	}
	return ob.Structure
}

// hands is the crew that may have mapped the loader's slots.
func (l *Loader) hands() fill.Crew {
	if l.feeds != nil {
		return l.feeds.to.crew
	}
	return l.crew
}

// batchOf is the open batch of a task.
func batchOf(t *fill.Task) *openBatch { return t.Batch.Owner.(*openBatch) } //nolint:forcetypeassert // newBatch sets it

// Begin submits the samples to fetch, or, if they are in memory, to the lanes.
func (c lanes) Begin(b *fill.Batch) (waited time.Duration) {
	l, ob := c.l, b.Owner.(*openBatch) //nolint:forcetypeassert // newBatch sets it
	p, step, steps := ob.pass, ob.Step, int64(ob.Steps)
	planned := p.plan.Covers(step)
	hot, reqs := false, make([]*fetch.Request, 0, ob.Rows)
	for i := range ob.Tasks {
		if t := &ob.Tasks[i]; t.Sample >= 0 {
			l.filler.Locate(t)
			if t.Unread = !planned && l.fetch.Hot(&t.Req); t.Unread {
				hot = true
			} else {
				reqs = append(reqs, &t.Req)
			}
		}
	}
	if hot {
		l.shared.unread(ob)
	}
	l.filler.Ahead(reqs)
	return l.submit(reqs, ob, p, step, steps)
}

// Again submits one sample, whatever memory is in use.
func (c lanes) Again(t *fill.Task) {
	c.l.filler.Locate(t)
	c.l.send([]*fetch.Request{&t.Req}, true, batchOf(t))
}

// Begin passes small samples to the readers, and submits the others.
func (c readers) Begin(b *fill.Batch) (waited time.Duration) {
	ob := b.Owner.(*openBatch) //nolint:forcetypeassert // newBatch sets it
	p, step, steps := ob.pass, ob.Step, int64(ob.Steps)
	long := c.small.Begin(b, &ob.bunches, c.l.fetch)
	return c.l.submit(long, ob, p, step, steps)
}
