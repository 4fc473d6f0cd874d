package transform

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// Operations whose result has a random size. torchvision rounds some of these sizes
// from float32, as torch does with scalars: every operation is rounded by itself, and
// the result is truncated. The functions below do the same, so that equal draws give
// equal sizes.

// single is draw n as torch.rand gives it: uniform in [0, 1) on a grid of 2^-24.
func single(key rng.Key, n uint64) float32 { return float32(key.Uint64(n)>>40) * 0x1p-24 }

// stretched is the point u of [0, 1) between r[0] and r[1].
func stretched(r [2]float64, u float32) float32 {
	return float32(r[0]) + float32(u*float32(r[1]-r[0]))
}

// truncated is n * by as a whole number. Too large ones become one that is refused too.
func truncated(n int, by float32) int {
	return int(min(float32(n)*by, 2*mostSide))
}

// sizeLaw is the distribution of the size to which a picture is resized.
type sizeLaw interface {
	// draw is the size for a picture of s; a zero side means that it is impossible.
	draw(key rng.Key, s size) size
	canon(b []byte, number uint64) []byte
}

// randomSize is RandomResize, RandomShortestSize and ScaleJitter.
type randomSize struct {
	name   string
	law    sizeLaw
	filter kernel.Filter
	number uint64
}

func describeRandomSize(name, example string, build func(*arguments) sizeLaw, params ...string) descriptor {
	return descriptor{
		name: name, params: append(params, "interpolation", "antialias"),
		build: func(a *arguments, number uint64) operation {
			return &randomSize{name, build(a), a.filter(), number}
		},
		draws: true, cost: resamples, resizes: true, frames: true,
		says: counts, numbers: []string{"from_height", "from_width", "to_height", "to_width"},
		example: example,
	}
}

func (o *randomSize) plan(k *known) (operation, *problem) {
	if k.tone.float && o.filter.Smooth() {
		return nil, before(o.name, k)
	}
	k.size = size{}
	return o, nil
}

func (o *randomSize) choose(key rng.Key, at extent) (choice, *errs.Error) {
	to := o.law.draw(key.With(o.number), at.size)
	if !to.possible() {
		return choice{}, misfit("crop first, or give it other sizes",
			"%s would make %d x %d pixels of a picture of %d x %d", o.name, to.w, to.h, at.w, at.h)
	}
	return choice{float64(at.h), float64(at.w), float64(to.h), float64(to.w)}, nil
}

func (o *randomSize) do(r *run, c choice) *errs.Error {
	r.chain.Resize(int(c[3]), int(c[2]), o.filter, false)
	return nil
}

func (o *randomSize) canon(b []byte) []byte {
	return fmt.Appendf(o.law.canon(b, o.number), " %d", o.filter)
}

const aSize = "a positive whole number"

// shorterEdge is RandomResize's: the shorter edge gets a length from least to most-1,
// which is least + Intn(0, most-least).
type shorterEdge struct{ least, most int }

func describeRandomResize() descriptor {
	return describeRandomSize("RandomResize", `{"min_size": 40, "max_size": 80}`, buildRandomResize, "min_size", "max_size")
}

func buildRandomResize(a *arguments) sizeLaw {
	read := func(name string) int {
		if n := a.wholes(name, aSize, 1, mostSide); a.required(name, aSize) && len(n) == 1 {
			return n[0]
		}
		return 0
	}
	l := shorterEdge{read("min_size"), read("max_size")}
	if l.least > 0 && l.most > 0 && l.most <= l.least {
		a.wrong("sizes are drawn from min_size to max_size-1", "max_size (%d) must be greater than min_size (%d)", l.most, l.least)
	}
	return &l
}

func (l *shorterEdge) draw(key rng.Key, s size) size {
	return l.at(int(key.Intn(0, int64(l.most-l.least))), s)
}

func (l *shorterEdge) at(n int, s size) size {
	to := resize{short: l.least + n}
	return to.target(s.w, s.h)
}

func (l *shorterEdge) canon(b []byte, number uint64) []byte {
	return fmt.Appendf(b, "random resize %d %d %d", number, l.least, l.most)
}

// shorterOf is RandomShortestSize's: the shorter edge gets length Intn(0, n) of n,
// or less if the longer one would be longer than long.
type shorterOf struct {
	short []int
	long  int // 0: any
}

func describeRandomShortestSize() descriptor {
	return describeRandomSize("RandomShortestSize", `{"min_size": [40, 50, 60], "max_size": 70}`, buildRandomShortestSize, "min_size", "max_size")
}

func buildRandomShortestSize(a *arguments) sizeLaw {
	const wanted = "a positive whole number, or a list of them"
	var l shorterOf
	if a.required("min_size", wanted) {
		l.short = a.wholes("min_size", wanted, 1, mostSide, a.count("min_size"))
	}
	if n := a.wholes("max_size", aSize, 1, mostSide); len(n) == 1 {
		l.long = n[0]
	}
	return &l
}

// count is how many elements an argument has, if it is a list of numbers; otherwise
// 1.
func (a *arguments) count(name string) int {
	var list []float64
	if raw, ok := a.raw(name); !ok || json.Unmarshal(raw, &list) != nil {
		return 1
	}
	return max(1, len(list))
}

func (l *shorterOf) draw(key rng.Key, s size) size {
	return l.at(int(key.Intn(0, int64(len(l.short)))), s)
}

func (l *shorterOf) at(n int, s size) size {
	by := float64(l.short[n]) / float64(min(s.w, s.h))
	if l.long > 0 {
		by = min(by, float64(l.long)/float64(max(s.w, s.h)))
	}
	return size{w: int(float64(s.w) * by), h: int(float64(s.h) * by)}
}

func (l *shorterOf) canon(b []byte, number uint64) []byte {
	return fmt.Appendf(b, "random shortest size %d %v %d", number, l.short, l.long)
}

// scaleJitter is ScaleJitter's: the picture is scaled to fit into a size, which torchvision
// reads as [width, height], and by single(0) between two numbers.
type scaleJitter struct {
	to    size
	scale [2]float64
}

func describeScaleJitter() descriptor {
	return describeRandomSize("ScaleJitter", `{"target_size": [70, 60], "scale_range": [0.5, 1.5]}`, buildScaleJitter, "target_size", "scale_range")
}

func buildScaleJitter(a *arguments) sizeLaw {
	const wanted = "two positive whole numbers"
	l := scaleJitter{scale: a.pair("scale_range", [2]float64{0.1, 2}, true)}
	if a.required("target_size", wanted) {
		n := a.wholes("target_size", wanted, 1, mostSide, 2)
		if len(n) == 2 {
			l.to = size{w: n[0], h: n[1]}
		} else if n != nil {
			a.wrong("", "target_size must be %s, not %s", wanted, shown(a.op.Args["target_size"]))
		}
	}
	return &l
}

func (l *scaleJitter) draw(key rng.Key, s size) size { return l.at(single(key, 0), s) }

func (l *scaleJitter) at(u float32, s size) size {
	fit := min(float64(l.to.h)/float64(s.h), float64(l.to.w)/float64(s.w))
	by := float32(fit) * stretched(l.scale, u)
	return size{w: truncated(s.w, by), h: truncated(s.h, by)}
}

func (l *scaleJitter) canon(b []byte, number uint64) []byte {
	return fmt.Appendf(b, "scale jitter %d %d %d %v", number, l.to.w, l.to.h, l.scale)
}

// zoomOut is RandomZoomOut: the picture is put somewhere on a larger one. It acts if
// Float64(0) < p; single(1) decides how many times as large, single(2) the left,
// single(3) the top.
type zoomOut struct {
	side   [2]float64
	p      float64
	fill   fill
	number uint64
}

func describeRandomZoomOut() descriptor {
	return descriptor{
		name: "RandomZoomOut", params: []string{"fill", "side_range", "p"}, build: buildRandomZoomOut,
		draws: true, cost: moves, resizes: true, frames: true,
		says: counts, numbers: []string{"pad_left", "pad_top", "pad_right", "pad_bottom"},
		example: `{}`,
	}
}

func buildRandomZoomOut(a *arguments, number uint64) operation {
	o := &zoomOut{p: a.probability(0.5), fill: a.fill(), number: number}
	if o.side = a.pair("side_range", [2]float64{1, 4}, true); o.side[0] < 1 {
		a.wrong("", "side_range must begin at 1 or above, not at %v", o.side[0])
	}
	return o
}

// frame is the padding of a choice.
func (o *zoomOut) frame(m margins) frame { return frame{margins: m, fill: o.fill} }

func (o *zoomOut) plan(k *known) (operation, *problem) {
	if o.p == 0 || o.side[1] == 1 {
		return nil, nil
	}
	k.size = size{}
	some := o.frame(margins{right: 1})
	return o, some.plan("RandomZoomOut", k)
}

func (o *zoomOut) choose(key rng.Key, at extent) (choice, *errs.Error) {
	if !happens(key, o.number, o.p) {
		return choice{}, nil
	}
	key = key.With(o.number)
	return o.at(single(key, 1), single(key, 2), single(key, 3), at)
}

// at is the choice for the draws of a size and of a place.
func (o *zoomOut) at(u, x, y float32, at extent) (choice, *errs.Error) {
	by := stretched(o.side, u)
	canvas := size{w: truncated(at.w, by), h: truncated(at.h, by)}
	if !canvas.possible() {
		return choice{}, misfit("give it a smaller side_range, or make pictures smaller before it",
			"RandomZoomOut would make %d x %d pixels or more of a picture of %d x %d", canvas.w, canvas.h, at.w, at.h)
	}
	wide, high := canvas.w-at.w, canvas.h-at.h
	left, top := truncated(wide, x), truncated(high, y)
	return choice{float64(left), float64(top), float64(wide - left), float64(high - top)}, nil
}

func (o *zoomOut) do(r *run, c choice) *errs.Error {
	f := o.frame(margins{int(c[0]), int(c[1]), int(c[2]), int(c[3])})
	return f.do("RandomZoomOut", r)
}

func (o *zoomOut) canon(b []byte) []byte {
	return fmt.Appendf(b, "random zoom out %d %x %v %v", o.number, math.Float64bits(o.p), o.side, o.fill.v)
}
