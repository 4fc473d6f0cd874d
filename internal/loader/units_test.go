package loader

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Steps go to workers in turn, whatever ends in between: worker k of n makes the steps k,
// k+n, ..., and is told of each pass once, before the first of them.
func TestWorkersTakeTurns(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, workers := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("whole=%v/%d", whole, workers), func(t *testing.T) {
				l, s := openCrew(t, workersSpec(192), crew.Options{Workers: workers, Whole: whole, Turns: true})
				var all []*hand
				defer s.replace()()
				for epoch := range int64(6) {
					from := 8 * (epoch % 3)
					if epoch > 3 {
						time.AfterFunc(time.Millisecond, func() { s.fire(int(epoch)) })
					}
					got, err := workersWalk(t, l, epoch/2, from, whole)
					if err != nil || !slices.Equal(got, expected(l, epoch/2, from)) {
						t.Fatalf("epoch %d from %d: %v, %d rows", epoch/2, from, err, len(got))
					}
					s.mu.Lock()
					for _, h := range s.hands {
						if !slices.Contains(all, h) {
							all = append(all, h)
						}
					}
					s.mu.Unlock()
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, h := range all {
					for _, step := range h.steps {
						if step%int64(workers) != int64(h.place) {
							t.Errorf("worker %d made step %d", h.place, step)
						}
					}
					if !slices.IsSorted(h.passes) || len(h.passes) > 6 {
						t.Errorf("worker %d was told of passes over the epochs %v", h.place, h.passes)
					}
				}
				if whole && len(all) == workers && len(all[0].passes) != 6 {
					t.Errorf("%d passes were told", len(all[0].passes))
				}
			})
		}
	}
}

// number is the sample in a row that rowsMade describes.
func number(row string) (n int64) {
	_, _ = fmt.Sscan(row, &n)
	return n
}

// A batch whose samples have another structure than the first sample of all, but one in
// common, is delivered like any other: always from the same samples, whoever ends.
func TestWorkersAndBatchesOfAnotherStructure(t *testing.T) {
	for _, turns := range []bool{false, true} {
		for _, deaths := range []bool{false, true} {
			t.Run(fmt.Sprintf("turns=%v/deaths=%v", turns, deaths), func(t *testing.T) {
				spec := workersSpec(400)
				spec.Order.Shuffle = ""
				l, s := openCrew(t, spec, crew.Options{Workers: 2, Turns: turns})
				s.scale = func(n int64) int { return int(n/8) % 3 }
				defer s.replace()()
				for epoch := range int64(4) {
					if deaths {
						for i := range 10 {
							time.AfterFunc(time.Duration(i)*time.Millisecond, func() { s.fire(i) })
						}
					}
					got, err := workersWalk(t, l, epoch, 0, false)
					if err != nil || !slices.Equal(got, expected(l, epoch, 0)) {
						t.Fatalf("epoch %d: %v, %d rows", epoch, err, len(got))
					}
				}
				// Every sample twice at most, and that seldom: batches after one that had to
				// be made as a whole are made so at once.
				if n := s.made.Load(); !deaths && n > 4*400*3/2 {
					t.Errorf("%d samples were made for 4 epochs of 400", n)
				}
			})
		}
	}
}

// A sample that is like no other of its batch is bad, also if the batch itself is not like
// the first one: it is named, skipped or replaced.
func TestWorkersAndSamplesUnlikeTheirBatch(t *testing.T) {
	for _, base := range []int{0, 1} { // the structure of the other samples of the batch
		for _, policy := range []string{Fail, Skip, Replace} {
			t.Run(fmt.Sprintf("scale %d/%s", base, policy), func(t *testing.T) {
				const odd = 43 // row 3 of step 5
				spec := workersSpec(80)
				spec.Order.Shuffle = order.Shuffle("")
				spec.OnBad.Policy = policy
				l, s := openCrew(t, spec, crew.Options{Workers: 2})
				s.scale = func(n int64) int {
					switch {
					case n == odd:
						return 2
					case n >= 40:
						return base
					}
					return 0
				}
				var ends atomic.Int64
				s.ends = func(n int64) bool { return n == 44 && ends.Add(1) == 1 }
				defer s.replace()()
				got, err := workersWalk(t, l, 0, 0, false)
				if policy == Fail {
					if e := errs.From(err); e.Code != errs.Damaged || e.Where.Sample.Or(-1) != odd {
						t.Fatalf("%v", err)
					}
					return
				}
				want := expected(l, 0, 0)
				if err != nil || len(got) != len(want) {
					t.Fatalf("%v, %d rows", err, len(got))
				}
				for i := range got {
					if i == odd {
						if n := number(got[i]); n == odd || policy == Skip && n != odd+1 {
							t.Errorf("in place of sample %d: %d", odd, n)
						}
					} else if got[i] != want[i] {
						t.Errorf("row %d: %s, not %s", i, got[i], want[i])
					}
				}
			})
		}
	}
}
