package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
)

var numeric = []mem.DType{
	mem.Bool, mem.Uint8, mem.Int8, mem.Uint16, mem.Int16, mem.Float16, mem.Uint32, mem.Int32, mem.Float32, mem.Uint64, mem.Int64, mem.Float64,
}

// number is one element, exactly; nil: NaN or infinite.
func number(p []byte, d mem.DType) *big.Float {
	le, f := binary.LittleEndian, new(big.Float)
	x := 0.0
	switch d {
	case mem.Bool, mem.Uint8:
		return f.SetInt64(int64(p[0]))
	case mem.Int8:
		return f.SetInt64(int64(int8(p[0])))
	case mem.Uint16:
		return f.SetInt64(int64(le.Uint16(p)))
	case mem.Int16:
		return f.SetInt64(int64(int16(le.Uint16(p))))
	case mem.Uint32:
		return f.SetInt64(int64(le.Uint32(p)))
	case mem.Int32:
		return f.SetInt64(int64(int32(le.Uint32(p))))
	case mem.Uint64:
		return f.SetUint64(le.Uint64(p))
	case mem.Int64:
		return f.SetInt64(int64(le.Uint64(p)))
	case mem.Float32:
		x = float64(math.Float32frombits(le.Uint32(p)))
	case mem.Float64:
		x = math.Float64frombits(le.Uint64(p))
	case mem.Float16:
		x = float64(kernel.Float16.Of(le.Uint16(p)))
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return f.SetFloat64(x)
}

// rounded is an exact number as the nearest one of a float type, by math/big.
func rounded(x *big.Float, to mem.DType) float64 {
	switch to {
	case mem.Float32:
		v, _ := x.Float32()
		return float64(v)
	case mem.Float64:
		v, _ := x.Float64()
		return v
	}
	v, _ := x.Float64() // no integer of 64 bits is finite as float16 and not exact here
	return float64(kernel.Float16.Of(kernel.HalfBits(v)))
}

// Every pair of types that goes together, against math/big: integers stay equal or
// are refused, floats are the nearest.
func TestCast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := rapid.SampledFrom(numeric).Draw(t, "from"), rapid.SampledFrom(numeric).Draw(t, "to")
		if Castable(from, to) != nil {
			return
		}
		n := rapid.IntRange(0, 600).Draw(t, "n")
		src := make([]byte, n*from.Size())
		small := rapid.Bool().Draw(t, "small")
		for i := range src {
			src[i] = byte(rapid.Uint64().Draw(t, "bytes") >> 7)
			if from == mem.Bool {
				src[i] &= 1
			} else if small && i%from.Size() > 0 {
				src[i] = 0
			}
		}
		dst := bytes.Repeat([]byte{0xEE}, n*to.Size())
		err := Cast(dst, src, from, to)
		for i := range n {
			p := src[i*from.Size() : (i+1)*from.Size()]
			x := number(p, from)
			if is, signed := to.Int(); is && from != to && !fits(x, to.Size(), signed) {
				var damaged kernel.FormatError
				if !errors.As(err, &damaged) {
					t.Fatalf("element %d, %v, does not fit into %s: %v", i, x, to, err)
				}
				return
			}
			if err != nil {
				continue
			}
			got := number(dst[i*to.Size():(i+1)*to.Size()], to)
			switch {
			case x == nil:
				if got != nil {
					t.Fatalf("element %d: %x becomes %v", i, p, got)
				}
			case !to.Float():
				if got.Cmp(x) != 0 {
					t.Fatalf("element %d: %v becomes %v", i, x, got)
				}
			default:
				if want := rounded(x, to); math.IsInf(want, 0) != (got == nil) || got != nil && got.Cmp(big.NewFloat(want)) != 0 {
					t.Fatalf("element %d: %v of %s becomes %v of %s, want %v", i, x, from, got, to, want)
				}
			}
		}
		if err != nil {
			t.Fatalf("%s to %s: %v, and all fit", from, to, err)
		}
	})
}

func fits(x *big.Float, bytes int, signed bool) bool {
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(8*bytes))
	if signed {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	if !signed && bytes == 8 { // the largest that is made of other types
		high.Rsh(high, 1)
	}
	v, _ := x.Int(nil)
	return v.Cmp(low) >= 0 && v.Cmp(high) < 0
}

func TestCastRefuses(t *testing.T) {
	for _, from := range numeric {
		for _, to := range append(numeric, mem.Object) {
			err := Castable(from, to)
			toInt, _ := to.Int()
			want := from == to || to.Float() || toInt && !from.Float()
			if (err == nil) != want {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			if err != nil && to != mem.Object && errs.From(err).Hint == "" {
				t.Errorf("%s to %s: no hint", from, to)
			}
		}
	}
	for _, c := range []struct{ dst, src int }{{8, 3}, {7, 4}, {4, 4}, {16, 4}} {
		var bad kernel.FormatError
		if err := Cast(make([]byte, c.dst), make([]byte, c.src), mem.Uint16, mem.Int32); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	dst, src := make([]byte, 8*2049), make([]byte, 2*2049)
	if n := testing.AllocsPerRun(10, func() { _ = Cast(dst, src, mem.Uint16, mem.Int64) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		x    float64
		d    mem.DType
		want string // "": none of that type
	}{
		{-100, mem.Int64, "\x9c\xff\xff\xff\xff\xff\xff\xff"},
		{-100, mem.Uint16, ""},
		{65535, mem.Uint16, "\xff\xff"},
		{65536, mem.Uint16, ""},
		{0.5, mem.Int8, ""},
		{0.5, mem.Float16, "\x00\x38"},
		{0.5, mem.Float32, "\x00\x00\x00\x3f"},
		{1, mem.Bool, "\x01"},
		{2, mem.Bool, ""},
		{math.NaN(), mem.Int32, ""},
		{math.Inf(1), mem.Int64, ""},
		{1 << 63, mem.Int64, ""},
		{0, mem.Object, ""},
	} {
		got, ok := Number(c.x, c.d)
		if ok != (c.want != "") || ok && string(got) != c.want {
			t.Errorf("%v of %s: %q, %t", c.x, c.d, got, ok)
		}
	}
}
