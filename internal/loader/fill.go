package loader

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// maxAttempts is how many samples are tried for one place under Replace.
const maxAttempts = 16

// wordReplace separates the randomness of replacements from that of augmentation.
const wordReplace = 1<<63 + 1

// send passes samples of a batch to fetch, and returns how long it waited for room.
func (l *Loader) send(reqs []*fetch.Request, force bool, ob *openBatch) (waited time.Duration) {
	l.shared.mu.Lock()
	l.fetching += len(reqs)
	l.shared.reconsider()
	l.shared.mu.Unlock()
	return l.fetch.Submit(ob.pass.ctx, reqs, force, ob.gone.Load)
}

// locate looks up where a task's sample is stored: its extents, or none if the
// cache has it.
func (l *Loader) locate(t *task) {
	if l.cache != nil && l.cache.has(t.req.Sample) {
		t.req.Extents = t.req.Extents[:0]
		return
	}
	t.req.Extents = l.data.Extents(t.req.Sample, t.req.Extents[:0])
}

// fill decodes one sample into its row of the slot. Only the goroutine that has the
// task writes to that row; what rows share (ob.bad, ob.left) is guarded by
// Shared.mu.
func (l *Loader) fill(f *filler, t *task) error {
	s := &f.sample
	defer t.req.Release()
	f.lane.Room = l
	ob := t.batch
	if ob.gone.Load() {
		return nil
	}
	part, local := l.data.Of(t.req.Sample)
	// The read may have failed, or was left out, before the cache got the sample.
	if t.req.Err != nil && (l.cache == nil || !l.cache.has(t.req.Sample)) {
		return t.req.Err
	}
	if l.deadly[t.req.Sample] >= 2 {
		return errs.New(errs.Damaged, "the engine died twice while it worked on this sample").
			Try("check the file; please report this, with the file if you may share it")
	}
	programs, value, err := l.parse(f, part, local, t)
	if err != nil {
		return err
	}
	for i, prog := range programs {
		at := i
		if value != nil {
			at = value[i]
		}
		if prog == nil { // the row is copied unchanged
			kernel.CopyOut(ob.layout.Row(ob.slot.Mem, i, t.row), s.Fields[at].Data)
			continue
		}
		if err := l.fillValue(f.lane, prog, i, part, &s.Fields[at], t); err != nil {
			return part.Place(err, s, at, i)
		}
		l.counted(f, prog)
	}
	if l.spec.Batch.Pack > 0 {
		l.fillRun(t)
	}
	return nil
}

// parse returns the fields of a sample, from the cache or from what was read, with
// the programs that run on them and the field that each program takes (nil: they
// are in the same order).
func (l *Loader) parse(f *filler, part *dataset.Part, local int64, t *task) ([]*transform.Program, []int, error) {
	s := &f.sample
	cuts := l.cutsOf(part)
	if cuts.after != nil {
		if data, ok := l.cache.get(t.req.Sample); ok {
			l.kept(part, data, s)
			return cuts.after, nil, nil
		}
	}
	if err := part.Samples.Parse(local, part.Wanted, t.req.Raw, s); err != nil {
		return nil, nil, err
	}
	if cuts.after != nil && l.cache.open() {
		if data := l.keep(f, part, t.req.Sample); data != nil {
			l.kept(part, data, s)
			return cuts.after, nil, nil
		}
	}
	return part.Programs, part.Value, nil
}

// fillValue decodes one field into its row.
func (l *Loader) fillValue(lane *transform.Lane, prog *transform.Program, i int, part *dataset.Part, f *format.Field, t *task) error {
	data := f.Data
	if f.IsInt {
		if prog.DType() != mem.Object {
			return prog.Int(t.batch.layout.Row(t.batch.slot.Mem, i, t.row), f.Int)
		}
		data = strconv.AppendInt(nil, f.Int, 10)
	}
	switch {
	case l.fields[i].Packed > 0:
		return l.fillPacked(lane, prog, i, data, t)
	case l.fields[i].Form != batch.Dense:
		return l.fillArray(lane, prog, i, data, t)
	}
	return l.fillField(lane, prog, i, data, t)
}

// fillArray writes an array of a field whose samples differ in length.
func (l *Loader) fillArray(lane *transform.Lane, prog *transform.Program, i int, data []byte, t *task) error {
	shape, err := prog.Begin(lane, data, t.key)
	if err != nil {
		return err
	}
	f := &l.fields[i]
	n, step := shape[0], shape[1:].Elems()*f.DType.Size()
	if f.Form == batch.Padded && !f.Loose {
		row := t.batch.layout.Row(t.batch.slot.Mem, i, t.row)
		if room := f.Shape[0]; n > room && !f.Pad.Truncate {
			return errs.New(errs.Damaged, "the sample has %d steps, but batches are padded to %d", n, room).
				Try("raise pad.to, cut longer samples with pad: {truncate: true}, or skip them with on_bad=\"skip\"")
		} else if n > room {
			n = room
		}
		if err := prog.Part(lane, row[:n*step], 0, n*shape[1:].Elems()); err != nil {
			return err
		}
		f.Pad.Fill(row[n*step:])
	} else {
		row, err := l.looseRow(t, i, n*step)
		if err == nil {
			err = t.looseFailed(n*step, prog.Finish(lane, row))
		}
		if err != nil {
			return err
		}
	}
	if f.Lengths > 0 {
		binary.LittleEndian.PutUint64(t.batch.layout.Row(t.batch.slot.Mem, f.Lengths, t.row), uint64(n))
	}
	return nil
}

// fillPacked writes the run of tokens that is the task: t.length tokens from t.from
// on, to offset t.at of the row's column. All three count tokens.
func (l *Loader) fillPacked(lane *transform.Lane, prog *transform.Program, i int, data []byte, t *task) error {
	shape, err := prog.Begin(lane, data, t.key)
	if err != nil {
		return err
	}
	has, end, said := int64(shape[0]), t.from+t.length, int64(l.lens[t.req.Sample])
	if has != said || end > said {
		return errs.New(errs.Config, "sample %d has %d tokens (or bytes), but its length is given as %d", t.req.Sample, has, said).
			Try("lengths= must count what is packed; the name of the field counts its tokens, or its bytes")
	}
	size := int64(max(prog.DType().Size(), 1))
	dst := t.batch.layout.Column(t.batch.slot.Mem, i)[t.at*size : (t.at+t.length)*size]
	return prog.Part(lane, dst, int(t.from), int(end))
}

// fillRun writes the columns that tell the samples of a packed row apart.
func (l *Loader) fillRun(t *task) {
	ob := t.batch
	n := len(l.fields)
	at := ob.layout.Column(ob.slot.Mem, n-2)[4*t.at:]
	for i := range t.length {
		binary.LittleEndian.PutUint32(at[4*i:], uint32(t.from+i))
	}
	binary.LittleEndian.PutUint32(ob.layout.Row(ob.slot.Mem, n-1, t.row), uint32(t.length))
}

// blank clears a run that has no sample: the unused end of a packed row, or a
// sample that was skipped.
func (l *Loader) blank(ob *openBatch, t *task, id int64) {
	for i, f := range l.fields {
		size := f.DType.Size()
		switch {
		case f.Packed > 0:
			clear(ob.layout.Column(ob.slot.Mem, i)[t.at*int64(size) : (t.at+t.length)*int64(size)])
		default:
			clear(ob.layout.Row(ob.slot.Mem, i, t.row))
		}
	}
	binary.LittleEndian.PutUint32(ob.layout.Row(ob.slot.Mem, len(l.fields)-1, t.row), uint32(t.length))
	ob.layout.Stamp(ob.slot.Mem, t.row, id, false)
}

func (l *Loader) fillField(lane *transform.Lane, prog *transform.Program, i int, data []byte, t *task) error {
	shape, err := prog.Begin(lane, data, t.key.With(uint64(i)))
	if err != nil {
		return err
	}
	if c := &l.fields[i]; c.To > 0 {
		step := c.Shape[1:].Elems()
		return prog.Part(lane, t.batch.layout.Row(t.batch.slot.Mem, i, t.row), c.From*step, c.To*step)
	}
	if !l.fields[i].Loose {
		return prog.Finish(lane, t.batch.layout.Row(t.batch.slot.Mem, i, t.row))
	}
	n := shape.Elems() * max(prog.DType().Size(), 1)
	row, err := l.looseRow(t, i, n)
	if err != nil {
		return err
	}
	if c := &t.batch.loose[i]; prog.Kind() == "image" {
		c.Shapes[t.row] = append(c.Shapes[t.row][:0], shape...)
	}
	return t.looseFailed(n, prog.Finish(lane, row))
}

// sampleError returns the error of a sample as users see it, and whether on_bad may
// skip it: damage may be skipped, a failing source may not.
func (l *Loader) sampleError(t *task, err error) (*errs.Error, bool) {
	e := *l.data.Placed(err, t.req.Sample)
	p := t.batch.pass
	e.Where.Moment = &errs.Moment{Epoch: p.epoch, Step: p.from + t.batch.step, Rank: l.spec.Rank}
	switch {
	case e.Code == errs.NotFound:
		e.Code = errs.Changed
		e.Hint = "it was removed after the dataset was indexed: put it back, or start again without it; on_bad=\"skip\" skips such samples"
	case errors.Is(err, fs.ErrPermission):
		e.Code = errs.Forbidden
		e.Hint = "give the user who runs the training permission to read it, or pass on_bad=\"skip\""
	}
	if e.Code == errs.Changed {
		part, _ := l.data.Of(t.req.Sample)
		part.Stale() // the next start makes a new index
	}
	class := errs.Classes[e.Code]
	if class.Python == "DataError" && e.Hint == "" {
		e.Hint = "replace the file, or pass on_bad=\"skip\" or \"replace\" to go on without it"
	}
	if class.Python == "SourceError" && e.Hint == "" {
		e.Hint = "check the storage: a failed read never counts as a bad sample, so on_bad does not skip it"
	}
	return &e, class.Python == "DataError"
}

// finish is called exactly once for every task, by the lane that did it, with its
// error. now is the current stats.Monotonic. It reports whether it woke other
// goroutines.
func (l *Loader) finish(t *task, err error, now int64) (woke bool) {
	s := l.shared
	ob := t.batch
	var bad *errs.Error
	var may bool
	if err != nil && !ob.gone.Load() {
		bad, may = l.sampleError(t, err)
	}
	s.mu.Lock()
	l.running--
	if bad != nil {
		ob.pass.single()
	}
	if bad != nil && !ob.gone.Load() && l.onBad(t, bad, may) {
		s.mu.Unlock()
		l.locate(t)
		l.send([]*fetch.Request{&t.req}, true, ob)
		return true
	}
	l.moved = now
	if bad == nil && !ob.gone.Load() {
		l.stamp(t)
	}
	ob.left--
	if ob.left == 0 {
		if last := l.fillIn(ob); last != nil {
			s.mu.Unlock()
			l.locate(last)
			l.send([]*fetch.Request{&last.req}, true, ob)
			return true
		}
	}
	if ob.left > 0 || ob.gone.Load() {
		ob.settle()
		s.mu.Unlock()
		return false
	}
	l.finishBatch(ob, now)
	return true
}

// finishBatch closes a batch whose tasks have all been done since now. Shared.mu is
// held, and released meanwhile.
func (l *Loader) finishBatch(ob *openBatch, now int64) {
	s := l.shared
	ob.closing = true
	s.mu.Unlock()
	closeErr := l.closeTimed(ob, now)
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
	ob.trim()
	ob.settle()
	s.changed.Broadcast()
}

// closeTimed calls close and measures its time from begin (stats.Monotonic) on.
func (l *Loader) closeTimed(ob *openBatch, begin int64) error {
	st := l.stats.Batch
	if st == nil {
		return l.close(ob)
	}
	var thread stats.Thread
	onThread := l.closing.due(begin)
	if onThread {
		thread = stats.OnThread()
	}
	ob.enter()
	err := l.close(ob)
	if onThread {
		used := thread.Used()
		st.CPU(used, 1)
		l.closing.tookBatch(used)
	}
	ob.filled = stats.Monotonic()
	st.Add(time.Duration(ob.filled-begin), 1, ob.layout.Bytes())
	return err
}

// stamp marks a row as holding its sample. Under Skip, a sample that replaces a
// skipped one leaves the id and mark unchanged.
func (l *Loader) stamp(t *task) {
	ob := t.batch
	ob.good[t.row] = true
	if t.attempt > 0 && l.spec.OnBad.Policy == spec.Skip {
		ob.layout.Stamp(ob.slot.Mem, t.row, t.sample, false)
		return
	}
	ob.layout.Stamp(ob.slot.Mem, t.row, t.req.Sample, ob.pass.order.Real(t.place))
}

// onBad applies the policy to a sample that failed, and reports whether the task
// continues with another sample. Shared.mu is held.
func (l *Loader) onBad(t *task, e *errs.Error, may bool) (again bool) {
	ob := t.batch
	if !may || l.spec.OnBad.Policy == spec.Fail {
		ob.fail(e)
		return false
	}
	// A replacement that is bad too counts in its own place of the epoch; a sample
	// that was split counts with its first run.
	if t.attempt == 0 && t.from == 0 {
		ob.bad = append(ob.bad, Bad{Place: t.place, Sample: t.req.Sample, Put: -1, Err: e})
	}
	return (l.spec.OnBad.Policy == spec.Replace || t.attempt > 0) && l.another(t, e)
}

// another gives a task another sample of the epoch, chosen by key, unless too many
// were bad. If batches are of one dataset each, the other sample is of that
// dataset.
func (l *Loader) another(t *task, e *errs.Error) bool {
	if t.attempt++; t.attempt > maxAttempts {
		t.batch.fail(errs.New(errs.BadLimit, "%d samples in a row, drawn for one place, are bad; the last: %s", maxAttempts, e.What).
			At(e.Where).Because(e.Cause).
			Try("most of this dataset cannot be read: check it with `stoker inspect`"))
		return false
	}
	epoch, key := t.batch.pass.order, t.key.With(wordReplace)
	t.req.Sample = epoch.At(epoch.Places() + key.Intn(uint64(t.attempt), epoch.Places()))
	if l.spec.Mix.Batches == spec.BatchesSingle {
		own, _ := l.data.Of(t.sample)
		t.req.Sample = own.First + key.Intn(uint64(t.attempt), own.N)
	}
	return true
}

// fillIn finds a row to copy from for a batch in which every sample is skipped:
// another sample is decoded into the row of the last one, which stays marked as not
// valid. Last means last by place, because which task ends last depends on the
// lanes. It returns nil if there is nothing to do. Shared.mu is held.
func (l *Loader) fillIn(ob *openBatch) *task {
	if ob.gone.Load() || l.spec.Batch.Pack > 0 || len(ob.bad) < ob.rows || ob.err != nil || slices.Contains(ob.good[:ob.rows], true) {
		return nil
	}
	t := &ob.tasks[ob.rows-1]
	if !l.another(t, errs.From(ob.bad[0].Err)) {
		return nil
	}
	ob.left++
	return t
}

// fail keeps the error of the first bad row of the batch, independent of which lane
// finishes first.
func (ob *openBatch) fail(e *errs.Error) {
	if old, ok := ob.err.(*errs.Error); ok && old.Where.Sample.Or(-1) <= e.Where.Sample.Or(-1) { //nolint:errorlint // ours alone
		return
	}
	ob.err = e
}
