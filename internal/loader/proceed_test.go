package loader

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/crew"
)

// A worker whose batch was given up, and which then says that a sample of it is bad, is free
// for the next pass.
func TestWorkerOfABatchGivenUpIsFree(t *testing.T) {
	spec := workersSpec(64)
	spec.OnBad.Policy = Replace
	spec.Deliver.Prefetch = 1
	l, s := openCrew(t, spec, crew.Options{Workers: 1, Whole: true})
	s.pause = 10 * time.Millisecond
	s.bad = func(n int64) bool { return n%2 == 0 }
	s.hire(1)
	first, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for s.made.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	first.Cancel()
	second, err := l.Pass(1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := second.Next(context.Background(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
}

// Replacements that arrive at the same time are asked for once, and collated when they are
// made.
func TestReplacementsArriveTogether(t *testing.T) {
	spec := fedSpec(t, 96, false)
	spec.OnBad.Policy = Replace
	native := nativePixels(t, spec)
	l, s := openWorkers(t, spec, true)
	s.native = native
	s.bad = func(n int64) bool { return n%2 == 1 }
	s.hire(2)
	for epoch := range int64(40) {
		got, err := workersWalk(t, l, epoch, 0, true)
		if err != nil || len(got) != 96 {
			t.Fatalf("epoch %d: %v, %d rows", epoch, err, len(got))
		}
		if i := slices.IndexFunc(got, func(row string) bool {
			var n int64
			_, err := fmt.Sscan(row, &n)
			return err != nil || n%2 == 1
		}); i >= 0 {
			t.Fatalf("epoch %d, row %d: %s", epoch, i, got[i])
		}
	}
}
