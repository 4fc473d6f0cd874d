package mem

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Buffer is a reference-counted slice of bytes from a Pool. It begins with one
// reference; the last Release frees the memory. Passing a Buffer on passes on a
// reference.
type Buffer struct {
	Bytes []byte // of the requested length
	pool  *Pool
	class int
	refs  atomic.Int32
}

// Retain adds n references.
func (b *Buffer) Retain(n int) { b.refs.Add(int32(n)) }

// Release drops one reference.
func (b *Buffer) Release() {
	switch left := b.refs.Add(-1); {
	case left == 0:
		b.pool.put(b)
	case left < 0:
		panic("mem: a buffer was released more often than it was retained")
	}
}

// There are four size classes per power of two, from 4 KiB on: at most a quarter of
// a buffer is unused.
const (
	minClassBits = 12
	maxClasses   = 4 * 32
)

func classOf(n int) (class, size int) {
	if n <= 1<<minClassBits {
		return 0, 1 << minClassBits
	}
	top := bits.Len(uint(n-1)) - 1 // 2^top < n <= 2^(top+1)
	quarter := (n-1)>>(top-2) - 3  // 1..4 quarters above 2^top
	return (top-minClassBits)*4 + quarter, 1<<top + quarter<<(top-2)
}

// Pool allocates Buffers and keeps released ones, by size class, up to KeepBytes.
// The zero value keeps nothing. Safe for concurrent use.
type Pool struct {
	KeepBytes int64 // released memory that is kept for reuse

	mu   sync.Mutex
	free [maxClasses][]*Buffer
	kept int64
	out  atomic.Int64
}

// Keep changes KeepBytes by n, and frees what is kept beyond it.
func (p *Pool) Keep(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.KeepBytes += n
	for class := maxClasses - 1; class >= 0 && p.kept > p.KeepBytes; class-- {
		for list := p.free[class]; len(list) > 0 && p.kept > p.KeepBytes; list = p.free[class] {
			p.kept -= int64(cap(list[len(list)-1].Bytes))
			list[len(list)-1] = nil
			p.free[class] = list[:len(list)-1]
		}
	}
}

// Get returns a Buffer of n bytes with one reference. Its contents are undefined.
func (p *Pool) Get(n int) *Buffer {
	class, size := classOf(n)
	p.out.Add(1)
	p.mu.Lock()
	var b *Buffer
	if list := p.free[class]; len(list) > 0 {
		b = list[len(list)-1]
		p.free[class] = list[:len(list)-1]
		p.kept -= int64(size)
	}
	p.mu.Unlock()
	if b == nil {
		b = &Buffer{Bytes: make([]byte, size), pool: p, class: class}
	}
	b.Bytes = b.Bytes[:n]
	b.refs.Store(1)
	return b
}

func (p *Pool) put(b *Buffer) {
	p.out.Add(-1)
	size := int64(cap(b.Bytes))
	p.mu.Lock()
	if p.kept+size <= p.KeepBytes {
		p.kept += size
		p.free[b.class] = append(p.free[b.class], b)
	}
	p.mu.Unlock()
}

// Out is the number of buffers in use: 0 when all work is done, which tests check.
func (p *Pool) Out() int64 { return p.out.Load() }

// Budget limits the bytes that are in use at once. Safe for concurrent use.
//
// A waiter may have bytes already, for work that cannot continue without those that
// it waits for. It says so (held), and no one waits for such bytes: they are not
// released before the waiter gets what it asks for. As long as other bytes are in
// use, their release wakes the waiters; when there are none, one waiter continues,
// whatever the limit. So no order of calls, and no limit, blocks everyone, and at
// most one waiter at a time exceeds the limit.
type Budget struct {
	mu    sync.Mutex
	more  sync.Cond
	limit int64
	used  int64
	stuck int64 // part of used that waiters have
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	b := &Budget{limit: limit}
	b.more.L = &b.mu
	return b
}

// Acquire waits until n bytes are free, or only waiters have bytes (so that a
// request larger than the budget succeeds alone), or stop returns true. It reports
// whether it got the bytes. held is the number of bytes that the caller has and
// will not release before it gets these too. Call Wake after making stop true.
func (b *Budget) Acquire(n, held int64, stop func() bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck += held
	defer func() { b.stuck -= held }()
	for b.used > b.stuck && b.used+n > b.limit {
		if stop() {
			return false
		}
		b.more.Wait()
	}
	b.used += n
	return true
}

// Force takes n bytes whether they are free or not, for work that must continue so
// that others can be released.
func (b *Budget) Force(n int64) {
	b.mu.Lock()
	b.used += n
	b.mu.Unlock()
}

// Release gives back n bytes.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	b.used -= n
	b.mu.Unlock()
	b.more.Broadcast()
}

// Wake makes waiting Acquires check their stop again.
func (b *Budget) Wake() { b.Release(0) }

// Used is the number of bytes in use.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Same reports whether two slices are the same memory, from end to end.
func Same(a, b []byte) bool { return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b) }
