package crew

import (
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

// What follows decides which worker makes which rows: those of the oldest batch first, and
// so many at once that giving them out costs little beside making them. c.mu is held.

// assign hands out rows to workers that have time. c.mu is held.
func (c *Crew) assign() {
	for again := !c.closing; again; {
		again = false
		for _, m := range c.free() {
			if again = c.give(m); again || !c.opt.Turns {
				break
			}
		}
	}
}

// free are the workers that can have another piece of work: those that have none first, and
// of these the one that was asked for the first sample, because it has kept it.
func (c *Crew) free() (out []*member) {
	room := 1
	if c.cost > 0 && c.cost < quick {
		room = 2
	}
	// A row that waits for a worker to start delays its batch. In turns there is no choice.
	begun := !c.opt.Turns && slices.ContainsFunc(c.members, func(m *member) bool { return m.conn.Begun() })
	for _, m := range c.members {
		if !m.leaves && !m.stuck && len(m.pieces) < room && (!begun || m.conn.Begun()) {
			out = append(out, m)
		}
	}
	if i := slices.Index(out, c.asked); i > 0 {
		copy(out[1:], out[:i])
		out[0] = c.asked
	}
	slices.SortStableFunc(out, func(a, b *member) int { return len(a.pieces) - len(b.pieces) })
	return out
}

// give hands a piece of the oldest job to a worker. It returns false if there is none.
func (c *Crew) give(m *member) bool {
	for i := 0; i < len(c.jobs); i++ {
		j := c.jobs[i]
		switch {
		case len(j.todo) == 0 && len(j.odd) > 0:
			continue // until all rows are back
		case len(j.todo) == 0:
			c.jobs = slices.Delete(c.jobs, i, i+1)
			i--
			continue
		case j.undecided() || j.b.Gone.Load() || j.b.Failed.Load():
			continue // returned takes it, unless it is held
		case j.whole != nil && j.awaits > 0:
			continue // until all its samples are there
		case c.opt.Turns && j.at.Step%int64(max(c.opt.Workers, 1)) != int64(m.place):
			continue
		case c.opt.Iterates && c.walks[j.at.Pass] == nil:
			continue // the pass is over, and returned takes it
		case j.whole != nil:
			if len(m.pieces) > 0 && c.cost*float64(len(j.todo)) > quick {
				return false
			}
			c.jobs = slices.Delete(c.jobs, i, i+1)
			c.giveWhole(m, j)
			return true
		case !c.shaped:
			if c.asking {
				return false
			}
			c.asking, c.asked = true, m
			c.hand(m, j, 1)
			return true
		case c.unlike(j):
			i--
			continue // as a whole
		}
		n := c.size(m, j)
		if n == 0 {
			return false
		}
		c.hand(m, j, n)
		return true
	}
	return false
}

// size is how many rows of a job a worker gets at once; 0: none now. A sample that a
// worker has died of goes alone.
func (c *Crew) size(m *member, j *job) int {
	n := 1
	if c.cost > 0 {
		n = int(min(max(atOnce/c.cost, 1), 1<<16))
	}
	if len(c.jobs) < len(c.members) { // no batch for each: this one is shared
		n = min(n, max(len(j.b.Tasks)/(2*max(len(c.members), 1)), 1))
	}
	if c.opt.Turns {
		n = len(j.todo)
	}
	n = min(n, len(j.todo))
	if len(c.deaths) == 0 {
		return n
	}
	switch i := slices.IndexFunc(j.todo[:n], func(t *fill.Task) bool { return c.deaths[t.Req.Sample] > 0 }); {
	case i < 0:
		return n
	case i > 0:
		return i
	case len(m.pieces) > 0:
		return 0
	}
	return 1
}

// hand hands out the first n rows of a job.
func (c *Crew) hand(m *member, j *job, n int) {
	tasks := slices.Clone(j.todo[:n])
	j.todo = j.todo[n:]
	j.out += n
	layout := j.b.Layout
	if !c.shaped {
		layout = nil
	}
	c.meet(m, j)
	c.work(m, j, tasks)
	c.sources(m, j, tasks)
	m.conn.Rows(j.id, j.b.Slot, layout, c.structure, j.at.Epoch, j.at.Step, c.described(tasks, j.at))
}

// meet tells a worker of the pass that a job belongs to, once.
func (c *Crew) meet(m *member, j *job) {
	if m.pass < j.at.Pass {
		m.pass = j.at.Pass
		m.conn.Pass(j.at.Epoch)
	}
}

// work books a piece.
func (c *Crew) work(m *member, j *job, tasks []*fill.Task) {
	m.pieces = append(m.pieces, piece{j, tasks})
	if m.idle > 0 {
		c.opt.Stage.Blocked(stats.Input, time.Duration(stats.Monotonic()-m.idle))
		m.idle = 0
	}
	if len(m.pieces) == 1 {
		m.begun = stats.Monotonic()
		m.work.Begin(wire.StagePython, c.loader, tasks[0].Req.Sample)
	}
}

// described are tasks as workers get them, until it is called again. c.mu is held.
func (c *Crew) described(tasks []*fill.Task, at Moment) []worker.Task {
	out := slices.Grow(c.words[:0], len(tasks))[:len(tasks)]
	c.words = out
	for i, t := range tasks {
		key := t.Key
		if t.Attempt > 0 {
			key = key.With(uint64(t.Attempt))
		}
		out[i] = worker.Task{Row: uint32(t.Row), Place: t.Place, Sample: t.Req.Sample, Key: uint64(key), Attempt: uint32(t.Attempt)}
		if at.Item != nil {
			out[i].Item = at.Item(t.Place, t.Req.Sample)
		}
	}
	return out
}
