package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// erasing is RandomErasing: a random box becomes one colour, or normal numbers. Bytes are
// erased where the operation is written. Floats are erased in the result, because they may
// get values that no byte gives: operations that move pixels cannot come after it.
//
// It acts if draw 0 is below p. Try t of 0 to 9 takes area, log ratio, top and left from
// the draws 4t+1 to 4t+4. Draw 41 names the normal numbers, as kernel.Erased makes them.
type erasing struct {
	p      float64
	law    boxLaw // its ratio is height / width
	value  []float64
	noise  bool
	floats bool
	number uint64
}

func describeRandomErasing() descriptor {
	return descriptor{
		name: "RandomErasing", params: []string{"p", "scale", "ratio", "value", "inplace"}, build: buildRandomErasing,
		draws: true, cost: colours, slides: true, erases: true, says: counts, numbers: []string{"top", "left", "height", "width", "noise"},
		example: `{"value": [200, 10, 100]}`,
	}
}

func buildRandomErasing(a *arguments, number uint64) operation {
	o := &erasing{p: a.probability(0.5), value: []float64{0}, number: number}
	scale := a.pair("scale", [2]float64{0.02, 0.33}, false)
	if scale[1] > 1 {
		a.wrong("", "scale must be two numbers from 0 to 1, not %s", shown(a.op.Args["scale"]))
	}
	o.law = newBoxLaw(scale, a.pair("ratio", [2]float64{0.3, 3.3}, true))
	a.flag("inplace", false) // has no effect here
	if raw, given := a.raw("value"); given && string(raw) == `"random"` {
		o.noise, o.value = true, nil
	} else if v := a.numbers("value", `a number, one for each channel, or "random"`, 1, 3); len(v) > 0 {
		o.value = v
	}
	for _, v := range o.value {
		if math.Abs(v) > math.MaxFloat32 {
			a.wrong("", "value must be within float32, not %v", v)
		}
	}
	return o
}

func (o *erasing) plan(k *known) (operation, *problem) {
	if len(o.value) > 1 && len(o.value) != k.c {
		return nil, problemf("give value as one number", "value is for %d channels, but the picture has %d", len(o.value), k.c)
	}
	done := *o
	if done.floats = k.tone.float; done.floats {
		k.erased = true
		return &done, nil
	}
	if o.noise {
		return nil, problemf("put ToDtype(float32, scale=True), and Normalize if there is one, before it",
			`value="random" draws normal numbers, about 0, but the picture is uint8`)
	}
	for _, v := range o.value {
		if v < 0 || v >= 256 {
			return nil, problemf("give numbers from 0 to 255, or put ToDtype(float32, scale=True) before it",
				"the picture is uint8, and value %v is not a byte", v)
		}
	}
	return &done, nil
}

// afterErasing reports whether an operation may come after floats were erased: it moves no
// pixels.
func afterErasing(o operation) bool {
	switch o.(type) {
	case *convert, *normalize, *erasing:
		return true
	}
	return false
}

func (o *erasing) choose(key rng.Key, at extent) (c choice, _ *errs.Error) {
	key = key.With(o.number)
	if !(key.Float64(0) < o.p) {
		return c, nil
	}
	b := o.law.erased(key, at.size)
	if b.w > 0 && b.h > 0 {
		c = regionOf(b, margins{})
		if o.noise {
			c[4] = float64(key.Uint64(41) >> 11) // 53 bits: a whole number for explanations
		}
	}
	return c, nil
}

// erased chooses a box that is smaller than a picture of s pixels both ways, as
// torchvision's RandomErasing; it may be empty.
func (l *boxLaw) erased(key rng.Key, s size) box {
	area := float64(s.w) * float64(s.h)
	for try := uint64(0); try < boxTries; try++ {
		target := area * between(l.scale, key.Float64(4*try+1))
		aspect := exp(between(l.logRatio, key.Float64(4*try+2)))
		h := math.RoundToEven(math.Sqrt(target * aspect))
		w := math.RoundToEven(math.Sqrt(target / aspect))
		if h < float64(s.h) && w < float64(s.w) {
			b := box{w: int(w), h: int(h)}
			b.y = int(key.Intn(4*try+3, int64(s.h-b.h+1)))
			b.x = int(key.Intn(4*try+4, int64(s.w-b.w+1)))
			return b
		}
	}
	return box{}
}

func (o *erasing) do(r *run, c choice) *errs.Error {
	b := c.region(margins{})
	if b.w == 0 || b.h == 0 {
		return nil
	}
	var v [3]float64
	for i := range v {
		if !o.noise {
			v[i] = o.value[min(i, len(o.value)-1)]
		}
	}
	if !o.floats {
		fill := [3]uint8{uint8(v[0]), uint8(v[1]), uint8(v[2])} // torch cuts fractions off
		r.chain.Apply(kernel.Step{Op: kernel.OpErase, X: b.x, Y: b.y, W: b.w, H: b.h, Fill: fill})
		return nil
	}
	e := erasure{
		box: b, noise: o.noise, key: uint64(c[4]), owner: r.chain.Owner,
		value: [3]float32{float32(v[0]), float32(v[1]), float32(v[2])}, scale: [3]float32{1, 1, 1},
	}
	e.convert(r.tone.dtype())
	r.erased = append(r.erased, e)
	return nil
}

// erasure is a box of floats, and what its pixels have become: value, or, with noise, value
// plus scale times a normal number. The operations after it are done to value as torchvision
// does them to a tensor; noise is rounded once, when it is made.
type erasure struct {
	box
	noise        bool
	key          uint64
	scale, value [3]float32
	owner        uint8
}

func (e *erasure) convert(to mem.DType) {
	for c, v := range e.value {
		if !e.noise {
			e.value[c] = rounded(v, to)
		}
	}
}

func (e *erasure) normalize(o *normalize, of mem.DType) {
	for c, v := range e.value {
		if !e.noise {
			e.value[c] = o.normalized(c, v, of)
			continue
		}
		mean, std := rounded(float32(o.mean[c]), of), rounded(float32(o.std[c]), of)
		e.value[c], e.scale[c] = (v-mean)/std, e.scale[c]/std
	}
}

// boxes is the erased boxes of a result of floats.
func (r *run) boxes() []kernel.Erased {
	r.into = r.into[:0]
	for _, e := range r.erased {
		r.into = append(r.into, kernel.Erased{
			X: e.x, Y: e.y, W: e.w, H: e.h, Noise: e.noise, Key: e.key, Scale: e.scale, Bias: e.value, Owner: e.owner,
		})
	}
	return r.into
}

func (o *erasing) canon(b []byte) []byte {
	return fmt.Appendf(b, "erase %d %x %v %v %v %v", o.number, math.Float64bits(o.p), o.law.scale, o.law.ratio, o.value, o.noise)
}
