package remote

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// A read that takes longer than 95 % of reads of its length is requested a second time, on
// another connection and perhaps of another server; the first answer counts. That costs
// at most hedgeShare of the requests, since each may be sent again only if twenty others
// were not. Late reads wait for that credit in turn: those that are late by little end before
// it is theirs. (Asking for it at intervals gave it to whoever asked first.)

const (
	hedgeShare = 0.05
	hedgeMost  = 64.0 // most credit that is saved: requests are often late together
	hedgeRow   = 32   // reads of about that length before one is called slow
	hedgeOver  = 1.2
	hedgeBytes = 64 << 20 // of second requests that are on their way: memory beyond the reader's budget
)

// late is when a read of n bytes counts as late; false: unknown, or none may be sent
// twice. h.mu is not held.
func (h *host) late(n int) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.taken[bits.Len(uint(n))]
	if s == nil || s.n < hedgeRow {
		return 0, false
	}
	p95 := s.at(0.95)
	return time.Duration((float64(p95*hedgeOver) + 0.002) * float64(time.Second)), true
}

// took counts a whole read of n bytes; h.mu is held.
func (h *host) took(n int, d time.Duration) {
	if h.taken == nil {
		h.taken = map[int]*sampled{}
	}
	class := bits.Len(uint(n))
	if h.taken[class] == nil {
		h.taken[class] = &sampled{}
	}
	h.taken[class].add(d.Seconds())
}

// hedging is the second requests that are on their way, and the reads that wait for one;
// under host.mu.
type hedging struct {
	credit  float64 // requests that may be sent twice
	bytes   int     // of those that are on their way
	overdue []overdue
}

// overdue is a late read of so many bytes.
type overdue struct {
	bytes int
	turn  chan struct{} // closed when it may be requested again
}

// hedge returns the turn of a second request for n bytes.
func (h *host) hedge(n int) chan struct{} {
	turn := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.overdue = append(h.overdue, overdue{n, turn})
	h.admitHedges(time.Now())
	return turn
}

// admitHedges gives turns to late reads; h.mu is held.
func (h *host) admitHedges(now time.Time) {
	n := 0
	for ; n < len(h.overdue) && h.takeHedge(h.overdue[n].bytes, now); n++ {
		close(h.overdue[n].turn)
	}
	h.overdue = slices.Delete(h.overdue, 0, n)
}

// takeHedge takes what a second request for n bytes needs, if there is all of that; h.mu is
// held.
func (h *host) takeHedge(n int, now time.Time) bool {
	switch {
	case h.credit < 1, h.hedging.bytes > 0 && h.hedging.bytes+n > hedgeBytes:
		return false
	case now.Before(h.resting):
		return false
	case 4*h.waiting > h.active: // where requests fail, more of them help nobody
		return false
	case h.spacing.rate > 0 && len(h.queue) > 0: // the rate that the host allows is used up
		return false
	case h.spacing.wait(now) > 0:
		return false
	}
	h.another(now)
	h.credit--
	h.hedging.bytes += n
	return true
}

// unhedge says that no second request is made; what it has taken is returned.
func (h *host) unhedge(turn chan struct{}, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := slices.IndexFunc(h.overdue, func(o overdue) bool { return o.turn == turn }); at >= 0 {
		h.overdue = slices.Delete(h.overdue, at, at+1)
		return
	}
	h.credit++
	h.unhedged(n)
}

// unhedged returns the room of a second request for n bytes; h.mu is held.
func (h *host) unhedged(n int) {
	h.hedging.bytes -= n
	h.active--
	h.admit()
	h.admitHedges(time.Now())
}

// spares are buffers for second answers.
var spares = sync.Pool{New: func() any { return new([]byte) }}

type result struct {
	n   int
	err error
}

// hedged reads a range by one request, or by two if the first is late. p is the caller's
// again when it returns.
func (s *Source) hedged(ctx context.Context, h *way, obj source.Info, p []byte, off int64) (int, error) {
	late, known := h.late(len(p))
	if s.access.NoHedge || !known {
		return s.store.Read(ctx, obj, p, off)
	}
	one, giveUp := context.WithCancel(ctx)
	defer giveUp()
	first := make(chan result, 1)
	go func() {
		n, err := s.store.Read(one, obj, p, off)
		first <- result{n, err}
	}()
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case r := <-first:
		return r.n, r.err
	case <-timer.C:
	}
	if cap(h.slots) == 1 { // the first request has it
		r := <-first
		return r.n, r.err
	}
	for waits := true; waits; {
		turn := h.hedge(len(p))
		select {
		case r := <-first:
			h.unhedge(turn, len(p))
			return r.n, r.err
		case <-turn:
		}
		if waits = !h.holdNow(len(p)); waits { // the user's limit is used up
			h.unhedge(turn, len(p))
			timer.Reset(max(late/4, time.Millisecond))
			select {
			case r := <-first:
				return r.n, r.err
			case <-timer.C:
			}
		}
	}
	return s.second(ctx, h, obj, p, off, first, giveUp)
}

// second sends a request again, and returns the answer that is whole first.
func (s *Source) second(ctx context.Context, h *way, obj source.Info, p []byte, off int64, first chan result, giveUp func()) (int, error) {
	h.hedges.Add(1)
	h.requests.Add(1)
	spare := spares.Get().(*[]byte)
	defer spares.Put(spare)
	if cap(*spare) < len(p) {
		*spare = make([]byte, len(p))
	}
	q := (*spare)[:len(p)]
	two, leave := context.WithCancel(context.WithValue(ctx, meterKey{}, &meter{host: h.host, patience: s.net.opt.Patience}))
	defer leave()
	again := make(chan result, 1)
	go func() {
		begun := time.Now()
		n, err := s.store.Read(two, obj, q, off)
		var f *Fault
		if errors.As(err, &f) && f.Kind == Throttled {
			h.mu.Lock()
			h.refuse(begun, time.Now())
			h.mu.Unlock()
		}
		again <- result{n, err}
	}()
	select {
	case r := <-first:
		if r.err == nil {
			leave()
			h.hedgeEnds(len(p), (<-again).n)
			return r.n, nil
		}
		b := <-again
		if b.err != nil {
			h.hedgeEnds(len(p), b.n)
			return r.n, r.err
		}
		h.hedgeEnds(len(p), r.n)
	case b := <-again:
		if b.err != nil {
			h.hedgeEnds(len(p), b.n) // others may have its turn while the first one is waited for
			r := <-first
			return r.n, r.err
		}
		giveUp()
		r := <-first // p must not be written any more
		h.hedgeEnds(len(p), r.n)
	}
	return copy(p, q), nil
}

// hedgeEnds says that a second request for n bytes has ended, and how many bytes came for
// nothing.
func (w *way) hedgeEnds(n, lost int) {
	w.release()
	w.twice.Add(int64(lost))
	w.mu.Lock()
	w.unhedged(n)
	w.mu.Unlock()
}
