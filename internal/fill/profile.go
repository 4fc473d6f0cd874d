package fill

import (
	"context"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Profile is how long samples took, one after another in one goroutine.
type Profile struct {
	Names []string // of transforms, in the order of Timing.Transforms
	Each  []Timing
	Bad   int // samples that could not be read or decoded; they are not in Each
	JPEGs int // decoded
	// Others counts the JPEGs that another decoder than stoker's own decoded, by
	// kind: libjpeg-turbo, or the standard library if that is not built in.
	Others map[string]int
}

// The kinds of JPEGs that another decoder decodes.
const (
	Progressive = "progressive"
	FourInks    = "CMYK"
	Unusual     = "odd sampling, several scans, arithmetic coding"
)

// Timing is how long one sample took.
type Timing struct {
	File       string // that has its first bytes
	Bytes      int64  // read
	Read       time.Duration
	Decode     time.Duration   // everything except reading and transforms
	Transforms []time.Duration // one per name; see transform.Program.Divide
}

// Profile times up to n samples, spread evenly over an epoch, and stops after about
// most. Unlike the statistics it times every part of every sample, which would cost too
// much during training. Batches, lanes and the cache are left out, and so are samples of
// a format that makes them. If all samples are bad, it returns the error of the first.
func (f *Filler) Profile(ctx context.Context, e order.Epoch, n int64, most time.Duration) (Profile, error) {
	r := profiler{others: map[string]int{}, data: f.data, views: f.views, ctx: ctx, lane: transform.NewLane(), epoch: e}
	defer r.lane.Close()
	r.lane.Room = f.Room
	for _, part := range f.data.Parts {
		for _, prog := range part.Programs {
			r.name(prog)
		}
	}
	var out Profile
	var bad error
	begin := time.Now()
	n = min(n, e.Places())
	for i := range n {
		place := int64(float64(e.Places()) * float64(i) / float64(n))
		if part, _ := f.data.Of(e.At(place)); part.Format().Made {
			continue
		}
		if len(out.Each) == 0 { // the first sample allocates the lane's memory and opens its file
			_, _ = r.time(place)
			r.jpegs, r.others = 0, map[string]int{}
		}
		t, err := r.time(place)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err != nil {
			if out.Bad++; bad == nil {
				bad = err
			}
		} else {
			out.Each = append(out.Each, t)
		}
		if time.Since(begin) >= most {
			break
		}
	}
	out.Names, out.JPEGs, out.Others = r.names, r.jpegs, r.others
	if len(out.Each) == 0 {
		return out, bad
	}
	return out, nil
}

// profiler is the state for timing samples.
type profiler struct {
	data    *dataset.Collection
	views   [][]int // as the Filler's
	ctx     context.Context
	lane    *transform.Lane
	epoch   order.Epoch
	names   []string
	extents []format.Extent
	raw     [][]byte
	sample  format.Sample
	keys    []rng.Key
	out     []byte
	spent   []time.Duration
	jpegs   int
	others  map[string]int
}

func (r *profiler) name(prog *transform.Program) {
	if prog == nil || prog.Kind() != "image" {
		return
	}
	for _, name := range prog.Names() {
		if !slices.Contains(r.names, name) {
			r.names = append(r.names, name)
		}
	}
}

// time times the sample at a place.
func (r *profiler) time(place int64) (t Timing, err error) {
	id := r.epoch.At(place)
	part, local := r.data.Of(id)
	begin := time.Now()
	r.extents = r.data.Extents(id, r.extents[:0])
	if err := r.read(); err != nil {
		return t, err
	}
	t.Read = time.Since(begin)
	begin = time.Now()
	t.Transforms = make([]time.Duration, len(r.names))
	if err := part.Samples.Parse(local, part.Wanted, r.raw, &r.sample); err != nil {
		return t, err
	}
	defer r.lane.Unshare()
	for i, prog := range part.Programs {
		r.share(part, i, place)
		if err := r.field(part, i, prog, place, &t); err != nil {
			return t, part.Locate(err, &r.sample, part.Value[i], i)
		}
	}
	t.Decode = time.Since(begin)
	for _, d := range t.Transforms {
		t.Decode -= d
	}
	for i, e := range r.extents {
		if i == 0 {
			t.File = string(r.data.AppendPath(e.File, nil))
		}
		t.Bytes += e.Len
	}
	t.Decode = max(0, t.Decode)
	return t, nil
}

// read reads the extents of a sample into memory that is reused.
func (r *profiler) read() error {
	for i, e := range r.extents {
		if i == len(r.raw) {
			r.raw = append(r.raw, nil)
		}
		r.raw[i] = slices.Grow(r.raw[i][:0], int(e.Len))[:e.Len]
		size, version := r.data.Stamp(e.File)
		obj := source.Info{Name: string(r.data.AppendPath(e.File, nil)), Size: size, Version: version}
		if err := r.data.Source().ReadAt(r.ctx, obj, r.raw[i], e.Off); err != nil {
			return err
		}
	}
	r.raw = r.raw[:len(r.extents)]
	return nil
}

// field makes one field as a batch would have it, without padding.
func (r *profiler) field(part *dataset.Part, i int, prog *transform.Program, place int64, t *Timing) error {
	f := &r.sample.Fields[part.Value[i]]
	if f.IsInt || prog == nil {
		return nil
	}
	data := f.Data
	r.lane.Timed(true)
	shape, err := prog.Begin(r.lane, data, r.epoch.Key(place).With(uint64(i)))
	if err != nil {
		return err
	}
	size := shape.Elems() * max(prog.DType().Size(), 1)
	r.out = slices.Grow(r.out[:0], size)[:size]
	if err := prog.Finish(r.lane, r.out); err != nil {
		return err
	}
	r.decoded(data)
	var timed bool
	if r.spent, timed = prog.Divide(r.lane, r.spent[:0]); timed {
		for k, name := range prog.Names() {
			t.Transforms[slices.Index(r.names, name)] += r.spent[k]
		}
	}
	return nil
}

// share decodes the picture of the views that begin with field i, as Fill does.
func (r *profiler) share(part *dataset.Part, i int, place int64) {
	n := r.views[part.Number][i]
	if n == 0 {
		return
	}
	r.lane.Unshare()
	if n == 1 {
		return
	}
	r.keys = r.keys[:0]
	for k := range n {
		r.keys = append(r.keys, r.epoch.Key(place).With(uint64(i+k)))
	}
	data := r.sample.Fields[part.Value[i]].Data
	r.lane.Timed(true)
	if r.lane.Shared(part.Programs[i:i+n], r.keys, data) {
		r.decoded(data)
	}
}

// decoded counts the JPEG that was decoded last, if it was one.
func (r *profiler) decoded(data []byte) {
	way, ok := r.lane.Way()
	if !ok {
		return
	}
	r.jpegs++
	h, err := kernel.ReadHeader(data)
	switch {
	case way == kernel.WayOwn || err != nil:
	case h.Progressive:
		r.others[Progressive]++
	case h.Components == 4:
		r.others[FourInks]++
	default:
		r.others[Unusual]++
	}
}
