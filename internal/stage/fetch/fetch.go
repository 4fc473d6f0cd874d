// Package fetch brings bytes before they are needed: it reads ahead along the
// plan so that lanes never wait for a disk, merges neighbouring extents, shares
// a chunk between the samples that are in it, and keeps within a byte budget.
// It does not know what the bytes mean.
//
// Requests come in the order of the plan, some batches ahead. The prefetcher of a
// pass calls Submit and waits there while the budget is used up; readers take
// chunks in that order and call back when a request's last chunk is there.
// Readers belong to the fetcher, not to lanes: one that hangs delays only its own
// samples. Each store has its own queue and readers (store.go): as many as its link can use
// (source.Linked), or as many as pay off on its device (crowd.go).
//
// The order is known far beyond the batches that have memory. A Plan (plan.go) says what
// later batches of a pass need; these reads are joined across batches, and done when no
// batch waits for anything.
//
// # The budget
//
// A chunk takes its bytes from the budget when it is queued, and gives them back
// when the last request that uses it is released. A request can be released once all
// of its chunks have been read; that takes a lane, but no room in the budget, no
// consumer and no other request. So a prefetcher may wait for the bytes of any request
// whose chunks are all queued, but not for those of a request that lacks a chunk: they
// come back only if its prefetcher continues. Such bytes count as held by the waiting
// prefetcher, even if completely queued requests use the same chunk (such as the page
// with the labels of a batch). The rule:
//
//   - the bytes that a request lacks are taken from the budget in one step, request by
//     request, in the order of the plan;
//   - a prefetcher that waits declares what it holds for requests that are not completely
//     queued, and mem.Budget lets no prefetcher wait for those bytes;
//   - lanes and readers never wait for the budget: what they queue is forced.
//
// So the bytes that are read and not released stay within the budget, or are what one
// request needs in addition to the chunks that its prefetcher holds. A budget of one byte
// reads one request at a time.
//
// # The budget of plans
//
// Chunks of plans have a separate limit (Options.Ahead), which all plans of a fetcher
// share. Only planners wait for it, and nothing waits for planners:
//
//   - a request takes what is planned for it without waiting. The chunk moves to the queue
//     of requests if it has not been read, so a chunk that a request waits for is never
//     preceded by one that only a plan wants;
//   - what is not planned, because a planner was late or its budget was used up, is read
//     as described above, under the budget above;
//   - a planned chunk counts in the budget of plans until the last sample that it was
//     planned for has been released, or its plan dropped; one with a part that later
//     groups need, until the last of these has been added. It never counts in the other one,
//     so a request that has planned chunks and lacks others holds nothing that a prefetcher
//     waits for.
//
// A planned read that fails does not by itself fail any request: each request that needs a
// part of it reads that part alone. So errors do not depend on what was read together.
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
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	// gapBytes is the largest hole between two extents that is read rather than skipped:
	// between the fields of a sample, and between one sample and the next. No sample
	// of these requests needs the bytes in it.
	gapBytes = 64 << 10
	// pageBytes is the largest hole that is always read, because its pages are read
	// anyway, however large the kernel's are. A longer hole holds other samples: in a shuffled window it would be read
	// again with every batch.
	pageBytes = 4 << 10
	// chunkBytes is the longest merged read: large enough for any disk, small enough to
	// reach its samples early.
	chunkBytes = 4 << 20
	// cpuEvery is the number of reads of which the CPU time of one is measured.
	cpuEvery = 16
)

// Request is the bytes of one sample. The caller owns it, fills in Sample and
// Extents, and may use it again after Release.
type Request struct {
	Sample  int64
	Extents []format.Extent
	Raw     [][]byte // one per extent, valid until Release
	Err     error    // set if any extent could not be read

	Owner any // the caller's

	chunks  []*chunk // one per extent; the same chunk may occur several times
	pending atomic.Int32
	mu      sync.Mutex // guards Err while chunks arrive
}

// Bytes is how many bytes the request needs.
func (r *Request) Bytes() (n int64) {
	for _, e := range r.Extents {
		n += e.Len
	}
	return n
}

// Release returns the bytes to the budget and the pool.
func (r *Request) Release() {
	for i, c := range r.chunks {
		c.release()
		r.chunks[i] = nil
		r.Raw[i] = nil
	}
	r.chunks, r.Raw, r.Err = r.chunks[:0], r.Raw[:0], nil
}

// chunk is one read: a range of one file that contains whole extents. Its budget is
// returned with the last reference.
type chunk struct {
	f      *Fetcher
	ctx    context.Context // of Submit
	file   int
	off    int64
	length int64
	last   int64 // sample of the last extent
	held   int64 // bytes taken from the budget
	first  int   // the first request that needs it
	end    int   // the last one
	need   int64 // bytes of its extents; the others are in holes between them
	later  bool  // later groups need a part of it
	direct Direct
	buf    *mem.Buffer
	uses   []use
	refs   atomic.Int32
	plan   *planned // nil: it was submitted
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
	if c.plan != nil {
		f.ended(c)
		return
	}
	f.budget.Release(c.held)
	*c = chunk{f: f, uses: c.uses[:0]}
	f.spare.Put(c)
}

// ErrStopped is the error of requests that were abandoned before their reads were done.
var ErrStopped = errors.New("fetch: given up")

// Index is what fetch needs to know about a dataset's files.
type Index interface {
	AppendPath(file int, dst []byte) []byte
	Stamp(file int) (size int64, version string)
}

// Options are the limits of a Fetcher.
type Options struct {
	Readers     int         // of local files, to begin with
	Connections int         // readers of one store, at most; 0: as many as pay
	Budget      *mem.Budget // bytes submitted, read and not released
	Ahead       int64       // bytes of plans; 0: as the reads suggest
	Pool        *mem.Pool
	Board       *stats.Board
	Page        *stats.Page  // for the states of readers; may be nil
	Stage       *stats.Stage // nil: nothing is measured
	Loader      uint32       // for the board
	First       int64        // what the board calls sample 0
	// Hold keeps the files open until LetGo, for reads of plans: no request does it for
	// them. It returns false if they are closed. Both may be nil.
	Hold  func() bool
	LetGo func()
}

// Fetcher reads the stored files of one dataset.
type Fetcher struct {
	src    source.Source
	files  Index
	ready  func(*Request)
	budget *mem.Budget
	opt    Options
	spare  sync.Pool // *chunk

	hot    source.Hot    // nil: the source cannot tell what is in the page cache
	run    source.Runner // nil: it has no runs
	linked source.Linked // nil: nothing of it is known to wait

	of     atomic.Pointer[[]atomic.Uint32] // 1 + number of the store of each file, four in a word; 0: unknown
	stores atomic.Pointer[[]*store]        // the first has the local files

	mu     sync.Mutex
	closed bool
	ahead  ahead
}

// New makes a fetcher, whose readers start when there is something to read. A reader calls
// ready, once per request, when all of the request has been read or has failed, and Submit
// does if nothing of a request had to be read; ready must not block.
func New(src source.Source, files Index, ready func(*Request), opt Options) *Fetcher {
	f := &Fetcher{src: src, files: files, ready: ready, budget: opt.Budget, opt: opt}
	f.hot, _ = src.(source.Hot)
	f.run, _ = src.(source.Runner)
	f.linked, _ = src.(source.Linked)
	f.spare.New = func() any { return &chunk{f: f} }
	f.ahead.room.L = &f.mu
	f.stores.Store(&[]*store{f.newStore("")})
	return f
}

// Direct is samples so small that the reader also decodes and writes them: passing them
// on to a lane would cost more.
type Direct interface {
	// Run is called once, by a reader, or by Close before anything was read.
	Run(rc *ReadContext)
}

// ReadContext is the memory and the open run with which a goroutine reads: a reader
// lends its own to a Direct while that runs, a lane uses one for Now. The zero value is
// ready for a lane; one goroutine uses it at a time.
type ReadContext struct {
	work *stats.Work
	f    *Fetcher // nil: closed
	buf  []byte
	raw  [][]byte
	path []byte
	name int // file of path; -1: none

	together bool // reads are checked together
	runs     []run
}

// run is reads of one file that have not been compared with the index yet.
type run struct {
	file int
	source.Run
}

// At records which sample is at which stage (a number of package wire; 0: none).
func (rc *ReadContext) At(stage uint32, sample int64) {
	switch {
	case rc.work == nil:
	case stage == 0:
		rc.work.End()
	default:
		rc.work.Begin(stage, rc.f.opt.Loader, rc.f.opt.First+sample)
	}
}

// Next is At for samples that cannot hang (stats.Work.Next).
func (rc *ReadContext) Next(stage uint32, sample int64) {
	if rc.work != nil {
		rc.work.Next(stage, rc.f.opt.Loader, rc.f.opt.First+sample)
	}
}

// Read reads the extents of one sample: all of them, or an error. The bytes are valid
// until Reset, or until Run returns.
func (rc *ReadContext) Read(ctx context.Context, extents []format.Extent) ([][]byte, error) {
	if rc.f == nil {
		return nil, ErrStopped
	}
	begin := len(rc.raw)
	for _, e := range extents {
		p := rc.room(e.Len)
		if !rc.together || !rc.inRun(e, p) {
			if err := rc.f.src.ReadAt(ctx, rc.object(e.File), p, e.Off); err != nil {
				return nil, err
			}
		}
		rc.raw = append(rc.raw, p)
	}
	return rc.raw[begin:], nil
}

// Together begins reads that are checked together, which is cheaper: their bytes must
// not be used before Checked returns true.
func (rc *ReadContext) Together() { rc.together = rc.f != nil && rc.f.run != nil }

// Checked ends them, and reports whether the files were those of the index all the time.
// If not, some reads may have returned other bytes without an error, and all must be
// repeated.
func (rc *ReadContext) Checked() bool {
	ok := true
	for i := range rc.runs {
		ok = rc.runs[i].End() && ok
	}
	rc.together, rc.runs = false, rc.runs[:0]
	return ok
}

// manyRuns is how many open runs are searched for the file that is read.
const manyRuns = 32

// inRun reads into p within a run of the file, and reports whether it did.
func (rc *ReadContext) inRun(e format.Extent, p []byte) bool {
	for i := len(rc.runs) - 1; i >= 0; i-- {
		if rc.runs[i].file == e.File {
			return rc.runs[i].Read(p, e.Off)
		}
	}
	if len(rc.runs) == manyRuns {
		return false
	}
	r, ok := rc.f.run.Run(rc.object(e.File))
	if !ok {
		return false
	}
	rc.runs = append(rc.runs, run{e.File, r})
	return rc.runs[len(rc.runs)-1].Read(p, e.Off)
}

// Reset lets rc reuse the memory of what it has read.
func (rc *ReadContext) Reset() { rc.buf, rc.raw = rc.buf[:0], rc.raw[:0] }

// Do queues work on local files after everything that was submitted of them before it.
func (f *Fetcher) Do(d Direct) {
	st := f.local()
	f.mu.Lock()
	closed := f.closed
	if !closed {
		c := f.spare.Get().(*chunk)
		c.direct = d
		st.queue = append(st.queue, c)
		st.hire(1)
	}
	f.mu.Unlock()
	if closed {
		d.Run(&ReadContext{})
		return
	}
	st.wake.Signal()
}

// Close ends the readers, and answers the requests that they had not begun with
// ErrStopped. It does not wait for a reader that hangs.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.closed = true
	var left []*chunk
	for _, st := range *f.stores.Load() {
		left = append(left, st.close()...)
	}
	f.ahead.close(f)
	f.mu.Unlock()
	for _, c := range left {
		if c.direct != nil {
			c.direct.Run(&ReadContext{})
			continue
		}
		f.arrived(c, ErrStopped)
	}
}

// Submit queues requests in the order of the plan, and waits while the budget is used
// up, unless force is set. Every request is answered by ready exactly once: with
// ErrStopped if ctx ended, stop became true, or the fetcher was closed before its reads
// were done. When ctx ends, sources that can abandon a read that has begun do so; its
// reader continues with other requests. The caller that makes stop true must wake the
// budget. Submit returns how long it waited, if that is measured.
func (f *Fetcher) Submit(ctx context.Context, reqs []*Request, force bool, stop func() bool) (waited time.Duration) {
	return f.submit(ctx, reqs, force, stop, nil)
}

// submit is Submit; what is planned for the requests need not be read again.
func (f *Fetcher) submit(ctx context.Context, reqs []*Request, force bool, stop func() bool, planned []entry) (waited time.Duration) {
	whole := true
	for _, r := range reqs {
		r.chunks, r.Raw = r.chunks[:0], r.Raw[:0]
		for range r.Extents {
			r.chunks, r.Raw = append(r.chunks, nil), append(r.Raw, nil)
		}
		r.pending.Store(int32(len(r.Extents)))
		whole = whole && len(r.Extents) == 1 && r.Extents[0].Whole
	}
	claims := f.claim(reqs, planned)
	if !whole {
		return f.submitMerged(ctx, reqs, force, stop, claims)
	}
	rest := reqs
	if len(claims) > 0 { // what has its chunk may be answered and reused as soon as that is known
		rest = slices.DeleteFunc(slices.Clone(reqs), func(r *Request) bool { return r.chunks[0] != nil })
		f.settle(claims)
	}
	for _, r := range rest {
		c := f.newChunk(ctx, r.Extents[0])
		f.share(c, r, 0)
		waited += f.push([]*chunk{c}, 0, force, stop)
	}
	return waited
}

// submitMerged merges the extents of requests in shared files: sorted by offset, joined
// over small gaps, and read in the order in which the plan needs their first byte.
func (f *Fetcher) submitMerged(ctx context.Context, reqs []*Request, force bool, stop func() bool, claims []use) (waited time.Duration) {
	var pieces []piece
	for n, r := range reqs {
		for i, e := range r.Extents {
			if r.chunks[i] == nil {
				pieces = append(pieces, piece{ext: e, sample: r.Sample, req: n, index: i})
			}
		}
	}
	chunks := f.join(pieces, allowance{}, func(e format.Extent) *chunk { return f.newChunk(ctx, e) }, func(c *chunk, p piece) {
		f.share(c, reqs[p.req], p.index)
	})
	slices.SortStableFunc(chunks, func(a, b *chunk) int { return cmp.Compare(a.first, b.first) })
	var none []*Request
	for _, r := range reqs {
		if len(r.Extents) == 0 { // the index has everything
			none = append(none, r)
		}
	}
	n := len(reqs) // what follows answers requests: others may use them again
	for _, r := range none {
		f.ready(r)
	}
	f.settle(claims)
	if len(chunks) == 0 {
		return 0
	}
	held, free := int64(0), make([]int64, n) // free[n]: bytes of held whose last waiting request is n
	for n, next := 0, 0; n < len(free); n++ {
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

func (f *Fetcher) newChunk(ctx context.Context, e format.Extent) *chunk {
	c := f.spare.Get().(*chunk)
	c.ctx, c.file, c.off, c.length, c.need = ctx, e.File, e.Off, e.Len, e.Len
	return c
}

func (f *Fetcher) share(c *chunk, r *Request, i int) {
	r.chunks[i] = c
	c.uses = append(c.uses, use{r, i})
	c.refs.Add(1)
}

// push queues the chunks that one request lacks, or answers their requests with
// ErrStopped. held is the number of bytes that the caller holds for requests that lack a
// chunk. The wait for the budget is measured only if reads are.
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
		got = f.enqueue(chunks)
	}
	if !got {
		for _, c := range chunks {
			f.arrived(c, ErrStopped)
		}
	}
	return waited
}

// enqueue gives chunks to the readers of their stores, unless the fetcher is closed.
func (f *Fetcher) enqueue(chunks []*chunk) bool {
	var room [8]*store
	stores := room[:0]
	for _, c := range chunks {
		stores = append(stores, f.storeOf(c.file))
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return false
	}
	for i, c := range chunks {
		stores[i].queue = append(stores[i].queue, c)
		stores[i].hire(1)
	}
	f.mu.Unlock()
	for _, st := range stores {
		st.wake.Signal()
	}
	return true
}

// arrived passes a chunk on to its requests. Every use holds a reference until its
// request is released, which happens after the use is counted here. So the chunk may be
// gone once its last use is counted, and must not be touched after that.
func (f *Fetcher) arrived(c *chunk, err error) {
	if c.plan != nil {
		f.landed(c, err)
		return
	}
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
