package mem

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffer is a counted run of bytes from a Pool. It begins with one reference;
// the last Release gives the memory back. Whoever hands a Buffer on hands a
// reference on.
type Buffer struct {
	Bytes []byte // as long as was asked for
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

// The size classes are four to a power of two, from 4 KiB: at most a quarter
// of a buffer is unused.
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

// Pool hands out Buffers and keeps released ones, by size class, up to the
// bytes it may keep. The zero value keeps nothing. Safe for concurrent use.
type Pool struct {
	KeepBytes int64 // released memory that is kept for reuse

	mu   sync.Mutex
	free [maxClasses][]*Buffer
	kept int64
	out  atomic.Int64
}

// Get is a Buffer of n bytes with one reference. Its contents are arbitrary.
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

// Out is the number of buffers that are held somewhere: 0 once all is done,
// which tests check.
func (p *Pool) Out() int64 { return p.out.Load() }

// Budget is a number of bytes that may be in use at once. Safe for concurrent
// use.
//
// Who waits here may hold bytes already, for work that cannot go on without those
// that it waits for. It says so (held), and nobody waits for such bytes: they are
// not released before a waiter gets what it asks for. While other bytes are in use,
// their release wakes the waiters; once there are none, a waiter goes on, whatever
// the limit. So no order of calls, and no limit, makes everybody wait, and at most
// one waiter at a time goes on above the limit.
type Budget struct {
	mu    sync.Mutex
	more  sync.Cond
	limit int64
	used  int64
	stuck int64 // of used: what the waiters hold
}

// NewBudget is a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	b := &Budget{limit: limit}
	b.more.L = &b.mu
	return b
}

// Acquire waits until n bytes are free, or nothing is in use but what waiters hold
// (so that what is larger than the budget goes through alone), or stop says true. It
// reports whether it got them. held is the bytes that the caller has, and does not
// release before it has got these too. Whoever makes stop true calls Wake.
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

// Force takes n bytes whether they are free or not: for what must go on so
// that others can be released.
func (b *Budget) Force(n int64) {
	b.mu.Lock()
	b.used += n
	b.mu.Unlock()
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	b.used -= n
	b.mu.Unlock()
	b.more.Broadcast()
}

// Wake lets waiting Acquires look at their stop again.
func (b *Budget) Wake() { b.Release(0) }

// Used is the bytes in use.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
