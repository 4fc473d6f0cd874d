package mem

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Scratch is the memory that lanes hold while they decode single large pictures,
// counted over all of them. Small pictures need none of it: each lane has a fixed
// share of its own, which is not counted.
//
// Its rule, by which nobody waits for ever:
//
//  1. Whoever holds waits for nobody: between Take and Give a lane only computes.
//  2. Who waits gets on in the order of arrival.
//  3. The first of those who wait gets on when what it asks for fits beside what is
//     held, or when nothing is held, however much it asks for.
//
// So there is always a holder, who by 1 gives back, or the first who waits gets on
// by 3; and by 2 everybody becomes the first. A picture that is larger than its
// limit is decoded alone.
//
// Safe for concurrent use.
type Scratch struct {
	mu    sync.Mutex
	queue []*claim // who waits, in the order of arrival
	used  atomic.Int64
}

// claim is one Take that waits.
type claim struct {
	bytes int64
	limit func() int64
	ready chan struct{} // closed when it has got its bytes
}

// Take waits until the caller may hold n bytes more beside what all others hold. limit
// is the bytes that all may hold together for this one to go on beside them; it is
// asked again whenever that may have changed, and must not call the Scratch.
func (s *Scratch) Take(n int64, limit func() int64) {
	c := &claim{bytes: n, limit: limit, ready: make(chan struct{})}
	s.mu.Lock()
	s.queue = append(s.queue, c)
	s.next()
	s.mu.Unlock()
	<-c.ready
}

// Give gives n bytes back.
func (s *Scratch) Give(n int64) {
	s.mu.Lock()
	s.used.Add(-n)
	s.next()
	s.mu.Unlock()
}

// next lets those get on who may, in order. s.mu is held.
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

// Used is the bytes that are held. It takes no lock.
func (s *Scratch) Used() int64 { return s.used.Load() }

// Room is a Scratch of one limit, for tools that have no loader's.
type Room struct {
	scratch Scratch
	limit   int64 // bytes
}

// NewRoom is room for limit bytes.
func NewRoom(limit int64) *Room { return &Room{limit: limit} }

// Take waits as Scratch.Take does.
func (r *Room) Take(n int64) { r.scratch.Take(n, func() int64 { return r.limit }) }

// Give gives n bytes back.
func (r *Room) Give(n int64) { r.scratch.Give(n) }

// KeepBytes is the longest buffer that anybody keeps from one large picture for the
// next. C has the same number in lane.c's KEEP.
const KeepBytes = 16 << 20

// Sized is a slice of n bytes over buf's memory where that fits; else buf is given up,
// and what is longer than KeepBytes is mapped. What it holds is arbitrary.
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

// Trim gives buf up if it is longer than KeepBytes.
func Trim(buf *[]byte) {
	if cap(*buf) > KeepBytes {
		Unmap(*buf)
		*buf = nil
	}
}

// Map is n bytes of zeros that are not Go's: Unmap gives them back at once, where the
// collector would keep a large picture's memory until it runs, and let the heap
// double before. Nothing may look at them after Unmap.
func Map(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// Unmap gives back what Map gave, whatever part of it b is from its beginning on, and
// leaves memory of other kinds alone.
func Unmap(b []byte) {
	if cap(b) > 0 {
		_ = unix.Munmap(b[:cap(b)]) // which knows what it has mapped
	}
}
