package transform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// TestHalvesOfEveryByte: whatever conversions and Normalize a chain has, in whatever
// containers, every number is that of a computation that rounds after every operation.
func TestHalvesOfEveryByte(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	rapid.Check(t, func(t *rapid.T) {
		half := rapid.SampledFrom([]mem.DType{mem.Float16, mem.BFloat16}).Draw(t, "half")
		late := rapid.Bool().Draw(t, "late") // the last operation makes them halves
		scale := rapid.Bool().Draw(t, "scale")
		at := half
		if late {
			at = mem.Float32
		}
		ops := []string{fmt.Sprintf(`{"op":"ToDtype","dtype":%q,"scale":%v}`, at, scale)}
		var want [256]float32
		for x := range want {
			want[x] = float32(x)
			if scale {
				want[x] = nearest(float64(want[x])*float64(float32(1.0/255)), at)
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "norms") {
			mean, std := rapid.Float64Range(-3, 3).Draw(t, "mean"), rapid.Float64Range(0.01, 8).Draw(t, "std")
			op := fmt.Sprintf(`{"op":"Normalize","mean":%v,"std":%v}`, mean, std)
			done := true
			if rapid.Bool().Draw(t, "held") {
				done = rapid.Bool().Draw(t, "done")
				op = fmt.Sprintf(`{"op":"RandomApply","p":%v,"transforms":["RandomHorizontalFlip",%s]}`, map[bool]int{true: 1}[done], op)
			}
			ops = append(ops, op)
			m, s := nearest(mean, at), nearest(std, at)
			for x := range want {
				if done {
					want[x] = nearest(float64(nearest(float64(want[x])-float64(m), at))/float64(s), at)
				}
			}
		}
		if late {
			ops = append(ops, fmt.Sprintf(`{"op":"ToDtype","dtype":%q}`, half))
		}
		layout := rapid.SampledFrom([]string{"nchw", "nhwc"}).Draw(t, "layout")
		gray := rapid.Bool().Draw(t, "gray")
		shape := mem.Shape{1, 256, 3}
		if gray {
			shape[2] = 1
		}
		p, err := CompilePixels(shape, listed(t, "["+strings.Join(ops, ",")+"]"), layout)
		if err != nil {
			t.Fatal(err)
		}
		if p.DType() != half {
			t.Fatalf("%s is %s", ops, p.DType())
		}
		var pixels []byte
		for x := range 256 {
			pixels = append(pixels, bytes.Repeat([]byte{byte(x)}, shape[2])...)
		}
		_, got := result(t, p, lane, pixels, rng.Key(rapid.Uint64().Draw(t, "key")))
		seen := map[uint16]bool{}
		for i := 0; i < len(got); i += 2 {
			seen[binary.NativeEndian.Uint16(got[i:])] = true
		}
		for x, v := range want { // the flips may have moved them
			if bits := FloatOf(half).Bits(nearest(float64(v), half)); !seen[bits] {
				t.Fatalf("%s: byte %d is not %v (%#x)", ops, x, v, bits)
			}
		}
	})
}

// nearest is the number of a type that is nearest to v, which is first rounded to float32:
// a multiple of the distance of two numbers of its size.
func nearest(v float64, of mem.DType) float32 {
	f := float64(float32(v))
	digits, least, most := 11, -24, 65520.0 // of float16; least and most are exponent and number
	switch of {
	case mem.Float32:
		return float32(f)
	case mem.BFloat16:
		digits, least, most = 8, -133, 0x1.FFp127
	}
	if math.Abs(f) >= most {
		return float32(math.Copysign(math.Inf(1), f))
	}
	_, exp := math.Frexp(f)
	unit := math.Ldexp(1, max(exp-digits, least))
	return float32(math.RoundToEven(f/unit) * unit)
}

func TestHalfBits(t *testing.T) {
	for _, of := range []mem.DType{mem.Float16, mem.BFloat16} {
		rapid.Check(t, func(t *rapid.T) {
			v := rapid.Float32().Draw(t, "v")
			if got, want := rounded(v, of), nearest(float64(v), of); got != want {
				t.Fatalf("%v is %v in %s, not %v", v, got, of, want)
			}
		})
		if nan := rounded(math.Float32frombits(0x7F800001), of); nan == nan {
			t.Errorf("NaN is %v in %s", nan, of)
		}
	}
}
