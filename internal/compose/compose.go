// Package compose makes a batch of rows: which sample goes into which row, what takes
// the place of a bad one, and, once every row is filled, the columns of the batch, what it
// adds to a receipt, and the mixing of its rows. It takes up what package fill leaves open:
// passes through an order, and what a bad sample means.
//
//	Draw -> Open -> rows are filled: Stamp, or SampleError and OnBad -> Complete
//	order           fill, by any crew, in any order                     columns, counts
//
// What a Batch becomes depends on its steps and samples alone, not on who filled which row
// or when. The package starts nothing and takes no lock. Draw, Needs, SampleError, Complete
// and Inputs may take long, and are called without the caller's lock. OnBad and FillIn change
// the batch's error and its list of bad samples: the caller calls them under one lock. Stamp
// writes only its own row. Complete and Inputs come after all rows.
package compose

import (
	"context"
	"slices"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stream"
)

// Maker makes the batches of one loader. Safe for concurrent use.
type Maker struct {
	stream *stream.Stream
	data   *dataset.Collection
	spec   spec.Spec // with all defaults filled in
	filler *fill.Filler
	mix    *dataset.Mix // nil without a batch transform
	mixers sync.Pool    // *mixer
}

// New returns a Maker of batches of the dataset's samples, in the order of the stream, whose
// rows filler fills.
func New(s *stream.Stream, data *dataset.Collection, filler *fill.Filler) *Maker {
	return &Maker{stream: s, data: data, spec: data.Spec(), filler: filler, mix: data.Mix()}
}

// Fields are the columns of batches that are made of the dataset's fields, as they are laid
// out: mixed labels have one of their own.
func (m *Maker) Fields() []batch.Field {
	fields := m.data.Layout()
	if m.mixes() && m.mix.Soft.Name != "" {
		fields = append(slices.Clone(fields), m.mix.Soft)
	}
	return fields
}

// Walk is the part of an epoch that one rank goes through, step by step.
type Walk struct {
	Epoch int64
	From  int64 // number of the first step; not 0 for a resumed epoch
	Order order.Epoch
	Slice order.Slice
}

// Draft is the content of one step of one rank, or of several that are made
// together: the runs of its batch, in the order of rows. A run is a whole sample,
// except in rows of runs.
type Draft struct {
	Step   int64
	Steps  int
	Rows   int
	pieces []order.Piece // Sample is -1 for the unused end of a row of runs
}

// Draw makes the draft of a step, and of up to most consecutive steps with the
// same number of rows. Some orders sort thousands of lengths for it.
func (m *Maker) Draw(d *Draft, w *Walk, step int64, most int) {
	d.Step, d.Steps, d.pieces = step, 0, d.pieces[:0]
	for d.Steps < most && step < w.Slice.Steps() && w.Slice.Rows(step) == w.Slice.Rows(d.Step) {
		d.pieces = m.stream.Draw(w.Order, w.Slice, step, d.pieces)
		d.Steps++
		step++
	}
	d.Rows = len(d.pieces)
}

// Needs appends the needs of a step to out.
func (m *Maker) Needs(w *Walk, step int64, out []fetch.Need) []fetch.Need {
	var extents []format.Extent
	for _, piece := range m.stream.Draw(w.Order, w.Slice, step, nil) {
		if piece.Sample < 0 {
			continue
		}
		at := len(extents)
		extents = m.filler.Extents(piece.Sample, extents)
		out = append(out, fetch.Need{Step: step, Sample: piece.Sample, Extents: extents[at:len(extents):len(extents)]})
	}
	return out
}

// Batch is a batch in the making, or a bundle of batches: the rows of several
// steps, one step after the other. Every row has one writer at a time; the rest is the
// caller's to guard.
type Batch struct {
	fill.Batch
	Step    int64   // the first, counted from the start of the slice
	Steps   int     // all have the same number of rows
	Rows    int     // of all steps
	Bad     []Bad   // in the order of places, once the batch is complete
	Err     error   // why it cannot be delivered
	Counts  []Count // one per step, once the batch is complete
	Columns []batch.Column
	// Structure says what the columns of samples are that only the user's code knows; nil if
	// they are the dataset's fields.
	Structure []byte

	m    *Maker
	walk *Walk
	good []bool // rows that have their sample; each has a single writer
}

// Bad is one sample that was not delivered as ordered. It comes once per epoch,
// even if several rows have runs of it.
type Bad struct {
	Place  int64
	Sample int64 // the one that failed
	Put    int64 // its replacement
	Err    error
}

// Count is what one step adds to a receipt: the sum of the hashes of the samples in
// places of the epoch, and their number. After is the position after the step: the places
// of the epoch that all ranks have received then.
type Count struct {
	Sum   order.Sum
	Real  int64
	After int64
}

// Open makes b a batch of so many rows in slot, whose tasks are not filled in; what b was
// before is forgotten, and its memory used again.
func (m *Maker) Open(ctx context.Context, b *Batch, w *Walk, layout *batch.Layout, slot *batch.Slot, rows int, owner any) {
	fields := layout.Fields[:len(layout.Fields)-batch.Marks]
	if len(b.Loose) != len(fields) {
		b.Loose = make([]batch.Loose, len(fields))
	}
	if cap(b.Tasks) < rows {
		b.Tasks, b.good = make([]fill.Task, rows), make([]bool, rows)
	}
	*b = Batch{
		Batch: fill.Batch{Layout: layout, Slot: slot, Tasks: b.Tasks[:rows], Loose: b.Loose, Ctx: ctx, Owner: owner},
		Rows:  rows, Counts: b.Counts[:0], m: m, walk: w, good: b.good[:rows],
	}
	for i := range b.Loose {
		if fields[i].Loose {
			b.Loose[i].Reset(rows)
		}
	}
}

// Fill fills in the tasks of a batch that was opened for the rows of a draft, and returns
// how many have a sample.
func (b *Batch) Fill(d *Draft) (samples int) {
	b.Step, b.Steps = d.Step, d.Steps
	var at int64
	for i, piece := range d.pieces {
		t := &b.Tasks[i]
		t.Batch, t.Row, t.Attempt = &b.Batch, i, 0
		t.Place, t.Sample, t.From, t.Length, t.At = piece.Place, piece.Sample, piece.From, piece.Len, at
		t.Req.Owner = t
		t.Req.Sample = piece.Sample
		at += piece.Len
		b.good[i] = piece.Sample < 0
		if piece.Sample >= 0 {
			t.Key = b.walk.Order.Key(piece.Place)
			samples++
		}
	}
	return samples
}

// Stamp marks a row as holding its sample. Under Skip, a sample that replaces a
// skipped one leaves the id and mark unchanged.
func (b *Batch) Stamp(t *fill.Task) {
	b.good[t.Row] = true
	if t.Attempt > 0 && b.m.spec.OnBad.Policy == spec.Skip {
		b.Layout.Stamp(b.Slot.Mem, t.Row, t.Sample, false)
		return
	}
	b.Layout.Stamp(b.Slot.Mem, t.Row, t.Req.Sample, b.walk.Order.Real(t.Place))
}

// fail keeps the error of the first bad row of the batch, independent of which lane
// finishes first.
func (b *Batch) fail(e *errs.Error) {
	if old, ok := b.Err.(*errs.Error); ok && old.Where.Sample.Or(-1) <= e.Where.Sample.Or(-1) { //nolint:errorlint // ours alone
		return
	}
	b.Err = e
	b.Failed.Store(true)
}
