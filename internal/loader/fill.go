package loader

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// maxAttempts is how many samples are tried for one place under Replace.
const maxAttempts = 16

// wordReplace keeps the choice of replacements apart from augmentation.
const wordReplace = 1<<63 + 1

// newBatch is the open batch of one step, its tasks filled in.
func (l *Loader) newBatch(p *Pass, step int64, slot *batch.Slot) *openBatch {
	var ob *openBatch
	if n := len(l.spare); n > 0 {
		ob, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		ob = &openBatch{tasks: make([]task, l.spec.Batch.Size), good: make([]bool, l.spec.Batch.Size), loose: make([]batch.Loose, len(l.programs))}
	}
	*ob = openBatch{pass: p, step: step, rows: int(p.slice.Rows(step)), slot: slot, tasks: ob.tasks, good: ob.good, loose: ob.loose, ready: ob.ready[:0]}
	ob.left = ob.rows
	for i := range ob.loose {
		if l.layout.Fields[i].Loose {
			ob.loose[i].Reset(ob.rows)
		}
	}
	for i := range ob.rows {
		t := &ob.tasks[i]
		t.batch, t.row, t.attempt = ob, i, 0
		t.place = p.slice.Place(step, int64(i))
		t.key = p.order.Key(t.place)
		t.req.Owner = t
		t.req.Sample = p.order.At(t.place)
		ob.good[i] = false
	}
	return ob
}

// submit sends a batch's samples to fetch, in order.
func (l *Loader) submit(ob *openBatch) {
	reqs := make([]*fetch.Request, ob.rows)
	for i := range reqs {
		t := &ob.tasks[i]
		reqs[i] = &t.req
		l.locate(t)
	}
	l.fetch.Submit(reqs, false, ob.gone.Load)
}

// locate fills in where a task's sample lies.
func (l *Loader) locate(t *task) {
	t.req.Extents = t.req.Extents[:0]
	if l.ds != nil {
		t.req.Extents = l.ds.Extents(t.req.Sample, l.wanted, t.req.Extents)
	}
}

// fill decodes one sample into its row.
func (l *Loader) fill(lane *transform.Lane, s *format.Sample, t *task) error {
	defer t.req.Release()
	ob := t.batch
	if ob.gone.Load() {
		return nil
	}
	slot := ob.slot.Mem
	if l.ds == nil { // synthetic
		kernel.CopyOut(l.layout.Row(slot, 0, t.row), l.synthetic)
		return nil
	}
	if t.req.Err != nil {
		return t.req.Err
	}
	if l.deadly[t.req.Sample] >= 2 {
		return errs.New(errs.Damaged, "the engine died twice while it worked on this sample").
			Try("look at the file; please report it, with the file if you may")
	}
	if err := l.ds.Parse(t.req.Sample, l.wanted, t.req.Raw, s); err != nil {
		return err
	}
	for i, prog := range l.programs {
		f := &s.Fields[i]
		if f.IsInt {
			row := l.layout.Row(slot, i, t.row)
			if prog.DType() == mem.Float64 {
				binary.LittleEndian.PutUint64(row, math.Float64bits(float64(f.Int)))
			} else {
				binary.LittleEndian.PutUint64(row, uint64(f.Int))
			}
			continue
		}
		if err := l.fillField(lane, prog, i, f, t); err != nil {
			return l.place(err, s, i)
		}
	}
	return nil
}

func (l *Loader) fillField(lane *transform.Lane, prog *transform.Program, i int, f *format.Field, t *task) error {
	shape, err := prog.Begin(lane, f.Data, t.key.With(uint64(i)))
	if err != nil {
		return err
	}
	if !l.layout.Fields[i].Loose {
		return prog.Finish(lane, l.layout.Row(t.batch.slot.Mem, i, t.row))
	}
	n := shape.Elems() * max(prog.DType().Size(), 1)
	c := &t.batch.loose[i]
	if cap(c.Rows[t.row]) < n {
		c.Rows[t.row] = make([]byte, n)
	}
	c.Rows[t.row] = c.Rows[t.row][:n]
	if prog.Kind() == "image" {
		c.Shapes[t.row] = append(c.Shapes[t.row][:0], shape...)
	}
	return prog.Finish(lane, c.Rows[t.row])
}

// place adds to a codec's error where its bytes stand.
func (l *Loader) place(err error, s *format.Sample, i int) error {
	e := *errs.From(err)
	f := &s.Fields[i]
	e.Where.Field = l.spec.Fields[i].Name
	if f.File >= 0 {
		path := string(l.ds.Index().AppendPath(f.File, nil))
		if f.Member != nil {
			e.Where.Shard, e.Where.Member = path, string(f.Member)
			if e.Where.Offset < 0 {
				e.Where.Offset = f.Off
			} else {
				e.Where.Offset += f.Off
			}
		} else {
			e.Where.File = path
			e.Where.Offset = max(e.Where.Offset, 0)
		}
	}
	return &e
}

// where is the file or shard of a sample.
func (l *Loader) where(sample int64) errs.Where {
	w := errs.Nowhere
	w.Sample = sample
	if l.ds == nil || sample < 0 {
		return w
	}
	if extents := l.ds.Extents(sample, l.wanted, nil); len(extents) > 0 {
		e := extents[0]
		path := string(l.ds.Index().AppendPath(e.File, nil))
		if e.Whole {
			w.File, w.Offset = path, 0
		} else {
			w.Shard, w.Offset = path, e.Off
		}
	}
	return w
}

// sampleError is the error of a sample as users see it, and whether it is one
// that on_bad may pass over: damage is, a source that fails is not.
func (l *Loader) sampleError(t *task, err error) (*errs.Error, bool) {
	e := *errs.From(err)
	where := l.where(t.req.Sample)
	if e.Where.File == "" && e.Where.Shard == "" {
		e.Where.File, e.Where.Shard = where.File, where.Shard
		if e.Where.Offset < 0 {
			e.Where.Offset = where.Offset
		}
	}
	if where.Shard != "" && e.Where.File == where.Shard { // a source knows files only
		e.Where.File, e.Where.Shard, e.Where.Offset = "", where.Shard, max(e.Where.Offset, where.Offset)
	}
	p := t.batch.pass
	e.Where.Sample = t.req.Sample
	e.Where.Moment = &errs.Moment{Epoch: p.epoch, Step: p.from + t.batch.step, Rank: l.spec.Rank}
	switch {
	case e.Code == errs.NotFound:
		e.Code = errs.Changed
		e.Hint = "it vanished since the dataset was indexed: put it back, or start again without it; on_bad=\"skip\" goes on"
	case errors.Is(err, fs.ErrPermission):
		e.Code = errs.Forbidden
		e.Hint = "give the user who trains the right to read it, or pass on_bad=\"skip\""
	}
	if e.Code == errs.Changed {
		_ = l.ds.Index().Invalidate() // the next start indexes anew
	}
	class := errs.Classes[e.Code]
	if class.Python == "DataError" && e.Hint == "" {
		e.Hint = "replace the file, or pass on_bad=\"skip\" or \"replace\" to go on without it"
	}
	if class.Python == "SourceError" && e.Hint == "" {
		e.Hint = "look at the storage: what it fails to give is never counted as a bad sample, so on_bad does not pass over it"
	}
	return &e, class.Python == "DataError"
}

// finish is called once for every task, by the lane that did it, with what
// became of it.
func (l *Loader) finish(t *task, err error) {
	s := l.shared
	ob := t.batch
	var bad *errs.Error
	var may bool
	if err != nil && !ob.gone.Load() {
		bad, may = l.sampleError(t, err)
	}
	s.mu.Lock()
	l.running--
	if len(s.loaders) > 1 {
		s.work.Broadcast()
	}
	if bad != nil && !ob.gone.Load() && l.onBad(t, bad, may) {
		s.mu.Unlock()
		l.locate(t)
		l.fetch.Submit([]*fetch.Request{&t.req}, true, ob.gone.Load)
		return
	}
	l.moved = time.Now()
	if bad == nil && !ob.gone.Load() {
		l.stamp(t)
	}
	ob.left--
	if ob.left == 0 && l.fillIn(t) {
		s.mu.Unlock()
		l.locate(t)
		l.fetch.Submit([]*fetch.Request{&t.req}, true, ob.gone.Load)
		return
	}
	if ob.left > 0 || ob.gone.Load() {
		ob.settle()
		s.mu.Unlock()
		return
	}
	ob.closing = true
	s.mu.Unlock()
	begin := time.Now()
	closeErr := l.close(ob)
	l.stats.Batch.Add(time.Since(begin), 1, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	ob.closing = false
	if i := slices.Index(ob.pass.open, ob); errors.Is(closeErr, errLater) && i >= 0 {
		ob.pass.giveUp(i)
		s.changed.Broadcast()
		return
	}
	ob.done = true
	if ob.err == nil {
		ob.err = closeErr
	}
	ob.settle()
	s.changed.Broadcast()
}

// stamp marks a row as holding its sample. Under Skip a sample that stands in
// for a skipped one leaves its id and mark.
func (l *Loader) stamp(t *task) {
	ob := t.batch
	ob.good[t.row] = true
	if t.attempt > 0 && l.spec.OnBad.Policy == Skip {
		l.layout.Stamp(ob.slot.Mem, t.row, ob.pass.order.At(t.place), false)
		return
	}
	l.layout.Stamp(ob.slot.Mem, t.row, t.req.Sample, t.place < ob.pass.slice.N)
}

// onBad applies the policy to a sample that failed, and reports whether the
// task goes on with another sample. Shared.mu is held.
func (l *Loader) onBad(t *task, e *errs.Error, may bool) (again bool) {
	ob := t.batch
	if !may || l.spec.OnBad.Policy == Fail {
		ob.fail(e)
		return false
	}
	if t.attempt == 0 { // a replacement that is bad too has a place of its own, and counts there
		ob.bad = append(ob.bad, Bad{Place: t.place, Sample: t.req.Sample, Put: -1, Err: e})
	}
	return (l.spec.OnBad.Policy == Replace || t.attempt > 0) && l.another(t, e)
}

// another gives a task another sample, chosen by key, unless too many were bad.
func (l *Loader) another(t *task, e *errs.Error) bool {
	if t.attempt++; t.attempt > maxAttempts {
		t.batch.fail(errs.New(errs.BadLimit, "%d samples in a row, chosen for one place, are bad; the last: %s", maxAttempts, e.What).
			At(e.Where).Because(e.Cause).
			Try("most of this dataset can not be read: look at it with `stoker inspect`"))
		return false
	}
	t.req.Sample = t.key.With(wordReplace).Intn(uint64(t.attempt), l.n)
	return true
}

// fillIn finds a row to copy from for a batch in which every sample is to be
// skipped: another sample takes the place of the last one, still marked as not
// valid. Shared.mu is held.
func (l *Loader) fillIn(t *task) bool {
	ob := t.batch
	if len(ob.bad) < ob.rows || ob.err != nil || slices.Contains(ob.good[:ob.rows], true) {
		return false
	}
	ob.left++
	return l.another(t, errs.From(ob.bad[0].Err))
}

// fail keeps the error of the first bad row, whichever lane meets one first.
func (ob *openBatch) fail(e *errs.Error) {
	if old, ok := ob.err.(*errs.Error); ok && old.Where.Sample <= e.Where.Sample { //nolint:errorlint // ours alone
		return
	}
	ob.err = e
}

// close finishes a batch whose rows are all in: skipped rows are copied from
// good ones, unequal rows packed, columns described.
func (l *Loader) close(ob *openBatch) error {
	if ob.err != nil {
		return nil
	}
	if len(ob.bad) > 0 {
		slices.SortFunc(ob.bad, func(a, b Bad) int { return cmp.Compare(a.Place, b.Place) })
		if err := l.mend(ob); err != nil {
			return err
		}
	}
	if err := l.makeRoom(ob); err != nil {
		return err
	}
	at := l.layout.Bytes()
	for i, f := range l.layout.Fields {
		col := wire.Column{Name: f.Name, Off: l.layout.Off(i), Shape: f.Shape}
		if f.Loose {
			c := &ob.loose[i]
			col.Data = at
			end := l.layout.Pack(ob.slot.Mem, i, c, at)
			if l.programs[i].Kind() == "image" {
				for r, shape := range c.Shapes {
					if !equal(shape, c.Shapes[0]) {
						return errs.New(errs.Config, "images of one batch differ in size: sample %d is %v, sample %d is %v",
							ob.tasks[0].req.Sample, c.Shapes[0], ob.tasks[r].req.Sample, shape).
							Try("add a transform that makes them equal (Resize((h, w)), RandomResizedCrop, CenterCrop), or use batch_size=None")
					}
				}
				col = wire.Column{Name: f.Name, Off: at, Shape: append([]int(nil), c.Shapes[0]...)}
			}
			at = (end + 63) / 64 * 64
		}
		ob.columns = append(ob.columns, col)
	}
	return nil
}

// mend gives every row that holds nothing the fields of the next good one.
func (l *Loader) mend(ob *openBatch) error {
	for i := range ob.rows {
		if ob.good[i] {
			continue
		}
		from := -1
		for d := 1; d < ob.rows && from < 0; d++ {
			if j := (i + d) % ob.rows; ob.good[j] {
				from = j
			}
		}
		if from < 0 {
			return errs.New(errs.Bug, "a batch of %d rows holds none", ob.rows).Because(ob.bad[0].Err)
		}
		l.layout.CopyRow(ob.slot.Mem, i, from)
		for f := range ob.loose {
			if c := &ob.loose[f]; l.layout.Fields[f].Loose {
				c.Rows[i] = append(c.Rows[i][:0], c.Rows[from]...)
				c.Shapes[i] = append(c.Shapes[i][:0], c.Shapes[from]...)
			}
		}
		l.layout.Stamp(ob.slot.Mem, i, ob.pass.order.At(ob.tasks[i].place), false)
	}
	for i := range ob.bad {
		for r := range ob.rows {
			t := &ob.tasks[r]
			if t.place != ob.bad[i].Place {
				continue
			}
			if ob.good[r] && l.spec.OnBad.Policy == Replace {
				ob.bad[i].Put = t.req.Sample
			}
		}
	}
	return nil
}

// makeRoom replaces the slot by a larger one where unequal rows do not fit.
func (l *Loader) makeRoom(ob *openBatch) error {
	need := l.layout.Bytes()
	for i := range ob.loose {
		if l.layout.Fields[i].Loose {
			need += (ob.loose[i].Bytes() + 63) / 64 * 64
		}
	}
	if need <= int64(len(ob.slot.Mem)) {
		return nil
	}
	bigger, err := l.slots.replace(ob.slot, need+need/8)
	if err != nil {
		return err
	}
	ob.slot = bigger
	return nil
}

func equal(a, b mem.Shape) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
