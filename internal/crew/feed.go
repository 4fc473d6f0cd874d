package crew

import (
	"slices"

	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

// Feeder makes samples as far as the engine can, before workers go on with them.
type Feeder interface {
	// Feed makes the samples of tasks, which are of one batch, and passes them to
	// Crew.Fed, from another goroutine, all at once or some at a time. urgent: a worker
	// may be waiting for them.
	Feed(tasks []*fill.Task, urgent bool)
}

// Input is what a Feeder has made of the samples of some tasks, one row each.
type Input = worker.Input

// fed is where the input of a task is.
type fed struct {
	in *Input
	at int // row
}

// Fed takes over the samples of tasks that were passed to Feed, in their order. errs are
// the errors of those that could not be made; nil: there are none. Without an input workers
// make the samples alone, or the batch was given up.
func (c *Crew) Fed(tasks []*fill.Task, in *Input, errs []error) {
	c.mu.Lock()
	j := c.of[tasks[0].Batch]
	j.awaits -= len(tasks)
	var back []finished
	bad := 0
	var by *member // who has the others of a whole batch, and waits for these
	if j.whole != nil {
		by = j.whole.by
	}
	for i, t := range tasks {
		if errs != nil && errs[i] != nil && !t.Batch.Gone.Load() {
			back = append(back, finished{t: t, err: errs[i]})
			bad++
			j.miss(t.Row)
			if j.whole == nil {
				j.limbo++
			}
			continue
		}
		if in != nil {
			c.from[t] = fed{in, i}
			c.users[in]++
		}
		j.todo = append(j.todo, t)
	}
	slices.SortFunc(j.todo, func(a, b *fill.Task) int { return a.Row - b.Row })
	if bad > 0 {
		j.failing++
	}
	if (j.whole == nil || j.whole.by == nil) && len(j.todo) > 0 && !slices.Contains(c.jobs, j) {
		c.jobs = append(c.jobs, j)
		slices.SortStableFunc(c.jobs, func(a, b *job) int { return int(int64(a.id) - int64(b.id)) })
	}
	c.assign()
	back = append(back, c.returned()...)
	idle := in != nil && bad == len(tasks)
	c.mu.Unlock()
	if idle {
		in.Release()
	}
	c.finish(back)
	c.mu.Lock()
	back = nil
	if bad > 0 {
		j.failing--
		if j.whole == nil {
			j.limbo -= bad
			back = c.rejoin(nil, j)
		}
	}
	c.settle(j)
	c.assign()
	back = append(back, c.returned()...)
	c.mu.Unlock()
	c.finish(back)
	if by != nil {
		c.proceed(by, j, false)
	}
}

// sources tells a worker what the rows of tasks that it is about to get are made from.
// c.mu is held.
func (c *Crew) sources(m *member, j *job, tasks []*fill.Task) {
	if c.opt.Feeder == nil {
		return
	}
	all := make([]worker.Source, len(tasks))
	for i, t := range tasks {
		from := c.from[t]
		all[i] = worker.Source{Row: uint32(t.Row), In: from.in, At: uint32(from.at)}
	}
	m.conn.Sources(j.id, all)
}

// used gives back the inputs of tasks that are about to be returned, once nobody needs
// them.
func (c *Crew) used(all []finished) {
	if c.opt.Feeder == nil {
		return
	}
	var free []*Input
	c.mu.Lock()
	for _, f := range all {
		from, ok := c.from[f.t]
		if !ok {
			continue
		}
		delete(c.from, f.t)
		if c.users[from.in]--; c.users[from.in] == 0 {
			delete(c.users, from.in)
			free = append(free, from.in)
			for _, m := range c.members {
				m.conn.Used(from.in)
			}
		}
	}
	c.mu.Unlock()
	for _, in := range free {
		in.Release()
	}
}
