package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// The operations here are timm's own (timm.data.transforms), by its names: those of its
// create_transform that torchvision does not have.

// cropAndInterpolation is RandomResizedCropAndInterpolation with interpolation="random":
// RandomResizedCrop, with bilinear or bicubic by draw 40, after those of the region.
type cropAndInterpolation struct{ randomResizedCrop }

func describeCropAndInterpolation() descriptor {
	return descriptor{
		name: "RandomResizedCropAndInterpolation", build: buildCropAndInterpolation,
		params: []string{"size", "scale", "ratio"},
		draws:  true, cost: resamples, resizes: true, frames: true,
		says: region, numbers: []string{"top", "left", "height", "width", "to_height", "to_width", "bicubic"},
		example: `{"size": 64}`,
	}
}

func buildCropAndInterpolation(a *arguments, number uint64) operation {
	o := &cropAndInterpolation{randomResizedCrop{to: a.size(), number: number}}
	scale := a.pair("scale", [2]float64{0.08, 1}, false)
	o.law = newBoxLaw(scale, a.pair("ratio", [2]float64{3.0 / 4, 4.0 / 3}, true))
	return o
}

func (o *cropAndInterpolation) plan(k *known) (operation, *problem) {
	if k.tone.float {
		return nil, before("RandomResizedCropAndInterpolation", k)
	}
	k.size = o.to
	return o, nil
}

func (o *cropAndInterpolation) choose(key rng.Key, at extent) (choice, *errs.Error) {
	c, err := o.randomResizedCrop.choose(key, at)
	c[6] = float64(key.With(o.number).Intn(4*boxTries, 2))
	return c, err
}

func (o *cropAndInterpolation) do(r *run, c choice) *errs.Error {
	filter := kernel.Bilinear
	if c[6] != 0 {
		filter = kernel.Bicubic
	}
	r.crop(c.region(margins{}))
	r.chain.Resize(int(c[5]), int(c[4]), filter, false)
	return nil
}

func (o *cropAndInterpolation) canon(b []byte) []byte {
	return fmt.Appendf(b, "random resized crop and interpolation %d %d %d %v %v", o.number, o.to.w, o.to.h, o.law.scale, o.law.ratio)
}

// keepRatio is ResizeKeepRatio without its random parts: the picture is scaled so that
// it covers the size (longest 0), is inside it (longest 1), or between the two.
type keepRatio struct {
	to      size
	longest float64
	filter  kernel.Filter
}

func describeKeepRatio() descriptor {
	return descriptor{
		name: "ResizeKeepRatio", params: []string{"size", "longest", "interpolation"}, build: buildKeepRatio,
		cost: resamples, resizes: true, settled: true, frames: true,
		says: counts, numbers: []string{"from_height", "from_width", "to_height", "to_width"},
		example: `{"size": 64}`,
	}
}

func buildKeepRatio(a *arguments, _ uint64) operation {
	o := &keepRatio{to: a.size(), filter: a.filter()}
	if n := a.numbers("longest", "a number from 0 to 1"); len(n) == 1 {
		if o.longest = n[0]; !(n[0] >= 0 && n[0] <= 1) {
			a.wrong("", "longest must be a number from 0 to 1, not %v", n[0])
		}
	}
	return o
}

// target is the size of the result, in Python's arithmetic.
func (o *keepRatio) target(s size) size {
	h, w := float64(s.h)/float64(o.to.h), float64(s.w)/float64(o.to.w)
	ratio := float64(max(h, w)*o.longest) + float64(min(h, w)*(1-o.longest))
	return size{
		w: int(min(math.RoundToEven(float64(s.w)/ratio), 2*mostSide)),
		h: int(min(math.RoundToEven(float64(s.h)/ratio), 2*mostSide)),
	}
}

func (o *keepRatio) plan(k *known) (operation, *problem) {
	to := size{}
	if k.sized() {
		if to = o.target(k.size); !to.possible() {
			return nil, problemf("", "ResizeKeepRatio would make pictures of %d x %d pixels", to.w, to.h)
		}
		if to == k.size {
			return nil, nil
		}
	}
	if k.tone.float && o.filter.Smooth() {
		return nil, before("ResizeKeepRatio", k)
	}
	k.size = to
	return o, nil
}

func (o *keepRatio) choose(_ rng.Key, at extent) (choice, *errs.Error) {
	to := o.target(at.size)
	if !to.possible() {
		return choice{}, misfit("leave such pictures out, or crop first",
			"ResizeKeepRatio would make %d x %d pixels of a picture of %d x %d", to.w, to.h, at.w, at.h)
	}
	return choice{float64(at.h), float64(at.w), float64(to.h), float64(to.w)}, nil
}

func (o *keepRatio) do(r *run, c choice) *errs.Error {
	r.chain.Resize(int(c[3]), int(c[2]), o.filter, false)
	return nil
}

func (o *keepRatio) canon(b []byte) []byte {
	return fmt.Appendf(b, "resize keep ratio %d %d %x %d", o.to.w, o.to.h, math.Float64bits(o.longest), o.filter)
}

// cropOrPad is CenterCropOrPad: CenterCrop with a way of padding.
type cropOrPad struct {
	centerCrop
	mode kernel.PadMode
	fill fill
}

func describeCropOrPad() descriptor {
	return descriptor{
		name: "CenterCropOrPad", params: []string{"size", "fill", "padding_mode"}, build: buildCropOrPad,
		cost: moves, resizes: true, settled: true, frames: true, says: region, numbers: []string{"top", "left", "height", "width"},
		example: `{"size": [64, 130], "fill": 7}`,
	}
}

func buildCropOrPad(a *arguments, _ uint64) operation {
	return &cropOrPad{centerCrop{a.size()}, a.mode(), a.fill()}
}

// around is the padding that is needed.
func (o *cropOrPad) around(s size) frame {
	return frame{o.missing(s).margins, o.mode, o.fill}
}

func (o *cropOrPad) plan(k *known) (operation, *problem) {
	f := frame{margins{1, 1, 1, 1}, o.mode, o.fill} // some picture may need it
	var p *problem
	if k.sized() {
		if k.size == o.to {
			return nil, nil
		}
		f = o.around(k.size)
		p = f.plan("CenterCropOrPad", k)
	} else {
		at := *k
		p = f.plan("CenterCropOrPad", &at)
	}
	k.size = o.to
	return o, p
}

func (o *cropOrPad) do(r *run, c choice) *errs.Error {
	f := o.around(r.at().size)
	if err := f.do("CenterCropOrPad", r); err != nil {
		return err
	}
	r.crop(c.region(f.margins))
	return nil
}

func (o *cropOrPad) canon(b []byte) []byte {
	b = fmt.Appendf(b, "center crop or pad %d %d ", o.to.w, o.to.h)
	return (&frame{mode: o.mode, fill: o.fill}).canon(b)
}
