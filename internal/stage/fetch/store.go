package fetch

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// store is where some of the files are: on the local machine, with what is mounted there, or
// at one address. It has its own queue and readers, so that a store that hangs takes no
// readers from another. Fetcher.mu guards what is not atomic.
type store struct {
	f    *Fetcher
	name string // what the names of its files begin with ("s3://bucket"); "": local files

	wake    sync.Cond
	queue   []*chunk // of requests, in the order of the plan; planned ones that were claimed are among them
	head    int
	planned []*chunk // of plans: a heap, the one due first at the top
	readers int
	idle    int // of readers
	crowd   crowd

	row  atomic.Int64 // reads since the last one that waited
	slow atomic.Int64 // reads that waited long, since row was at its end; up to slowReads
	link atomic.Pointer[source.Link]
	ask  atomic.Int64           // when the link is looked at again: stats.Monotonic; never for local files without one
	any  atomic.Pointer[string] // the name of one of its files, to ask with: the index may be closed by then
}

const (
	// slowRead is the shortest read that counts as waiting: longer than copying a chunk from
	// the page cache.
	slowRead = int64(500 * time.Microsecond)
	// slowReads is how many of them show that local storage is worth reading far ahead.
	slowReads = 32
	// askEvery is how often a link is looked at.
	askEvery = int64(50 * time.Millisecond)
	never    = math.MaxInt64
	// mostLinked is a bound for goroutines that wait for one store, whatever its link says.
	mostLinked = 1024
)

func (f *Fetcher) newStore(name string) *store {
	st := &store{f: f, name: name}
	st.wake.L = &f.mu
	st.crowd.init(f.opt.Readers, f.opt.Connections)
	return st
}

// local is the store of local files.
func (f *Fetcher) local() *store { return (*f.stores.Load())[0] }

// storeOf is the store of a file.
func (f *Fetcher) storeOf(file int) *store {
	if f.linked == nil {
		return f.local()
	}
	if of := f.of.Load(); of != nil && file>>2 < len(*of) {
		if n := (*of)[file>>2].Load() >> (8 * (file & 3)) & 0xff; n > 0 {
			return (*f.stores.Load())[n-1]
		}
	}
	return f.findStore(file)
}

// findStore is storeOf for a file that was not asked about before.
func (f *Fetcher) findStore(file int) *store {
	path := f.files.AppendPath(file, make([]byte, 0, 128))
	name := addressOf(unsafe.String(unsafe.SliceData(path), len(path)))
	f.mu.Lock()
	defer f.mu.Unlock()
	stores := *f.stores.Load()
	n := 0
	for n < len(stores) && stores[n].name != name {
		n++
	}
	switch {
	case n == 255: // the last one serves all others too
		n--
	case n == len(stores):
		st := f.newStore(strings.Clone(name))
		stores = append(stores[:n:n], st)
		f.stores.Store(&stores)
	}
	if st := (*f.stores.Load())[n]; st.any.Load() == nil {
		whole := string(path)
		st.any.Store(&whole)
	}
	of := f.of.Load()
	if of == nil || file>>2 >= len(*of) {
		more := make([]atomic.Uint32, max(64, 2*(file>>2+1)))
		if of != nil {
			for i := range *of {
				more[i].Store((*of)[i].Load())
			}
		}
		of = &more
		f.of.Store(of)
	}
	(*of)[file>>2].Or(uint32(n+1) << (8 * (file & 3)))
	return stores[n]
}

// addressOf is the scheme and the host of a name, "" for a local file.
func addressOf(name string) string {
	scheme := source.SchemeOf(name)
	if scheme == "" || scheme == "file" {
		return ""
	}
	begin := len(scheme) + len("://")
	if end := strings.IndexByte(name[min(begin, len(name)):], '/'); end >= 0 {
		return name[:begin+end]
	}
	return name
}

// Waits reports whether a request is for a store that a link leads to: reads of it are best
// submitted, to be joined, however small they are.
func (f *Fetcher) Waits(r *Request) bool {
	return len(r.Extents) > 0 && f.storeOf(r.Extents[0].File).linkNow() != nil
}

// linkNow is what is known of the link to the store; nil: nothing, so that it is read like
// local files. Fetcher.mu is not held.
func (st *store) linkNow() *source.Link {
	at := st.ask.Load()
	if at == never {
		return nil
	}
	now := stats.Monotonic()
	if st.f.linked == nil || now < at || st.any.Load() == nil || !st.ask.CompareAndSwap(at, now+askEvery) {
		return st.link.Load()
	}
	if l, ok := st.f.linked.Link(*st.any.Load()); ok {
		st.link.Store(&l)
	} else {
		st.link.Store(nil)
		if st.name == "" {
			st.ask.Store(never)
			return nil
		}
	}
	st.f.mu.Lock() // there may be more readers now, or planners that have waited for a link
	st.staff(len(st.queue) - st.head + len(st.planned))
	st.f.ahead.room.Broadcast()
	st.f.mu.Unlock()
	return st.link.Load()
}

// reach is how far reads of a store are joined.
type reach struct {
	linked bool
	gap    int64
	length int64
}

// reach is that of the store. A chunk over a link is one request: longer ones would be
// split into several, for which all of the chunk's samples would have to wait.
func (st *store) reach() reach {
	l := st.linkNow()
	if l == nil {
		return reach{length: chunkBytes}
	}
	return reach{linked: true, gap: l.Gap, length: min(max(l.Part, gapBytes), 4*chunkBytes)}
}

// most is how many readers the store may have now. Over a link it is somewhat more than the
// link can use: the source makes the others wait, and so sees that there is more demand.
func (st *store) most() int {
	l := st.link.Load()
	if l == nil {
		return st.crowd.size
	}
	n := max(l.Conns, 1)
	n += n/4 + 2
	if c := st.f.opt.Connections; c > 0 {
		n = min(n, c)
	}
	return min(n, mostLinked)
}

// waits reports whether the store is worth reading far ahead.
func (st *store) waits() bool { return st.link.Load() != nil || st.slow.Load() >= slowReads }

// staff wakes or starts readers for n more chunks. Fetcher.mu is held.
func (st *store) staff(n int) {
	for range min(n, st.idle) {
		st.wake.Signal()
	}
	st.hire(n)
}

// hire starts readers for n more chunks, unless the idle ones suffice. Fetcher.mu is held.
func (st *store) hire(n int) {
	for waiting := len(st.queue) - st.head + len(st.planned); st.readers < st.most() && waiting > st.idle && n > 0; n-- {
		st.readers++
		waiting--
		go st.read()
	}
}

// close ends the readers once they are idle, and returns what they had not begun.
// Fetcher.mu is held.
func (st *store) close() (left []*chunk) {
	for _, c := range st.queue[st.head:] {
		if c.plan == nil {
			left = append(left, c)
		} else if c.plan.state == waiting {
			c.plan.state, c.plan.err = done, ErrStopped
			left = append(left, c)
		}
	}
	for _, c := range st.planned {
		if c.plan.state == waiting {
			c.plan.state, c.plan.err = done, ErrStopped
		}
	}
	st.queue, st.head, st.planned = nil, 0, nil
	st.wake.Broadcast()
	return left
}

// take is the chunk that is needed first: requests come in their order, and plans if no
// request lacks a chunk. nil: there is none. Fetcher.mu is held.
func (st *store) take() *chunk {
	for st.head < len(st.queue) {
		c := st.queue[st.head]
		st.queue[st.head] = nil
		st.head++
		if c.plan == nil || c.begins() {
			return c
		}
	}
	st.queue, st.head = st.queue[:0], 0
	for len(st.planned) > 0 {
		if c := st.pop(); c.begins() {
			return c
		}
	}
	return nil
}

// outcome is the last read of a reader.
type outcome struct {
	took, bytes int64
	waited      bool
}

// next waits for the next chunk; nil: the reader ends. last is what it has read before.
func (st *store) next(book *stats.Worker, last outcome) *chunk {
	f := st.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if last.waited {
		f.ahead.read(last.bytes)
		backlog := len(st.queue)-st.head+len(st.planned) > 0
		if st.link.Load() == nil && st.crowd.add(stats.Monotonic(), last.bytes, backlog) {
			st.staff(st.crowd.size)
		}
	}
	for rested := false; ; rested = true {
		if st.readers > st.most() {
			st.readers--
			st.wake.Signal() // who woke this reader for a chunk meant any of them
			return nil
		}
		if c := st.take(); c != nil {
			return c
		}
		if f.closed {
			st.readers--
			return nil
		}
		if !rested && book != nil {
			book.Turn(stats.Output, stats.Monotonic()) // no request needs the rest
			defer func() {
				_, took := book.Turn(stats.Busy, stats.Monotonic())
				f.opt.Stage.Blocked(stats.Output, time.Duration(took))
			}()
		}
		st.idle++
		st.wake.Wait()
		st.idle--
	}
}

// read is the loop of one reader.
func (st *store) read() {
	f := st.f
	work := f.opt.Board.Take()
	defer f.opt.Board.Give(work)
	var book *stats.Worker
	if f.opt.Stage != nil {
		book = f.opt.Page.Worker(stats.ReaderWorker)
		defer book.Free()
		book.Turn(stats.Busy, stats.Monotonic())
	}
	rc := ReadContext{work: work, f: f, name: -1}
	var last outcome
	for n := 0; ; n++ {
		c := st.next(book, last)
		if c == nil {
			return
		}
		begin := stats.Monotonic()
		if d := c.direct; d != nil {
			c.direct = nil
			f.spare.Put(c)
			rc.Reset()
			d.Run(&rc)
			last = outcome{took: stats.Monotonic() - begin}
			last.waited = st.slower(last.took)
			continue
		}
		work.Begin(wire.StageRead, f.opt.Loader, f.opt.First+c.sample())
		var thread stats.Thread
		onThread := book != nil && n%cpuEvery == 0
		if onThread {
			thread = stats.OnThread()
		}
		lap, items := f.opt.Stage.Begin(), c.items()
		hot, err := c.fill(&rc)
		last = outcome{took: stats.Monotonic() - begin, bytes: c.length}
		last.waited = !hot && st.slower(last.took)
		lap.End(items, c.length)
		if onThread {
			f.opt.Stage.CPU(thread.Used(), items)
		}
		book.Done(int64(f.opt.Loader), items)
		work.End()
		f.arrived(c, err)
		st.linkNow()
	}
}

// slower records how long a read from the store took, and reports whether that was long.
func (st *store) slower(took int64) bool {
	if took < slowRead && st.link.Load() == nil {
		if st.slow.Load() > 0 && st.row.Load() >= hotRow {
			st.slow.Store(0)
		}
		return false
	}
	if st.slow.Load() < slowReads && st.slow.Add(1) == slowReads {
		st.f.mu.Lock()
		st.f.ahead.room.Broadcast()
		st.f.mu.Unlock()
	}
	return true
}

// sample is one of those that the chunk is for.
func (c *chunk) sample() int64 {
	if c.plan != nil {
		return c.last
	}
	return c.uses[0].req.Sample
}

// items is how many extents the chunk is for.
func (c *chunk) items() int64 {
	if c.plan != nil {
		return c.plan.extents
	}
	return int64(len(c.uses))
}

// fill reads the chunk.
func (c *chunk) fill(rc *ReadContext) (hot bool, err error) {
	f := c.f
	if c.ctx.Err() != nil {
		return false, ErrStopped
	}
	if c.plan != nil && f.opt.Hold != nil {
		if !f.opt.Hold() {
			return false, ErrStopped
		}
		defer f.opt.LetGo()
	}
	c.buf = f.opt.Pool.Get(int(c.length))
	hot, err = f.readAt(c.ctx, f.storeOf(c.file), rc.object(c.file), c.buf.Bytes, c.off)
	if c.ctx.Err() != nil {
		err = ErrStopped // only the first error is reported
	}
	return hot, err
}

// push adds to the heap of planned chunks. Fetcher.mu is held.
func (st *store) push(c *chunk) {
	h := append(st.planned, c)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up].plan.due <= h[i].plan.due {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	st.planned = h
}

// pop takes the planned chunk that is due first. Fetcher.mu is held.
func (st *store) pop() *chunk {
	h := st.planned
	n := len(h) - 1
	top := h[0]
	h[0], h[n] = h[n], nil
	h = h[:n]
	for i := 0; ; {
		least := i
		for j := 2*i + 1; j <= 2*i+2 && j < n; j++ {
			if h[j].plan.due < h[least].plan.due {
				least = j
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	st.planned = h
	return top
}
