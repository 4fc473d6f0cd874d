package kernel

import "math"

// Float is a type of floating-point numbers in memory.
type Float uint8

// The types, numbered as in half.h.
const (
	Float32 Float = iota
	Float64
	Float16  // IEEE 754 binary16
	BFloat16 // the upper half of a float32
	NoFloat  // none of these
)

// Size is the bytes of a number.
func (f Float) Size() int { return [...]int{4, 8, 2, 2, 0}[min(f, NoFloat)] }

// Bits is the number of a type of 16 bits that is nearest to v, the even one of two that are
// equally near; one out of range is infinite.
func (f Float) Bits(v float32) uint16 {
	if f == Float16 {
		return HalfBits(float64(v))
	}
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 1<<6 // stays NaN
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

// Of is the value of a number of a type of 16 bits, exactly.
func (f Float) Of(bits uint16) float32 {
	if f == Float16 {
		return half(bits)
	}
	return math.Float32frombits(uint32(bits) << 16)
}

// HalfBits is the IEEE 754 binary16 number nearest to x, the even one of two that
// are equally near; a number out of range becomes infinite.
func HalfBits(x float64) uint16 {
	b := math.Float64bits(x)
	sign := uint16(b>>48) & 0x8000
	exp, frac := int(b>>52&0x7FF)-1023, b&(1<<52-1)
	switch {
	case exp == 1024 && frac != 0: // NaN stays NaN, with the bits that fit
		return sign | 0x7E00 | uint16(frac>>42)
	case exp > 15:
		return sign | 0x7C00
	case exp >= -14:
		return sign | nearest(uint64(exp+15)<<52|frac, 42)
	case exp >= -25:
		return sign | nearest(1<<52|frac, uint(28-exp))
	}
	return sign
}

// nearest drops the low bits of m, rounding to nearest, ties to even. A carry out
// of the fraction gives the next exponent, as the format intends.
func nearest(m uint64, drop uint) uint16 {
	kept, rest, half := m>>drop, m&(1<<drop-1), uint64(1)<<(drop-1)
	if rest > half || rest == half && kept&1 == 1 {
		kept++
	}
	return uint16(kept)
}

// half is the value of a binary16 (IEEE 754-2008), exactly.
func half(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1F), uint32(h&0x3FF)
	switch exp {
	case 0: // frac * 2^-24, exactly
		v := float32(frac) / (1 << 24)
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7F800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
