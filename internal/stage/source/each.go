package source

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls f for 0 to n-1 from at most width goroutines, giving the numbers out in
// order, and gives out no more once one has failed. Those below it are under way by then
// and are waited for, and of all failures the one with the lowest number is returned: the
// error that a user sees does not depend on timing.
func Each(ctx context.Context, width, n int, f func(i int) error) error {
	var (
		next   atomic.Int64
		failed atomic.Bool
		wg     sync.WaitGroup
		mu     sync.Mutex
		lowest = n
		first  error
	)
	for range min(n, width) {
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

// Assumptions about the link to a store that does not describe its link.
const (
	usualGap   = 1 << 20
	usualPart  = 4 << 20
	usualConns = 16
)

// MostWidth is the most that Width says.
const MostWidth = 4 * usualConns

// LinkOf is the link to where a name is stored; false: reads of it do not wait, as those
// of local files.
func LinkOf(src Source, name string) (Link, bool) {
	var l Link
	known := false
	if src, ok := src.(Linked); ok {
		l, known = src.Link(name)
	}
	if !known && SchemeOf(Bare(name)) == "" {
		return Link{}, false
	}
	if !known {
		l = Link{Gap: usualGap}
	}
	if l.Part <= 0 {
		l.Part = usualPart
	}
	if l.Conns <= 0 {
		l.Conns = usualConns
	}
	return l, true
}

// Width is how many calls about names like this one are worth making at once. A link that
// is hardly known yet finds out by what it is asked.
func Width(src Source, name string) int {
	if l, waits := LinkOf(src, name); waits {
		return min(max(usualConns, l.Conns), MostWidth)
	}
	return max(4, runtime.GOMAXPROCS(0))
}
