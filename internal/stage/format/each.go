package format

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls f for 0 to n-1 from a few goroutines, giving the numbers out in order,
// and gives out no more once one has failed. Those below it are under way by then and
// are waited for, and of all failures the one with the lowest number is returned: the
// error that a user sees does not depend on timing.
func Each(ctx context.Context, n int, f func(i int) error) error {
	var (
		next   atomic.Int64
		failed atomic.Bool
		wg     sync.WaitGroup
		mu     sync.Mutex
		lowest = n
		first  error
	)
	for range min(n, max(4, runtime.GOMAXPROCS(0))) {
		wg.Go(func() {
			for !failed.Load() && ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					failed.Store(true)
					mu.Lock()
					if i < lowest {
						lowest, first = i, err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if first != nil {
		return first
	}
	return ctx.Err()
}
