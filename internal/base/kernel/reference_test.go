//go:build cgo && stoker_libjpeg

package kernel

import "runtime"

// Stoker makes the same pixels on every processor. libjpeg-turbo does so of sound pictures
// only: what it makes of numbers that no picture has depends on its vector code. The
// columns of the inverse DCT are rounded to 16 bits, where the code for x86 saturates
// (packssdw) and that for arm64 wraps (vrshrn in jidctint-neon.c); of one wrong column all
// 64 samples of the block may be any. The C kernel and the twin do as on x86.
//
// So x86 is where both are held to libjpeg whatever the numbers are. Elsewhere they are
// held to it as long as all sums fit; a picture with one that may not, the C kernel must
// decode as the twin does.
const unlikeX86 = runtime.GOARCH != "amd64"

// mostOfColumn bounds the dequantised coefficients of a column, their sizes added: the
// largest factor is 2^0.5 cos(pi/16) = 1.387, and there are two bits of fraction.
// 4 * 1.387 * 5900 is the last below 1<<15.
const mostOfColumn = 5900

// reference is libjpeg where it is one.
type reference struct{ stock, twin *Lane }

func newReference() reference { return reference{stocked(), newLane("go")} }

func (r reference) Close() { r.stock.Close() }

// of is the lane that makes the pixels that a picture has to have.
func (r reference) of(jpeg []byte) *Lane {
	if unlikeX86 && loud(jpeg) {
		return r.twin
	}
	return r.stock
}

// loud reports whether a picture that the kernel decodes itself has a column of
// coefficients above mostOfColumn, before anything in it that is damaged.
func loud(jpeg []byte) bool {
	f, taken := readFrame(jpeg)
	if !taken {
		return false
	}
	s := scan{f: f, next: f.scan}
	if s.tables() != nil {
		return false
	}
	mcus := f.mcusAcross() * f.mcusDown()
	every := f.ri
	if every == 0 {
		every = mcus
	}
	var pred [3]int32
	for m := range mcus {
		if m%every == 0 {
			if s.restart(m/every) != nil {
				return false
			}
			pred = [3]int32{}
		}
		for i := range f.comp {
			c := &f.comp[i]
			for range c.h * c.v {
				if s.decodeBlock(c, &pred[i]) != nil {
					return false
				}
				if q := f.quant[c.tq]; q != nil && largestColumn(&s.block, q) > mostOfColumn {
					return true
				}
			}
		}
	}
	return false
}

func largestColumn(s *block, q *quantTable) (most int) {
	for c := range 8 {
		sum := 0
		for k := c; k < blockSize; k += 8 {
			p := int(s[k]) * int(uint16(q[k]))
			sum += max(p, -p)
		}
		most = max(most, sum)
	}
	return most
}
