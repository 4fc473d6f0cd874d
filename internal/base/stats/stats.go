// Package stats is the only way anything in stoker reports a number: busy time
// and counts of every stage, and what each worker is at right now.
package stats

import (
	"sync/atomic"
	"time"
)

// Stage counts the work of one stage. Safe for concurrent use; the zero value
// is ready.
type Stage struct {
	busy, items, bytes atomic.Int64
}

// Add counts items that took d together and were of so many bytes.
func (s *Stage) Add(d time.Duration, items, bytes int64) {
	s.busy.Add(int64(d))
	s.items.Add(items)
	s.bytes.Add(bytes)
}

// Stream is the stages of one loader, in the order data takes.
type Stream struct {
	Read   Stage // reading stored bytes, summed over readers
	Decode Stage // parse, decode, transform and write, summed over lanes
	Batch  Stage // closing batches
	Wait   Stage // the consumer waiting for a batch
	Bad    atomic.Int64
}

// StageSnapshot is one stage's numbers.
type StageSnapshot struct {
	BusySeconds float64 `json:"busy_s"`
	Items       int64   `json:"items"`
	Bytes       int64   `json:"bytes"`
}

// Snapshot is a stream's numbers at one moment, since it was opened.
type Snapshot struct {
	Read    StageSnapshot `json:"read"`
	Decode  StageSnapshot `json:"decode"`
	Batch   StageSnapshot `json:"batch"`
	Wait    StageSnapshot `json:"wait"`
	Bad     int64         `json:"bad"`     // samples skipped or replaced
	Ready   int           `json:"ready"`   // batches ready now
	Slots   int           `json:"slots"`   // batches in memory now
	Leased  int           `json:"leased"`  // of these, held by the user
	Memory  int64         `json:"memory"`  // bytes of batch memory
	Lanes   int           `json:"lanes"`   // lanes this stream may use
	Samples int64         `json:"samples"` // samples delivered
	Cache   *Cache        `json:"cache,omitempty"`
}

// Cache is what a cache of samples holds.
type Cache struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	Limit   int64 `json:"limit"` // bytes
	Full    bool  `json:"full"`  // it takes no more samples
}

func (s *Stage) snapshot() StageSnapshot {
	return StageSnapshot{time.Duration(s.busy.Load()).Seconds(), s.items.Load(), s.bytes.Load()}
}

// Snapshot reads the stages; the caller fills in the rest.
func (s *Stream) Snapshot() Snapshot {
	return Snapshot{
		Read: s.Read.snapshot(), Decode: s.Decode.snapshot(), Batch: s.Batch.snapshot(), Wait: s.Wait.snapshot(),
		Bad: s.Bad.Load(),
	}
}
