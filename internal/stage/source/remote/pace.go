package remote

import (
	"context"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// pace is how fast a host answers, as measured; under host.mu.
type pace struct{}

// Link is source.Linked's.
func (s *Source) Link(name string) (source.Link, bool) {
	return source.Link{Gap: 1 << 20, Part: 8 << 20, Conns: 32}, true
}

// hedged reads a range, by a second request if the first is late.
func (s *Source) hedged(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	return s.store.Read(ctx, obj, p, off)
}

// rate is a limit of bytes per second.
type rate struct {
	perSecond float64
	mu        sync.Mutex
	free      time.Time // when what was promised has been sent
}

// wait returns when n more bytes may be requested. nil has no limit.
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
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
