package kernel

import (
	"math"
	"testing"
)

// halves are all finite float16 numbers that are not negative, by their bits: from
// their definition (IEEE 754-2008, 3.4), not from the code.
func halves() []float64 {
	var out []float64
	for h := range 0x7C00 {
		exp, frac := h>>10, float64(h&0x3FF)/1024
		if exp == 0 {
			out = append(out, math.Ldexp(frac, -14))
		} else {
			out = append(out, math.Ldexp(1+frac, exp-15))
		}
	}
	return out
}

func TestHalves(t *testing.T) {
	all := halves()
	for h, want := range all {
		if got := float64(half(uint16(h))); got != want {
			t.Fatalf("%#04x is %v, want %v", h, got, want)
		}
		if got := -float64(half(uint16(h) | 0x8000)); got != want {
			t.Fatalf("%#04x is %v, want %v", h|0x8000, -got, -want)
		}
		if got := HalfBits(want); int(got) != h {
			t.Fatalf("%v becomes %#04x, want %#04x", want, got, h)
		}
		if h == 0 {
			continue
		}
		// Between two neighbours: the nearer one, the even one from the middle.
		low, middle := all[h-1], (all[h-1]+want)/2
		even := h
		if h&1 == 1 {
			even = h - 1
		}
		for x, to := range map[float64]int{middle: even, math.Nextafter(middle, low): h - 1, math.Nextafter(middle, want): h, math.Nextafter(want, low): h} {
			if got := HalfBits(x); int(got) != to {
				t.Fatalf("%v becomes %#04x, want %#04x", x, got, to)
			}
			if got := HalfBits(-x); int(got) != to|0x8000 {
				t.Fatalf("%v becomes %#04x, want %#04x", -x, got, to|0x8000)
			}
		}
	}
	for x, want := range map[float64]uint16{
		65504: 0x7BFF, 65519.99: 0x7BFF, 65520: 0x7C00, 1e300: 0x7C00, math.Inf(1): 0x7C00, math.Inf(-1): 0xFC00,
		0x1p-25: 0, 0x1.0001p-25: 1, 5e-324: 0, math.Copysign(0, -1): 0x8000,
	} {
		if got := HalfBits(x); got != want {
			t.Errorf("%v becomes %#04x, want %#04x", x, got, want)
		}
	}
	if !math.IsNaN(float64(half(HalfBits(math.NaN())))) || !math.IsInf(float64(half(0xFC00)), -1) {
		t.Error("NaN or infinity does not stay what it is")
	}
}
