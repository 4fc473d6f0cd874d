package remote

import (
	"context"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// rate is a limit of bytes per second.
type rate struct {
	perSecond float64
	mu        sync.Mutex
	free      time.Time // when what was promised has been sent
}

// wait returns once n more bytes may be requested. A nil rate has no limit.
func (r *rate) wait(ctx context.Context, n int) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	now := time.Now()
	if r.free.Before(now) {
		r.free = now
	}
	wait := r.free.Sub(now)
	r.free = r.free.Add(time.Duration(float64(n) / r.perSecond * float64(time.Second)))
	r.mu.Unlock()
	return source.Sleep(ctx, wait)
}
