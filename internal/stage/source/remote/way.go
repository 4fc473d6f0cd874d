package remote

import (
	"context"
	"strings"
)

// way is how a source reaches a host: what is known of it, and what the source's user allows
// to be asked of it. Whoever allows the same of one host shares that: it is of a store, and
// not of each loader, or of each of the schemes that a store is reached by.
type way struct {
	*host
	slots chan struct{} // one for each request; nil: no limit
	rate  *rate         // nil: no limit
}

// way is that of a name.
func (s *Source) way(name string) *way {
	of := s.store.Host(name)
	if w := (*s.ways.Load())[of]; w != nil {
		return w
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := *s.ways.Load()
	if now[of] != nil {
		return now[of]
	}
	w := s.net.host(of).way(s.access.Connections, s.access.Bandwidth)
	next := make(map[string]*way, len(now)+1)
	if len(now) < mostWays {
		for name, w := range now {
			next[name] = w
		}
	}
	next[strings.Clone(of)] = w
	s.ways.Store(&next)
	return w
}

// mostWays is how many hosts a source finds without the Net's lock.
const mostWays = 256

// way is that of a user who allows so many requests at once and bytes per second; 0: all.
func (h *host) way(connections int, bandwidth int64) *way {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &way{host: h}
	if connections > 0 {
		if w.slots = h.slots[connections]; w.slots == nil {
			w.slots = make(chan struct{}, connections)
			h.slots[connections] = w.slots
		}
	}
	if bandwidth > 0 {
		if w.rate = h.rates[bandwidth]; w.rate == nil {
			w.rate = &rate{perSecond: float64(bandwidth)}
			h.rates[bandwidth] = w.rate
		}
	}
	return w
}

// hold takes a slot for a request, which release returns.
func (w *way) hold(ctx context.Context) error {
	if w.slots == nil {
		return nil
	}
	select {
	case w.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *way) release() {
	if w.slots != nil {
		<-w.slots
	}
}

// holdNow takes a slot for a second request for n bytes, if there is one now.
func (w *way) holdNow(n int) bool {
	if w.slots != nil {
		select {
		case w.slots <- struct{}{}:
		default:
			return false
		}
	}
	w.rate.take(n) // those who come after it wait
	return true
}
