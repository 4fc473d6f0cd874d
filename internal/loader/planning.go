package loader

import (
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
)

// planning measures a pass's planner: choosing the samples of a batch, locating
// them and beginning the batch. Only the planner uses it. A batch may be planned in
// two parts with a wait for memory between them; they count as one, once the batch
// has begun.
type planning struct {
	stage *stats.Stage // nil: not measured
	due   *seldom

	from   int64 // stats.Monotonic when work began; 0: not working
	rested int64 // when work ended
	took   int64 // ns spent on this batch before from

	begun    bool // works was called for this batch
	onThread bool // its CPU time is measured
	thread   stats.Thread
	cpu      time.Duration
}

// works begins work, if it has not begun. Until now enough batches were open, or
// there was no memory for another.
func (y *planning) works() {
	if y.stage == nil || y.from != 0 {
		return
	}
	y.from = stats.Monotonic()
	if y.rested != 0 {
		y.stage.Blocked(stats.Output, time.Duration(y.from-y.rested))
	}
	if !y.begun {
		y.begun, y.onThread = true, y.due.due(y.from)
	}
	if y.onThread {
		y.thread = stats.OnThread()
	}
}

// rests ends work, if it has begun.
func (y *planning) rests() {
	if y.from == 0 {
		return
	}
	if y.onThread {
		y.cpu += y.thread.Used()
	}
	now := stats.Monotonic()
	y.took += now - y.from
	y.from, y.rested = 0, now
}

// done ends the work on a batch of so many steps. For waited of that time it waited
// until earlier samples were decoded, which does not count.
func (y *planning) done(waited time.Duration, steps int64) {
	if y.stage == nil {
		return
	}
	y.rests()
	y.stage.Add(max(time.Duration(y.took)-waited, 0), steps, 0)
	y.stage.Blocked(stats.Output, waited)
	if y.onThread {
		y.stage.CPU(y.cpu, steps)
		y.due.tookBatch(y.cpu)
	}
	y.took, y.begun, y.onThread, y.cpu = 0, false, false, 0
}
