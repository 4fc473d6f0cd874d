package fill

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
)

// Crew fills the rows of a loader's batches. It receives whole batches, in the order of
// the plan, and works on their tasks as suits it: one sample at a time, or many. What is
// delivered does not depend on which crew a loader has.
//
// The crew returns every task whose Sample is not negative exactly once, through
// Desk.Finish: filled, with the error of its sample, or untouched if Batch.Gone is set.
type Crew interface {
	// Begin takes the tasks of a batch. It may wait for memory to read ahead, and
	// returns how long it waited. No lock is held. The batch may be complete and reused
	// as soon as its last task has been returned, even before Begin returns: a crew that
	// returns tasks while Begin runs must have listed all of them before the first.
	Begin(b *Batch) (waited time.Duration)
	// Again takes back a task that the crew has returned, now with another sample. It
	// must not wait for anything that waits for this task.
	Again(t *Task)
}

// Watcher is a Crew that wants to know what becomes of batches and slots. Both are called
// with the loader's lock held: they must not call the Desk, and must not wait.
type Watcher interface {
	GivenUp()               // Gone was set for batches
	Freed(slot *batch.Slot) // its memory is not used again
}

// Desk is where a crew returns tasks: the loader.
type Desk interface {
	// Finish takes a task back. err is why its row is not filled, or nil; now is the
	// current stats.Monotonic. Before Finish returns it may call Crew.Again with the same
	// task, or complete the batch, which may then be reused. The caller holds no lock.
	Finish(t *Task, err error, now int64)
}

// Overall is an error that belongs to no sample, although it is given back with one:
// nothing skips it.
type Overall struct{ Err error }

func (e Overall) Error() string { return e.Err.Error() }
func (e Overall) Unwrap() error { return e.Err }

// Batch is what a crew sees of a batch that is being filled: the memory of its rows, and
// a task for each. The loader owns it, and changes only Gone until every task has been
// returned.
type Batch struct {
	Layout *batch.Layout
	Slot   *batch.Slot
	Tasks  []Task          // one per row
	Loose  []batch.Loose   // one per field
	Ctx    context.Context // for its reads: it ends with the pass, so that hung reads end
	Gone   atomic.Bool     // given up: its tasks are returned undone
	Failed atomic.Bool     // a sample of it has failed for good: the other rows do not matter
	Placed Placed          // the batch, if the crew has written it as a whole
	Ended  bool            // there is no such batch: its worker has come to the end of the dataset
	Owner  any             // the loader's own

	collected atomic.Int64 // bytes of loose rows
}

// Row is the memory of a field of a task's row.
func (b *Batch) Row(field, row int) []byte { return b.Layout.Row(b.Slot.Mem, field, row) }

// Trim frees rows that are too large to be kept for another batch.
func (b *Batch) Trim() {
	for i := range b.Loose {
		b.Loose[i].Trim()
	}
}

// Placed is where a crew has put a whole batch in its slot, after the fixed columns.
type Placed struct {
	At, Bytes int64
	Rows      int    // samples in it, if its one task stands for all of them
	Told      []byte // of it, for the trainer
}

// ColumnName is the name of column i of samples that only the user's code knows.
func ColumnName(i int) string { return strconv.Itoa(i) }

// Collect keeps the value of a loose column of the task's row until the batch is laid out.
func (t *Task) Collect(column int, data []byte) {
	t.Batch.collected.Add(int64(len(data)))
	copy(t.Batch.Loose[column].Row(t.Row, len(data)), data)
}

// Task is one row to fill. The goroutine that works on it is the only one that writes to
// the row.
type Task struct {
	Req     fetch.Request // Sample, and what was read of it
	Batch   *Batch
	Row     int
	Place   int64   // in the order
	Sample  int64   // as ordered; Req.Sample may be its replacement. -1: none
	From    int64   // in a row of runs: first token of the run
	Length  int64   // tokens of the run
	At      int64   // offset of the run in the column, in tokens
	Key     rng.Key // for everything random about the sample
	Attempt int     // replacements so far

	Apart  bool // for readers: not in a bunch
	Unread bool // for lanes: the lane that takes the task also reads the sample
}
