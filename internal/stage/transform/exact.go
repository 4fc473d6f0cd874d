package transform

import (
	"math"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/decode"
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
				e.bits[c][x] = halfBits(v, of)
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

// halfBits is the number of 16 bits nearest to v, the even one of two that are equally near.
func halfBits(v float32, of mem.DType) uint16 {
	if of == mem.Float16 {
		return decode.HalfBits(float64(v))
	}
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 1<<6 // stays NaN
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

// rounded is v as a number of a type.
func rounded(v float32, to mem.DType) float32 {
	switch to {
	case mem.Float16:
		return decode.Half(halfBits(v, to))
	case mem.BFloat16:
		return math.Float32frombits(uint32(halfBits(v, to)) << 16)
	}
	return v
}
