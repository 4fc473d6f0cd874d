package format

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls f for 0 to n-1 from a few goroutines, in order of their numbers,
// and stops at the first failure. Of several failures the one with the lowest
// number is returned, so that what a user is told does not depend on who was
// faster; f must therefore fail by itself, not because ctx ended, wherever it
// can.
func Each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	inner, stop := context.WithCancel(ctx)
	defer stop()
	var (
		next   atomic.Int64
		wg     sync.WaitGroup
		mu     sync.Mutex
		lowest = n
		failed error
	)
	for range min(n, max(4, runtime.GOMAXPROCS(0))) {
		wg.Go(func() {
			for inner.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				err := f(inner, i)
				if err == nil {
					continue
				}
				mu.Lock()
				// Who was stopped by another's failure has nothing to say.
				if i < lowest && (failed == nil || !errors.Is(err, context.Canceled)) || errors.Is(failed, context.Canceled) {
					lowest, failed = i, err
				}
				mu.Unlock()
				stop()
			}
		})
	}
	wg.Wait()
	if failed == nil {
		return ctx.Err()
	}
	return failed
}
