package remote

import (
	"sync"
	"time"
)

// rate is a limit of bytes per second.
type rate struct {
	perSecond float64
	mu        sync.Mutex
	free      time.Time // when what was promised has been sent
}

// take promises n bytes, and returns how long they have to wait for those before them. A nil
// rate has no limit.
func (r *rate) take(n int) time.Duration {
	if r == nil || n == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.free.Before(now) {
		r.free = now
	}
	wait := r.free.Sub(now)
	r.free = r.free.Add(r.length(n))
	return wait
}

// giveBack says that n bytes that were promised are not sent.
func (r *rate) giveBack(n int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.free = r.free.Add(-r.length(n))
	r.mu.Unlock()
}

func (r *rate) length(n int) time.Duration {
	return time.Duration(float64(n) / r.perSecond * float64(time.Second))
}
