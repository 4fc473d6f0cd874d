package stats

import (
	"testing"
	"time"
)

// The first item is measured, and then one in as many as make up the work.
func TestSeldom(t *testing.T) {
	var s Seldom
	if !s.Due(12_345) {
		t.Error("the first item is not measured")
	}
	s.Took(100, 1000)
	due := 0
	for now := range int64(10_000) {
		if s.Due(now) {
			due++
		}
	}
	if due != 1000 {
		t.Errorf("%d of 10,000 items of 100 ns are measured, one in 1,000 ns of work", due)
	}
	if s.Took(5000, 1000); !s.Due(1) || !s.Due(2) {
		t.Error("an item that takes longer than that is not always measured")
	}
	if s.TookBatch(time.Nanosecond); s.Due(mostBatches-1) || !s.Due(mostBatches) {
		t.Error("batches are measured as often as that, at least")
	}
}

// A batch that is worked on in two parts counts as one; the rest between them is blocked time.
func TestShift(t *testing.T) {
	var stage Stage
	var due Seldom
	y := NewShift(&stage, &due)
	y.Works()
	if y.Since() == 0 {
		t.Error("it does not work")
	}
	from := y.Since()
	if y.Works(); y.Since() != from {
		t.Error("work began twice")
	}
	y.Rests()
	y.Rests()
	if y.Since() != 0 {
		t.Error("it does not rest")
	}
	y.Works()
	y.Done(0, 3)
	if items, busy, blocked := stage[sItems].Load(), stage[sBusy].Load(), stage[sOutput].Load(); items != 3 || busy <= 0 || blocked <= 0 {
		t.Errorf("%d items, busy %d ns, blocked %d ns", items, busy, blocked)
	}
	none := NewShift(nil, &due)
	none.Works()
	none.Rests()
	if none.Done(0, 1); none.Since() != 0 {
		t.Error("what is not measured works")
	}
}
