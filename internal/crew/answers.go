package crew

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

// got handles a frame of a worker. An error ends the worker.
func (c *Crew) got(m *member, frame any) error {
	c.mu.Lock()
	if err := c.refuse(m, frame); err != nil {
		c.mu.Unlock()
		return err
	}
	var back []finished
	var asked *job
	var whole bool
	var missed int
	switch f := frame.(type) {
	case worker.Shape:
		back = c.gotShape(m, f)
	case worker.Done:
		asked = m.job(f.Batch)
		if asked != nil {
			whole = asked.whole != nil
			missed = -asked.limbo
		}
		back = c.gotDone(m, f)
		if asked != nil {
			missed += asked.limbo
		}
	case worker.Need:
		c.needs(m, f) // releases the lock meanwhile
	case worker.Wrote:
		back = c.wrote(m, f)
	case worker.Made:
		back = c.made(m, f)
	case worker.Ended:
		back = c.hasEnded(m, f)
	case worker.Failed:
		m.leaves = true
		if c.failed == nil {
			c.failed = failure(m, f)
		}
		back = c.returned()
	}
	c.assign()
	back = append(back, c.returned()...)
	c.mu.Unlock()
	c.finish(back)
	switch {
	case asked == nil:
	case whole:
		c.proceed(m, asked, true)
	default:
		c.decided(m, asked, missed)
	}
	return nil
}

// refuse is the error of a frame that does not belong to what the worker was asked for. One
// of a batch that it does not have any more is none: it may have crossed a Drop. c.mu is
// held.
func (c *Crew) refuse(m *member, frame any) error {
	var id uint64
	fits := func(*job) bool { return true }
	made := func(iterates bool, bytes int64) func(*job) bool {
		return func(j *job) bool {
			return c.opt.Iterates == iterates && j.made() && bytes > 0 && bytes <= int64(len(j.b.Slot.Mem))-j.b.Layout.Bytes()
		}
	}
	switch f := frame.(type) {
	case worker.Shape:
		id, fits = f.Batch, func(j *job) bool { return j.whole == nil && !c.shaped }
	case worker.Done:
		id, fits = f.Batch, func(j *job) bool { return j.whole == nil || !j.whole.waits }
	case worker.Need:
		id, fits = f.Batch, (*job).made
	case worker.Wrote:
		id, fits = f.Batch, made(false, f.Bytes)
	case worker.Made:
		id, fits = f.Batch, made(true, f.Bytes)
	case worker.Ended:
		id, fits = f.Batch, func(*job) bool { return c.opt.Iterates }
	}
	if j := m.job(id); j != nil && !fits(j) {
		return fmt.Errorf("crew: %T does not answer what was asked for", frame)
	}
	return nil
}

// made reports whether a worker makes the job as a whole now. c.mu is held.
func (j *job) made() bool { return j.whole != nil && !j.whole.waits }

// at is the place in pieces of the first piece of a job; -1: none. A worker may have several
// pieces of one job, and answers in their order. c.mu is held.
func (m *member) at(id uint64) int {
	return slices.IndexFunc(m.pieces, func(p piece) bool { return p.job.id == id })
}

// job is the job that a worker has under a number; nil: none. c.mu is held.
func (m *member) job(id uint64) *job {
	if i := m.at(id); i >= 0 {
		return m.pieces[i].job
	}
	return nil
}

// piece takes the piece of a job from a worker; nil: it has none. c.mu is held.
func (c *Crew) piece(m *member, id uint64) *piece {
	i := m.at(id)
	if i < 0 {
		return nil
	}
	p := m.pieces[i]
	m.pieces = slices.Delete(m.pieces, i, i+1)
	c.turn(m)
	return &p
}

// turn says what a worker works on now. c.mu is held.
func (c *Crew) turn(m *member) {
	m.work.End()
	m.idle = stats.Monotonic()
	if len(m.pieces) > 0 {
		m.idle = 0
		m.begun = stats.Monotonic()
	}
	if len(m.pieces) > 0 && len(m.pieces[0].tasks) > 0 { // its samples may be made again natively
		m.work.Begin(wire.StagePython, c.loader, m.pieces[0].tasks[0].Req.Sample)
	}
}

// gotShape is what the first sample has: batches get their columns, and are begun again.
func (c *Crew) gotShape(m *member, f worker.Shape) []finished {
	p := c.piece(m, f.Batch)
	if p == nil {
		return nil
	}
	p.job.out -= len(p.tasks)
	if p.job.b.Gone.Load() {
		c.asking = false
		return c.undone(p)
	}
	fields := make([]batch.Field, len(f.Sizes))
	for i, size := range f.Sizes {
		fields[i] = batch.Field{Name: fill.ColumnName(i), DType: mem.Uint8, Shape: mem.Shape{int(size)}}
		if size == worker.Loose {
			fields[i] = batch.Field{Name: fill.ColumnName(i), DType: mem.Object, Loose: true}
		}
	}
	p.job.todo = append(p.tasks, p.job.todo...)
	c.first(p.job)
	c.mu.Unlock()
	structure := slices.Clone(f.Structure)
	c.painter.columns = f.Pictures
	err := c.desk.Shape(fields, structure)
	c.mu.Lock()
	c.asking = false // not before: batches are begun again meanwhile, and no other first sample may be asked for
	if err != nil {
		c.failed = fill.Overall{Err: err}
	} else {
		c.shaped, c.structure = true, structure
	}
	return nil
}

// undone returns the tasks of a piece whose batch was given up.
func (c *Crew) undone(p *piece) (back []finished) {
	for _, t := range p.tasks {
		back = append(back, finished{t: t})
	}
	c.settle(p.job)
	return back
}

// gotDone takes back rows that a worker has finished.
func (c *Crew) gotDone(m *member, f worker.Done) []finished {
	if j := m.job(f.Batch); c.opt.Whole || j != nil && j.whole != nil {
		return c.gotBad(m, f)
	}
	c.asking = false // if no sample has told yet, it was the one that was asked
	p := c.piece(m, f.Batch)
	if p == nil {
		return nil
	}
	c.took(m, f.Nanos, len(p.tasks))
	p.job.out -= len(p.tasks)
	if p.job.b.Gone.Load() {
		return c.undone(p)
	}
	back := make([]finished, 0, len(p.tasks))
	pictures := len(c.painter.columns) > 0
	if len(f.Rows) == 0 { // all are filled, and have no loose values
		for _, t := range p.tasks {
			delete(c.deaths, t.Req.Sample)
			back = c.sorted(back, p.job, finished{t: t, bytes: pictures}, false)
		}
	}
	for i, t := range p.tasks {
		at := i // workers answer in the order of the tasks
		if len(f.Rows) == 0 {
			break
		}
		if i >= len(f.Rows) || f.Rows[i].Row != uint32(t.Row) {
			at = slices.IndexFunc(f.Rows, func(r worker.Row) bool { return r.Row == uint32(t.Row) })
		}
		if at < 0 {
			back = append(back, finished{t: t, err: errs.New(errs.Bug, "a Python worker did not answer for row %d", t.Row)})
			continue
		}
		delete(c.deaths, t.Req.Sample)
		r := &f.Rows[at]
		err := c.fill(m, t, r)
		back = c.sorted(back, p.job, finished{t, err, pictures && err == nil && !r.Ready}, r.Odd)
	}
	c.fits(p.job)
	c.settle(p.job)
	return back
}

// fill puts the loose values of a row where they belong, and returns the error of its
// sample.
func (c *Crew) fill(m *member, t *fill.Task, r *worker.Row) error {
	if r.Bad != nil {
		return userError(m, r.Bad)
	}
	for _, v := range r.Values {
		if int(v.Column) >= len(t.Batch.Loose) || !t.Batch.Layout.Fields[v.Column].Loose {
			return errs.New(errs.Bug, "a Python worker filled column %d, which is not there", v.Column)
		}
		t.Collect(int(v.Column), v.Data)
	}
	return nil
}

// took counts n samples on which a worker worked so long together.
func (c *Crew) took(m *member, nanos int64, n int) {
	if n == 0 {
		return
	}
	c.opt.Stage.Add(time.Duration(nanos), int64(n), 0)
	if used := stats.CPUOf(m.pid); used > 0 {
		if m.cpu > 0 { // what came before its first answer is its start
			c.opt.Stage.CPU(used-m.cpu, int64(n))
		}
		m.cpu = used
	}
	c.costs(float64(nanos) / float64(n))
}

// costs keeps a running mean of what a task costs, in ns.
func (c *Crew) costs(cost float64) {
	if c.cost == 0 {
		c.cost = max(cost, 1)
		return
	}
	c.cost += (cost - c.cost) / 8
}

// told is the JSON of an error in the user's code.
type told struct {
	What   string `json:"what"` // one sentence
	Kind   string `json:"kind"` // type of the exception
	Text   string `json:"text"` // traceback
	Pickle string `json:"pickle"`
	Retry  bool   `json:"retry"`
	Code   string `json:"code"`
	Hint   string `json:"hint"`
}

// userError is the error of a sample that the user's code could not make.
func userError(m *member, b []byte) *errs.Error {
	var x told
	if err := json.Unmarshal(b, &x); err != nil {
		return errs.New(errs.Bug, "cannot read the error of a Python worker").Because(err)
	}
	code := errs.Code(x.Code)
	if _, ok := errs.Classes[code]; !ok {
		code = errs.Damaged
	}
	e := errs.New(code, "%s", x.What).Because(&errs.CodeError{Kind: x.Kind, Text: x.Text, Pickle: x.Pickle, Skippable: x.Retry})
	e.Hint = x.Hint
	e.Where.Worker = m.number()
	return e
}

// number is the worker's, unknown for the trainer itself.
func (m *member) number() errs.Number {
	if m.pid == 0 {
		return errs.Number{}
	}
	return errs.Known(int64(m.place))
}

// failure is what keeps all workers from working.
func failure(m *member, b []byte) error {
	e := userError(m, b)
	if e.Code == errs.Damaged {
		e.Code = errs.Config
	}
	return fill.Overall{Err: e}
}

// fatal is the error of a sample at which too many workers ended, m the last of them.
func (c *Crew) fatal(m *member, sample int64) error {
	if c.opt.Iterates {
		return errs.New(errs.Damaged, "%d Python workers ended, each as number %d, while they iterated the dataset up to the same batch", deadly, m.place).
			At(errs.Where{Worker: m.number()}).
			Try("iterate the dataset by itself to see why: a crash in a library, or more memory than there is (see dmesg)")
	}
	return errs.New(errs.Damaged, "%d Python workers ended while they made this sample", deadly).
		Because(&errs.CodeError{Kind: errs.Ended, Skippable: true}).
		At(errs.Where{Worker: m.number()}).
		Try("run dataset[%d] by itself to see why: a crash in a library, or more memory than there is (see dmesg)", sample)
}

// lost gives the rows of a worker that has ended to others.
func (c *Crew) lost(m *member, err error) {
	c.mu.Lock()
	m.ended = true
	at, row, busy := m.conn.At()
	c.members = slices.DeleteFunc(c.members, func(o *member) bool { return o == m })
	death := Death{PID: m.pid, Sample: -1, Stuck: m.stuck, Early: m.conn.Doing() == worker.Starting}
	var back []finished
	var held *job
	for _, p := range m.pieces {
		j := p.job
		j.out -= len(p.tasks)
		if j.whole != nil {
			j.whole.by = nil
		} else if !c.shaped {
			c.asking = false
		}
		tasks := p.tasks
		for i := 0; i < len(tasks); i++ {
			t := tasks[i]
			if !busy || m.leaves || j.id != at || uint32(t.Row) != row {
				continue
			}
			death.Sample = t.Req.Sample
			if m.stuck {
				break // it may be the storage
			}
			c.deaths[death.Sample]++
			if c.deaths[death.Sample] < deadly || j.b.Gone.Load() {
				continue
			}
			delete(c.deaths, death.Sample)
			j.miss(t.Row)
			if j.whole == nil {
				j.limbo++
			}
			j.held = true
			held = j
			back = append(back, finished{t: t, err: c.fatal(m, death.Sample)})
			tasks = slices.Delete(slices.Clone(tasks), i, i+1)
			break
		}
		j.todo = append(slices.Clone(tasks), j.todo...)
		if len(j.todo) > 0 {
			c.first(j)
		}
		c.settle(j)
	}
	slices.SortStableFunc(c.jobs, func(a, b *job) int { return int(int64(a.id) - int64(b.id)) })
	m.pieces = nil
	if !m.leaves {
		c.died = append(c.died, death)
	}
	if err != nil && c.failed == nil && !m.leaves {
		c.failed = fill.Overall{Err: errs.New(errs.Bug, "a Python worker sent what was not asked for").Because(err)}
	}
	c.opt.Board.Give(m.work)
	c.assign()
	c.tell()
	c.mu.Unlock()
	c.finish(back)
	back = nil
	c.mu.Lock()
	if held != nil {
		held.held = false
		if held.whole == nil {
			held.limbo--
			back = c.rejoin(nil, held)
		}
		c.settle(held)
		c.assign()
	}
	back = append(back, c.returned()...)
	c.mu.Unlock()
	c.finish(back)
}
