// Package fill makes the rows of batches: it decodes a sample into its row, from what
// was read or from the cache. Task is what a crew gets to do, and Desk where it returns
// it. The package knows no passes and no order: its caller decides which sample goes into
// which row, and what a bad sample means.
//
// A new kind of crew, such as one of other processes that write rows into the memory of
// slots, is a package above this one: it implements Crew, and a loader's Options name it.
package fill

import (
	"encoding/binary"
	"strconv"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Filler fills the rows of one loader. Safe for concurrent use; its exported fields are
// set before the first Fill.
type Filler struct {
	Room   transform.Room           // for large pictures
	Length func(sample int64) int64 // as the order counts it, if batches are made by length
	Fits   func(bytes int64) error  // an error if no slot can hold so many bytes of rows that differ in length
	Deadly map[int64]int            // sample -> how often the engine died working on it
	Notice func(line string)        // to be shown to the user; nil: to nobody
	Stats  *stats.Stream
	ID     int64 // of the loader

	data   *dataset.Collection
	spec   spec.Spec
	fields []batch.Field // as users see them
	cache  *cache        // nil without a cache
	cuts   []cuts        // one per part; nil without a cache
	views  [][]int       // one per part, see viewsOf
	costs  map[*transform.Program]*costs

	refused sync.Map // samples whose pictures are not sent
	learned learned
}

// New returns a Filler over a dataset, with the cache that its Spec asks for.
func New(data *dataset.Collection) (*Filler, error) {
	f := &Filler{data: data, spec: data.Spec(), fields: data.Layout()}
	for _, part := range data.Parts {
		f.views = append(f.views, viewsOf(part))
	}
	if err := f.newCache(); err != nil {
		return nil, err
	}
	return f, nil
}

// Close frees the cache. No Fill may be running.
func (f *Filler) Close() {
	if f.cache != nil {
		f.cache.close()
	}
	for _, s := range f.learned.all() {
		_ = s.Close() // what is lost is learned again
	}
}

// Locate looks up where a task's sample is stored: its extents, or none if the
// cache has it.
func (f *Filler) Locate(t *Task) { t.Req.Extents = f.Extents(t.Req.Sample, t.Req.Extents[:0]) }

// Extents appends where a sample is stored: nothing if the cache has it.
func (f *Filler) Extents(sample int64, dst []format.Extent) []format.Extent {
	if f.cache != nil && f.cache.has(sample) {
		return dst
	}
	return f.data.Extents(sample, dst)
}

// Fill decodes one sample into its row of the slot. Only the goroutine that has the
// task writes to that row; s belongs to that goroutine.
func (f *Filler) Fill(s *State, t *Task) error {
	defer t.Req.Release()
	s.Lane.Room = f.Room
	if t.Batch.Gone.Load() {
		return nil
	}
	part, local := f.data.Of(t.Req.Sample)
	// The read may have failed, or have been left out, before the cache had the sample.
	if t.Req.Err != nil && (f.cache == nil || !f.cache.has(t.Req.Sample)) {
		return t.Req.Err
	}
	if f.Deadly[t.Req.Sample] >= 2 {
		return errs.New(errs.Damaged, "the engine died twice while it worked on this sample").
			Try("check the file; please report this, with the file if you may share it")
	}
	programs, value, err := f.parse(s, part, local, t)
	if err != nil {
		return err
	}
	defer s.left()
	defer s.Lane.Unshare()
	sends := f.sends(t)
	for i, prog := range programs {
		at := i
		if value != nil {
			at = value[i]
		}
		if prog != nil && prog.Kind() == "image" {
			f.enter(s, part, &s.sample.Fields[at])
		}
		if !sends || f.fields[i].Sent == 0 {
			f.share(s, part, programs, value, i, t)
		}
		if prog == nil { // the row is copied unchanged
			kernel.CopyOut(t.Batch.Row(i, t.Row), s.sample.Fields[at].Data)
			continue
		}
		if err := f.value(s.Lane, prog, i, &s.sample.Fields[at], t, sends); err != nil {
			return part.Locate(err, &s.sample, at, i)
		}
		f.counted(s, prog)
	}
	if f.spec.Batch.Pack > 0 {
		f.run(t)
	}
	return nil
}

// parse parses a sample into state, from the cache or from what was read. It returns the
// programs to run, and for each the index of its field (nil: the same as the program's).
func (f *Filler) parse(state *State, part *dataset.Part, local int64, t *Task) ([]*transform.Program, []int, error) {
	s := &state.sample
	cuts := f.cutsOf(part)
	if cuts.after != nil {
		if data, ok := f.cache.get(t.Req.Sample); ok {
			f.kept(part, data, s)
			return cuts.after, nil, nil
		}
	}
	if err := part.Samples.Parse(local, part.Wanted, t.Req.Raw, s); err != nil {
		return nil, nil, err
	}
	if err := part.Compare(t.Batch.Ctx, f.data.Source(), local, t.Req.Raw, s); err != nil {
		return nil, nil, err
	}
	if cuts.after != nil && f.cache.open() {
		if data := f.keep(state, part, t.Req.Sample); data != nil {
			f.kept(part, data, s)
			return cuts.after, nil, nil
		}
	}
	return part.Programs, part.Value, nil
}

// value decodes one field into its row, or sends its picture.
func (f *Filler) value(lane *transform.Lane, prog *transform.Program, i int, v *format.Field, t *Task, sends bool) error {
	data := v.Data
	if v.IsInt {
		if prog.DType() != mem.Object {
			return prog.Int(t.Batch.Row(i, t.Row), v.Int)
		}
		data = strconv.AppendInt(nil, v.Int, 10)
	}
	switch {
	case f.fields[i].RunBytes > 0:
		return f.tokens(lane, prog, i, data, t)
	case f.fields[i].Form != batch.Dense:
		return f.array(lane, prog, i, data, t)
	}
	return f.field(lane, prog, i, data, t, sends)
}

// array writes an array of a field whose samples differ in length.
func (f *Filler) array(lane *transform.Lane, prog *transform.Program, i int, data []byte, t *Task) error {
	shape, err := prog.Begin(lane, data, t.Key)
	if err != nil {
		return err
	}
	c := &f.fields[i]
	n, step := shape[0], shape[1:].Elems()*c.DType.Size()
	if c.Form == batch.Padded && !c.Loose {
		row := t.Batch.Row(i, t.Row)
		if room := c.Shape[0]; n > room && !c.Pad.Truncate {
			return errs.New(errs.Damaged, "the sample has %d steps, but batches are padded to %d", n, room).
				Try("raise pad.to, cut longer samples with pad: {truncate: true}, or skip them with on_bad=\"skip\"")
		} else if n > room {
			n = room
		}
		if err := prog.Part(lane, row[:n*step], 0, n*shape[1:].Elems()); err != nil {
			return err
		}
		c.Pad.Fill(row[n*step:])
	} else {
		row, err := f.looseRow(t, i, n*step)
		if err == nil {
			err = t.looseFailed(n*step, prog.Finish(lane, row))
		}
		if err != nil {
			return err
		}
	}
	if c.Lengths > 0 {
		binary.LittleEndian.PutUint64(t.Batch.Row(c.Lengths, t.Row), uint64(n))
	}
	return nil
}

// tokens writes the task's run: t.Length tokens of the sample, from t.From on, to t.At
// in the field's column. All three count tokens.
func (f *Filler) tokens(lane *transform.Lane, prog *transform.Program, i int, data []byte, t *Task) error {
	shape, err := prog.Begin(lane, data, t.Key)
	if err != nil {
		return err
	}
	has, end, said := int64(shape[0]), t.From+t.Length, f.Length(t.Req.Sample)
	if has != said || end > said {
		return errs.New(errs.Config, "sample %d has %d tokens (or bytes), but its length is given as %d", t.Req.Sample, has, said).
			Try("lengths= must count what pack puts into rows; the name of the field counts its tokens, or its bytes")
	}
	size := int64(max(prog.DType().Size(), 1))
	dst := t.Batch.Layout.Column(t.Batch.Slot.Mem, i)[t.At*size : (t.At+t.Length)*size]
	return prog.Part(lane, dst, int(t.From), int(end))
}

// run writes the columns that tell the runs of a row apart.
func (f *Filler) run(t *Task) {
	n := len(f.fields)
	at := t.Batch.Layout.Column(t.Batch.Slot.Mem, n-2)[4*t.At:]
	for i := range t.Length {
		binary.LittleEndian.PutUint32(at[4*i:], uint32(t.From+i))
	}
	binary.LittleEndian.PutUint32(t.Batch.Row(n-1, t.Row), uint32(t.Length))
}

// Blank clears a run that has no sample: the unused end of a row, or a
// sample that was skipped.
func (f *Filler) Blank(t *Task, id int64) {
	for i, c := range f.fields {
		size := c.DType.Size()
		switch {
		case c.RunBytes > 0:
			clear(t.Batch.Layout.Column(t.Batch.Slot.Mem, i)[t.At*int64(size) : (t.At+t.Length)*int64(size)])
		default:
			clear(t.Batch.Row(i, t.Row))
		}
	}
	binary.LittleEndian.PutUint32(t.Batch.Row(len(f.fields)-1, t.Row), uint32(t.Length))
	t.Batch.Layout.Stamp(t.Batch.Slot.Mem, t.Row, id, false)
}

func (f *Filler) field(lane *transform.Lane, prog *transform.Program, i int, data []byte, t *Task, sends bool) error {
	key := t.Key.With(uint64(i))
	shape, err := prog.Begin(lane, data, key)
	if err != nil {
		return err
	}
	if at := f.fields[i].Sent; at > 0 {
		if sent, err := f.send(lane, prog, at, t, sends); err != nil {
			return err
		} else if sent {
			if steps := f.fields[i].Steps; steps > 0 {
				return t.looseFailed(len(t.Batch.Loose[at+1].Rows[t.Row]), prog.StepsOf(lane, key, t.Batch.Row(steps, t.Row)))
			}
			return nil
		}
	}
	if c := &f.fields[i]; c.To > 0 {
		step := c.Shape[1:].Elems()
		return prog.Part(lane, t.Batch.Row(i, t.Row), c.From*step, c.To*step)
	}
	if !f.fields[i].Loose {
		err := prog.Finish(lane, t.Batch.Row(i, t.Row))
		if at := f.fields[i].Steps; at > 0 && err == nil {
			err = prog.StepsOf(lane, key, t.Batch.Row(at, t.Row))
		}
		return err
	}
	n := shape.Elems() * max(prog.DType().Size(), 1)
	row, err := f.looseRow(t, i, n)
	if err != nil {
		return err
	}
	if c := &t.Batch.Loose[i]; prog.Kind() == "image" {
		c.Shapes[t.Row] = append(c.Shapes[t.Row][:0], shape...)
	}
	return t.looseFailed(n, prog.Finish(lane, row))
}

// looseRow returns n bytes for a row whose size depends on the sample. It fails as soon
// as no slot can hold what the batch has collected.
func (f *Filler) looseRow(t *Task, field int, n int) ([]byte, error) {
	if err := f.Fits(t.Batch.collected.Add(int64(n))); err != nil {
		return nil, err
	}
	return t.Batch.Loose[field].Row(t.Row, n), nil
}

// looseFailed removes a row that was not filled in from the batch's total.
func (t *Task) looseFailed(n int, err error) error {
	if err != nil {
		t.Batch.collected.Add(int64(-n))
	}
	return err
}
