package loader

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Loaders of one engine share its lanes: each gets no more than its workers, none
// waits for ever for lanes that sleep, and each gives what it gives alone.
func TestLoadersShareLanes(t *testing.T) {
	s := ground(t)
	root := photos(t, 48)
	var loaders []*Loader
	var want [][]string
	for i, workers := range []int{1, 4, 2, 1} {
		spec := photoSpec(t, root)
		spec.Workers, spec.Order.Seed = workers, uint64(i)
		alone := ground(t)
		want = append(want, texts(walkAll(t, open(t, alone, spec), 0, 0, 0)))
		loaders = append(loaders, open(t, s, spec))
	}
	if n := s.Lanes(); n != 4 {
		t.Fatalf("%d lanes", n)
	}
	ends := make(chan struct{})
	var watch, wg sync.WaitGroup
	watch.Go(func() {
		for {
			s.mu.Lock()
			for _, l := range loaders {
				if l.running > l.lanes {
					t.Errorf("%d lanes work for a loader of %d workers", l.running, l.lanes)
				}
			}
			s.mu.Unlock()
			select {
			case <-ends:
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	})
	for i, l := range loaders {
		wg.Go(func() {
			for range 3 {
				if got := texts(walkAll(t, l, 0, 0, 0)); !slices.Equal(got, want[i]) {
					t.Errorf("loader %d, of %d workers, gives another stream beside others", i, l.lanes)
				}
			}
		})
	}
	wg.Wait()
	close(ends)
	watch.Wait()
}
