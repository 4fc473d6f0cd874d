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

// host is what is known of a server, and the limits of requests to it.
type host struct {
	name string

	mu     sync.Mutex
	limit  float64 // requests at once
	active int
	queue  []chan struct{} // requests that wait for their turn, which closes the channel
	cut    time.Time       // when the limits were last lowered by a refusal
	window
	spacing
	measures
	troubles

	credit      float64   // retries that may be made
	asked       time.Time // when credit was last counted
	hedgeCredit float64   // requests that may be sent twice

	reached atomic.Bool // it has answered once

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
		h = &host{name: name, limit: firstLimit, credit: 1, asked: now, hedgeCredit: 1, window: window{begun: now, growing: true}}
		n.hosts[strings.Clone(name)] = h
	}
	return h
}

// enter waits until another request may be made, in the order of arrival. What comes of it
// is told to left.
func (h *host) enter(ctx context.Context) error {
	h.mu.Lock()
	if h.active < int(h.limit) && len(h.queue) == 0 {
		h.active++
	} else {
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
	h.credit = min(h.credit+retryShare, retryMost)
	h.hedgeCredit = min(h.hedgeCredit+hedgeShare, hedgeMost)
	now := time.Now()
	wait := h.spacing.wait(now)
	h.spaced = h.spaced || wait > 0
	h.sent.add(now)
	h.mu.Unlock()
	if err := source.Sleep(ctx, wait); err != nil {
		h.ends()
		return err
	}
	h.requests.Add(1)
	return nil
}

// admit gives turns to waiting requests; h.mu is held.
func (h *host) admit() {
	n := min(max(int(h.limit)-h.active, 0), len(h.queue))
	for _, turn := range h.queue[:n] {
		close(turn)
	}
	h.active += n
	h.queue = slices.Delete(h.queue, 0, n)
}

// ends says only that a request that took a turn has ended.
func (h *host) ends() {
	h.mu.Lock()
	h.active--
	h.admit()
	h.mu.Unlock()
}

// left counts an attempt that brought n bytes of the length that was asked for.
func (h *host) left(m *meter, n, length int, err error) {
	h.bytes.Add(int64(n))
	now := time.Now()
	var f *Fault
	refused := errors.As(err, &f) && f.Kind == Throttled
	if err == nil || n > 0 || f != nil && (f.Status > 0 || f.Kind != Unreachable) || errs.CodeOf(err) == errs.NotFound || errs.CodeOf(err) == errs.Changed {
		h.reached.Store(true)
	}
	h.mu.Lock()
	h.active--
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

const (
	retryShare = 0.1 // retries for each request
	retryRate  = 1.0 // or for each second, whichever is more
	retryMost  = 10.0
)

// mayRetry waits that long, and then until a retry is due: retries are at most a tenth of
// the requests, or one a second.
func (h *host) mayRetry(ctx context.Context, wait, left time.Duration) error {
	end := time.Now().Add(left)
	for {
		if err := source.Sleep(ctx, wait); err != nil {
			return err
		}
		h.mu.Lock()
		now := time.Now()
		h.credit = min(h.credit+now.Sub(h.asked).Seconds()*retryRate, retryMost)
		h.asked = now
		if h.credit >= 1 {
			h.credit--
			h.mu.Unlock()
			h.retries.Add(1)
			return nil
		}
		wait = time.Duration((1-h.credit)/retryRate*float64(time.Second)) + time.Millisecond
		h.mu.Unlock()
		if now.Add(wait).After(end) {
			return context.DeadlineExceeded
		}
	}
}

// waits counts a request that waits to be made again, and why.
func (h *host) waits(t *trial, f *Fault) {
	h.faults.Add(1)
	if f.Kind == Throttled {
		h.throttled.Add(1)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = f.Error()
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

// Troubles are the hosts that requests wait for now.
func (n *Net) Troubles() (all []Trouble) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		h.mu.Lock()
		if h.waiting > 0 {
			all = append(all, Trouble{h.name, h.waiting, h.troubles.since, h.last})
		}
		h.mu.Unlock()
	}
	return all
}

// Waits reports whether requests wait for a host now.
func (n *Net) Waits() bool { return len(n.Troubles()) > 0 }

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
