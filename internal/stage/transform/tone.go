package transform

import (
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// tone is how the numbers of a picture are made from its bytes x: a[c]*x + b[c].
// Geometry does not depend on it, so flips and crops may be anywhere. It is
// computed in float64 and rounded to float32 once, for the kernel. Halves are made by a
// table instead: see exact.
type tone struct {
	float bool
	half  mem.DType // Float16 or BFloat16, if they are floats of 16 bits
	a, b  [3]float64
	exact *exact // of floats
}

// plain is uint8 as decoded.
func plain() tone { return tone{a: [3]float64{1, 1, 1}} }

// dtype is the type of the numbers.
func (t *tone) dtype() mem.DType {
	switch {
	case t.half != 0:
		return t.half
	case t.float:
		return mem.Float32
	}
	return mem.Uint8
}

// same reports whether two tones make the same numbers.
func (t *tone) same(o *tone) bool {
	return t.dtype() == o.dtype() && t.a == o.a && t.b == o.b &&
		(t.exact == o.exact || t.exact != nil && o.exact != nil && *t.exact == *o.exact)
}

// output is the kernel's description of the tone.
func (t *tone) output(chw bool) kernel.Output {
	if t.half != 0 {
		return kernel.Output{CHW: chw, Halves: &t.exact.bits, Half: FloatOf(t.half)}
	}
	out := kernel.Output{Float: t.float, CHW: chw}
	if t.float {
		for i := range out.Scale {
			out.Scale[i], out.Bias[i] = float32(t.a[i]), float32(t.b[i])
		}
	}
	return out
}

// bytes is the byte values that become f when the tone is applied; false if there
// are none.
func (t *tone) bytes(f fill) ([3]uint8, bool) {
	var out [3]uint8
	if t.half != 0 {
		for i := range out {
			x := slices.Index(t.exact.number[i][:], rounded(float32(f.v[i]), t.half))
			if x < 0 {
				return out, false
			}
			out[i] = uint8(x)
		}
		return out, true
	}
	for i := range out {
		x := (f.v[i] - t.b[i]) / t.a[i]
		whole := math.RoundToEven(x)
		if math.Abs(x-whole) > 1e-4 || whole < 0 || whole > 255 {
			return out, false
		}
		out[i] = uint8(whole)
	}
	return out, true
}

// toTensor is ToImage and PILToTensor: numbers stay unchanged.
type toTensor struct{}

func describeLay(name string) descriptor {
	return descriptor{
		name: name, cost: nothing, settled: true, says: silent, example: `{}`,
		build: func(*arguments, uint64) operation { return toTensor{} },
	}
}

func (toTensor) plan(k *known) (operation, *problem) {
	k.laid = true
	return nil, nil
}

func (toTensor) choose(rng.Key, extent) (c choice, _ *errs.Error) { return c, nil }
func (toTensor) do(*run, choice) *errs.Error                      { return nil }
func (toTensor) canon(b []byte) []byte                            { return b }

// convert is ToTensor, ToDtype and ConvertImageDtype.
type convert struct {
	name  string
	to    mem.DType // Uint8, Float32, Float16 or BFloat16
	scale bool      // 255 becomes 1
	memo  memo
}

func describeToTensor() descriptor {
	return descriptor{name: "ToTensor", build: buildToTensor, cost: converts, says: silent, example: `{}`}
}

func describeConvertImageDtype() descriptor {
	return descriptor{
		name: "ConvertImageDtype", params: []string{"dtype"}, build: buildConvertImageDtype,
		cost: converts, says: silent, example: `{}`,
	}
}

func describeToDtype() descriptor {
	return descriptor{
		name: "ToDtype", params: []string{"dtype", "scale"}, build: buildToDtype,
		cost: converts, says: silent, example: `{"dtype": "float32", "scale": true}`,
	}
}

func buildToTensor(a *arguments, _ uint64) operation {
	return &convert{name: a.op.Name, to: mem.Float32, scale: true}
}

func buildConvertImageDtype(a *arguments, _ uint64) operation {
	return &convert{name: a.op.Name, to: a.dtype(), scale: true}
}

func buildToDtype(a *arguments, _ uint64) operation {
	o := &convert{name: a.op.Name, scale: a.flag("scale", false)}
	if a.required("dtype", `"uint8", "float32", "float16" or "bfloat16"`) {
		o.to = a.dtype()
	}
	return o
}

// dtype is the type that pictures are converted to; float32 if it is left out.
func (a *arguments) dtype() mem.DType {
	before := len(a.problems)
	name, _ := a.text("dtype", "float32", "float16", "bfloat16", "uint8")
	for i := before; i < len(a.problems); i++ {
		a.problems[i].hint = "pictures are uint8, float32, float16 or bfloat16; convert further in the training loop"
	}
	to, _ := mem.ParseDType(name)
	return to
}

func (o *convert) plan(k *known) (operation, *problem) {
	if o.name == "ToTensor" && k.laid && !k.tone.float {
		return nil, problemf("leave the earlier conversion out, or write ToDtype(float32, scale=True)",
			"ToTensor does not change a tensor, not even its scale")
	}
	from := k.tone.dtype()
	if o.to == from || o.name == "ToTensor" && k.tone.float {
		return nil, nil
	}
	done := *o
	done.memo.before = k.tone.exact
	switch {
	case k.tone.half != 0:
		return nil, problemf("leave the conversion to "+from.String()+" out", "%s cannot become %s: it has lost digits", from, o.to)
	case o.to == mem.Uint8:
		if !o.undoes(&k.tone) || k.wild || k.erased {
			return nil, problemf("leave both conversions out: pictures are uint8 unless they are converted",
				"float32 can become uint8 only if it came from uint8 with the same scale, with nothing in between")
		}
	case k.tone.float:
		done.scale = false // of no effect
	default:
		k.by = o.name
	}
	k.laid = true
	done.convert(&k.tone, nil)
	done.memo.after = k.tone.exact
	return &done, nil
}

// undoes reports whether converting to uint8 gives the bytes that the floats were
// made from.
func (o *convert) undoes(t *tone) bool {
	one := 1.0
	if o.scale {
		one = 1.0 / 255
	}
	return t.a == [3]float64{one, one, one} && t.b == [3]float64{}
}

func (o *convert) convert(t *tone, m *exacts) {
	was := t.exact
	switch {
	case o.to == mem.Uint8:
		*t = plain()
		return
	case !t.float:
		*t = plain()
		t.float = true
		if o.scale {
			t.a = [3]float64{1.0 / 255, 1.0 / 255, 1.0 / 255}
		}
	}
	if o.to != mem.Float32 {
		t.half = o.to
	}
	if t.exact = o.memo.after; t.exact == nil || was != o.memo.before {
		t.exact = m.next()
		t.exact.set(was, o.to, func(_ int, v float32) float32 {
			if o.scale {
				return v * (1.0 / 255)
			}
			return v
		})
	}
}

func (o *convert) choose(rng.Key, extent) (c choice, _ *errs.Error) { return c, nil }

func (o *convert) do(r *run, _ choice) *errs.Error {
	o.convert(&r.tone, &r.exacts)
	for i := range r.erased {
		r.erased[i].convert(o.to)
	}
	return nil
}

func (o *convert) canon(b []byte) []byte {
	b = append(b, o.to.String()...)
	if o.to != mem.Uint8 && o.scale {
		b = append(b, "/255"...)
	}
	return b
}

// normalize subtracts mean and divides by std.
type normalize struct {
	n         int // number of channels of mean and std; 1: any
	mean, std [3]float64
	memo      memo
}

func describeNormalize() descriptor {
	return descriptor{
		name: "Normalize", params: []string{"mean", "std", "inplace"}, build: buildNormalize,
		cost: converts, says: silent, example: `{"mean": 0.5, "std": 0.25}`,
	}
}

func buildNormalize(a *arguments, _ uint64) operation {
	mean, std := a.channels("mean"), a.channels("std")
	a.flag("inplace", false) // has no effect here
	if len(mean) == 0 || len(std) == 0 {
		return nil
	}
	o := &normalize{n: max(len(mean), len(std))}
	for i := range o.mean {
		// torchvision rounds them to float32 first.
		o.mean[i] = float64(float32(mean[min(i, len(mean)-1)]))
		o.std[i] = float64(float32(std[min(i, len(std)-1)]))
	}
	if slices.Contains(o.std[:], 0) {
		a.wrong("", "std must not be zero in float32")
	}
	for i := range o.mean {
		if math.IsInf(o.mean[i], 0) || math.IsInf(o.std[i], 0) {
			a.wrong("", "mean and std must be within float32")
			break
		}
	}
	return o
}

func (o *normalize) plan(k *known) (operation, *problem) {
	if !k.tone.float {
		return nil, problemf("put ToTensor() or ToDtype(float32, scale=True) before it",
			"Normalize needs floats, but the picture is uint8")
	}
	if o.n > k.c {
		return nil, problemf("give one mean and one std, or Grayscale(num_output_channels=3)",
			"mean and std are for %d channels, but the picture has %d", o.n, k.c)
	}
	done := *o
	done.memo.before = k.tone.exact
	if p := o.within(k.tone.dtype()); p != nil {
		return nil, p
	}
	done.normalize(&k.tone, nil)
	done.memo.after = k.tone.exact
	return &done, nil
}

// within checks that mean and std are numbers of the type of the picture, to which
// torchvision rounds them.
func (o *normalize) within(of mem.DType) *problem {
	for i := range o.mean {
		mean, std := float64(rounded(float32(o.mean[i]), of)), float64(rounded(float32(o.std[i]), of))
		if std == 0 || math.IsInf(mean, 0) || math.IsInf(std, 0) {
			return problemf("put the conversion to "+of.String()+" after Normalize", "mean %v and std %v are %v and %v in %s, which Normalize computes in",
				float32(o.mean[i]), float32(o.std[i]), mean, std, of)
		}
	}
	return nil
}

func (o *normalize) normalize(t *tone, m *exacts) {
	for i := range t.a {
		t.a[i] /= o.std[i]
		t.b[i] = (t.b[i] - o.mean[i]) / o.std[i]
	}
	was, of := t.exact, t.dtype()
	if t.exact = o.memo.after; t.exact == nil || was != o.memo.before {
		t.exact = m.next()
		t.exact.set(was, of, func(c int, v float32) float32 { return o.normalized(c, v, of) })
	}
}

// normalized is what torchvision makes of a number of a type: each result is rounded to it.
func (o *normalize) normalized(c int, v float32, of mem.DType) float32 {
	v = rounded(v-rounded(float32(o.mean[c]), of), of)
	return rounded(v/rounded(float32(o.std[c]), of), of)
}

func (o *normalize) choose(rng.Key, extent) (c choice, _ *errs.Error) { return c, nil }

func (o *normalize) do(r *run, _ choice) *errs.Error {
	o.normalize(&r.tone, &r.exacts)
	for i := range r.erased {
		r.erased[i].normalize(o, r.tone.dtype())
	}
	return nil
}

func (o *normalize) canon(b []byte) []byte {
	return fmt.Appendf(b, "normalize %v %v", o.mean, o.std)
}

// gray is Grayscale, and RandomGrayscale, which keeps the channels.
type gray struct {
	name   string
	c      int // 0: as many as before
	random bool
	p      float64
	number uint64
}

func describeGrayscale() descriptor {
	return descriptor{
		name: "Grayscale", params: []string{"num_output_channels"}, build: buildGrayscale,
		cost: moves, says: counts, numbers: []string{"channels"}, example: `{}`,
	}
}

func describeRandomGrayscale() descriptor {
	return descriptor{
		name: "RandomGrayscale", params: []string{"p"}, build: buildRandomGrayscale,
		draws: true, cost: moves, slides: true, says: facts, numbers: []string{"gray"}, example: `{"p": 0.5}`,
	}
}

func buildGrayscale(a *arguments, _ uint64) operation {
	const wanted = "1 or 3"
	c := 1
	if n := a.wholes("num_output_channels", wanted, 1, 3); len(n) == 1 {
		c = n[0]
	}
	if c == 2 {
		a.wrong("", "num_output_channels must be %s, not 2", wanted)
	}
	return &gray{name: a.op.Name, c: c}
}

func buildRandomGrayscale(a *arguments, number uint64) operation {
	return &gray{name: a.op.Name, random: true, p: a.probability(0.1), number: number}
}

func (o *gray) plan(k *known) (operation, *problem) {
	if k.c == 1 && o.c <= 1 {
		return nil, nil
	}
	if k.tone.float {
		return nil, before(o.name, k)
	}
	if o.c != 0 {
		k.c = o.c
	}
	return o, nil
}

func (o *gray) choose(key rng.Key, _ extent) (choice, *errs.Error) {
	if !o.random {
		return choice{float64(o.c)}, nil
	}
	return acted(happens(key, o.number, o.p)), nil
}

func (o *gray) do(r *run, c choice) *errs.Error {
	switch {
	case !o.random:
		r.chain.Gray(int(c[0]))
	case c[0] != 0:
		r.chain.Gray(r.at().c)
	}
	return nil
}

func (o *gray) canon(b []byte) []byte {
	if o.random {
		return fmt.Appendf(b, "random gray %d %x", o.number, math.Float64bits(o.p))
	}
	return fmt.Appendf(b, "gray %d", o.c)
}

// rgb is RGB: a grey picture gets three channels, which are equal.
type rgb struct{ gray }

func describeRGB() descriptor {
	return descriptor{
		name: "RGB", cost: moves, says: counts, numbers: []string{"channels"}, example: `{}`,
		build: func(a *arguments, _ uint64) operation { return &rgb{gray{name: a.op.Name, c: 3}} },
	}
}

func (o *rgb) plan(k *known) (operation, *problem) {
	if k.c == 3 {
		return nil, nil
	}
	k.c = 3
	return o, nil
}

// before is the problem of an operation that needs bytes and comes after the
// conversion to floats.
func before(name string, k *known) *problem {
	return problemf(fmt.Sprintf("move %s before %s", name, k.by),
		"%s after %s would give other numbers than torchvision, because pictures stay bytes until the end", name, k.by)
}
