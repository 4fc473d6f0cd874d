package compose

import (
	"cmp"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// Grow returns a larger slot with the fixed columns (so many bytes) of an old one, which is
// then no longer used.
type Grow func(old *batch.Slot, fixed, bytes int64) (*batch.Slot, error)

// Complete finishes a batch whose rows are all in: skipped rows are copied from
// good ones, unequal rows laid out, columns described, rows mixed. The slot is replaced if
// the unequal rows do not fit, and an error of grow is returned as it is.
func (b *Batch) Complete(grow Grow) error {
	if b.Err != nil || b.Ended {
		return nil
	}
	if len(b.Bad) > 0 || slices.Contains(b.good, false) {
		slices.SortFunc(b.Bad, func(x, y Bad) int { return cmp.Compare(x.Place, y.Place) })
		if err := b.mend(); err != nil {
			return err
		}
	}
	placed := b.Placed.Bytes > 0
	if !placed {
		if err := b.makeRoom(grow); err != nil {
			return err
		}
	}
	b.count()
	if placed { // in place of all columns but the ids and marks
		b.Columns = append(b.Columns, batch.Column{Name: fill.ColumnName(0), Kind: "placed", Data: b.Placed.At, Shape: mem.Shape{int(b.Placed.Bytes)}})
	}
	at := b.Layout.Bytes()
	for i := range b.Layout.Fields {
		f := &b.Layout.Fields[i]
		col := batch.Column{Name: f.Name, Off: b.Layout.Off(i), Shape: f.Seen()}
		if placed && i < len(b.Layout.Fields)-batch.Marks {
			continue
		}
		if f.RunBytes > 0 {
			col.Rows = int(b.walk.Slice.Rows(b.Step))
		}
		if f.Loose {
			var err error
			if at, err = b.pack(i, &col, at); err != nil {
				return err
			}
		}
		b.Columns = append(b.Columns, col)
	}
	switch {
	case b.m.mixes():
		return b.blend()
	case b.m.mix != nil && b.m.mix.Label >= 0 && b.m.mix.Left:
		return b.checkClasses()
	}
	return nil
}

// pack puts the unequal rows of a column into the slot at offset at, and says
// where the next ones go.
func (b *Batch) pack(i int, col *batch.Column, at int64) (int64, error) {
	f, c := &b.Layout.Fields[i], &b.Loose[i]
	end := b.Layout.Pack(b.Slot.Mem, i, c, at)
	switch {
	case f.Form == batch.Padded:
		col.Off, col.Shape = at, b.Layout.Padded(i, c)
	case f.Form == batch.Ragged:
		col.Kind, col.Data = "ragged", at
	case b.Structure == nil && i < len(b.m.data.Parts[0].Programs) && b.m.data.Parts[0].Kind(i) == "image":
		for r, shape := range c.Shapes {
			if !slices.Equal(shape, c.Shapes[0]) {
				return 0, errs.New(errs.Config, "images of one batch differ in size: sample %d is %v, sample %d is %v",
					b.Tasks[0].Req.Sample, c.Shapes[0], b.Tasks[r].Req.Sample, shape).
					Try("add a transform that makes them equal (Resize((h, w)), RandomResizedCrop, CenterCrop), or use batch_size=None")
			}
		}
		col.Off, col.Shape = at, slices.Clone(c.Shapes[0])
	default:
		col.Data = at
	}
	return (end + 63) / 64 * 64, nil
}

// count adds up what each step of the batch adds to a receipt: each sample once if
// it is in a place of the epoch, as ordered or as a replacement.
func (b *Batch) count() {
	for i := range b.Steps {
		b.Counts = append(b.Counts, Count{After: b.walk.Slice.After(b.Step + int64(i))})
	}
	if b.Placed.Rows > 0 {
		b.Counts[0].Real = int64(b.Placed.Rows)
		return
	}
	each := max(b.Rows/b.Steps, 1)
	for i := range b.Tasks {
		t, c := &b.Tasks[i], &b.Counts[i/each]
		if t.Sample < 0 {
			b.m.filler.Blank(t, -1)
			continue
		}
		counts := b.good[i] && (t.Attempt == 0 || b.m.spec.OnBad.Policy == spec.Replace)
		if counts && t.From == 0 && b.walk.Order.Real(t.Place) {
			c.Sum.Add(t.Place, t.Req.Sample)
			c.Real++
		}
	}
}

// mend copies the next good row's fields to every row without a sample; in a row of
// runs it blanks the run.
func (b *Batch) mend() error {
	for i := range b.Rows {
		if b.good[i] {
			continue
		}
		if b.m.spec.Batch.Pack > 0 {
			b.m.filler.Blank(&b.Tasks[i], b.Tasks[i].Sample)
			continue
		}
		from := -1
		for d := 1; d < b.Rows && from < 0; d++ {
			if j := (i + d) % b.Rows; b.good[j] {
				from = j
			}
		}
		if from < 0 {
			return errs.New(errs.Bug, "a batch of %d rows has no usable row", b.Rows).Because(b.Bad[0].Err)
		}
		b.Layout.CopyRow(b.Slot.Mem, i, from)
		for f := range b.Loose {
			if c := &b.Loose[f]; b.Layout.Fields[f].Loose {
				c.Copy(i, from)
			}
		}
		b.Layout.Stamp(b.Slot.Mem, i, b.Tasks[i].Sample, false)
	}
	for i := range b.Bad {
		for r := range b.Rows {
			t := &b.Tasks[r]
			if t.Place != b.Bad[i].Place {
				continue
			}
			if b.good[r] && b.m.spec.OnBad.Policy == spec.Replace {
				b.Bad[i].Put = t.Req.Sample
			}
		}
	}
	return nil
}

// makeRoom replaces the slot by a larger one if unequal rows do not fit.
func (b *Batch) makeRoom(grow Grow) error {
	need := b.Layout.Bytes()
	for i := range b.Loose {
		if b.Layout.Fields[i].Loose {
			need += (b.Layout.Need(i, &b.Loose[i]) + 63) / 64 * 64
		}
	}
	if need <= int64(len(b.Slot.Mem)) {
		return nil
	}
	bigger, err := grow(b.Slot, b.Layout.Bytes(), need+need/8)
	if err != nil {
		return err
	}
	b.Slot = bigger
	return nil
}
