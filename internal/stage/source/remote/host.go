package remote

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// host is what is known of a server, and what it is asked for at once.
type host struct {
	name string

	mu      sync.Mutex
	changed sync.Cond
	limit   float64 // requests at once
	active  int
	cut     time.Time // when the limit was last lowered
	credit  float64   // retries that may be made
	asked   time.Time // when credit was last counted
	troubles
	pace

	requests, bytes, retries, hedges, throttled, faults atomic.Int64
}

// troubles are the requests that wait to be made again.
type troubles struct {
	waiting int
	since   time.Time
	last    string
}

func (n *Net) host(name string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		h = &host{name: name, limit: 32, credit: 1, asked: time.Now()}
		h.changed.L = &h.mu
		n.hosts[name] = h
	}
	return h
}

// enter waits until another request may be made. done is told what came of it.
func (h *host) enter(ctx context.Context) (done func(n int, err error), err error) {
	stop := context.AfterFunc(ctx, h.changed.Broadcast)
	defer stop()
	h.mu.Lock()
	for h.active >= int(h.limit) && ctx.Err() == nil {
		h.changed.Wait()
	}
	if ctx.Err() != nil {
		h.mu.Unlock()
		return nil, ctx.Err()
	}
	h.active++
	h.credit = min(h.credit+retryShare, retryMost)
	h.mu.Unlock()
	h.requests.Add(1)
	return h.left, nil
}

func (h *host) left(n int, err error) {
	h.bytes.Add(int64(n))
	h.mu.Lock()
	h.active--
	h.mu.Unlock()
	h.changed.Signal()
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
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
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
		wait = time.Duration((1 - h.credit) / retryRate * float64(time.Second))
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

// Count is what was asked of a host.
type Count struct {
	Requests, Bytes, Retries, Hedges, Throttled, Faults int64
}

// Counts is what was asked of each host since the Net was made.
func (n *Net) Counts() map[string]Count {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]Count, len(n.hosts))
	for name, h := range n.hosts {
		all[name] = Count{h.requests.Load(), h.bytes.Load(), h.retries.Load(), h.hedges.Load(), h.throttled.Load(), h.faults.Load()}
	}
	return all
}
