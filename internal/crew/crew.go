// Package crew fills rows with the samples that Python workers make: it decides which
// worker makes which rows, and what happens to the rows of a worker that ends. A sample
// goes to any worker, several at a time if they are cheap; a batch that the user's code
// collates goes to one worker as a whole.
package crew

import (
	"slices"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

const (
	// atOnce is how much work is handed out at a time, in ns: much longer than it takes
	// to hand it out, and much shorter than a batch.
	atOnce = 2e6
	// quick is the cost of a sample, in ns, up to which a worker gets a second piece of
	// work while it does the first, so that it never waits for one. A slower sample would
	// keep others waiting.
	quick = 5e6
	// leaving is how long a worker that was sent home may go on, as in torch's loader.
	leaving = 5 * time.Second
	// deadly is how many workers may end while they make a sample.
	deadly = 2
)

// Options are what New needs.
type Options struct {
	Whole bool // the user's code makes batches of samples
	Turns bool // worker k of n makes the steps k, k+n, k+2n ...: all rows of each
	// Iterates means that each worker iterates its own copy of the dataset: a batch is one
	// task, whose step is a turn, and Turns says whose. See turns.go.
	Iterates bool
	Workers  int // that there should be
	Board    *stats.Board
	Stage    *stats.Stage // of the user's code
	Engine   *stats.Stage // of what the engine does to batches after it
	Feeder   Feeder       // makes samples that workers go on with; nil: workers make all of them
	Fields   [][]byte     // JSON: what such samples have; one for each kind
}

// Crew is the workers of one loader. It implements fill.Crew and fill.Watcher.
type Crew struct {
	opt  Options
	desk Desk

	mu        sync.Mutex
	members   []*member
	jobs      []*job // batches with rows to hand out, in the order of the plan
	of        map[*fill.Batch]*job
	last      uint64          // job
	cost      float64         // of a sample, ns; 0: unknown
	deaths    map[int64]int   // workers that ended while they made this sample
	died      []Death         // Wanted has not told of them
	failed    error           // no worker can work
	spell     int             // batches that are made as wholes after one that had to be
	ahead     int             // of which so many are left
	shaped    bool            // a sample has told what batches have
	structure []byte          // for whoever reads the columns
	asking    bool            // a worker makes the first sample
	asked     *member         // which one; the last
	walks     map[int64]*walk // by pass, if workers iterate
	closing   bool
	loader    uint32
	words     []worker.Task      // of described
	from      map[*fill.Task]fed // of rows that are not back
	users     map[*Input]int     // rows that need it
	painter   painter            // of rows with pictures
	news      chan struct{}      // closed when there is something for the trainer to do
}

// Desk is what a crew of workers needs of its loader.
type Desk interface {
	fill.Desk
	// Filled is Finish for tasks of one batch without an error, all at once.
	Filled(tasks []*fill.Task, now int64)
	// Shape says what samples have: the columns of batches, and a text for whoever reads
	// them. All batches that were begun are given up, and begun again.
	Shape(fields []batch.Field, structure []byte) error
	// Grow makes the slot of a batch at least so large, or gives the batch up. Nobody
	// writes to the slot meanwhile; what is in it stays.
	Grow(b *fill.Batch, bytes int64) error
	Moment(b *fill.Batch) Moment
}

// Moment is where a batch is in the stream.
type Moment struct {
	Pass  int64 // number of the loader's pass
	Epoch int64
	Step  int64
	// Item is what a sampler gave for a sample, if not a plain id; nil: it gave ids.
	Item func(place, sample int64) []byte
}

// Death is a worker that ended.
type Death struct {
	PID    int
	Sample int64 // that it was making; -1: none
	Stuck  bool  // Stalled ended it
	Early  bool  // it had not started to work
}

// member is one worker.
type member struct {
	conn   *worker.Conn
	pid    int
	place  int             // of the workers, from 0
	cpu    time.Duration   // that its process had used at its last answer
	pass   int64           // the last one that it was told of
	walks  map[int64]int64 // by pass: the number of the batch that its iteration comes to next
	pieces []piece         // in the order in which it works on them
	work   *stats.Work
	idle   int64 // stats.Monotonic since it has no piece; 0: it has one
	begun  int64 // stats.Monotonic when it came to its first piece
	leaves bool  // it was dismissed: its end is not a death
	stuck  bool  // and is being killed
	ended  bool
}

// piece is rows of a job that a worker has.
type piece struct {
	job   *job
	tasks []*fill.Task
}

// job is a batch.
type job struct {
	id     uint64
	b      *fill.Batch
	todo   []*fill.Task // not handed out
	out    int          // handed out
	awaits int          // whose samples are being made natively
	at     Moment
	whole  *whole
	// Rows of the same structure as the first sample of all, or not. See odd.go.
	filled bool
	odd    []finished   // held back
	bad    map[int]bool // rows without a sample of their own
	limbo  int          // rows that were returned as bad just now: they may come back
	// held: rows of it were returned as bad, and may come back with other samples. Until
	// that is decided, nothing of it is handed out.
	held    bool
	failing int // the same, while samples that could not be made natively are returned
}

// undecided reports whether rows that were returned as bad may come back.
func (j *job) undecided() bool { return j.held || j.failing > 0 }

// New returns a crew without workers.
func New(desk Desk, loader int64, opt Options) *Crew {
	return &Crew{opt: opt, desk: desk, loader: uint32(loader), of: map[*fill.Batch]*job{}, deaths: map[int64]int{}, from: map[*fill.Task]fed{}, users: map[*Input]int{}, walks: map[int64]*walk{}, shaped: opt.Whole, news: make(chan struct{}), painter: painter{stage: opt.Engine}}
}

// News is closed when the trainer should look at Wanted again.
func (c *Crew) News() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.news
}

// tell closes news. c.mu is held.
func (c *Crew) tell() {
	close(c.news)
	c.news = make(chan struct{})
}

// Begin implements fill.Crew.
func (c *Crew) Begin(b *fill.Batch) time.Duration {
	c.mu.Lock()
	j := c.job(b)
	if c.opt.Iterates && c.past(j) {
		c.settle(j)
		c.mu.Unlock()
		c.finish([]finished{{t: &b.Tasks[0]}})
		return 0
	}
	for i := range b.Tasks {
		if t := &b.Tasks[i]; t.Sample >= 0 {
			j.todo = append(j.todo, t)
		}
	}
	if c.missing() > 0 {
		c.tell()
	}
	if c.opt.Feeder != nil {
		tasks := j.todo
		j.todo, j.awaits = nil, len(tasks)
		c.mu.Unlock()
		c.opt.Feeder.Feed(tasks, false)
		return 0
	}
	c.jobs = append(c.jobs, j)
	c.assign()
	back := c.returned()
	c.mu.Unlock()
	c.finish(back)
	return 0
}

// Again implements fill.Crew.
func (c *Crew) Again(t *fill.Task) {
	c.mu.Lock()
	j := c.of[t.Batch]
	if j == nil { // all its rows had been finished
		j = c.job(t.Batch)
		j.filled = true
	}
	delete(j.bad, t.Row)
	if c.opt.Feeder != nil {
		j.awaits++
		c.mu.Unlock()
		c.opt.Feeder.Feed([]*fill.Task{t}, true)
		return
	}
	j.todo = append([]*fill.Task{t}, j.todo...)
	if j.whole == nil || j.whole.by == nil {
		c.first(j)
	}
	c.assign()
	back := c.returned()
	c.mu.Unlock()
	c.finish(back)
}

// job is a new job for a batch, without rows to hand out. c.mu is held.
func (c *Crew) job(b *fill.Batch) *job {
	c.last++
	j := &job{id: c.last, b: b, at: c.desk.Moment(b)}
	if c.opt.Whole {
		j.whole = &whole{}
	}
	c.of[b] = j
	return j
}

// first has the rows of a job handed out before those of all others, unless it has its
// place already. c.mu is held.
func (c *Crew) first(j *job) {
	if !slices.Contains(c.jobs, j) {
		c.jobs = slices.Insert(c.jobs, 0, j)
	}
}

// GivenUp implements fill.Watcher: rows that were not handed out are returned.
func (c *Crew) GivenUp() {
	go func() {
		c.mu.Lock()
		back := c.returned()
		c.mu.Unlock()
		c.finish(back)
	}()
}

// Freed implements fill.Watcher.
func (c *Crew) Freed(slot *batch.Slot) {
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range c.members {
			m.conn.Freed(slot)
		}
	}()
}

// finished is a task that goes back to the desk.
type finished struct {
	t     *fill.Task
	err   error
	bytes bool // its pictures are bytes still
}

func (c *Crew) finish(all []finished) {
	c.used(all)
	for i := range all {
		if f := &all[i]; f.bytes && f.err == nil && !f.t.Batch.Gone.Load() {
			f.err = c.painter.paint(f.t)
		}
	}
	var run []*fill.Task
	for i := 0; i < len(all); i = max(i+len(run), i+1) {
		run = run[:0]
		for _, f := range all[i:] {
			if f.err != nil || f.t.Batch != all[i].t.Batch {
				break
			}
			run = append(run, f.t)
		}
		if len(run) > 0 { // the batch may be another one by the time it returns
			c.desk.Filled(run, stats.Monotonic())
			continue
		}
		c.desk.Finish(all[i].t, all[i].err, stats.Monotonic())
	}
}

// returned takes the rows that no worker has and that go back: those of batches that were
// given up, and all of them if no worker can work. c.mu is held.
func (c *Crew) returned() (back []finished) {
	c.jobs = slices.DeleteFunc(c.jobs, func(j *job) bool {
		if j.undecided() || !j.b.Gone.Load() && !j.b.Failed.Load() && c.failed == nil || j.whole != nil && j.whole.by != nil {
			return false
		}
		for _, t := range j.todo {
			back = append(back, finished{t: t, err: c.failed})
		}
		for _, f := range j.odd {
			back = append(back, finished{t: f.t, err: c.failed})
		}
		j.todo, j.odd = nil, nil
		c.settle(j)
		return true
	})
	return back
}

// settle forgets a job without rows. c.mu is held.
func (c *Crew) settle(j *job) {
	if !j.undecided() && j.limbo == 0 && j.out == 0 && j.awaits == 0 && len(j.todo)+len(j.odd) == 0 && c.of[j.b] == j {
		delete(c.of, j.b)
	}
}

// Hire takes over the socket to a worker that the trainer has started. place is its number
// among the workers: a worker that replaces one has the number of that one.
func (c *Crew) Hire(fd, pid, place int) error {
	m := &member{pid: pid, place: place, walks: map[int64]int64{}, work: c.opt.Board.Take(), idle: stats.Monotonic()}
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, err := worker.New(fd, pid, func(frame any) error { return c.got(m, frame) }, func(err error) { c.lost(m, err) })
	if err != nil {
		c.opt.Board.Give(m.work)
		return errs.New(errs.Memory, "cannot talk to a Python worker").Because(err).Try("see `ulimit -n` for descriptors")
	}
	for _, about := range c.opt.Fields {
		conn.Fields(about)
	}
	m.conn = conn
	if c.closing { // it ends, and had no part in anything
		m.leaves = true
		conn.Leave()
		return errs.New(errs.Config, "the loader is closed")
	}
	c.members = append(c.members, m)
	c.failed = nil
	c.assign()
	return nil
}

// Dismiss sends home the workers that there are: each ends when it has done what it is at.
func (c *Crew) Dismiss() {
	c.mu.Lock()
	members := slices.Clone(c.members)
	for _, m := range members {
		m.leaves = true
	}
	c.mu.Unlock()
	for _, m := range members {
		m.conn.Leave()
	}
	time.AfterFunc(leaving, func() {
		for _, m := range members {
			m.conn.Kill()
		}
	})
}

// Close ends the workers for good; rows are not handed out any more.
func (c *Crew) Close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.painter.close()
	c.Dismiss()
}

// Wanted is how many workers are missing while there is work for them; if any are, also
// those that have ended and of which it has not told. Whoever replaces workers has to know
// which ones.
func (c *Crew) Wanted() (missing int, died []Death) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if missing = c.missing(); missing > 0 {
		died, c.died = c.died, nil
	}
	return missing, died
}

func (c *Crew) missing() int {
	if c.closing || c.failed != nil || len(c.of) == 0 {
		return 0
	}
	n := c.opt.Workers
	for _, m := range c.members {
		if !m.leaves {
			n--
		}
	}
	return max(n, 0)
}
