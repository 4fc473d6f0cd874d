package transform

import (
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// misfit is the error of a sample with a picture that an operation cannot process.
func misfit(hint, format string, a ...any) *errs.Error {
	return errs.New(errs.Unsupported, format, a...).Try("%s", hint)
}

// possible reports whether a result may have size s.
func (s size) possible() bool {
	return s.w <= mostSide && s.h <= mostSide && kernel.CheckSize(s.w, s.h) == nil
}

// flip is RandomHorizontalFlip and RandomVerticalFlip.
type flip struct {
	op     kernel.Op
	p      float64
	number uint64
}

func buildFlip(a *arguments, number uint64) operation {
	o := &flip{op: kernel.OpFlipH, p: a.probability(0.5), number: number}
	if a.op.Name == "RandomVerticalFlip" {
		o.op = kernel.OpFlipV
	}
	return o
}

func describeFlip(name string) descriptor {
	return descriptor{
		name: name, params: []string{"p"}, build: buildFlip,
		draws: true, cost: moves, slides: true, frames: true, says: facts, numbers: []string{"flipped"},
		example: `{}`,
	}
}

func (o *flip) plan(*known) (operation, *problem) { return o, nil }

func (o *flip) choose(key rng.Key, _ extent) (choice, *errs.Error) {
	return acted(happens(key, o.number, o.p)), nil
}

func (o *flip) do(r *run, c choice) *errs.Error {
	if c[0] != 0 {
		r.chain.Flip(o.op)
	}
	return nil
}

func (o *flip) canon(b []byte) []byte {
	return fmt.Appendf(b, "flip %d %d %x", o.op, o.number, math.Float64bits(o.p))
}

// randomResizedCrop resizes a random region.
type randomResizedCrop struct {
	to     size
	law    boxLaw
	filter kernel.Filter
	draft  bool // pixels may be approximate
	number uint64
}

func describeRandomResizedCrop() descriptor {
	return descriptor{
		name: "RandomResizedCrop", build: buildRandomResizedCrop,
		params: []string{"size", "scale", "ratio", "interpolation", "antialias", "draft"},
		draws:  true, cost: resamples, resizes: true, frames: true,
		says: region, numbers: []string{"top", "left", "height", "width", "to_height", "to_width"},
		example: `{"size": 64}`,
	}
}

func buildRandomResizedCrop(a *arguments, number uint64) operation {
	o := &randomResizedCrop{to: a.size(), filter: a.filter(), number: number}
	o.draft = a.draft(o.filter)
	scale := a.pair("scale", [2]float64{0.08, 1}, false)
	ratio := a.pair("ratio", [2]float64{3.0 / 4, 4.0 / 3}, true)
	o.law = newBoxLaw(scale, ratio)
	return o
}

func (o *randomResizedCrop) plan(k *known) (operation, *problem) {
	if k.tone.float && o.filter.Smooth() {
		return nil, before("RandomResizedCrop", k)
	}
	k.size = o.to
	return o, nil
}

func (o *randomResizedCrop) choose(key rng.Key, at extent) (choice, *errs.Error) {
	c := regionOf(o.law.draw(key.With(o.number), at.w, at.h), margins{})
	c[4], c[5] = float64(o.to.h), float64(o.to.w)
	return c, nil
}

func (o *randomResizedCrop) do(r *run, c choice) *errs.Error {
	r.crop(c.region(margins{}))
	r.chain.Resize(int(c[5]), int(c[4]), o.filter, o.draft)
	return nil
}

func (o *randomResizedCrop) canon(b []byte) []byte {
	b = fmt.Appendf(b, "random resized crop %d %d %d %v %v %d", o.number, o.to.w, o.to.h, o.law.scale, o.law.ratio, o.filter)
	return canonDraft(b, o.draft)
}

// resize is Resize: to a size, or an edge to a length.
type resize struct {
	to     size // both, if given
	short  int  // otherwise the shorter edge; 0: long decides
	long   int  // max_size; 0: none
	filter kernel.Filter
	draft  bool // pixels may be approximate
}

func describeResize() descriptor {
	return descriptor{
		name: "Resize", params: []string{"size", "interpolation", "max_size", "antialias", "draft"}, build: buildResize,
		cost: resamples, resizes: true, settled: true, frames: true,
		says: counts, numbers: []string{"from_height", "from_width", "to_height", "to_width"},
		example: `{"size": 64}`,
	}
}

func buildResize(a *arguments, _ uint64) operation {
	const wanted = "a positive whole number, or [height, width]"
	o := &resize{filter: a.filter()}
	o.draft = a.draft(o.filter)
	if n := a.wholes("max_size", "a positive whole number", 1, mostSide); len(n) == 1 {
		o.long = n[0]
	}
	n := a.wholes("size", wanted, 1, mostSide, 1, 2)
	switch {
	case len(n) == 2:
		o.to = a.size()
		if o.long > 0 {
			a.wrong("leave max_size out, or give size as one number", "max_size has no effect with a size of [height, width]")
		}
	case len(n) == 1:
		o.short = n[0]
		if o.long > 0 && o.long <= o.short {
			a.wrong("", "max_size (%d) must be greater than size (%d)", o.long, o.short)
		}
	case o.long == 0:
		a.required("size", wanted)
	}
	return o
}

// target is the size of the result for a picture of w x h pixels; a zero edge means
// that it is impossible. Quotients and their truncation are Python's.
func (o *resize) target(w, h int) size {
	if o.to.w > 0 {
		return o.to
	}
	short, long := min(w, h), max(w, h)
	newShort, newLong := o.short, o.long
	if o.short == 0 {
		newShort = scaled(o.long, short, long)
	} else {
		newLong = scaled(o.short, long, short)
		if o.long > 0 && newLong > o.long {
			newShort, newLong = scaled(o.long, newShort, newLong), o.long
		}
	}
	if w <= h {
		return size{newShort, newLong}
	}
	return size{newLong, newShort}
}

// scaled is Python's int(n * a / b).
func scaled(n, a, b int) int { return int(float64(n*a) / float64(b)) }

func (o *resize) plan(k *known) (operation, *problem) {
	to := o.to
	if k.sized() {
		to = o.target(k.w, k.h)
		if to == k.size {
			return nil, nil
		}
		if !to.possible() {
			return nil, problemf("", "Resize would make pictures of %d x %d pixels", to.w, to.h)
		}
	}
	if k.tone.float && o.filter.Smooth() {
		return nil, before("Resize", k)
	}
	k.size = to
	return o, nil
}

func (o *resize) choose(_ rng.Key, at extent) (choice, *errs.Error) {
	to := o.target(at.w, at.h)
	if !to.possible() {
		return choice{}, misfit("give Resize both height and width, or crop first",
			"Resize would make %d x %d pixels of a picture of %d x %d", to.w, to.h, at.w, at.h)
	}
	return choice{float64(at.h), float64(at.w), float64(to.h), float64(to.w)}, nil
}

func (o *resize) do(r *run, c choice) *errs.Error {
	r.chain.Resize(int(c[3]), int(c[2]), o.filter, o.draft)
	return nil
}

func (o *resize) canon(b []byte) []byte {
	b = fmt.Appendf(b, "resize %d %d %d %d %d", o.to.w, o.to.h, o.short, o.long, o.filter)
	return canonDraft(b, o.draft)
}

func (o *randomResizedCrop) approximate() bool { return o.draft }
func (o *resize) approximate() bool            { return o.draft }

// drafts reports whether an operation may give approximate pixels where it is decoded.
func drafts(steps []step) bool {
	return slices.ContainsFunc(steps, func(s step) bool {
		o, ok := s.op.(interface{ approximate() bool })
		return ok && o.approximate()
	})
}

// canonDraft writes nothing without draft, so that older digests stay the same.
func canonDraft(b []byte, draft bool) []byte {
	if draft {
		b = append(b, " draft"...)
	}
	return b
}
