package transform

import (
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// exact is what every byte has become, operation by operation, each result rounded as
// torchvision v2 rounds it: to the type that the tensor has there. Pictures of halves are
// made of it, so they equal torchvision's to the bit. float32 is not (tone.a and tone.b
// are nearer to the true numbers, by one rounding), but has one for what may follow.
//
// It is made once for each operation, when a program is compiled. It is made for a sample
// only if what comes before depends on a random choice.
type exact struct {
	number [3][256]float32
	bits   kernel.Halves // of halves
}

// set makes e the numbers after an operation on floats of a type. Before it they are was,
// which may be e; nil: bytes, all of which are numbers of every type.
func (e *exact) set(was *exact, of mem.DType, do func(c int, v float32) float32) {
	for c := range e.number {
		for x := range e.number[c] {
			v := float32(x)
			if was != nil {
				v = was.number[c][x]
			}
			v = rounded(do(c, v), of)
			e.number[c][x] = v
			if of != mem.Float32 {
				e.bits[c][x] = FloatOf(of).Bits(v)
			}
		}
	}
}

// memo is the exact numbers before and after an operation, as they were when it was
// compiled.
type memo struct{ before, after *exact }

// exacts is memory for the numbers of a sample.
type exacts struct {
	all  []*exact
	used int
}

// next is memory that the sample has not used yet; nil: when a program is compiled.
func (m *exacts) next() *exact {
	if m == nil {
		return &exact{}
	}
	if m.used == len(m.all) {
		m.all = append(m.all, &exact{})
	}
	m.used++
	return m.all[m.used-1]
}

// FloatOf is a type of floats as the kernel calls it; one of no size for other types.
func FloatOf(t mem.DType) kernel.Float {
	switch t {
	case mem.Float16:
		return kernel.Float16
	case mem.BFloat16:
		return kernel.BFloat16
	case mem.Float64:
		return kernel.Float64
	case mem.Float32:
		return kernel.Float32
	}
	return kernel.NoFloat
}

// rounded is v as a number of a type.
func rounded(v float32, to mem.DType) float32 {
	if of := FloatOf(to); of.Size() == 2 {
		return of.Of(of.Bits(v))
	}
	return v
}
