package decode

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Castable returns why numbers of one type are not converted to another; nil if
// Cast does it. Conversions that could lose a value silently are rejected here, or,
// if it depends on the values, by Cast.
func Castable(from, to mem.DType) error {
	fromInt, _ := from.Int()
	toInt, _ := to.Int()
	switch {
	case from == mem.Object || to == mem.Object:
		return errs.New(errs.Config, "it is stored as bytes, which are not an array of numbers")
	case from == to, to.Float(), from == mem.Bool && toInt, fromInt && toInt:
		return nil
	case from.Float() && toInt:
		return errs.New(errs.Config, "%s is not converted to %s: values would be rounded", from, to).
			Try("leave dtype out, or set it to float16, float32 or float64, and round in your own code")
	}
	return errs.New(errs.Config, "%s is not converted to %s", from, to).Try("leave dtype out and compare in your own code")
}

// Cast converts the elements of src from one type to another in dst: equal numbers,
// or the nearest ones if floats are wanted. Both are little-endian and do not
// overlap. An integer that does not fit is a kernel.FormatError, and so are lengths
// that do not match.
func Cast(dst, src []byte, from, to mem.DType) error {
	n := len(src) / max(from.Size(), 1)
	if from.Size() == 0 || to.Size() == 0 || n*from.Size() != len(src) || n*to.Size() != len(dst) {
		return kernel.FormatError(fmt.Sprintf("%d bytes of %s do not fill %d bytes of %s", len(src), from, len(dst), to))
	}
	if from == to {
		copy(dst, src)
		return nil
	}
	if widens(from, to) {
		_, signed := from.Int()
		return kernel.Widen(dst, src, kernel.Int{Bytes: from.Size(), Signed: signed}, to.Size())
	}
	if from == mem.Uint8 && to == mem.Float32 { // pictures
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(v)))
		}
		return nil
	}
	if from.Float() {
		return castFloats(dst, src, from, to)
	}
	return castInts(dst, src, from, to)
}

// widens reports whether every integer of one type fits into the other.
func widens(from, to mem.DType) bool {
	toInt, toSigned := to.Int()
	if !toInt || to.Size() <= from.Size() {
		return false
	}
	fromInt, fromSigned := from.Int()
	return from == mem.Bool || fromInt && (toSigned || !fromSigned)
}

// blockLen is the number of elements that are converted together through a common
// type: a block stays in the nearest cache, and the types are selected once per
// block.
const blockLen = 256

func castInts(dst, src []byte, from, to mem.DType) error {
	if from == mem.Uint64 && to.Float() { // does not fit into the common type
		for i := 0; len(src) > 0; i, src = i+1, src[8:] {
			putFloat(dst, i, to, float64(binary.LittleEndian.Uint64(src)), float32(binary.LittleEndian.Uint64(src)))
		}
		return nil
	}
	var block [blockLen]int64
	for done := 0; len(src) > 0; {
		n := min(blockLen, len(src)/from.Size())
		if bad := loadInts(block[:n], src, from); bad >= 0 {
			return unfit(done+bad, binary.LittleEndian.Uint64(src[8*bad:]), to)
		}
		if to.Float() {
			for i, v := range block[:n] {
				putFloat(dst, i, to, float64(v), float32(v))
			}
		} else if bad := storeInts(dst, block[:n], to); bad >= 0 {
			return unfit(done+bad, block[bad], to)
		}
		src, dst, done = src[n*from.Size():], dst[n*to.Size():], done+n
	}
	return nil
}

func unfit(i int, v any, to mem.DType) error {
	return kernel.FormatError(fmt.Sprintf("element %d is %d, which does not fit into %s", i, v, to))
}

// loadInts returns the number of the first element that is not an int64; -1 if
// there is none.
func loadInts(block []int64, src []byte, from mem.DType) int {
	le := binary.LittleEndian
	for i := range block {
		switch from {
		case mem.Uint8, mem.Bool:
			block[i] = int64(src[i])
		case mem.Int8:
			block[i] = int64(int8(src[i]))
		case mem.Uint16:
			block[i] = int64(le.Uint16(src[2*i:]))
		case mem.Int16:
			block[i] = int64(int16(le.Uint16(src[2*i:])))
		case mem.Uint32:
			block[i] = int64(le.Uint32(src[4*i:]))
		case mem.Int32:
			block[i] = int64(int32(le.Uint32(src[4*i:])))
		default:
			block[i] = int64(le.Uint64(src[8*i:]))
			if from == mem.Uint64 && block[i] < 0 {
				return i
			}
		}
	}
	return -1
}

// storeInts returns the number of the first element that does not fit; -1 if there
// is none.
func storeInts(dst []byte, block []int64, to mem.DType) int {
	low, high := limits(to)
	for i, v := range block {
		if v < low || v > high {
			return i
		}
		switch to.Size() {
		case 1:
			dst[i] = byte(v)
		case 2:
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(v))
		case 4:
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(v))
		default:
			binary.LittleEndian.PutUint64(dst[8*i:], uint64(v))
		}
	}
	return -1
}

// limits are the smallest and largest int64 that an integer type has.
func limits(d mem.DType) (low, high int64) {
	_, signed := d.Int()
	bits := 8 * d.Size()
	switch {
	case signed:
		return -1 << (bits - 1), 1<<(bits-1) - 1
	case bits == 64:
		return 0, math.MaxInt64
	}
	return 0, 1<<bits - 1
}

// putFloat writes a number that is given as both kinds of float, each rounded once.
func putFloat(dst []byte, i int, to mem.DType, wide float64, narrow float32) {
	switch to {
	case mem.Float64:
		binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(wide))
	case mem.Float32:
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(narrow))
	default: // integers of more than 53 bits are infinite there, however they are rounded
		binary.LittleEndian.PutUint16(dst[2*i:], kernel.HalfBits(wide))
	}
}

func castFloats(dst, src []byte, from, to mem.DType) error {
	le := binary.LittleEndian
	size := from.Size()
	for i := 0; len(src) > 0; i, src = i+1, src[size:] {
		switch from {
		case mem.Float16:
			v := kernel.Float16.Of(le.Uint16(src))
			putFloat(dst, i, to, float64(v), v)
		case mem.Float32:
			v := math.Float32frombits(le.Uint32(src))
			putFloat(dst, i, to, float64(v), v)
		default:
			v := math.Float64frombits(le.Uint64(src))
			putFloat(dst, i, to, v, float32(v))
		}
	}
	return nil
}

// Number returns x as one element of a type, for the value of padding; false if x
// is not a value of that type.
func Number(x float64, to mem.DType) ([]byte, bool) {
	p := make([]byte, to.Size())
	is, _ := to.Int()
	switch {
	case to.Float():
		putFloat(p, 0, to, x, float32(x))
	case to == mem.Bool:
		if x != 0 && x != 1 {
			return nil, false
		}
		p[0] = byte(x)
	case !is || x != math.Trunc(x) || x < -1<<63 || x >= 1<<63:
		return nil, false
	default:
		return p, storeInts(p, []int64{int64(x)}, to) < 0
	}
	return p, true
}
