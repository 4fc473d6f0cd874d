package crew

import (
	"time"

	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

// Workers that iterate a dataset.
//
// Each iterates a copy of its own, as torch has it, and batches come from them in turn: turn
// t is batch t/n of worker t%n. A worker that has come to its end answers that there is no
// such batch; the loader leaves such turns out, and the pass ends when every worker has
// ended. So order, slots and prefetch are those of other batches, and torch's order follows:
// there too a worker that has ended is left out of the turn.
//
// What a worker says of a batch (Told) may hold the state of its dataset. The last few are
// kept here, so that the one that replaces it begins there, and not at the beginning.

// keptPoints is how many of a worker's last points are kept: batches that were made ahead
// may be asked for again, when memory is short.
const keptPoints = 16

// Point is where the iteration of a worker may begin.
type Point = worker.Point

// walk is a pass over a dataset that workers iterate.
type walk struct {
	points map[int][]Point // by worker, in their order
	ends   map[int]int64   // by worker that has ended: how many batches it had
}

// Begins says where the workers of a pass begin. It comes before all batches of the pass.
func (c *Crew) Begins(pass int64, points []Point) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &walk{map[int][]Point{}, map[int]int64{}}
	for place, p := range points {
		w.points[place] = []Point{p}
	}
	c.walks[pass] = w
}

// Over says that nothing of a pass is asked for again.
func (c *Crew) Over(pass int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.walks, pass)
	for _, m := range c.members {
		if _, met := m.walks[pass]; met {
			delete(m.walks, pass)
			m.conn.Over(pass)
		}
	}
}

// turnOf is which batch of which worker a job is.
func (c *Crew) turnOf(j *job) (place int, number int64) {
	n := int64(c.opt.Workers)
	return int(j.at.Step % n), j.at.Step / n
}

// past marks a batch that is known not to exist. c.mu is held.
func (c *Crew) past(j *job) bool {
	place, number := c.turnOf(j)
	if w := c.walks[j.at.Pass]; w != nil {
		n, ended := w.ends[place]
		j.b.Ended = ended && number >= n
	}
	return j.b.Ended
}

// giveTurn asks a worker for a batch of a pass that is not over. c.mu is held.
func (c *Crew) giveTurn(m *member, j *job) {
	pass := j.at.Pass
	_, number := c.turnOf(j)
	if next, begun := m.walks[pass]; !begun || next > number {
		var from Point
		for _, p := range c.walks[pass].points[m.place] {
			if p.After <= number {
				from = p
			}
		}
		m.conn.Walk(pass, j.at.Epoch, from)
	}
	m.walks[pass] = number + 1
	j.whole.by = m
	tasks := j.todo
	j.todo = nil
	j.out += len(tasks)
	c.work(m, j, tasks)
	m.conn.Turn(j.id, pass, number)
}

// made takes back a batch of a worker's iteration that is in its slot. c.mu is held.
func (c *Crew) made(m *member, f worker.Made) []finished {
	p := c.ready(m, f.Batch)
	if p == nil {
		return nil
	}
	j := p.job
	c.opt.Stage.Add(time.Duration(f.Nanos), int64(f.Rows), 0)
	c.costs(float64(f.Nanos))
	_, number := c.turnOf(j)
	if w := c.walks[j.at.Pass]; w != nil {
		points := append(w.points[m.place], Point{After: number + 1, Told: f.Told})
		w.points[m.place] = points[max(0, len(points)-keptPoints):]
	}
	j.b.Placed = fill.Placed{At: j.b.Layout.Bytes(), Bytes: f.Bytes, Rows: int(f.Rows), Told: f.Told}
	return c.undone(p)
}

// hasEnded takes back a batch that its worker does not have: its iteration has ended. c.mu
// is held.
func (c *Crew) hasEnded(m *member, f worker.Ended) []finished {
	p := c.ready(m, f.Batch)
	if p == nil {
		return nil
	}
	place, number := c.turnOf(p.job)
	if w := c.walks[p.job.at.Pass]; w != nil {
		if n, known := w.ends[place]; !known || number < n {
			w.ends[place] = number
		}
	}
	p.job.b.Ended = true
	return c.undone(p)
}
