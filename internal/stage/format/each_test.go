package format_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stage/format"
)

func TestEach(t *testing.T) {
	var mu sync.Mutex
	seen := make(map[int]int)
	if err := format.Each(context.Background(), 1000, func(i int) error {
		mu.Lock()
		defer mu.Unlock()
		seen[i]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if seen[i] != 1 {
			t.Errorf("%d was called %d times", i, seen[i])
		}
	}
	if err := format.Each(context.Background(), 0, nil); err != nil {
		t.Error(err)
	}
}

func TestEachTellsTheFirstFailure(t *testing.T) {
	for range 20 {
		last := 0
		var mu sync.Mutex
		err := format.Each(context.Background(), 100_000, func(i int) error {
			mu.Lock()
			last = max(last, i)
			mu.Unlock()
			switch {
			case i == 10:
				time.Sleep(time.Millisecond) // fails after those after it
				return errors.New("10")
			case i > 10:
				return fmt.Errorf("%d", i)
			}
			return nil
		})
		if err == nil || err.Error() != "10" || last > 1000 {
			t.Fatalf("%v, up to %d", err, last)
		}
	}
}

func TestEachEnds(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	n := 0
	var mu sync.Mutex
	err := format.Each(ctx, 1<<40, func(int) error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == 5 {
			end()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n > 1000 {
		t.Errorf("%v after %d", err, n)
	}
	end()
}
