package model

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// drawn is any job whose parts are in proportion.
func drawn(t *rapid.T) Job {
	seconds := rapid.Float64Range(0, 2)
	return Job{
		Step: seconds.Draw(t, "step"), Take: rapid.Float64Range(0, 0.01).Draw(t, "take"), Trainer: seconds.Draw(t, "trainer"),
		CPU: seconds.Draw(t, "cpu"), Blocked: seconds.Draw(t, "blocked"), Threads: seconds.Draw(t, "threads"), Shared: seconds.Draw(t, "shared"),
		Workers: rapid.IntRange(0, 40).Draw(t, "workers"), Cores: rapid.Float64Range(0.5, 64).Draw(t, "cores"), Prefetch: rapid.IntRange(1, 8).Draw(t, "prefetch"),
		First: seconds.Draw(t, "first"), Batches: float64(rapid.IntRange(0, 1000).Draw(t, "batches")),
	}
}

// A worker more never costs anything, and beyond what the other stations allow
// it gains nothing.
func TestMoreWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawn(t)
		more := j
		more.Workers++
		if j.Workers > 0 && more.Cycle() > j.Cycle() {
			t.Fatalf("%d workers take %g s a batch, %d take %g", j.Workers, j.Cycle(), more.Workers, more.Cycle())
		}
		if j.Workers > 0 && j.Limit().Name != Workers && more.Cycle() != j.Cycle() {
			t.Fatalf("%s limits, and a worker more changes %g to %g", j.Limit().Name, j.Cycle(), more.Cycle())
		}
	})
}

// A loop is never slower than its parts one after the other, and never faster
// than any of them alone.
func TestBetweenTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawn(t)
		sum, cycle := 0.0, j.Cycle()
		for _, b := range j.Bounds() {
			sum += b.Seconds
			if cycle < b.Seconds {
				t.Fatalf("%g s a batch, and %s alone takes %g", cycle, b.Name, b.Seconds)
			}
		}
		if cycle > sum || j.Mean() < cycle {
			t.Fatalf("%g s a batch (%g with the starts) of parts that take %g together", cycle, j.Mean(), sum)
		}
		if w := j.WaitShare(); w < 0 || w > 1 {
			t.Fatalf("the trainer waits %g of its time", w)
		}
	})
}

// What costs less is never slower, whatever part of it.
func TestCheaperIsNotSlower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawn(t)
		share := rapid.Float64Range(0, 1)
		less := j
		for _, part := range []*float64{&less.Step, &less.Take, &less.Trainer, &less.CPU, &less.Blocked, &less.Threads, &less.Shared, &less.First} {
			*part *= share.Draw(t, "left")
		}
		less.Cores /= max(share.Draw(t, "cores"), 0.1)
		if less.Mean() > j.Mean() {
			t.Fatalf("%+v takes %g, and cheaper %+v takes %g", j, j.Mean(), less, less.Mean())
		}
		if s := Speedup(j.Mean(), less); s < 1 || math.IsNaN(s) {
			t.Fatalf("speed-up %g", s)
		}
	})
}

func TestLimitCases(t *testing.T) {
	for _, c := range []struct {
		name  string
		job   Job
		cycle float64
		wait  float64
	}{
		{"no workers: one after the other", Job{Step: 0.02, CPU: 0.01, Blocked: 0.01, Cores: 8}, 0.04, 0.5},
		{"workers keep up", Job{Step: 0.02, CPU: 0.02, Workers: 2, Cores: 8}, 0.02, 0},
		{"too few workers", Job{Step: 0.02, CPU: 0.08, Workers: 2, Cores: 8}, 0.04, 0.5},
		{"not enough cores", Job{Step: 0.02, CPU: 0.08, Workers: 8, Cores: 2}, 0.04, 0.5},
		{"waiting needs no core", Job{Step: 0.02, Blocked: 0.16, Workers: 8, Cores: 1}, 0.02, 0},
		{"a disk is shared by all", Job{Step: 0.02, Shared: 0.04, Workers: 32, Cores: 32}, 0.04, 0.5},
		{"the trainer computes on the same cores", Job{Step: 0.02, Trainer: 0.02, CPU: 0.06, Workers: 8, Cores: 2}, 0.04, 0.5},
		{"nothing but a step", Job{Step: 0.5, Workers: 4, Cores: 1}, 0.5, 0},
		{"an epoch's start, spread over it", Job{Step: 0.1, First: 1, Batches: 10, Workers: 1, Cores: 1}, 0.1, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.job.Cycle(); math.Abs(got-c.cycle) > 1e-12 {
				t.Errorf("%g s a batch, not %g", got, c.cycle)
			}
			if got := c.job.WaitShare(); math.Abs(got-c.wait) > 1e-12 {
				t.Errorf("the trainer waits %g, not %g", got, c.wait)
			}
		})
	}
}

func TestNeeded(t *testing.T) {
	j := Job{Step: 0.02, CPU: 0.05, Blocked: 0.01, Workers: 1, Cores: 8}
	if got := j.Needed(); math.Abs(got-3) > 1e-12 {
		t.Errorf("%g workers needed, not 3", got)
	}
	if got := j.Fewest(16, 0.05); got != 3 {
		t.Errorf("%d workers are the fewest, not 3", got)
	}
	if got := (Job{CPU: 1, Cores: 2}).Needed(); !math.IsInf(got, 1) {
		t.Errorf("a loop without a step needs %g workers", got)
	}
	if got := (Job{Step: 0.02, Trainer: 0.02, Cores: 2}).Free(); got != 1 {
		t.Errorf("%g cores are left beside a trainer that fills one of two", got)
	}
}

// slow is Walk as an event at a time: a clock that goes from one thing that
// happens to the next. Workers, a queue and a consumer, and no formula.
func slow(costs []float64, step float64, workers, prefetch int) float64 {
	n := len(costs)
	ahead := workers * prefetch
	asked, taken := 0, 0
	queues := make([][]int, workers) // batches that wait for a worker
	busy := make([]int, workers)     // the batch a worker makes; -1: none
	ends := make([]float64, workers)
	for w := range busy {
		busy[w] = -1
	}
	ready := make([]bool, n)
	now, first, free := 0.0, 0.0, 0.0 // free: when the consumer asks again
	for taken < n {
		for ; asked < n && asked < taken+ahead; asked++ {
			queues[asked%workers] = append(queues[asked%workers], asked)
		}
		for w := range workers {
			if busy[w] < 0 && len(queues[w]) > 0 {
				busy[w], ends[w] = queues[w][0], now+costs[queues[w][0]]
				queues[w] = queues[w][1:]
			}
		}
		if ready[taken] && free <= now {
			if taken == 0 {
				first = now
			}
			taken++
			free = now + step
			continue
		}
		next := math.Inf(1)
		if ready[taken] {
			next = free
		}
		for w := range workers {
			if busy[w] >= 0 {
				next = min(next, ends[w])
			}
		}
		now = next
		for w := range workers {
			if busy[w] >= 0 && ends[w] <= now {
				ready[busy[w]], busy[w] = true, -1
			}
		}
	}
	return (now - first) / float64(n-1)
}

func TestWalkIsTheQueuePlayedThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Whole numbers, so that both add without rounding.
		var costs []float64
		for _, c := range rapid.SliceOfN(rapid.IntRange(0, 50), 2, 60).Draw(t, "costs") {
			costs = append(costs, float64(c))
		}
		step := float64(rapid.IntRange(0, 20).Draw(t, "step"))
		workers, prefetch := rapid.IntRange(1, 6).Draw(t, "workers"), rapid.IntRange(1, 4).Draw(t, "prefetch")
		got, want := Walk(costs, step, workers, prefetch), slow(costs, step, workers, prefetch)
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("Walk says %g, the queue %g", got, want)
		}
		if more := Walk(costs, step, workers, prefetch+1); more > got+1e-9 {
			t.Fatalf("more prefetch takes %g, less %g", more, got)
		}
	})
}

// Equal batches, over and over, take what the formula says.
func TestWalkComesToTheCycle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost, step := rapid.Float64Range(0.01, 1).Draw(t, "cost"), rapid.Float64Range(0, 1).Draw(t, "step")
		workers := rapid.IntRange(0, 8).Draw(t, "workers")
		costs := make([]float64, 4000)
		for i := range costs {
			costs[i] = cost
		}
		want := Job{Step: step, CPU: cost, Workers: workers, Cores: 1000}.Cycle()
		if got := Walk(costs, step, workers, 2); math.Abs(got-want) > 0.01*want {
			t.Fatalf("%d workers, batches of %g, steps of %g: %g s a batch, not %g", workers, cost, step, got, want)
		}
	})
}
