package crew

import (
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

// whole is a batch that one worker makes: it makes the samples, collates them, says how
// many bytes that takes, and writes them. Bad samples come back in between, and may be
// replaced.
type whole struct {
	by    *member // nil: nobody
	waits bool    // it has said which samples are bad, and waits
	// alike: no collate function; the samples are not like the first sample of all, and the
	// worker stacks them if they are like each other
	alike bool
}

// giveWhole hands a batch to a worker. c.mu is held.
func (c *Crew) giveWhole(m *member, j *job) {
	if c.opt.Iterates {
		c.giveTurn(m, j)
		return
	}
	w := j.whole
	how := byte(worker.Whole)
	layout := j.b.Layout
	switch {
	case w.alike:
		how = worker.Alike
	case len(j.bad) > 0:
		how = worker.More // the worker is told what to collate
	}
	if !w.alike {
		layout = nil
	}
	c.meet(m, j)
	w.by, w.waits = m, false
	tasks := j.todo
	j.todo = nil
	j.out += len(tasks)
	c.work(m, j, tasks)
	c.sources(m, j, tasks)
	m.conn.Batch(j.id, how, layout, c.structure, j.at.Epoch, j.at.Step, c.described(tasks, j.at))
}

// gotBad takes back the bad samples of a batch. c.mu is held.
func (c *Crew) gotBad(m *member, f worker.Done) (back []finished) {
	i := m.at(f.Batch)
	if i < 0 {
		return nil
	}
	p := &m.pieces[i]
	j := p.job
	j.whole.waits = true
	for _, r := range f.Rows {
		if r.Bad == nil {
			continue
		}
		err := userError(m, r.Bad)
		if r.Row == worker.AnyRow { // collating failed: there is no batch to deliver
			return c.end(m, j, fill.Overall{Err: err})
		}
		at := slices.IndexFunc(p.tasks, func(t *fill.Task) bool { return uint32(t.Row) == r.Row })
		if at < 0 {
			continue
		}
		t := p.tasks[at]
		p.tasks = slices.Delete(p.tasks, at, at+1)
		j.out--
		j.miss(t.Row)
		j.held = true
		back = append(back, finished{t: t, err: err})
	}
	return back
}

// proceed goes on with a batch whose bad samples were taken back, once all of them are
// decided on: with their replacements, or by collating what there is. done: those that m
// named last are.
func (c *Crew) proceed(m *member, j *job, done bool) {
	c.mu.Lock()
	if done {
		j.held = false
	}
	var back []finished
	i := m.at(j.id)
	switch {
	case i < 0: // the worker has ended meanwhile
	case !j.whole.waits || j.undecided() || j.awaits > 0: // who decides the rest calls again
	case len(m.pieces[i].tasks) == 0 && len(j.todo) == 0: // all were bad, and the batch may be another by now
		c.piece(m, j.id)
		m.conn.Drop(j.id)
	case j.b.Gone.Load() || j.b.Failed.Load():
		back = c.end(m, j, nil)
	case len(j.todo) > 0:
		j.whole.waits = false
		p := &m.pieces[i]
		tasks := j.todo
		j.todo = nil
		j.out += len(tasks)
		p.tasks = append(p.tasks, tasks...)
		c.sources(m, j, tasks)
		m.conn.Batch(j.id, worker.More, nil, nil, j.at.Epoch, j.at.Step, c.described(tasks, j.at))
	default:
		j.whole.waits = false
		m.conn.Collate(j.id, collated(j), uint64(j.b.Tasks[0].Key))
	}
	c.settle(j)
	c.assign()
	back = append(back, c.returned()...)
	c.mu.Unlock()
	c.finish(back)
}

// collated is the row whose sample each row of a batch has: its own, or the next good
// one's.
func collated(j *job) []uint32 {
	n := len(j.b.Tasks)
	out := make([]uint32, n)
	for i := range n {
		for d := range n {
			if r := (i + d) % n; !j.bad[r] && j.b.Tasks[r].Sample >= 0 {
				out[i] = uint32(r)
				break
			}
		}
	}
	return out
}

// end takes a batch from its worker; err belongs to all of it. c.mu is held.
func (c *Crew) end(m *member, j *job, err error) (back []finished) {
	p := c.piece(m, j.id)
	if p == nil {
		return nil
	}
	m.conn.Drop(j.id)
	j.out -= len(p.tasks)
	j.whole.by = nil
	for _, t := range append(p.tasks, j.todo...) {
		back = append(back, finished{t: t, err: err})
		err = nil // once
	}
	j.todo = nil
	c.settle(j)
	return back
}

// needs finds room for a batch. c.mu is held, and released meanwhile.
func (c *Crew) needs(m *member, f worker.Need) {
	j := m.job(f.Batch)
	if j == nil {
		return
	}
	b := j.b
	at := b.Layout.Bytes() // aligned, as all columns are
	var err error
	if f.Bytes < 0 || f.Bytes > 1<<40 {
		err = errs.New(errs.Bug, "a Python worker needs %d bytes", f.Bytes)
	} else if at+f.Bytes > int64(len(b.Slot.Mem)) && !b.Gone.Load() {
		c.mu.Unlock()
		err = c.desk.Grow(b, at+f.Bytes)
		c.mu.Lock()
	}
	if err != nil || b.Gone.Load() {
		if err != nil {
			err = fill.Overall{Err: err}
		}
		back := c.end(m, j, err)
		c.mu.Unlock()
		c.finish(back)
		c.mu.Lock()
		return
	}
	if m.job(j.id) != nil {
		m.conn.Fits(j.id, b.Slot, at)
	}
}

// wrote takes back a batch that is in its slot. c.mu is held.
func (c *Crew) wrote(m *member, f worker.Wrote) []finished {
	p := c.ready(m, f.Batch)
	if p == nil {
		return nil
	}
	c.took(m, f.Nanos, len(p.tasks))
	p.job.b.Placed = fill.Placed{At: p.job.b.Layout.Bytes(), Bytes: f.Bytes}
	return c.undone(p)
}

// ready takes a batch from the worker that has made it; nil: it has none. c.mu is held.
func (c *Crew) ready(m *member, id uint64) *piece {
	p := c.piece(m, id)
	if p == nil {
		return nil
	}
	p.job.out -= len(p.tasks)
	p.job.whole.by = nil
	for _, t := range p.tasks {
		delete(c.deaths, t.Req.Sample)
	}
	return p
}
