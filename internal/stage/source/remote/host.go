package remote

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// briefly is the longest Retry-After that holds back the refused request alone: the host
// limits the rate, which the spacing of requests follows. One that asks for more wants no
// requests at all.
const briefly = 2 * time.Second

// host is what is known of a server, and the limits of requests to it.
type host struct {
	name string

	mu     sync.Mutex
	limit  float64 // requests at once
	active int
	queue  []chan struct{} // requests that wait for their turn, which closes the channel
	timed  bool            // the queue is looked at when the next request is due
	cut    time.Time       // when the limits were last lowered by a refusal
	window
	spacing
	measures
	troubles

	retrying
	hedging

	slots map[int]chan struct{} // of the users who allow so many requests at once
	rates map[int64]*rate       // and of those who allow so many bytes a second

	born    time.Time
	busy    time.Time    // when it last got a request while it had none, or answered
	resting time.Time    // until when it wants to be left alone
	heard   atomic.Int64 // nanoseconds since born when bytes, or an answer, last came
	reached atomic.Bool  // it has answered once

	requests, bytes, retries, hedges, twice, throttled, faults atomic.Int64
}

// troubles are the requests that wait to be made again.
type troubles struct {
	waiting int
	since   time.Time
	last    string
}

func (n *Net) host(name string) *host {
	if end := strings.IndexAny(name, "/?#"); end >= 0 {
		name = name[:end]
	}
	name = name[strings.LastIndexByte(name, '@')+1:] // it is shown: no user, no signature
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		now := time.Now()
		h = &host{
			name: name, limit: firstLimit, born: now, hedging: hedging{credit: 1}, window: window{begun: now, growing: true}, retrying: retrying{timely: 1, counted: now},
			slots: map[int]chan struct{}{}, rates: map[int64]*rate{},
		}
		n.hosts[strings.Clone(name)] = h
	}
	if n.of != nil {
		n.of.Store(h, true)
	}
	return h
}

// enter waits until another request may be made, in the order of arrival. What comes of it
// is told to left.
//
// It rests with the host, but not after end.
func (h *host) enter(ctx context.Context, end time.Time) error {
	for {
		if err := h.turn(ctx); err != nil {
			return err
		}
		if now := time.Now(); !now.Before(h.resting) || !now.Before(end) {
			break
		}
		h.active-- // it has begun to rest meanwhile
		h.admit()
		h.mu.Unlock()
		if err := h.rest(ctx, end); err != nil {
			return err
		}
	}
	if h.credit = min(h.credit+hedgeShare, hedgeMost); len(h.overdue) > 0 {
		h.admitHedges(time.Now())
	}
	h.share = min(h.share+retryShare, retryMost)
	if len(h.again) > 0 {
		h.admitAgain(time.Now())
	}
	h.mu.Unlock()
	h.requests.Add(1)
	return nil
}

// turn waits for a turn, which is the caller's then, and so is h.mu. If ctx ends before,
// neither is.
func (h *host) turn(ctx context.Context) error {
	h.mu.Lock()
	if len(h.queue) > 0 || !h.take(time.Now()) {
		turn := make(chan struct{})
		h.queue = append(h.queue, turn)
		h.mu.Unlock()
		select {
		case <-turn:
			h.mu.Lock()
		case <-ctx.Done():
			h.mu.Lock()
			if at := slices.Index(h.queue, turn); at >= 0 {
				h.queue = slices.Delete(h.queue, at, at+1)
			} else { // its turn came, too
				h.active--
				h.admit()
			}
			h.mu.Unlock()
			return ctx.Err()
		}
	}
	return nil
}

// take takes a turn for a request, if one may be made now. If that only needs time, admit is
// called then: what is allowed may have changed meanwhile, so nobody sleeps until a time that
// was once theirs. h.mu is held.
func (h *host) take(now time.Time) bool {
	if h.active >= int(h.limit) {
		return false
	}
	if wait := h.spacing.wait(now); wait > 0 {
		h.spaced = true
		if !h.timed {
			h.timed = true
			time.AfterFunc(wait, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.timed = false
				h.admit()
			})
		}
		return false
	}
	h.another(now)
	return true
}

// another counts a request that is sent; h.mu is held.
func (h *host) another(now time.Time) {
	if h.active++; h.active == 1 {
		h.busy = now
	}
	h.sent.add(now)
}

// admit gives turns to waiting requests; h.mu is held.
func (h *host) admit() {
	n := 0
	for now := time.Now(); n < len(h.queue) && h.take(now); n++ {
		close(h.queue[n])
	}
	h.queue = slices.Delete(h.queue, 0, n)
}

// left counts an attempt that brought n bytes of the length that was asked for.
func (h *host) left(m *meter, n, length int, err error) {
	h.bytes.Add(int64(n))
	now := time.Now()
	var f *Fault
	refused := errors.As(err, &f) && f.Kind == Throttled
	answered := err == nil || n > 0 || f != nil && (f.Status > 0 || f.Kind != Unreachable) || errs.CodeOf(err) == errs.NotFound || errs.CodeOf(err) == errs.Changed
	if answered {
		h.reached.Store(true)
	}
	if err == nil || n > 0 {
		h.hears(now)
	}
	h.mu.Lock()
	if h.active--; answered || errs.CodeOf(err) == errs.Denied {
		h.busy = now
	}
	switch {
	case refused:
		h.refuse(m.begun, now)
	case err == nil:
		h.answered.add(now)
		h.measured(m, n, now)
		if length > 0 {
			h.took(length, now.Sub(m.begun))
		}
		h.work += float64(n + requestBytes)
		h.done++
		if h.active+1 >= int(h.limit) {
			h.full++
		}
		h.ended(now, time.Duration(h.latency.at(0.5)*float64(time.Second)))
	}
	h.admit()
	h.mu.Unlock()
}

// hears notes that bytes, or an answer, came.
func (h *host) hears(now time.Time) { h.heard.Store(int64(now.Sub(h.born))) }

// silent is how many requests are on their way, and for how long none of them has got a byte.
func (h *host) silent(now time.Time) (requests int, length time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active == 0 {
		return 0, 0
	}
	return h.active, min(now.Sub(h.busy), now.Sub(h.born)-time.Duration(h.heard.Load()))
}

// rest waits while the host wants to be left alone, but not after end.
func (h *host) rest(ctx context.Context, end time.Time) error {
	for {
		h.mu.Lock()
		until := h.resting // it may ask for more meanwhile
		h.mu.Unlock()
		if until.After(end) {
			until = end
		}
		wait := time.Until(until)
		if err := source.Sleep(ctx, wait); err != nil || wait <= 0 {
			return err
		}
	}
}

// waits counts a request that is made again after this wait or later, and notes why.
func (h *host) waits(t *trial, f *Fault, wait time.Duration) {
	h.faults.Add(1)
	if f.Kind == Throttled {
		h.throttled.Add(1)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = f.Error()
	if until := time.Now().Add(wait); f.After > briefly && until.After(h.resting) {
		h.resting = until
	}
	if !t.waiting {
		t.waiting = true
		if h.waiting++; h.waiting == 1 {
			h.troubles.since = time.Now()
		}
	}
}

// recovered says that the request waits no longer.
func (h *host) recovered(t *trial) {
	if t.waiting {
		h.mu.Lock()
		h.waiting--
		h.mu.Unlock()
	}
}

// Trouble is a host that requests wait for.
type Trouble struct {
	Host     string
	Requests int
	Since    time.Time
	Last     string // what happened to the last attempt
}

// Troubles are the hosts that requests wait for now, of those of this part.
func (n *Net) Troubles() (all []Trouble) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		h.mu.Lock()
		if h.waiting > 0 && n.uses(h) {
			all = append(all, Trouble{h.name, h.waiting, h.troubles.since, h.last})
		}
		h.mu.Unlock()
	}
	return all
}

// Waits reports whether requests wait for a host now that has failed, or is silent.
func (n *Net) Waits() bool { return len(n.Troubles()) > 0 || n.silent() != "" }

// Count is the requests to one host.
type Count = stats.Source

// Counts are the requests to each host since the Net was made.
func (n *Net) Counts() map[string]Count {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]Count, len(n.hosts))
	for name, h := range n.hosts {
		h.mu.Lock()
		limit := int(h.limit)
		h.mu.Unlock()
		all[name] = Count{
			Requests: h.requests.Load(), Bytes: h.bytes.Load(), Retries: h.retries.Load(), Hedges: h.hedges.Load(),
			Twice: h.twice.Load(), Throttled: h.throttled.Load(), Faults: h.faults.Load(), Limit: limit,
		}
	}
	return all
}
