package compose

import (
	"context"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Limits of bad samples are those of the Spec; a share is judged from 100 samples on, or at
// the end.
func TestLimit(t *testing.T) {
	last := errs.New(errs.Damaged, "torn")
	for _, c := range []struct {
		on        spec.OnBad
		bad, seen int64
		end, over bool
	}{
		{on: spec.OnBad{}, bad: 99, seen: 100, end: true},
		{on: spec.OnBad{MaxBad: 3}, bad: 3, seen: 4, end: true},
		{on: spec.OnBad{MaxBad: 3}, bad: 4, seen: 1000, over: true},
		{on: spec.OnBad{MaxBadRate: 0.1}, bad: 11, seen: 99},
		{on: spec.OnBad{MaxBadRate: 0.1}, bad: 11, seen: 99, end: true, over: true},
		{on: spec.OnBad{MaxBadRate: 0.1}, bad: 10, seen: 100},
		{on: spec.OnBad{MaxBadRate: 0.1}, bad: 11, seen: 100, over: true},
	} {
		m := &Maker{spec: spec.Spec{OnBad: c.on}}
		err := m.Limit(c.bad, c.seen, c.end, last)
		if (err != nil) != c.over {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil && errs.From(err).Code != errs.BadLimit {
			t.Errorf("%+v: code %s", c, errs.From(err).Code)
		}
	}
}

// A batch keeps the error of its first bad sample, whoever comes first; a batch that is
// opened again has none, and no mark of the one before.
func TestBatchIsOpenedAgain(t *testing.T) {
	plan, err := order.New(8, order.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	e := plan.Epoch(0)
	w := &Walk{Order: e, Slice: order.Slice{N: e.Len(), Batch: 4, World: 1}}
	m := &Maker{spec: spec.Spec{OnBad: spec.OnBad{Policy: spec.Fail}}}
	layout := batch.NewLayout([]batch.Field{{Name: "x", DType: mem.Uint8}}, 4)
	slot, err := batch.Heap{}.Alloc(layout.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	for range 2 {
		m.Open(context.Background(), &b, w, layout, slot, 4, t)
		d := Draft{Step: 1, Steps: 1, Rows: 4}
		for i := range int64(4) {
			d.pieces = append(d.pieces, order.Piece{Place: 4 + i, Sample: 4 + i})
		}
		if n := b.Fill(&d); n != 4 || b.Err != nil || b.Failed.Load() || len(b.Bad)+len(b.Counts)+len(b.Columns) > 0 || slices.Contains(b.good, true) {
			t.Fatalf("%d samples, %v, %+v", n, b.Err, b.Bad)
		}
		for _, row := range []int{2, 1, 3} {
			bad := errs.New(errs.Damaged, "torn").At(errs.Where{Sample: errs.Known(b.Tasks[row].Sample)})
			if b.OnBad(&b.Tasks[row], bad, true) {
				t.Error("another sample takes its place")
			}
		}
		b.Stamp(&b.Tasks[0])
		if e := errs.From(b.Err); e.Where.Sample.Or(-1) != 5 || !b.Failed.Load() {
			t.Errorf("the error is of sample %d", e.Where.Sample.Or(-1))
		}
		if err := b.Complete(nil); err != nil || b.Columns != nil {
			t.Errorf("a batch that failed was completed: %v", err)
		}
	}
}
