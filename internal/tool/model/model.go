// Package model says how fast a training loop goes, from what its parts cost:
// a batch in a worker, a step of the trainer, workers, cores, prefetch. It is
// arithmetic and nothing else: no clock, no state, safe for concurrent use. The
// doctor predicts with it what a change would gain.
//
// A loop is a line of stations, and no line is faster than its slowest station.
// [Job.Bounds] are the stations; [Job.Cycle] is the slowest of them. What this
// leaves out is chance: batches that take unequally long. [Walk] plays those
// through, one by one, with the queue that torch's DataLoader has.
package model

import "math"

// Job is one training loop, per batch. Times are seconds.
type Job struct {
	Step     float64 // the trainer between getting a batch and asking for the next
	Take     float64 // the trainer taking a batch that is ready: unpickling, mapping
	Trainer  float64 // processor time of the trainer a batch, on this machine's cores
	CPU      float64 // one batch in a worker: on a core
	Blocked  float64 // one batch in a worker: neither on a core nor waiting for one
	Threads  float64 // processor time a batch of the worker's other threads
	Shared   float64 // a batch's use of what all workers share and one can fill, such as a disk's bandwidth
	Workers  int     // 0: the trainer makes its batches itself
	Cores    float64 // that this machine lets the job use
	Prefetch int     // batches ahead a worker

	First   float64 // an epoch's first batch, beyond the wait for any other
	Batches float64 // an epoch; 0: epochs do not end
}

// Bound is one station of the line, and the seconds a batch spends there.
type Bound struct {
	Name    string
	Seconds float64
}

// The names of bounds.
const (
	Trainer = "trainer" // step, and taking a batch
	Workers = "workers" // a batch's time in a worker, by the workers
	Cores   = "cores"   // processor time of workers and trainer, by the cores
	Shared  = "shared"  // what all workers share
)

// Bounds are the stations of the loop.
func (j Job) Bounds() []Bound {
	if j.Workers <= 0 { // one after the other: there is one station
		return []Bound{{Trainer, j.Step + j.Batch()}}
	}
	b := []Bound{
		{Trainer, j.Step + j.Take},
		{Workers, j.Batch() / float64(j.Workers)},
		{Shared, j.Shared},
	}
	if j.Cores > 0 {
		b = append(b, Bound{Cores, (j.CPU + j.Threads + j.Trainer) / j.Cores})
	}
	return b
}

// Batch is the seconds that one worker needs for one batch, undisturbed.
func (j Job) Batch() float64 { return j.CPU + max(j.Blocked, j.Shared) }

// Limit is the slowest station; of equal ones the first.
func (j Job) Limit() Bound {
	var worst Bound
	for _, b := range j.Bounds() {
		if b.Seconds > worst.Seconds || worst.Name == "" {
			worst = b
		}
	}
	return worst
}

// Cycle is the seconds from one batch to the next, in the middle of an epoch.
func (j Job) Cycle() float64 { return j.Limit().Seconds }

// Mean is the seconds a batch, the start of epochs included.
func (j Job) Mean() float64 {
	if j.Batches <= 0 {
		return j.Cycle()
	}
	return j.Cycle() + j.First/j.Batches
}

// Rate is batches a second; infinite where nothing costs anything.
func (j Job) Rate() float64 { return 1 / j.Mean() }

// WaitShare is the share of the time that the trainer waits in __next__.
func (j Job) WaitShare() float64 {
	if j.Mean() <= 0 {
		return 0
	}
	return max(0, 1-j.Step/j.Mean())
}

// Needed is how many workers keep the trainer busy, as a number with a fraction:
// the cost of a batch by the time of a step. Infinite where a step takes no time.
func (j Job) Needed() float64 {
	if j.Batch() <= 0 {
		return 0
	}
	return j.Batch() / (j.Step + j.Take)
}

// Free is the cores that are left beside a trainer that never waits; at least a
// quarter of one, since the kernel gives everybody a turn.
func (j Job) Free() float64 {
	busy := 0.0
	if s := j.Step + j.Take; s > 0 {
		busy = j.Trainer / s
	}
	return max(0.25, j.Cores-busy)
}

// Speedup is how many times faster a loop that takes now seconds a batch goes
// when it becomes then: 1 where nothing is gained. now is measured and not
// computed, so that what the model does not know of the present is in it.
func Speedup(now float64, then Job) float64 {
	after := then.Mean()
	switch {
	case now <= 0 || math.IsNaN(now) || math.IsNaN(after):
		return 1
	case after <= 0:
		return math.Inf(1)
	}
	return max(1, now/after)
}

// Fewest is the fewest workers whose loop takes at most (1+slack) times what it
// takes with as many as most.
func (j Job) Fewest(most int, slack float64) int {
	all := j
	all.Workers = max(1, most)
	for n := 1; n < most; n++ {
		some := j
		some.Workers = n
		if some.Cycle() <= all.Cycle()*(1+slack) {
			return n
		}
	}
	return all.Workers
}
