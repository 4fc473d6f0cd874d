package kernel

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"
)

// noise is an erased rectangle of a result of w x h floats in planes, by target.
func noise(t *testing.T, l *Lane, key uint64, w, h, c int) []float32 {
	t.Helper()
	src := Pixels{Pix: make([]byte, w*h*c), W: w, H: h, C: c}
	one := [3]float32{1, 1, 1}
	j := Job{Src: src, Out: Output{Float: true, CHW: true, Erased: []Erased{{W: w, H: h, Noise: true, Key: key, Scale: one}}}}
	b := run(t, l, j)
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return out
}

// TestNoiseNeverChanges: users keep runs by these bits.
func TestNoiseNeverChanges(t *testing.T) {
	b, err := os.ReadFile("testdata/noise.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Key     uint64
		W, H, C int
		Bits    []uint32
	}
	if err := json.Unmarshal(b, &all); err != nil || len(all) < 3 {
		t.Fatal(err, len(all))
	}
	each(t, func(t *testing.T, l *Lane) {
		for _, want := range all {
			for i, v := range noise(t, l, want.Key, want.W, want.H, want.C) {
				if got := math.Float32bits(v); got != want.Bits[i] {
					t.Fatalf("key %d, number %d: %08x, want %08x", want.Key, i, got, want.Bits[i])
				}
			}
		}
	})
}

// TestNoiseIsNormal: the numbers, and their neighbours' products, follow the normal
// distribution; no row, column, channel or key repeats another.
func TestNoiseIsNormal(t *testing.T) {
	l := NewLane()
	defer l.Close()
	const w, h, c, keys = 101, 100, 3, 33
	var bins [64]float64
	n, sum, square, cube, fourth := 0.0, 0.0, 0.0, 0.0, 0.0
	products := map[string]float64{}
	var before []float32
	for key := range uint64(keys) {
		all := noise(t, l, key*0x1234567, w, h, c)
		for i, v := range all {
			x := float64(v)
			n, sum, square, cube, fourth = n+1, sum+x, square+x*x, cube+x*x*x, fourth+x*x*x*x
			bins[int(64*math.Erfc(-x/math.Sqrt2)/2)]++
			for name, back := range map[string]int{"left": 1, "half a row": (w + 1) / 2, "above": w, "channel": w * h} {
				if i >= back {
					products[name] += x * float64(all[i-back])
				}
			}
			if before != nil {
				products["key"] += x * float64(before[i])
			}
		}
		before = all
	}
	root := math.Sqrt(n)
	for name, z := range map[string]float64{
		"mean": sum / root, "variance": (square - n) / root / math.Sqrt(2),
		"skewness": cube / root / math.Sqrt(15), "kurtosis": (fourth - 3*n) / root / math.Sqrt(96),
	} {
		if math.Abs(z) > 4.5 {
			t.Errorf("the %s of %v numbers is %.1f deviations off", name, n, z)
		}
	}
	for name, s := range products {
		if z := s / root; math.Abs(z) > 4.5 {
			t.Errorf("products with what is beside (%s): %.1f deviations off", name, z)
		}
	}
	chi := 0.0
	for _, b := range bins {
		chi += (b - n/64) * (b - n/64) / (n / 64)
	}
	if z := (chi - 63) / math.Sqrt(2*63); z > 4.5 {
		t.Errorf("the distribution is %.1f deviations off: %v", z, bins)
	}
}

// Every pair of words gives finite numbers, with the ends of their ranges.
func TestNoiseAtTheEnds(t *testing.T) {
	for _, a := range []uint32{0, 1, 511, 512, 1 << 31, math.MaxUint32} {
		for _, b := range []uint32{0, 7, 1 << 31, math.MaxUint32 - 7, math.MaxUint32} {
			x, y := pair(a, b)
			r := math.Hypot(float64(x), float64(y))
			want := math.Sqrt(-2 * math.Log(float64(a>>9*2+1)/(1<<24)))
			if math.Abs(r-want) > 1e-6*max(1, want) {
				t.Errorf("%d %d: %v, %v is %v from 0, not %v", a, b, x, y, r, want)
			}
		}
	}
}
