package stats

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Work is what one worker is at: an entry of the Board. Its layout is that of
// the control page's work table (package wire), because there it may lie. It
// has one writer, the worker; anybody may read.
type Work struct {
	stage  atomic.Uint32 // 0: idle
	loader atomic.Uint32
	sample atomic.Int64
	since  atomic.Int64 // CLOCK_MONOTONIC, nanoseconds
	count  atomic.Uint64
}

// WorkSize is the bytes of one entry.
const WorkSize = int(unsafe.Sizeof(Work{}))

// Begin says that the worker starts a stage of a sample, and returns when that is
// (Monotonic).
func (w *Work) Begin(stage, loader uint32, sample int64) int64 {
	now := Monotonic()
	if w.loader.Load() != loader { // to store takes ten times as long as to look
		w.loader.Store(loader)
	}
	w.sample.Store(sample)
	w.since.Store(now)
	if w.stage.Load() != stage {
		w.stage.Store(stage)
	}
	return now
}

// Next is Begin for samples that can not hang: one of the stage that the worker is at
// already does not ask the clock, which would take longer than a small sample does. The
// stage is said to be at it since it began.
func (w *Work) Next(stage, loader uint32, sample int64) {
	if w.stage.Load() != stage {
		w.Begin(stage, loader, sample)
		return
	}
	w.sample.Store(sample)
}

// End says that it is done.
func (w *Work) End() {
	w.stage.Store(0)
	w.count.Add(1)
}

// Now is what the worker is at.
func (w *Work) Now() (stage, loader uint32, sample, since int64) {
	return w.stage.Load(), w.loader.Load(), w.sample.Load(), w.since.Load()
}

// Monotonic is CLOCK_MONOTONIC in nanoseconds: the clock that two processes of
// one machine share.
func Monotonic() int64 { return tie.at + int64(time.Since(tie.began)) }

// tie is one moment by that clock and by Go's, which runs with it and is read
// without a system call.
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

// Board is the entries of all workers. Take and Give are safe for concurrent
// use.
type Board struct {
	mu      sync.Mutex
	entries []Work
	taken   []bool
	spare   Work // shared by workers beyond the board: they go unseen
}

// NewBoard is a board over entries, or over n of its own if entries is nil.
func NewBoard(entries []Work, n int) *Board {
	if entries == nil {
		entries = make([]Work, n)
	}
	return &Board{entries: entries, taken: make([]bool, len(entries))}
}

// Take is an entry for one worker.
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

// Oldest is what has been in work for longest, of one loader: stage 0 if
// nothing is.
func (b *Board) Oldest(loader uint32) (stage uint32, sample, since int64) {
	for i := range b.entries {
		s, l, id, t := b.entries[i].Now()
		if s != 0 && l == loader && (stage == 0 || t < since) {
			stage, sample, since = s, id, t
		}
	}
	return stage, sample, since
}
