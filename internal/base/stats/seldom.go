package stats

import (
	"sync/atomic"
	"time"
)

// Seldom chooses about one in every items for a measurement of CPU time, at random
// by the last digits of the clock. Choosing by time would favour the first item
// after a pause, and choosing by count could hit the first item of each pass or of
// each garbage collection; those find their caches cold. The very first item is
// always chosen. Safe for concurrent use.
//
// The rate follows from the work and not from a count, so that the cost of measuring does
// not depend on the size of items.
type Seldom struct{ every atomic.Int64 }

const (
	batchCPU    = int64(8 * time.Millisecond) // of work on batches, for one that is measured
	mostBatches = 64                          // measure at least one batch in this many: there are few of them
)

// Due reports whether to measure this item; now is Monotonic.
func (s *Seldom) Due(now int64) bool {
	every := s.every.Load()
	return every == 0 || now%every == 0
}

// Took adjusts the rate after a measurement: the item took so many ns, and one item
// per each ns of work is to be measured.
func (s *Seldom) Took(took, each int64) { s.every.Store(max(each/max(took, 1), 1)) }

// TookBatch is Took for work that is done once per batch.
func (s *Seldom) TookBatch(d time.Duration) {
	s.Took(int64(d), min(batchCPU, mostBatches*int64(d)))
}

// Shift measures the work of one goroutine on batches of a stage. A batch may be worked on
// in two parts with a rest between them; they count as one, once the batch is done. How
// long it rested counts as blocked on output. Only that goroutine uses it.
type Shift struct {
	stage *Stage // nil: not measured
	due   *Seldom

	from   int64 // Monotonic when work began; 0: not working
	rested int64 // when work ended
	took   int64 // ns spent on this batch before from

	begun    bool // Works was called for this batch
	onThread bool // its CPU time is measured
	thread   Thread
	cpu      time.Duration
}

// NewShift returns a Shift of a stage; due chooses batches whose CPU time is measured.
func NewShift(stage *Stage, due *Seldom) Shift { return Shift{stage: stage, due: due} }

// Since is when work began (Monotonic); 0: it rests, or nothing is measured.
func (y *Shift) Since() int64 { return y.from }

// Works begins work, if it has not begun.
func (y *Shift) Works() {
	if y.stage == nil || y.from != 0 {
		return
	}
	y.from = Monotonic()
	if y.rested != 0 {
		y.stage.Blocked(Output, time.Duration(y.from-y.rested))
	}
	if !y.begun {
		y.begun, y.onThread = true, y.due.Due(y.from)
	}
	if y.onThread {
		y.thread = OnThread()
	}
}

// Rests ends work, if it has begun.
func (y *Shift) Rests() {
	if y.from == 0 {
		return
	}
	if y.onThread {
		y.cpu += y.thread.Used()
	}
	now := Monotonic()
	y.took += now - y.from
	y.from, y.rested = 0, now
}

// Done ends the work on a batch of so many steps. For waited of that time it waited for the
// stage after it, which does not count.
func (y *Shift) Done(waited time.Duration, steps int64) {
	if y.stage == nil {
		return
	}
	y.Rests()
	y.stage.Add(max(time.Duration(y.took)-waited, 0), steps, 0)
	y.stage.Blocked(Output, waited)
	if y.onThread {
		y.stage.CPU(y.cpu, steps)
		y.due.TookBatch(y.cpu)
	}
	y.took, y.begun, y.onThread, y.cpu = 0, false, false, 0
}
