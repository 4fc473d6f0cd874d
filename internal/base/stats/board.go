package stats

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Work is what one worker is doing: an entry of the Board. Its layout is that of
// the control page's work table (package wire), which may have it. The worker is
// its only writer; anyone may read it.
type Work struct {
	stage  atomic.Uint32 // 0: idle
	loader atomic.Uint32
	sample atomic.Int64
	since  atomic.Int64 // CLOCK_MONOTONIC, nanoseconds
	count  atomic.Uint64
}

// WorkSize is the size of one entry in bytes.
const WorkSize = int(unsafe.Sizeof(Work{}))

// Begin records that the worker starts a stage of a sample, and returns the time
// (Monotonic).
func (w *Work) Begin(stage, loader uint32, sample int64) int64 {
	now := Monotonic()
	if w.loader.Load() != loader { // a store takes ten times as long as a load
		w.loader.Store(loader)
	}
	w.sample.Store(sample)
	w.since.Store(now)
	if w.stage.Load() != stage {
		w.stage.Store(stage)
	}
	return now
}

// Next is Begin for samples that cannot hang. If the worker is in the same stage
// already, it does not read the clock, which would take longer than a small sample
// does. The stage then counts as begun when it really began.
func (w *Work) Next(stage, loader uint32, sample int64) {
	if w.stage.Load() != stage {
		w.Begin(stage, loader, sample)
		return
	}
	w.sample.Store(sample)
}

// End records that the worker is done.
func (w *Work) End() {
	w.stage.Store(0)
	w.count.Add(1)
}

// Now is what the worker is doing.
func (w *Work) Now() (stage, loader uint32, sample, since int64) {
	return w.stage.Load(), w.loader.Load(), w.sample.Load(), w.since.Load()
}

// Monotonic is CLOCK_MONOTONIC in nanoseconds: the clock that two processes of one
// machine share.
func Monotonic() int64 { return tie.at + int64(time.Since(tie.began)) }

// tie is one moment by that clock and by Go's, which runs at the same rate and is
// read without a system call.
var tie = newTie()

type moment struct {
	began time.Time
	at    int64
}

func newTie() moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return moment{began: time.Now()}
	}
	return moment{time.Now(), ts.Nano()}
}

// Board has the entries of all workers. Take and Give are safe for concurrent use.
type Board struct {
	mu      sync.Mutex
	entries []Work
	taken   []bool
	spare   Work // shared by workers without an entry: they are not shown
}

// NewBoard returns a board over entries, or over n new ones if entries is nil.
func NewBoard(entries []Work, n int) *Board {
	if entries == nil {
		entries = make([]Work, n)
	}
	return &Board{entries: entries, taken: make([]bool, len(entries))}
}

// Take returns an entry for one worker.
func (b *Board) Take() *Work {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.taken {
		if !b.taken[i] {
			b.taken[i] = true
			return &b.entries[i]
		}
	}
	return &b.spare
}

// Give takes an entry back.
func (b *Board) Give(w *Work) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.stage.Store(0)
	for i := range b.entries {
		if &b.entries[i] == w {
			b.taken[i] = false
		}
	}
}

// Oldest is what has been in work for longest, for one loader: stage 0 if nothing
// is.
func (b *Board) Oldest(loader uint32) (stage uint32, sample, since int64) {
	for i := range b.entries {
		s, l, id, t := b.entries[i].Now()
		if s != 0 && l == loader && (stage == 0 || t < since) {
			stage, sample, since = s, id, t
		}
	}
	return stage, sample, since
}
