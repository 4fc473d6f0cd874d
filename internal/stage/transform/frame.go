package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// frame is the padding around a picture, as it is written.
type frame struct {
	margins
	mode kernel.PadMode
	fill fill
}

// check returns why the frame cannot be added to a picture of s pixels (zero:
// unknown) whose numbers are t; the hint comes first. Reflections have no limit:
// they go back and forth, as NumPy's do.
func (f *frame) check(s size, t *tone) (hint, what string) {
	m := f.margins
	if m == (margins{}) {
		return "", ""
	}
	w, h := m.left+s.w+m.right, m.top+s.h+m.bottom
	if f.mode == kernel.PadConstant {
		if _, ok := t.bytes(f.fill); !ok && t.float {
			return "pad before the conversion to floats", "the fill is not a byte's value after the conversion to floats"
		} else if !ok {
			return "give fill as one whole number from 0 to 255, or one for each channel", "the fill is not a byte"
		}
	}
	if s.w > 0 && !(size{w, h}).possible() {
		return "pad less", fmt.Sprintf("padding would make %d x %d pixels", w, h)
	}
	return "", ""
}

// plan is check for operations that always pad.
func (f *frame) plan(name string, k *known) *problem {
	if f.margins == (margins{}) {
		return nil
	}
	if f.fill.each && k.c == 1 {
		return problemf("give fill as one number", "the fill has 3 channels, but the picture has 1")
	}
	if f.fill.each && f.mode != kernel.PadConstant {
		return problemf("leave fill out", "a fill of 3 channels needs padding_mode \"constant\"")
	}
	if k.wild && f.mode == kernel.PadConstant {
		return before(name, k)
	}
	hint, what := f.check(k.size, &k.tone)
	if what == "" {
		return nil
	}
	if k.tone.float && f.mode == kernel.PadConstant {
		return before(name, k)
	}
	return problemf(hint, "%s", what)
}

// do adds the frame to the sample.
func (f *frame) do(name string, r *run) *errs.Error {
	if hint, what := f.check(r.at().size, &r.tone); what != "" {
		return misfit(hint, "%s: %s", name, what)
	}
	if f.margins == (margins{}) {
		return nil
	}
	fill, _ := r.tone.bytes(f.fill)
	r.chain.Pad(f.left, f.top, f.right, f.bottom, f.mode, fill)
	return nil
}

func (f *frame) canon(b []byte) []byte {
	fill := f.fill.v
	if f.mode != kernel.PadConstant {
		fill = [3]float64{} // of no effect
	}
	return fmt.Appendf(b, "%v %d %v", f.margins, f.mode, fill)
}

// pad is Pad.
type pad struct{ frame }

func describePad() descriptor {
	return descriptor{
		name: "Pad", params: []string{"padding", "fill", "padding_mode"}, build: buildPad,
		cost: moves, resizes: true, settled: true, frames: true,
		says: counts, numbers: []string{"pad_left", "pad_top", "pad_right", "pad_bottom"},
		example: `{"padding": [1, 2, 3, 4]}`,
	}
}

func buildPad(a *arguments, _ uint64) operation {
	a.required("padding", "1, 2 or 4 whole numbers")
	return &pad{frame{a.padding(), a.mode(), a.fill()}}
}

func (o *pad) plan(k *known) (operation, *problem) {
	if o.margins == (margins{}) {
		return nil, nil
	}
	p := o.frame.plan("Pad", k)
	if k.sized() {
		k.size = size{o.left + k.w + o.right, o.top + k.h + o.bottom}
	}
	return o, p
}

func (o *pad) choose(rng.Key, extent) (choice, *errs.Error) {
	return choice{float64(o.left), float64(o.top), float64(o.right), float64(o.bottom)}, nil
}

func (o *pad) do(r *run, _ choice) *errs.Error { return o.frame.do("Pad", r) }

func (o *pad) canon(b []byte) []byte { return o.frame.canon(append(b, "pad "...)) }

// centerCrop is CenterCrop: pixels outside the picture are zero.
type centerCrop struct{ to size }

func describeCenterCrop() descriptor {
	return descriptor{
		name: "CenterCrop", params: []string{"size"}, build: buildCenterCrop,
		cost: moves, resizes: true, settled: true, frames: true, says: region, numbers: []string{"top", "left", "height", "width"},
		example: `{"size": 64}`,
	}
}

func buildCenterCrop(a *arguments, _ uint64) operation { return &centerCrop{a.size()} }

// missing is the padding that is needed.
func (o *centerCrop) missing(s size) frame {
	w, h := max(0, o.to.w-s.w), max(0, o.to.h-s.h)
	return frame{margins: margins{w / 2, h / 2, (w + 1) / 2, (h + 1) / 2}}
}

func (o *centerCrop) plan(k *known) (operation, *problem) {
	var p *problem
	if k.sized() {
		if k.size == o.to {
			return nil, nil
		}
		f := o.missing(k.size)
		p = f.plan("CenterCrop", k)
	}
	k.size = o.to
	return o, p
}

func (o *centerCrop) choose(_ rng.Key, at extent) (choice, *errs.Error) {
	m := o.missing(at.size).margins
	w, h := m.left+at.w+m.right, m.top+at.h+m.bottom
	return regionOf(box{halved(w - o.to.w), halved(h - o.to.h), o.to.w, o.to.h}, m), nil
}

func (o *centerCrop) do(r *run, c choice) *errs.Error {
	f := o.missing(r.at().size)
	if err := f.do("CenterCrop", r); err != nil {
		return err
	}
	r.crop(c.region(f.margins))
	return nil
}

// halved is Python's int(round(n / 2.0)): halves go to the even number.
func halved(n int) int { return int(math.RoundToEven(float64(n) / 2)) }

func (o *centerCrop) canon(b []byte) []byte {
	return fmt.Appendf(b, "center crop %d %d", o.to.w, o.to.h)
}

// randomCrop is RandomCrop: pad, pad more if needed, crop anywhere.
type randomCrop struct {
	to     size
	frame  frame
	always bool // pad_if_needed
	number uint64
}

func describeRandomCrop() descriptor {
	return descriptor{
		name: "RandomCrop", params: []string{"size", "padding", "pad_if_needed", "fill", "padding_mode"}, build: buildRandomCrop,
		draws: true, cost: moves, resizes: true, frames: true, says: region, numbers: []string{"top", "left", "height", "width"},
		example: `{"size": 64, "padding": 4}`,
	}
}

func buildRandomCrop(a *arguments, number uint64) operation {
	o := &randomCrop{to: a.size(), always: a.flag("pad_if_needed", false), number: number}
	o.frame = frame{a.padding(), a.mode(), a.fill()}
	return o
}

// around is all the padding around a picture of s pixels.
func (o *randomCrop) around(s size) margins {
	m := o.frame.margins
	if !o.always {
		return m
	}
	if lacks := o.to.h - (m.top + s.h + m.bottom); lacks > 0 {
		m.top, m.bottom = m.top+lacks, m.bottom+lacks
	}
	if lacks := o.to.w - (m.left + s.w + m.right); lacks > 0 {
		m.left, m.right = m.left+lacks, m.right+lacks
	}
	return m
}

func (o *randomCrop) plan(k *known) (operation, *problem) {
	f := o.frame
	if k.sized() {
		f.margins = o.around(k.size)
		if w, h := f.left+k.w+f.right, f.top+k.h+f.bottom; w < o.to.w || h < o.to.h {
			return nil, problemf("pad_if_needed=True pads it", "a crop of %d x %d pixels does not fit into %d x %d", o.to.w, o.to.h, w, h)
		}
	}
	p := f.plan("RandomCrop", k)
	k.size = o.to
	return o, p
}

func (o *randomCrop) choose(key rng.Key, at extent) (choice, *errs.Error) {
	m := o.around(at.size)
	rows, columns := m.top+at.h+m.bottom-o.to.h+1, m.left+at.w+m.right-o.to.w+1
	if rows < 1 || columns < 1 {
		return choice{}, misfit("pad_if_needed=True pads it, Resize before it makes it larger",
			"RandomCrop: a crop of %d x %d pixels does not fit into a picture of %d x %d", o.to.w, o.to.h, at.w, at.h)
	}
	key = key.With(o.number)
	y, x := key.Intn(0, int64(rows)), key.Intn(1, int64(columns))
	return regionOf(box{int(x), int(y), o.to.w, o.to.h}, m), nil
}

func (o *randomCrop) do(r *run, c choice) *errs.Error {
	f := o.frame
	f.margins = o.around(r.at().size)
	if err := f.do("RandomCrop", r); err != nil {
		return err
	}
	r.crop(c.region(f.margins))
	return nil
}

func (o *randomCrop) canon(b []byte) []byte {
	b = fmt.Appendf(b, "random crop %d %d %d %v ", o.number, o.to.w, o.to.h, o.always)
	return o.frame.canon(b)
}
