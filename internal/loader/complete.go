package loader

import (
	"cmp"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// complete finishes a batch whose rows are all in: skipped rows are copied from
// good ones, unequal rows laid out, columns described.
func (l *Loader) complete(ob *openBatch) error {
	if ob.err != nil || ob.Ended {
		return nil
	}
	if len(ob.bad) > 0 || slices.Contains(ob.good, false) {
		slices.SortFunc(ob.bad, func(a, b Bad) int { return cmp.Compare(a.Place, b.Place) })
		if err := l.mend(ob); err != nil {
			return err
		}
	}
	placed := ob.Placed.Bytes > 0
	if !placed {
		if err := l.makeRoom(ob); err != nil {
			return err
		}
	}
	l.count(ob)
	if placed { // in place of all columns but the ids and marks
		ob.columns = append(ob.columns, batch.Column{Name: fill.ColumnName(0), Kind: "placed", Data: ob.Placed.At, Shape: mem.Shape{int(ob.Placed.Bytes)}})
	}
	at := ob.Layout.Bytes()
	for i := range ob.Layout.Fields {
		f := &ob.Layout.Fields[i]
		col := batch.Column{Name: f.Name, Off: ob.Layout.Off(i), Shape: f.Seen()}
		if placed && i < len(ob.Layout.Fields)-batch.Marks {
			continue
		}
		if f.RunBytes > 0 {
			col.Rows = int(ob.pass.slice.Rows(ob.step))
		}
		if f.Loose {
			var err error
			if at, err = l.pack(ob, i, &col, at); err != nil {
				return err
			}
		}
		ob.columns = append(ob.columns, col)
	}
	switch {
	case l.mixes():
		return l.blend(ob)
	case l.mix != nil && l.mix.Label >= 0 && l.mix.Left:
		return l.checkClasses(ob)
	}
	return nil
}

// pack puts the unequal rows of a column into the slot at offset at, and says
// where the next ones go.
func (l *Loader) pack(ob *openBatch, i int, col *batch.Column, at int64) (int64, error) {
	f, c := &ob.Layout.Fields[i], &ob.Loose[i]
	end := ob.Layout.Pack(ob.Slot.Mem, i, c, at)
	switch {
	case f.Form == batch.Padded:
		col.Off, col.Shape = at, ob.Layout.Padded(i, c)
	case f.Form == batch.Ragged:
		col.Kind, col.Data = "ragged", at
	case l.structure == nil && i < len(l.data.Parts[0].Programs) && l.data.Parts[0].Kind(i) == "image":
		for r, shape := range c.Shapes {
			if !slices.Equal(shape, c.Shapes[0]) {
				return 0, errs.New(errs.Config, "images of one batch differ in size: sample %d is %v, sample %d is %v",
					ob.Tasks[0].Req.Sample, c.Shapes[0], ob.Tasks[r].Req.Sample, shape).
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
func (l *Loader) count(ob *openBatch) {
	for i := range ob.steps {
		ob.counts = append(ob.counts, Count{After: ob.pass.slice.After(ob.step + int64(i))})
	}
	if ob.Placed.Rows > 0 {
		ob.counts[0].Real = int64(ob.Placed.Rows)
		return
	}
	each := max(ob.rows/ob.steps, 1)
	for i := range ob.Tasks {
		t, c := &ob.Tasks[i], &ob.counts[i/each]
		if t.Sample < 0 {
			l.filler.Blank(t, -1)
			continue
		}
		counts := ob.good[i] && (t.Attempt == 0 || l.spec.OnBad.Policy == spec.Replace)
		if counts && t.From == 0 && ob.pass.order.Real(t.Place) {
			c.Sum.Add(t.Place, t.Req.Sample)
			c.Real++
		}
	}
}

// mend copies the next good row's fields to every row without a sample; in a row of
// runs it blanks the run.
func (l *Loader) mend(ob *openBatch) error {
	for i := range ob.rows {
		if ob.good[i] {
			continue
		}
		if l.spec.Batch.Pack > 0 {
			l.filler.Blank(&ob.Tasks[i], ob.Tasks[i].Sample)
			continue
		}
		from := -1
		for d := 1; d < ob.rows && from < 0; d++ {
			if j := (i + d) % ob.rows; ob.good[j] {
				from = j
			}
		}
		if from < 0 {
			return errs.New(errs.Bug, "a batch of %d rows has no usable row", ob.rows).Because(ob.bad[0].Err)
		}
		ob.Layout.CopyRow(ob.Slot.Mem, i, from)
		for f := range ob.Loose {
			if c := &ob.Loose[f]; l.fields[f].Loose {
				c.Copy(i, from)
			}
		}
		ob.Layout.Stamp(ob.Slot.Mem, i, ob.Tasks[i].Sample, false)
	}
	for i := range ob.bad {
		for r := range ob.rows {
			t := &ob.Tasks[r]
			if t.Place != ob.bad[i].Place {
				continue
			}
			if ob.good[r] && l.spec.OnBad.Policy == spec.Replace {
				ob.bad[i].Put = t.Req.Sample
			}
		}
	}
	return nil
}

// makeRoom replaces the slot by a larger one if unequal rows do not fit.
func (l *Loader) makeRoom(ob *openBatch) error {
	need := ob.Layout.Bytes()
	for i := range ob.Loose {
		if l.fields[i].Loose {
			need += (ob.Layout.Need(i, &ob.Loose[i]) + 63) / 64 * 64
		}
	}
	if need <= int64(len(ob.Slot.Mem)) {
		return nil
	}
	bigger, err := l.slots.replace(ob.Slot, ob.Layout.Bytes(), need+need/8)
	if err != nil {
		return err
	}
	ob.Slot = bigger
	return nil
}
