package stats

import (
	"sync/atomic"
	"time"
)

// Stage counts the work of one stage, in the layout of the page, which may have it.
// Safe for concurrent use. The zero value is ready, and a nil Stage counts nothing,
// so that what is not measured costs nothing.
type Stage [stageWords]atomic.Int64

// Add counts items that took d together and have this many bytes.
func (s *Stage) Add(d time.Duration, items, bytes int64) {
	if s == nil {
		return
	}
	if d != 0 {
		s[sBusy].Add(int64(d))
	}
	if bytes != 0 {
		s[sBytes].Add(bytes)
	}
	if items > 0 {
		s[sItems].Add(items)
		s[sBuckets+Bucket(int64(d)/items)].Add(items)
	}
}

// AddEach counts items that took this many ns each.
func (s *Stage) AddEach(took []int64) {
	if s == nil {
		return
	}
	var sum Sum
	for _, d := range took {
		s.Several(&sum, d, 1)
	}
	s.Put(&sum, 0)
}

// Sum is items of one stage that are added to it together. It belongs to one
// goroutine.
type Sum struct {
	busy, items, same int64 // same: items in bucket at
	at                int
}

// Several adds items that took took ns together to a Sum of the stage.
func (s *Stage) Several(sum *Sum, took, items int64) {
	if items <= 0 {
		return
	}
	sum.busy += took
	sum.items += items
	if at := Bucket(took / items); at != sum.at && sum.same > 0 {
		s[sBuckets+sum.at].Add(sum.same)
		sum.at, sum.same = at, items
	} else {
		sum.at, sum.same = at, sum.same+items
	}
}

// Put adds a Sum, and the bytes of its items, to the stage.
func (s *Stage) Put(sum *Sum, bytes int64) {
	if sum.items == 0 {
		return
	}
	s[sBuckets+sum.at].Add(sum.same)
	s[sBusy].Add(sum.busy)
	s[sItems].Add(sum.items)
	if bytes != 0 {
		s[sBytes].Add(bytes)
	}
	*sum = Sum{}
}

// Count counts items that were not timed.
func (s *Stage) Count(items int64) {
	if s != nil {
		s[sItems].Add(items)
	}
}

// Timed adds the time of one of the items counted; busy is then the time of the
// timed items only.
func (s *Stage) Timed(d time.Duration) {
	if s == nil {
		return
	}
	s[sBusy].Add(int64(d))
	s[sTimed].Add(1)
	s[sBuckets+Bucket(int64(d))].Add(1)
}

// CPU counts what a thread used for some of the items.
func (s *Stage) CPU(d time.Duration, items int64) {
	if s != nil {
		s[sCPU].Add(int64(d))
		s[sCPUItems].Add(items)
	}
}

// Blocked counts time blocked on input or on output.
func (s *Stage) Blocked(state int, d time.Duration) {
	switch {
	case s == nil || d == 0:
	case state == Input:
		s[sInput].Add(int64(d))
	case state == Output:
		s[sOutput].Add(int64(d))
	}
}

// Queue records how many items wait before the stage.
func (s *Stage) Queue(n int) {
	if s == nil {
		return
	}
	set(&s[sQueue], int64(n))
	if n != 0 {
		s[sQueued].Add(int64(n))
	}
	s[sQueues].Add(1)
}

// Lap is a measurement in progress.
type Lap struct {
	stage *Stage
	begin time.Time
}

// Begin begins a measurement, unless the stage is nil.
func (s *Stage) Begin() Lap {
	if s == nil {
		return Lap{}
	}
	return Lap{s, time.Now()}
}

// End counts what was done since Begin, and returns how long it took.
func (l Lap) End(items, bytes int64) time.Duration {
	if l.stage == nil {
		return 0
	}
	d := l.Took()
	l.stage.Add(d, items, bytes)
	return d
}

// Took is the time since Begin; 0 if it is not measured.
func (l Lap) Took() time.Duration {
	if l.stage == nil {
		return 0
	}
	return time.Since(l.begin)
}
