package loader

import (
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// draft is the content of one step of one rank, or of several that are made
// together: the runs of its batch, in the order of rows. A run is a whole sample,
// except in rows of runs.
type draft struct {
	step   int64
	steps  int
	pieces []order.Piece // nil: not made yet; Sample is -1 for the unused end of a row of runs
	rows   int
}

// prepare makes the draft of a step, and of up to most consecutive steps with the
// same number of rows. Some orders sort thousands of lengths for it, so no lock is
// held.
func (p *Pass) prepare(step int64, most int) {
	d := &p.draft
	d.step, d.steps, d.pieces = step, 0, d.pieces[:0]
	for d.steps < most && step < p.slice.Steps() && p.slice.Rows(step) == p.slice.Rows(d.step) {
		d.pieces = p.l.Draw(p.order, p.slice, step, d.pieces)
		d.steps++
		step++
	}
	d.rows = len(d.pieces)
}

// grow makes room for batches of at least rows rows, and some more. Shared.mu is
// held.
func (l *Loader) grow(rows int) error {
	if rows <= l.layout.Rows {
		return nil
	}
	return l.reserve(rows + rows/4)
}

// reserve makes room for batches of rows rows. Slots that are too small are not
// used again. Shared.mu is held.
func (l *Loader) reserve(rows int) error {
	if rows <= l.layout.Rows {
		return nil
	}
	layout := batch.NewLayout(l.fields, rows)
	if layout.Bytes() > l.slotBytes {
		if err := l.fits(layout.Bytes(), l.slots.limit); err != nil {
			return err
		}
		l.slotBytes = layout.Bytes()
		l.setPrefetch(l.slots.limit)
		l.slots.drain()
	}
	l.layout = layout
	return nil
}

// emptyBatch returns an open batch of so many rows, whose tasks are not filled in.
func (l *Loader) emptyBatch(p *Pass, slot *batch.Slot, rows int) *openBatch {
	var ob *openBatch
	if n := len(l.spare); n > 0 {
		ob, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		ob = &openBatch{Batch: fill.Batch{Loose: make([]batch.Loose, len(l.fields))}}
	}
	if cap(ob.Tasks) < rows {
		ob.Tasks, ob.good = make([]fill.Task, rows), make([]bool, rows)
	}
	*ob = openBatch{
		Batch: fill.Batch{Layout: l.layout, Slot: slot, Tasks: ob.Tasks[:rows], Loose: ob.Loose, Ctx: p.ctx, Owner: ob},
		pass:  p, rows: rows,
		good: ob.good[:rows], ready: ob.ready[:0], bunches: ob.bunches[:0], counts: ob.counts[:0],
	}
	for i := range ob.Loose {
		if l.fields[i].Loose {
			ob.Loose[i].Reset(rows)
		}
	}
	return ob
}

// newBatch returns the open batch of the draft with its tasks filled in.
func (l *Loader) newBatch(p *Pass, slot *batch.Slot) *openBatch {
	ob := l.emptyBatch(p, slot, p.draft.rows)
	ob.step, ob.steps, ob.begun = p.draft.step, p.draft.steps, p.planning.from
	var at int64
	for i, piece := range p.draft.pieces {
		t := &ob.Tasks[i]
		t.Batch, t.Row, t.Attempt = &ob.Batch, i, 0
		t.Place, t.Sample, t.From, t.Length, t.At = piece.Place, piece.Sample, piece.From, piece.Len, at
		t.Req.Owner = t
		t.Req.Sample = piece.Sample
		at += piece.Len
		ob.good[i] = piece.Sample < 0
		if piece.Sample >= 0 {
			t.Key = p.order.Key(piece.Place)
			ob.left++
		}
	}
	return ob
}
