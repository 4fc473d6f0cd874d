package loader

import (
	"cmp"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// close finishes a batch whose rows are all in: skipped rows are copied from
// good ones, unequal rows packed, columns described.
func (l *Loader) close(ob *openBatch) error {
	if ob.err != nil {
		return nil
	}
	if len(ob.bad) > 0 || slices.Contains(ob.good, false) {
		slices.SortFunc(ob.bad, func(a, b Bad) int { return cmp.Compare(a.Place, b.Place) })
		if err := l.mend(ob); err != nil {
			return err
		}
	}
	if err := l.makeRoom(ob); err != nil {
		return err
	}
	l.count(ob)
	at := ob.layout.Bytes()
	for i := range ob.layout.Fields {
		f := &ob.layout.Fields[i]
		col := batch.Column{Name: f.Name, Off: ob.layout.Off(i), Shape: f.Seen()}
		if f.Packed > 0 {
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
	return nil
}

// pack puts the unequal rows of a column into the slot at offset at, and says
// where the next ones go.
func (l *Loader) pack(ob *openBatch, i int, col *batch.Column, at int64) (int64, error) {
	f, c := &ob.layout.Fields[i], &ob.loose[i]
	end := ob.layout.Pack(ob.slot.Mem, i, c, at)
	switch {
	case f.Form == batch.Padded:
		col.Off, col.Shape = at, ob.layout.Padded(i, c)
	case f.Form == batch.Ragged:
		col.Kind, col.Data = "ragged", at
	case l.data.Parts[0].Kind(i) == "image":
		for r, shape := range c.Shapes {
			if !slices.Equal(shape, c.Shapes[0]) {
				return 0, errs.New(errs.Config, "images of one batch differ in size: sample %d is %v, sample %d is %v",
					ob.tasks[0].req.Sample, c.Shapes[0], ob.tasks[r].req.Sample, shape).
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
	each := max(ob.rows/ob.steps, 1)
	for i := range ob.tasks {
		t, c := &ob.tasks[i], &ob.counts[i/each]
		if t.sample < 0 {
			l.blank(ob, t, -1)
			continue
		}
		counts := ob.good[i] && (t.attempt == 0 || l.spec.OnBad.Policy == spec.Replace)
		if counts && t.from == 0 && ob.pass.order.Real(t.place) {
			c.Sum.Add(t.place, t.req.Sample)
			c.Real++
		}
	}
}

// mend copies the next good row's fields to every row without a sample; in a packed
// row it blanks the run.
func (l *Loader) mend(ob *openBatch) error {
	for i := range ob.rows {
		if ob.good[i] {
			continue
		}
		if l.spec.Batch.Pack > 0 {
			l.blank(ob, &ob.tasks[i], ob.tasks[i].sample)
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
		ob.layout.CopyRow(ob.slot.Mem, i, from)
		for f := range ob.loose {
			if c := &ob.loose[f]; l.fields[f].Loose {
				c.Copy(i, from)
			}
		}
		ob.layout.Stamp(ob.slot.Mem, i, ob.tasks[i].sample, false)
	}
	for i := range ob.bad {
		for r := range ob.rows {
			t := &ob.tasks[r]
			if t.place != ob.bad[i].Place {
				continue
			}
			if ob.good[r] && l.spec.OnBad.Policy == spec.Replace {
				ob.bad[i].Put = t.req.Sample
			}
		}
	}
	return nil
}

// makeRoom replaces the slot by a larger one if unequal rows do not fit.
func (l *Loader) makeRoom(ob *openBatch) error {
	need := ob.layout.Bytes()
	for i := range ob.loose {
		if l.fields[i].Loose {
			need += (ob.layout.Need(i, &ob.loose[i]) + 63) / 64 * 64
		}
	}
	if need <= int64(len(ob.slot.Mem)) {
		return nil
	}
	bigger, err := l.slots.replace(ob.slot, ob.layout.Bytes(), need+need/8)
	if err != nil {
		return err
	}
	ob.slot = bigger
	return nil
}
