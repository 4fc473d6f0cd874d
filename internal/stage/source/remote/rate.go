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

// take promises n bytes, and returns how long they have to wait for those before them.
func (r *rate) take(n int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.free.Before(now) {
		r.free = now
	}
	wait := r.free.Sub(now)
	r.free = r.free.Add(time.Duration(float64(n) / r.perSecond * float64(time.Second)))
	return wait
}
