// Package fetch brings bytes before they are needed: it reads ahead along the
// plan so that lanes never wait for a disk, merges neighbouring extents, shares
// a chunk between the samples that are in it, and keeps within a byte budget.
// It does not know what the bytes mean.
//
// Requests come in the order of the plan, some batches ahead. The planner of a
// pass calls Submit and waits there while the budget is used up; readers take
// chunks in that order and call back when a request's last chunk is there.
// Readers belong to the fetcher, not to lanes: one that hangs holds up its own
// samples only.
//
// # The budget
//
// A chunk takes its bytes from the budget when it is queued, and gives them back
// when the last request that uses it is released. A request is released once all of
// its chunks were there, which needs a lane and nothing else: no room in the budget,
// no consumer, no other request. So a planner may wait for the bytes of every request
// that is queued as a whole, but not for those of a request that lacks a chunk: they
// come back only if it goes on. Such bytes are held by the one who waits, even if
// other requests, queued as a whole, use the same chunk (the page that the labels of a
// batch are in). The rule:
//
//   - what a request lacks is taken from the budget in one step, request by request,
//     in the order of the plan;
//   - a planner that waits says what it holds for requests that are not queued as a
//     whole, and mem.Budget lets nobody wait for that;
//   - lanes and readers never wait for the budget: what they queue is forced.
//
// What is read and not released is therefore within the budget, or what one request
// needs beside the chunks that its planner holds. A budget of one byte reads one
// request at a time.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	// gapBytes is the hole between two extents that is cheaper to read than to
	// seek over, where nobody else wants what is there: between fields of a
	// sample, and between one sample and the next.
	gapBytes = 64 << 10
	// pageBytes is the hole that is read in any case, since its pages are. A longer
	// one holds other samples: in a shuffled window it would be read again with
	// every batch.
	pageBytes = 4 << 10
	// chunkBytes is the longest merged read: large enough for any disk, small
	// enough to be shared out early.
	chunkBytes = 4 << 20
	// cpuEvery is how many reads come to one whose CPU is measured.
	cpuEvery = 16
)

// Request is the bytes of one sample. The caller owns it, fills in Sample and
// Extents, and may use it again after Release.
type Request struct {
	Sample  int64
	Extents []format.Extent
	Raw     [][]byte // one an extent, valid until Release
	Err     error    // set if any extent could not be read

	Owner any // the caller's

	chunks  []*chunk // one an extent; the same chunk may occur several times
	pending atomic.Int32
	mu      sync.Mutex // guards Err while chunks arrive
}

// Bytes is how many the request wants.
func (r *Request) Bytes() (n int64) {
	for _, e := range r.Extents {
		n += e.Len
	}
	return n
}

// Release gives the bytes back.
func (r *Request) Release() {
	for i, c := range r.chunks {
		c.release()
		r.chunks[i] = nil
		r.Raw[i] = nil
	}
	r.chunks, r.Raw, r.Err = r.chunks[:0], r.Raw[:0], nil
}

// chunk is one read: a run of one file that holds whole extents.
type chunk struct {
	f      *Fetcher
	ctx    context.Context // of Submit
	file   int
	off    int64
	length int64
	last   int64 // sample of the last extent
	held   int64 // bytes of the budget
	first  int   // the first request that needs it
	end    int   // the last one
	direct Direct
	buf    *mem.Buffer
	uses   []use
	refs   atomic.Int32
}

// use is one extent within a chunk.
type use struct {
	req *Request
	i   int // of req.Extents
}

func (c *chunk) release() {
	if c.refs.Add(-1) > 0 {
		return
	}
	if c.buf != nil {
		c.buf.Release()
	}
	f := c.f
	f.budget.Release(c.held)
	*c = chunk{f: f, uses: c.uses[:0]}
	f.spare.Put(c)
}

// ErrStopped answers requests that were given up before their reading was done.
var ErrStopped = errors.New("fetch: given up")

// Index is what fetch needs to know of a dataset's files.
type Index interface {
	AppendPath(file int, dst []byte) []byte
	Stamp(file int) (size int64, version string)
}

// Options are the limits of a Fetcher.
type Options struct {
	Readers int         // reads at once
	Budget  *mem.Budget // bytes read and not released
	Pool    *mem.Pool
	Board   *stats.Board
	Page    *stats.Page  // for the books of readers; may be nil
	Stage   *stats.Stage // nil: nothing is measured
	Loader  uint32       // for the board
}

// Fetcher reads the stored files of one dataset.
type Fetcher struct {
	src    source.Source
	files  Index
	ready  func(*Request)
	budget *mem.Budget
	opt    Options
	spare  sync.Pool // *chunk

	hot source.Hot    // nil: the source does not know
	run source.Runner // nil: it has no runs
	row atomic.Int64  // reads, since one waited

	mu     sync.Mutex
	wake   sync.Cond
	queue  []*chunk // in the order of the plan
	head   int
	closed bool
}

// New starts the readers. ready is called by a reader, once a request, when all
// of it is there or has failed; it must not block.
func New(src source.Source, files Index, ready func(*Request), opt Options) *Fetcher {
	f := &Fetcher{src: src, files: files, ready: ready, budget: opt.Budget, opt: opt}
	f.hot, _ = src.(source.Hot)
	f.run, _ = src.(source.Runner)
	f.wake.L = &f.mu
	f.spare.New = func() any { return &chunk{f: f} }
	for range opt.Readers {
		go f.read()
	}
	return f
}

// Direct is samples so small that a reader does all that is to be done with them:
// to hand them on would cost more than they do.
type Direct interface {
	// Run is called once, by a reader, or by Close before anything was read.
	Run(h *Hand)
}

// Hand is what a reader lends to a Direct while it runs, and what a lane reads with
// (Now). The zero value is ready for a lane; one goroutine uses it at a time.
type Hand struct {
	work *stats.Work
	f    *Fetcher // nil: closed
	buf  []byte
	raw  [][]byte
	path []byte
	name int // file of path; -1: none

	together bool // reads are checked together
	runs     []run
}

// run is reads of one file that were not checked yet.
type run struct {
	file int
	source.Run
}

// At notes which sample is at which stage (of package wire; 0: none).
func (h *Hand) At(stage uint32, sample int64) {
	switch {
	case h.work == nil:
	case stage == 0:
		h.work.End()
	default:
		h.work.Begin(stage, h.f.opt.Loader, sample)
	}
}

// Next is At for samples that cannot hang (stats.Work.Next).
func (h *Hand) Next(stage uint32, sample int64) {
	if h.work != nil {
		h.work.Next(stage, h.f.opt.Loader, sample)
	}
}

// Read reads the extents of one sample: all of them, or an error. What it gives is
// valid until Reset, or until Run returns.
func (h *Hand) Read(ctx context.Context, extents []format.Extent) ([][]byte, error) {
	if h.f == nil {
		return nil, ErrStopped
	}
	begin := len(h.raw)
	for _, e := range extents {
		p := h.room(e.Len)
		if !h.together || !h.inRun(e, p) {
			if err := h.f.src.ReadAt(ctx, h.object(e.File), p, e.Off); err != nil {
				return nil, err
			}
		}
		h.raw = append(h.raw, p)
	}
	return h.raw[begin:], nil
}

// Together begins reads that are checked together, which is cheaper: what they read
// does not count before Checked says so.
func (h *Hand) Together() { h.together = h.f != nil && h.f.run != nil }

// Checked ends them, and says whether the files were those of the index all the time.
// If not, some read something else without an error, and all are to be done again.
func (h *Hand) Checked() bool {
	ok := true
	for i := range h.runs {
		ok = h.runs[i].End() && ok
	}
	h.together, h.runs = false, h.runs[:0]
	return ok
}

// manyRuns is how many files are looked through for the one that is read.
const manyRuns = 32

// inRun reads into p within a run of the file, or says false.
func (h *Hand) inRun(e format.Extent, p []byte) bool {
	for i := len(h.runs) - 1; i >= 0; i-- {
		if h.runs[i].file == e.File {
			return h.runs[i].Read(p, e.Off)
		}
	}
	if len(h.runs) == manyRuns {
		return false
	}
	r, ok := h.f.run.Run(h.object(e.File))
	if !ok {
		return false
	}
	h.runs = append(h.runs, run{e.File, r})
	return h.runs[len(h.runs)-1].Read(p, e.Off)
}

// Reset lets h use the memory again of what it has read.
func (h *Hand) Reset() { h.buf, h.raw = h.buf[:0], h.raw[:0] }

// Do queues work after what was submitted before it.
func (f *Fetcher) Do(d Direct) {
	f.mu.Lock()
	closed := f.closed
	if !closed {
		c := f.spare.Get().(*chunk)
		c.direct = d
		f.queue = append(f.queue, c)
	}
	f.mu.Unlock()
	if closed {
		d.Run(&Hand{})
		return
	}
	f.wake.Signal()
}

// Close ends the readers and answers what they had not begun with ErrStopped.
// It does not wait for a reader that hangs.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.closed = true
	left := slices.Clone(f.queue[f.head:])
	f.queue, f.head = nil, 0
	f.mu.Unlock()
	f.wake.Broadcast()
	for _, c := range left {
		if c.direct != nil {
			c.direct.Run(&Hand{})
			continue
		}
		f.arrived(c, ErrStopped)
	}
}

// Submit queues requests in the order of the plan, and waits while the budget
// is used up unless force is set. Every request is answered by ready exactly
// once: with ErrStopped if ctx ended, stop came true, or the fetcher was closed before
// its reading was done. A read that is under way when ctx ends is given up by sources
// that can; its reader goes on with what others want. Whoever makes stop true wakes
// the budget. Submit says how long it waited, where that is measured.
func (f *Fetcher) Submit(ctx context.Context, reqs []*Request, force bool, stop func() bool) (waited time.Duration) {
	whole := true
	for _, r := range reqs {
		r.chunks, r.Raw = r.chunks[:0], r.Raw[:0]
		for range r.Extents {
			r.chunks, r.Raw = append(r.chunks, nil), append(r.Raw, nil)
		}
		r.pending.Store(int32(len(r.Extents)))
		whole = whole && len(r.Extents) == 1 && r.Extents[0].Whole
	}
	if !whole {
		return f.submitMerged(ctx, reqs, force, stop)
	}
	for _, r := range reqs {
		c := f.newChunk(ctx, r.Extents[0])
		f.share(c, r, 0)
		waited += f.push([]*chunk{c}, 0, force, stop)
	}
	return waited
}

// piece is one extent on its way into a chunk.
type piece struct {
	ext   format.Extent
	req   int // of the requests
	index int // of the request's extents
}

// submitMerged merges the extents of requests in shared files: sorted
// by place, joined over small gaps, read in the order in which the plan needs
// their first byte.
func (f *Fetcher) submitMerged(ctx context.Context, reqs []*Request, force bool, stop func() bool) (waited time.Duration) {
	var pieces []piece
	for n, r := range reqs {
		for i, e := range r.Extents {
			pieces = append(pieces, piece{e, n, i})
		}
	}
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.ext.File, b.ext.File), cmp.Compare(a.ext.Off, b.ext.Off), cmp.Compare(a.req, b.req))
	})
	var chunks []*chunk
	for _, p := range pieces {
		var c *chunk
		if len(chunks) > 0 {
			c = chunks[len(chunks)-1]
		}
		end := p.ext.Off + p.ext.Len
		if c == nil || c.file != p.ext.File || !c.reaches(p.ext, reqs[p.req].Sample) || end-c.off > max(chunkBytes, c.length) {
			c = f.newChunk(ctx, p.ext)
			c.first, c.end = p.req, p.req
			chunks = append(chunks, c)
		}
		c.length, c.last = max(c.length, end-c.off), reqs[p.req].Sample
		c.first, c.end = min(c.first, p.req), max(c.end, p.req)
		f.share(c, reqs[p.req], p.index)
	}
	slices.SortStableFunc(chunks, func(a, b *chunk) int { return cmp.Compare(a.first, b.first) })
	for _, r := range reqs {
		if len(r.Extents) == 0 { // all of it is in the index
			f.ready(r)
		}
	}
	held, free := int64(0), make([]int64, len(reqs)) // free[n]: of held, what request n is the last to lack
	for n, next := 0, 0; n < len(reqs); n++ {
		begin := next
		for ; next < len(chunks) && chunks[next].first == n; next++ {
		}
		lacked := held
		for _, c := range chunks[begin:next] {
			held += c.length
			free[c.end] += c.length
		}
		if begin < next {
			waited += f.push(chunks[begin:next], lacked, force, stop)
		}
		held -= free[n]
	}
	return waited
}

// reaches says that an extent of a sample, not before the chunk's own ones, is
// near enough to be read with them.
func (c *chunk) reaches(e format.Extent, sample int64) bool {
	gap := e.Off - c.off - c.length
	return gap <= pageBytes || gap <= gapBytes && -1 <= sample-c.last && sample-c.last <= 1
}

func (f *Fetcher) newChunk(ctx context.Context, e format.Extent) *chunk {
	c := f.spare.Get().(*chunk)
	c.ctx, c.file, c.off, c.length = ctx, e.File, e.Off, e.Len
	return c
}

func (f *Fetcher) share(c *chunk, r *Request, i int) {
	r.chunks[i] = c
	c.uses = append(c.uses, use{r, i})
	c.refs.Add(1)
}

// push queues the chunks that one request lacks, or answers their requests with
// ErrStopped. held is what the caller holds for requests that lack a chunk. What it
// waited for the budget is not measured where reading is not.
func (f *Fetcher) push(chunks []*chunk, held int64, force bool, stop func() bool) (waited time.Duration) {
	n := int64(0)
	for _, c := range chunks {
		n += c.length
	}
	got := true
	if force {
		f.budget.Force(n)
	} else {
		lap := f.opt.Stage.Begin()
		got = !stop() && f.budget.Acquire(n, held, stop)
		waited = lap.Took()
	}
	if got {
		for _, c := range chunks {
			c.held = c.length
		}
		f.mu.Lock()
		if got = !f.closed; got {
			f.queue = append(f.queue, chunks...)
		}
		f.mu.Unlock()
	}
	if !got {
		for _, c := range chunks {
			f.arrived(c, ErrStopped)
		}
		return waited
	}
	for range chunks {
		f.wake.Signal()
	}
	return waited
}

func (f *Fetcher) next(book *stats.Worker) *chunk {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head == len(f.queue) && book != nil {
		book.Turn(stats.Output, stats.Monotonic()) // nobody wants more
		defer func() {
			_, took := book.Turn(stats.Busy, stats.Monotonic())
			f.opt.Stage.Blocked(stats.Output, time.Duration(took))
		}()
	}
	for f.head == len(f.queue) {
		if f.closed {
			return nil
		}
		f.queue, f.head = f.queue[:0], 0
		f.wake.Wait()
	}
	c := f.queue[f.head]
	f.queue[f.head] = nil
	f.head++
	return c
}

// read is one reader.
func (f *Fetcher) read() {
	work := f.opt.Board.Take()
	defer f.opt.Board.Give(work)
	var book *stats.Worker
	if f.opt.Stage != nil {
		book = f.opt.Page.Worker(stats.ReaderWorker)
		defer book.Free()
		book.Turn(stats.Busy, stats.Monotonic())
	}
	hand := Hand{work: work, f: f, name: -1}
	for n := 0; ; n++ {
		c := f.next(book)
		if c == nil {
			return
		}
		if d := c.direct; d != nil {
			c.direct = nil
			f.spare.Put(c)
			hand.Reset()
			d.Run(&hand)
			continue
		}
		work.Begin(wire.StageRead, f.opt.Loader, c.uses[0].req.Sample)
		var thread stats.Thread
		onThread := book != nil && n%cpuEvery == 0
		if onThread {
			thread = stats.OnThread()
		}
		lap := f.opt.Stage.Begin()
		err := error(ErrStopped)
		if c.ctx.Err() == nil {
			c.buf = f.opt.Pool.Get(int(c.length))
			err = f.readAt(c.ctx, hand.object(c.file), c.buf.Bytes, c.off)
		}
		if c.ctx.Err() != nil {
			err = ErrStopped // nobody wants to know what else went wrong
		}
		lap.End(int64(len(c.uses)), c.length)
		if onThread {
			f.opt.Stage.CPU(thread.Used(), int64(len(c.uses)))
		}
		book.Done(int64(f.opt.Loader), int64(len(c.uses)))
		work.End()
		f.arrived(c, err)
	}
}

// arrived hands a chunk to its requests. Every use holds a reference until its
// request is released, which is after it was counted here: the chunk may be
// gone once the last is counted, and is not touched after that.
func (f *Fetcher) arrived(c *chunk, err error) {
	off, buf := c.off, c.buf
	for _, u := range c.uses {
		e := u.req.Extents[u.i]
		if err == nil {
			u.req.Raw[u.i] = buf.Bytes[e.Off-off : e.Off-off+e.Len : e.Off-off+e.Len]
		} else {
			u.req.mu.Lock()
			u.req.Err = err
			u.req.mu.Unlock()
		}
		if u.req.pending.Add(-1) == 0 {
			f.ready(u.req)
		}
	}
}
