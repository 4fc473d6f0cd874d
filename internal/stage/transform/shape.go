package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// misfit is the error of a sample whose picture an operation can not work on.
func misfit(hint, format string, a ...any) *errs.Error {
	return errs.New(errs.Unsupported, format, a...).Try("%s", hint)
}

// possible says whether a result may be as large (or small) as s.
func (s size) possible() bool {
	return s.w <= mostSide && s.h <= mostSide && kernel.CheckSize(s.w, s.h) == nil
}

// flip is RandomHorizontalFlip and RandomVerticalFlip.
type flip struct {
	name   string
	op     kernel.Op
	p      float64
	number uint64
}

func buildFlip(a *arguments, number uint64) operation {
	o := &flip{name: a.op.Name, op: kernel.OpFlipH, p: a.probability(0.5), number: number}
	if o.name == "RandomVerticalFlip" {
		o.op = kernel.OpFlipV
	}
	return o
}

func (o *flip) plan(*known) (operation, *problem) { return o, nil }

func (o *flip) resolve(r *run, key rng.Key) *errs.Error {
	acts := happens(key, o.number, o.p)
	r.tellActed(o.name, "flipped", acts)
	if acts {
		r.flip(o.op)
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
	draft  bool // pixels may be near instead of exact
	number uint64
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
	if k.tone.float && o.filter != kernel.Nearest {
		return nil, before("RandomResizedCrop", k)
	}
	k.size = o.to
	return o, nil
}

func (o *randomResizedCrop) resolve(r *run, key rng.Key) *errs.Error {
	b := o.law.draw(key.With(o.number), r.w, r.h)
	r.tellCrop("RandomResizedCrop", b, margins{}, o.to)
	r.crop(b)
	r.resize(o.to.w, o.to.h, o.filter, o.draft)
	return nil
}

func (o *randomResizedCrop) canon(b []byte) []byte {
	b = fmt.Appendf(b, "random resized crop %d %d %d %v %v %d", o.number, o.to.w, o.to.h, o.law.scale, o.law.ratio, o.filter)
	return canonDraft(b, o.draft)
}

// resize is Resize: to a size, or an edge to a length.
type resize struct {
	to     size // both, if given
	short  int  // else the shorter edge; 0: long decides
	long   int  // max_size; 0: none
	filter kernel.Filter
	draft  bool // pixels may be near instead of exact
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
			a.wrong("leave max_size out, or give size as one number", "max_size has no meaning beside a size of [height, width]")
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

// target is the size that a picture of w x h pixels gets; a zero edge means
// that it can not be done. Quotients and their truncation are Python's.
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
	if k.tone.float && o.filter != kernel.Nearest {
		return nil, before("Resize", k)
	}
	k.size = to
	return o, nil
}

func (o *resize) resolve(r *run, _ rng.Key) *errs.Error {
	to := o.target(r.w, r.h)
	if !to.possible() {
		return misfit("give Resize both height and width, or crop first",
			"Resize would make %d x %d pixels of a picture of %d x %d", to.w, to.h, r.w, r.h)
	}
	r.tellResize("Resize", to)
	r.resize(to.w, to.h, o.filter, o.draft)
	return nil
}

func (o *resize) canon(b []byte) []byte {
	b = fmt.Appendf(b, "resize %d %d %d %d %d", o.to.w, o.to.h, o.short, o.long, o.filter)
	return canonDraft(b, o.draft)
}

// canonDraft leaves no trace where there is none: digests from before it stay.
func canonDraft(b []byte, draft bool) []byte {
	if draft {
		b = append(b, " draft"...)
	}
	return b
}

// frame is padding as it is written: what stands around a picture.
type frame struct {
	margins
	mode kernel.PadMode
	fill fill
}

// check says why the frame can not be drawn around a picture of s pixels (zero:
// not known) whose numbers are t; hint first. Reflections have no bound: they
// go to and fro, as NumPy's do.
func (f *frame) check(s size, t *tone) (hint, what string) {
	m := f.margins
	if m == (margins{}) {
		return "", ""
	}
	w, h := m.left+s.w+m.right, m.top+s.h+m.bottom
	if f.mode == kernel.PadConstant {
		if _, ok := t.bytes(f.fill); !ok && t.float {
			return "pad before the conversion to floats", "the fill is no byte's value after the conversion to floats"
		} else if !ok {
			return "fill is one whole number from 0 to 255, or one for each channel", "the fill is no byte"
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
		return problemf("give fill as one number", "the fill has 3 channels, the picture has 1")
	}
	if f.fill.each && f.mode != kernel.PadConstant {
		return problemf("leave fill out", "a fill of 3 channels has a meaning only with padding_mode \"constant\"")
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

// draw adds the frame to the sample.
func (f *frame) draw(name string, r *run) *errs.Error {
	if hint, what := f.check(size{r.w, r.h}, &r.tone); what != "" {
		return misfit(hint, "%s: %s", name, what)
	}
	if f.margins == (margins{}) {
		return nil
	}
	fill, _ := r.tone.bytes(f.fill)
	r.pad(f.margins, f.mode, fill)
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

func (o *pad) resolve(r *run, _ rng.Key) *errs.Error {
	r.tellPad("Pad", o.margins)
	return o.draw("Pad", r)
}

func (o *pad) canon(b []byte) []byte { return o.frame.canon(append(b, "pad "...)) }

// centerCrop is CenterCrop: what is missing is padded with zeros.
type centerCrop struct{ to size }

func buildCenterCrop(a *arguments, _ uint64) operation { return &centerCrop{a.size()} }

// missing is what must be padded.
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

func (o *centerCrop) resolve(r *run, _ rng.Key) *errs.Error {
	f := o.missing(size{r.w, r.h})
	if err := f.draw("CenterCrop", r); err != nil {
		return err
	}
	b := box{halved(r.w - o.to.w), halved(r.h - o.to.h), o.to.w, o.to.h}
	r.tellCrop("CenterCrop", b, f.margins, size{})
	r.crop(b)
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

func buildRandomCrop(a *arguments, number uint64) operation {
	o := &randomCrop{to: a.size(), always: a.flag("pad_if_needed", false), number: number}
	o.frame = frame{a.padding(), a.mode(), a.fill()}
	return o
}

// margins are all that is padded around a picture of s pixels.
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

func (o *randomCrop) resolve(r *run, key rng.Key) *errs.Error {
	f := o.frame
	f.margins = o.around(size{r.w, r.h})
	rows, columns := f.top+r.h+f.bottom-o.to.h+1, f.left+r.w+f.right-o.to.w+1
	if rows < 1 || columns < 1 {
		return misfit("pad_if_needed=True pads it, Resize before it makes it larger",
			"RandomCrop: a crop of %d x %d pixels does not fit into a picture of %d x %d", o.to.w, o.to.h, r.w, r.h)
	}
	if err := f.draw("RandomCrop", r); err != nil {
		return err
	}
	key = key.With(o.number)
	y, x := key.Intn(0, int64(rows)), key.Intn(1, int64(columns))
	b := box{int(x), int(y), o.to.w, o.to.h}
	r.tellCrop("RandomCrop", b, f.margins, size{})
	r.crop(b)
	return nil
}

func (o *randomCrop) canon(b []byte) []byte {
	b = fmt.Appendf(b, "random crop %d %d %d %v ", o.number, o.to.w, o.to.h, o.always)
	return o.frame.canon(b)
}
