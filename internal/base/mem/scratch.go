package mem

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Scratch is the memory that lanes use while they decode single large pictures,
// counted over all lanes. Small pictures need none of it: each lane has a fixed
// share of its own, which is not counted.
//
// Its rules, by which no lane waits for ever:
//
//  1. A holder does not wait: between Take and Give a lane only computes.
//  2. Waiters are served in the order of arrival.
//  3. The first waiter gets its bytes when they fit beside those that are in use, or when none are in use, however many it asks for.
//
// So there is always a holder, which gives its bytes back by rule 1, or the first
// waiter is served by rule 3; and by rule 2 every waiter becomes the first. A
// picture that is larger than the limit is decoded alone.
//
// Safe for concurrent use.
type Scratch struct {
	mu    sync.Mutex
	queue []*claim // waiters, in the order of arrival
	used  atomic.Int64
}

// claim is a Take that waits.
type claim struct {
	bytes int64
	limit func() int64
	ready chan struct{} // closed when it has its bytes
}

// Take waits until the caller may use n more bytes besides what all others use.
// limit is the number of bytes that all may use together for this caller to
// continue; it is called again whenever it may have changed, and must not call the
// Scratch.
func (s *Scratch) Take(n int64, limit func() int64) {
	c := &claim{bytes: n, limit: limit, ready: make(chan struct{})}
	s.mu.Lock()
	s.queue = append(s.queue, c)
	s.next()
	s.mu.Unlock()
	<-c.ready
}

// Give gives back n bytes.
func (s *Scratch) Give(n int64) {
	s.mu.Lock()
	s.used.Add(-n)
	s.next()
	s.mu.Unlock()
}

// next serves the waiters that may continue, in order. s.mu is held.
func (s *Scratch) next() {
	for len(s.queue) > 0 {
		c := s.queue[0]
		if used := s.used.Load(); used > 0 && used+c.bytes > c.limit() {
			return
		}
		s.used.Add(c.bytes)
		s.queue = s.queue[1:]
		close(c.ready)
	}
	s.queue = nil
}

// Used is the number of bytes in use. It takes no lock.
func (s *Scratch) Used() int64 { return s.used.Load() }

// Room is a Scratch with a fixed limit, for tools without a loader.
type Room struct {
	scratch Scratch
	limit   int64 // bytes
}

// NewRoom returns a Room of limit bytes.
func NewRoom(limit int64) *Room { return &Room{limit: limit} }

// Take waits as Scratch.Take does.
func (r *Room) Take(n int64) { r.scratch.Take(n, func() int64 { return r.limit }) }

// Give gives back n bytes.
func (r *Room) Give(n int64) { r.scratch.Give(n) }

// KeepBytes is the size of the longest buffer that is kept from one large picture
// to the next. KEEP in lane.c is the same number.
const KeepBytes = 16 << 20

// Sized returns a slice of n bytes, in buf's memory if it is large enough;
// otherwise buf is freed, and a slice longer than KeepBytes is mapped. Its contents
// are undefined.
func Sized(buf []byte, n int) []byte {
	if cap(buf) >= n {
		return buf[:n]
	}
	Unmap(buf)
	if n > KeepBytes {
		if mapped, err := Map(n); err == nil {
			return mapped
		}
	}
	return make([]byte, n)
}

// Trim frees buf if it is longer than KeepBytes.
func Trim(buf *[]byte) {
	if cap(*buf) > KeepBytes {
		Unmap(*buf)
		*buf = nil
	}
}

// Map returns n bytes of zeros that are not on Go's heap: Unmap frees them at once,
// whereas the collector would keep a large picture's memory until it runs, and let
// the heap double before. They must not be used after Unmap.
func Map(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// Unmap frees what Map returned, given any slice of it from its start, and ignores
// other memory.
func Unmap(b []byte) {
	if cap(b) > 0 {
		_ = unix.Munmap(b[:cap(b)]) // which only unmaps what it has mapped
	}
}
