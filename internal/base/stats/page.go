package stats

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Page is the memory in which a process publishes its statistics (layout.go). Safe
// for concurrent use. It lives as long as the process, so workers and loaders write
// to it without checking.
type Page struct {
	words []atomic.Int64
	now   func() int64 // Monotonic, except for goldens

	mu    sync.Mutex
	spans sync.Mutex
}

// NewLocal makes a page that other processes cannot read.
func NewLocal(role int) *Page {
	m := make([]atomic.Int64, fullRoom().bytes()/word)
	return layOut(m, fullRoom(), role, unix.Getpid(), Monotonic)
}

// NewPage makes the page of this process, which other processes of the same user
// can read. Beat keeps its header up to date.
func NewPage(role int) (*Page, error) {
	size := fullRoom().bytes()
	fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("stats: memfd_create: %w", err)
	}
	fail := func(what string, err error) (*Page, error) {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("stats: %s of %d bytes: %w", what, size, err)
	}
	// Allocated at once, so that no later write can run out of memory.
	for err = unix.EINTR; err == unix.EINTR; { //nolint:errorlint // a bare errno
		err = unix.Fallocate(fd, 0, 0, int64(size))
	}
	if err != nil {
		return fail("fallocate", err)
	}
	m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fail("mmap", err)
	}
	seal(fd)
	return newPage(m, fullRoom(), role, unix.Getpid(), Monotonic), nil
}

// seal keeps others from shrinking the page under its readers and, if the kernel
// supports it (5.1), from mapping it writable.
func seal(fd int) {
	const most = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, most|unix.F_SEAL_FUTURE_WRITE); err != nil {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, most)
	}
}

// room is the number of entries of the tables of a page.
type room struct{ workers, loaders, stages, spans int64 }

func fullRoom() room { return room{mostWorkers, mostLoaders, mostStages, mostSpans} }

// bytes is the size of a page with these tables.
func (r room) bytes() int {
	return int(headerWords+r.workers*workerWords+r.loaders*(loaderWords+r.stages*stageWords)+r.spans*spanWords) * word
}

// newPage lays a page out in memory that is zero and aligned.
func newPage(m []byte, r room, role, pid int, clock func() int64) *Page {
	return layOut(unsafe.Slice((*atomic.Int64)(unsafe.Pointer(unsafe.SliceData(m))), len(m)/word), r, role, pid, clock)
}

func layOut(words []atomic.Int64, r room, role, pid int, clock func() int64) *Page {
	p := &Page{now: clock, words: words}
	now := p.now()
	at := int64(headerWords * word)
	set := func(i int, values ...int64) {
		for n, v := range values {
			p.words[i+n].Store(v)
		}
	}
	set(hVersion, Version, int64(r.bytes()), headerWords*word, int64(pid), int64(role), now, now)
	set(hWorkers, at, r.workers, workerWords*word)
	at += r.workers * workerWords * word
	entry := (loaderWords + r.stages*stageWords) * word
	set(hLoaders, at, r.loaders, entry)
	at += r.loaders * entry
	set(hStages, loaderWords*word, r.stages, stageWords*word)
	set(hBuckets, sBuckets*word, bucketWords)
	set(hSpans, at, r.spans, spanWords*word)
	p.words[hMagic].Store(Magic) // last: a page with it is complete
	return p
}

// Beat records once a second that the writer lives, and its CPU time. It does not
// return.
func (p *Page) Beat() {
	for range time.Tick(time.Second) {
		p.words[hCPU].Store(int64(ProcessCPU()))
		p.words[hUpdated].Store(Monotonic())
	}
}

// Reader reads this process's own page.
func (p *Page) Reader() *Reader { return &Reader{words: p.words} }

// Worker returns an entry for a worker of a kind: in the page or, if there is no
// page or no room, in memory of its own. Give it back with Free.
func (p *Page) Worker(kind int) *Worker {
	if p == nil {
		return new(Worker).begin(kind, Monotonic())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	begin := p.words[hWorkers].Load() / word
	for i := range p.words[hWorkerCount].Load() {
		w := (*Worker)(unsafe.Pointer(&p.words[begin+i*workerWords]))
		if w[wKind].Load() == 0 {
			return w.begin(kind, p.now())
		}
	}
	return new(Worker).begin(kind, p.now())
}

// Free gives an entry back.
func (w *Worker) Free() {
	if w != nil {
		w[wSeq].Add(1)
		w[wKind].Store(0)
		w[wSeq].Add(1)
	}
}

// Span is one batch, or a bundle of batches, in the making. Times are Monotonic; 0:
// unknown here.
type Span struct {
	Loader, Epoch, Step, Steps int64
	Begun, Filled, Delivered   int64
	Asked, Got                 int64
	Rows                       int64
}

// Span writes a span into the ring, over the oldest.
func (p *Page) Span(s Span) {
	if p == nil {
		return
	}
	p.spans.Lock()
	defer p.spans.Unlock()
	n := p.words[hWritten].Load()
	at := p.words[hSpans].Load()/word + n%p.words[hSpanCount].Load()*spanWords
	row := p.words[at : at+spanWords]
	row[pSeq].Add(1)
	for i, v := range [...]int64{s.Loader, s.Epoch, s.Step, s.Steps, s.Begun, s.Filled, s.Delivered, s.Asked, s.Got, s.Rows} {
		set(&row[pLoader+i], v)
	}
	row[pSeq].Add(1)
	p.words[hWritten].Store(n + 1)
}
