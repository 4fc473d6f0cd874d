package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/suffix"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// checker reads samples; what it found is guarded by mu.
type checker struct {
	ds       format.Stored
	src      *mux.Mux
	all      bool // decode
	also     func(id int64, s *format.Sample) error
	each     func(Seen) error
	kinds    map[string]string // of fields, if their names do not say
	programs map[string]*transform.Program
	limit    int64     // pixels of a picture; 0: the usual
	workers  sync.Pool // *worker

	mu     sync.Mutex
	fields map[string]*tally
	damage []*errs.Error
	odd    []*errs.Error // whole pictures whose data go on
	done   int64
}

// worker is one goroutine's memory.
type worker struct {
	lane   *transform.Lane
	reader *format.Reader
	dst    []byte
	sample format.Sample
}

// found is what one field of one sample turned out to be.
type found struct {
	name, kind, format string
	decoder            string // that took the JPEG
	bytes, w, h        int64
	value              int64
	isValue            bool
}

// check reads the samples and fills in the report.
func (r *Report) check(ctx context.Context, c Config, ds format.Stored, ids []int64) error {
	src, err := dataset.SourceOf(c.Sources, spec.Spec{Dataset: c.Dataset})
	if err != nil {
		return err
	}
	k := &checker{ds: ds, src: src, all: c.All || c.Decode, limit: c.Dataset.MaxPixels, also: c.Also, each: c.Each, kinds: r.kinds(), fields: map[string]*tally{}}
	defer k.src.Close()
	if err := k.compile(); err != nil {
		return err
	}
	var mu sync.Mutex
	var lanes []*transform.Lane
	room := mem.NewRoom(mem.Available() / 4)
	k.workers.New = func() any {
		w := &worker{lane: transform.NewLane(), reader: format.NewReader(k.ds, k.src)}
		w.lane.Strict, w.lane.Room = true, room
		mu.Lock()
		lanes = append(lanes, w.lane)
		mu.Unlock()
		return w
	}
	defer func() {
		for _, lane := range lanes {
			lane.Close()
		}
	}()
	err = format.Each(ctx, len(ids), func(i int) error {
		w := k.workers.Get().(*worker)
		defer k.workers.Put(w)
		var seen []found
		err := w.reader.Fetch(ctx, ids[i], nil)
		if err == nil {
			seen, err = k.read(w, ids[i])
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case ofStore(err):
			return err
		}
		k.add(seen, err)
		if c.Progress != nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			c.Progress(k.done, int64(len(ids)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, all := range [][]*errs.Error{k.damage, k.odd} {
		slices.SortFunc(all, func(a, b *errs.Error) int { return cmp.Compare(a.Where.Sample.Or(-1), b.Where.Sample.Or(-1)) })
	}
	for _, e := range k.damage {
		r.Broken = append(r.Broken, e.Where.Sample.Or(-1))
	}
	r.Checked, r.Damaged, r.Fields = k.done, int64(len(k.damage)), fields(k.fields)
	for _, e := range k.damage[:min(len(k.damage), maxDamage)] {
		r.Damage = append(r.Damage, wire.FromError(e))
	}
	r.Trailing = int64(len(k.odd))
	for _, e := range k.odd[:min(len(k.odd), maxDamage)] {
		r.GoOn = append(r.GoOn, wire.FromError(e))
	}
	return nil
}

// compile makes the programs that check fields: whole pictures, no transforms.
func (k *checker) compile() error {
	k.programs = map[string]*transform.Program{}
	for kind, codec := range map[string]string{"image": "rgb", "number": "int", "text": "text", "json": "json", "bytes": "bytes"} {
		p, err := transform.Compile(codec, nil, "")
		if err != nil {
			return err
		}
		p.Limit(k.limit)
		k.programs[kind] = p
	}
	return nil
}

// add counts one sample.
func (k *checker) add(seen []found, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done++
	switch {
	case err == nil:
	case goesOn(err):
		k.odd = append(k.odd, errs.From(err))
	default:
		k.damage = append(k.damage, errs.From(err))
	}
	for _, f := range seen {
		t := k.fields[f.name]
		if t == nil {
			t = &tally{kind: f.kind}
			if typed, ok := k.ds.(format.Typed); ok && f.kind == "array" {
				t.typ, _ = typed.Type(f.name)
			}
			k.fields[f.name] = t
		}
		t.present++
		if f.isValue {
			t.values = append(t.values, f.value)
			continue
		}
		t.bytes = append(t.bytes, f.bytes)
		if f.w > 0 {
			t.width, t.height, t.pixels = append(t.width, f.w), append(t.height, f.h), append(t.pixels, f.w*f.h)
		}
		if f.format != "" {
			if t.formats == nil {
				t.formats = map[string]int64{}
			}
			t.formats[f.format]++
		}
		if f.decoder != "" {
			if t.decoders == nil {
				t.decoders = map[string]int64{}
			}
			t.decoders[f.decoder]++
		}
	}
}

// goesOn reports whether a picture is complete, and only bytes after its last block are
// unusual: training and stats ignore them.
func goesOn(err error) bool {
	var trailing kernel.TrailingError
	return errors.As(err, &trailing)
}

// ofStore reports whether an error is the store's, and says nothing about the sample (Config: a
// server without ranges). A file that cannot be read, while others can, is damage.
func ofStore(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Unreachable, errs.Denied, errs.Throttled, errs.Config:
		return true
	}
	return false
}

// read checks all fields of the sample that was fetched. The first damage is its error; if
// there is none, the first oddity is.
func (k *checker) read(w *worker, id int64) (seen []found, bad error) {
	if err := w.reader.Parse(id, nil, &w.sample); err != nil {
		return nil, err
	}
	var odd error
	for i := range w.sample.Fields {
		f := &w.sample.Fields[i]
		if format.Hidden(f.Name) {
			continue
		}
		out, err := k.field(w, f)
		seen = append(seen, out)
		if err != nil && goesOn(err) {
			if odd == nil {
				odd = format.Locate(k.ds, err, id, f)
			}
			err = nil
		}
		if err == nil && k.each != nil {
			err = k.each(Seen{ID: id, Field: f, Kind: out.kind, Width: out.w, Height: out.h})
		}
		if err != nil && bad == nil {
			bad = format.Locate(k.ds, err, id, f)
		}
	}
	if k.also != nil && bad == nil {
		if err := k.also(id, &w.sample); err != nil {
			bad = format.Locate(k.ds, err, id, nil)
		}
	}
	if bad == nil {
		bad = odd
	}
	return seen, bad
}

// field checks one field.
func (k *checker) field(w *worker, f *format.Field) (found, error) {
	out := found{name: strings.Clone(f.Name), kind: k.kind(f), bytes: int64(len(f.Data))}
	if f.IsInt {
		out.value, out.isValue = f.Int, true
		return out, nil
	}
	if out.kind == "image" {
		out.format = decode.Sniff(f.Data).String()
	}
	if out.kind == "array" {
		return out, k.array(f)
	}
	p := k.programs[out.kind]
	shape, err := p.Begin(w.lane, f.Data, rng.Key(0))
	if err != nil {
		return out, err
	}
	switch out.kind {
	case "image":
		out.h, out.w = int64(shape[0]), int64(shape[1])
	case "number":
		out.isValue = true
		out.value, _ = decode.Int(f.Data) // Begin has read the header
	}
	if !k.all || out.kind != "image" {
		return out, nil
	}
	n := shape.Elems()
	w.dst, w.lane.Beside = mem.Sized(w.dst, n), int64(n)
	w.lane.Then = func() { mem.Trim(&w.dst) } // the pixels are not used
	err = p.Finish(w.lane, w.dst)
	mem.Trim(&w.dst)
	if way, ok := w.lane.Way(); ok {
		out.decoder = way.String()
	}
	return out, err
}

// kind is the kind of a field: an array if the format knows it, otherwise by its name.
func (k *checker) kind(f *format.Field) string {
	if typed, ok := k.ds.(format.Typed); ok && !f.IsInt {
		if t, ok := typed.Type(f.Name); ok && t.DType != mem.Object {
			return "array"
		}
	}
	if k.kinds != nil {
		return cmp.Or(k.kinds[f.Name], "bytes")
	}
	return kindOf(f)
}

// kinds is how a loader treats fields, in formats whose columns may have any name:
// there, a column "id" is not a number, and an image may be raw.
func (r *Report) kinds() map[string]string {
	if r.kind.ByName {
		return nil
	}
	out := map[string]string{}
	for _, f := range r.delivered {
		if f.Kind != "array" {
			out[f.Name] = f.Kind
		}
	}
	return out
}

// array checks that an array has the bytes that its type needs.
func (k *checker) array(f *format.Field) error {
	t, _ := k.ds.(format.Typed).Type(f.Name)
	size := t.Shape.Elems() * t.DType.Size()
	if t.Ragged && size > 0 && len(f.Data)%size == 0 || !t.Ragged && len(f.Data) == size {
		return nil
	}
	return errs.New(errs.Damaged, "an array of %s %v has %d bytes", t.DType, t.Shape, len(f.Data))
}

// kindOf is the kind that a field's name suggests: as WebDataset decodes it, or one of
// the two fields of a folder.
func kindOf(f *format.Field) string {
	switch kind := suffix.Of(f.Name); kind {
	case suffix.Image, suffix.Number, suffix.Text, suffix.JSON:
		return string(kind)
	}
	switch f.Name[strings.LastIndexByte(f.Name, '.')+1:] {
	case "image":
		return "image"
	case "label":
		return "number"
	}
	return "bytes"
}
