package stats

import (
	"sync/atomic"
	"time"
)

// Stage counts the work of one stage, in the layout of the page, in which it may
// lie. Safe for concurrent use; the zero value is ready, and a nil Stage counts
// nothing, so that what is not measured costs nothing.
type Stage [stageWords]atomic.Int64

// Add counts items that took d together and were of so many bytes.
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

// AddEach counts items that took so long each.
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

// Sum is items of one stage that are put into it together. It is one goroutine's.
type Sum struct {
	busy, items, same int64 // same: items in bucket at
	at                int
}

// Several adds items that took so many nanoseconds together to a Sum of the stage's.
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

// Put puts a Sum, and the bytes of its items, into the stage.
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

// Count counts items whose time was not taken.
func (s *Stage) Count(items int64) {
	if s != nil {
		s[sItems].Add(items)
	}
}

// Timed adds what one of the items counted took: busy is then of the timed items
// alone.
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

// Blocked counts time blocked, on input or on output.
func (s *Stage) Blocked(state int, d time.Duration) {
	switch {
	case s == nil || d == 0:
	case state == Input:
		s[sInput].Add(int64(d))
	case state == Output:
		s[sOutput].Add(int64(d))
	}
}

// Queue notes how many items wait in front of the stage.
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

// Lap is a time that is being taken.
type Lap struct {
	stage *Stage
	begin time.Time
}

// Begin takes the time, unless the stage is nil.
func (s *Stage) Begin() Lap {
	if s == nil {
		return Lap{}
	}
	return Lap{s, time.Now()}
}

// End counts what was done since Begin, and says how long it took.
func (l Lap) End(items, bytes int64) time.Duration {
	if l.stage == nil {
		return 0
	}
	d := l.Took()
	l.stage.Add(d, items, bytes)
	return d
}

// Took is how long it is since Begin; 0 where that is not measured.
func (l Lap) Took() time.Duration {
	if l.stage == nil {
		return 0
	}
	return time.Since(l.begin)
}
