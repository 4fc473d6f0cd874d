package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// angles reads a range of degrees, or several: a number d for -d to d, or the ends.
func (a *arguments) angles(name, wanted string, lengths ...int) []float64 {
	v := a.numbers(name, wanted, lengths...)
	switch {
	case len(v) == 1 && v[0] >= 0:
		return []float64{-v[0], v[0]}
	case len(v) == 2 && v[0] <= v[1], len(v) == 4 && v[0] <= v[1] && v[2] <= v[3]:
		return v
	case len(v) > 0:
		a.wrong("", "%s must be %s, not %s", name, wanted, shown(a.op.Args[name]))
	}
	return []float64{0, 0}
}

// degrees reads the argument of that name.
func (a *arguments) degrees() [2]float64 {
	const wanted = "a number that is not negative, or two, the smaller first"
	a.required("degrees", wanted)
	return [2]float64(a.angles("degrees", wanted, 2))
}

// center reads the centre of a rotation; nil is the picture's.
func (a *arguments) center() *point {
	if v := a.numbers("center", "two numbers, x and y", 2); len(v) == 2 {
		return &point{v[0], v[1]}
	} else if len(v) == 1 {
		a.wrong("", "center must be two numbers, x and y, not %v", v[0])
	}
	return nil
}

// canonCenter is a centre for a digest.
func canonCenter(b []byte, p *point) []byte {
	if p == nil {
		return append(b, " -"...)
	}
	return fmt.Appendf(b, " %v", *p)
}

// rotate is RandomRotation. Draw 0 gives the angle.
type rotate struct {
	warper
	degrees [2]float64
	expand  bool
	center  *point
	number  uint64
}

func describeRandomRotation() descriptor {
	return descriptor{
		name: "RandomRotation", params: []string{"degrees", "interpolation", "expand", "center", "fill"},
		build: func(a *arguments, number uint64) operation {
			return &rotate{a.warper(kernel.Nearest), a.degrees(), a.flag("expand", false), a.center(), number}
		},
		draws: true, cost: moves, resizes: true, says: amounts, numbers: []string{"angle"},
		example: `{"degrees": 30, "expand": true}`,
	}
}

func (o *rotate) plan(k *known) (operation, *problem) {
	if o.degrees == [2]float64{} {
		return nil, nil
	}
	p := o.warper.plan("RandomRotation", k)
	if o.expand {
		k.size = size{}
	}
	return o, p
}

func (o *rotate) choose(key rng.Key, _ extent) (choice, *errs.Error) {
	return choice{between(o.degrees, key.With(o.number).Float64(0))}, nil
}

func (o *rotate) do(r *run, c choice) *errs.Error {
	return o.warper.rotate(r, c[0], o.expand, o.center)
}

func (o *rotate) canon(b []byte) []byte {
	b = fmt.Appendf(b, "rotate %d %v %t", o.number, o.degrees, o.expand)
	return o.warper.canon(append(canonCenter(b, o.center), ' '))
}

// randomAffine is RandomAffine. Draws 0 to 5 give the angle, the shift to the right and down,
// the scale, and the shear along x and y.
type randomAffine struct {
	warper
	degrees   [2]float64
	translate point // of the width and height
	scale     [2]float64
	shear     [4]float64 // along x, along y
	center    *point
	number    uint64
}

func describeRandomAffine() descriptor {
	return descriptor{
		name: "RandomAffine", params: []string{"degrees", "translate", "scale", "shear", "interpolation", "fill", "center"},
		build: buildRandomAffine,
		draws: true, cost: moves, says: amounts,
		numbers: []string{"angle", "translate_x", "translate_y", "scale", "shear_x", "shear_y"},
		example: `{"degrees": 30, "translate": [0.1, 0.2], "scale": [0.8, 1.2], "shear": 10}`,
	}
}

func buildRandomAffine(a *arguments, number uint64) operation {
	o := &randomAffine{warper: a.warper(kernel.Nearest), degrees: a.degrees(), center: a.center(), number: number}
	o.scale = a.pair("scale", [2]float64{1, 1}, true)
	const wanted = "two numbers from 0 to 1"
	switch v := a.numbers("translate", wanted, 2); {
	case len(v) == 2 && v[0] >= 0 && v[0] <= 1 && v[1] >= 0 && v[1] <= 1:
		o.translate = point{v[0], v[1]}
	case len(v) > 0:
		a.wrong("", "translate must be %s, not %s", wanted, shown(a.op.Args["translate"]))
	}
	copy(o.shear[:], a.angles("shear", "a number that is not negative, or two or four, the smaller of each two first", 2, 4))
	return o
}

func (o *randomAffine) plan(k *known) (operation, *problem) {
	if o.degrees == [2]float64{} && o.translate == (point{}) && o.scale == [2]float64{1, 1} && o.shear == [4]float64{} {
		return nil, nil
	}
	return o, o.warper.plan("RandomAffine", k)
}

func (o *randomAffine) choose(key rng.Key, at extent) (choice, *errs.Error) {
	key = key.With(o.number)
	shift := func(part float64, side int, draw uint64) float64 {
		most := float64(part * float64(side))
		return math.RoundToEven(between([2]float64{-most, most}, key.Float64(draw))) + 0 // no negative zero
	}
	return choice{
		between(o.degrees, key.Float64(0)),
		shift(o.translate.x, at.w, 1),
		shift(o.translate.y, at.h, 2),
		between(o.scale, key.Float64(3)),
		between([2]float64(o.shear[:2]), key.Float64(4)),
		between([2]float64(o.shear[2:]), key.Float64(5)),
	}, nil
}

func (o *randomAffine) do(r *run, c choice) *errs.Error {
	o.affine(r, affinity{angle: c[0], shift: point{c[1], c[2]}, scale: c[3], shear: point{c[4], c[5]}, center: o.center})
	return nil
}

func (o *randomAffine) canon(b []byte) []byte {
	b = fmt.Appendf(b, "affine %d %v %v %v %v", o.number, o.degrees, o.translate, o.scale, o.shear)
	return o.warper.canon(append(canonCenter(b, o.center), ' '))
}

// randomPerspective is RandomPerspective. It acts if Float64(0) < p; draws 1 to 8 give x and y
// of the upper left, upper right, lower right and lower left corner.
type randomPerspective struct {
	warper
	distortion float64
	p          float64
	number     uint64
}

func describeRandomPerspective() descriptor {
	return descriptor{
		name: "RandomPerspective", params: []string{"distortion_scale", "p", "interpolation", "fill"},
		build: func(a *arguments, number uint64) operation {
			o := &randomPerspective{warper: a.warper(kernel.Bilinear), distortion: 0.5, p: a.probability(0.5), number: number}
			if v := a.numbers("distortion_scale", "a number from 0 to 1"); len(v) == 1 {
				if o.distortion = v[0]; !(v[0] >= 0 && v[0] <= 1) {
					a.wrong("", "distortion_scale must be a number from 0 to 1, not %v", v[0])
				}
			}
			return o
		},
		draws: true, cost: moves, says: counts,
		numbers: []string{
			"top_left_x", "top_left_y", "top_right_x", "top_right_y",
			"bottom_right_x", "bottom_right_y", "bottom_left_x", "bottom_left_y",
		},
		example: `{}`,
	}
}

func (o *randomPerspective) plan(k *known) (operation, *problem) {
	return o, o.warper.plan("RandomPerspective", k)
}

func (o *randomPerspective) choose(key rng.Key, at extent) (choice, *errs.Error) {
	corners := at.corners()
	key = key.With(o.number)
	if key.Float64(0) < o.p {
		for i := range corners {
			move := func(v *float64, side int, draw uint64) {
				by := float64(key.Intn(draw, int64(o.distortion*float64(side/2))+1))
				if *v > 0 {
					by = -by // into the picture
				}
				*v += by
			}
			move(&corners[i].x, at.w, uint64(2*i+1))
			move(&corners[i].y, at.h, uint64(2*i+2))
		}
	}
	var c choice
	for i, p := range corners {
		c[2*i], c[2*i+1] = p.x, p.y
	}
	return c, nil
}

// do leaves the picture unchanged if it has no area, or if three of its corners would be on
// one line: torchvision fails there.
func (o *randomPerspective) do(r *run, c choice) *errs.Error {
	start := r.at().corners()
	var end [4]point
	for i := range end {
		end[i] = point{c[2*i], c[2*i+1]}
	}
	if start != end {
		o.perspective(r, start, end)
	}
	return nil
}

func (o *randomPerspective) canon(b []byte) []byte {
	b = fmt.Appendf(b, "perspective %d %x %x ", o.number, math.Float64bits(o.distortion), math.Float64bits(o.p))
	return o.warper.canon(b)
}
