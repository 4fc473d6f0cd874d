package loader

import (
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
)

// planning is the books of a pass's planner: what it takes to choose the samples of a
// batch, to say where they lie and to begin it. Its planner uses it alone. A batch may
// be planned in two pieces, with a wait for memory between them; they count as one,
// once it has begun.
type planning struct {
	stage *stats.Stage // nil: nothing is measured
	due   *seldom

	from   int64 // stats.Monotonic, since when it is at work; 0: it is not
	rested int64 // since when it is not
	took   int64 // ns of this batch, before from

	begun    bool // works was called for this batch
	onThread bool // its CPU is measured
	thread   stats.Thread
	cpu      time.Duration
}

// works begins work, if it has not begun: until now enough batches were on their way,
// or there was no memory for another.
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

// rests ends it, if it has begun.
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

// done ends it with a batch of so many steps, which begins; for so long it waited
// until earlier samples were decoded.
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
