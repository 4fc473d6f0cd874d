package transform

import (
	"math"
	"testing"
)

func TestSinCos(t *testing.T) {
	for d := -800.0; d < 800; d += 0.37 {
		sin, cos := sinCos(d)
		wantSin, wantCos := math.Sincos(d * math.Pi / 180)
		if math.Abs(sin-wantSin) > 3e-15 || math.Abs(cos-wantCos) > 3e-15 {
			t.Fatalf("%v degrees: %v, %v", d, sin-wantSin, cos-wantCos)
		}
	}
	for i, want := range [4][2]float64{{0, 1}, {1, 0}, {0, -1}, {-1, 0}} {
		for _, d := range []float64{float64(90 * i), float64(90*i - 720)} {
			if sin, cos := sinCos(d); sin != want[0] || cos != want[1] {
				t.Errorf("%v degrees: %v, %v", d, sin, cos)
			}
		}
	}
}

// The map of a perspective takes the new corners to the old ones.
func TestQuadMap(t *testing.T) {
	start := size{200, 100}.corners()
	end := [4]point{{13, 4}, {170, 22}, {199, 80}, {40, 91}}
	m, ok := quadMap(start, end)
	if !ok {
		t.Fatal("no map")
	}
	for i, e := range end {
		part := m[6]*e.x + m[7]*e.y + 1
		x, y := (m[0]*e.x+m[1]*e.y+m[2])/part, (m[3]*e.x+m[4]*e.y+m[5])/part
		if math.Hypot(x-start[i].x, y-start[i].y) > 1e-4 {
			t.Errorf("%v comes from %v, %v, not %v", e, x, y, start[i])
		}
	}
	if _, ok := quadMap(start, [4]point{{0, 0}, {10, 10}, {20, 20}, {0, 50}}); ok {
		t.Error("three points on a line")
	}
	if _, ok := quadMap(size{1, 9}.corners(), size{1, 9}.corners()); ok {
		t.Error("a picture one pixel wide")
	}
}
