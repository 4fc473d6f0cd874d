package rng

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// goldenFile is testdata/rng.json: numbers that users' runs rest on. They may never
// change; a test that fails here means that the code is wrong.
type goldenFile struct {
	Note   string
	Values []struct {
		Seed         uint64
		Epoch, Place int64
		Words        []uint64
		Draws        []uint64 // Uint64(0), Uint64(1)
		Float        float64  // Float64(2)
		Below1000    int64    // Intn(3, 1000)
	}
}

func TestGolden(t *testing.T) {
	b, err := os.ReadFile("../../../testdata/rng.json")
	if err != nil {
		t.Fatal(err)
	}
	var g goldenFile
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Values) < 4 {
		t.Fatalf("%d values in the golden file", len(g.Values))
	}
	for i, v := range g.Values {
		k := Sample(v.Seed, v.Epoch, v.Place)
		for _, w := range v.Words {
			k = k.With(w)
		}
		if k.Uint64(0) != v.Draws[0] || k.Uint64(1) != v.Draws[1] || k.Float64(2) != v.Float || k.Intn(3, 1000) != v.Below1000 {
			t.Errorf("value %d: got %d %d %v %d, want %+v", i, k.Uint64(0), k.Uint64(1), k.Float64(2), k.Intn(3, 1000), v)
		}
	}
}

// Draws of one key, and first draws of neighbouring keys, are uniform bytes.
func TestUniform(t *testing.T) {
	const n = 1 << 18
	streams := map[string]func(i uint64) uint64{
		"draws of one key":     func(i uint64) uint64 { return New(1).Uint64(i) },
		"places side by side":  func(i uint64) uint64 { return Sample(1, 0, int64(i)).Uint64(0) },
		"epochs side by side":  func(i uint64) uint64 { return Sample(1, int64(i), 5).Uint64(0) },
		"seeds side by side":   func(i uint64) uint64 { return Sample(i, 0, 0).Uint64(0) },
		"words side by side":   func(i uint64) uint64 { return New(9).With(i).Uint64(0) },
		"neighbours' distance": func(i uint64) uint64 { return Sample(1, 0, int64(i)).Uint64(0) - Sample(1, 0, int64(i+1)).Uint64(0) },
	}
	for name, at := range streams {
		for shift := 0; shift < 64; shift += 8 {
			var counts [256]float64
			for i := range uint64(n) {
				counts[byte(at(i)>>shift)]++
			}
			chi := 0.0
			for _, c := range counts {
				chi += (c - n/256) * (c - n/256) / (n / 256)
			}
			if z := (chi - 255) / math.Sqrt(2*255); math.Abs(z) > 6 {
				t.Errorf("%s: bits %d to %d are %.1f sigma from uniform", name, shift, shift+7, z)
			}
		}
	}
}

func TestRanges(t *testing.T) {
	k := New(3)
	for i := range uint64(10000) {
		if f := k.Float64(i); f < 0 || f >= 1 {
			t.Fatalf("draw %d is %v", i, f)
		}
		if v := k.Intn(i, 7); v < 0 || v > 6 {
			t.Fatalf("draw %d below 7 is %d", i, v)
		}
	}
	if k.Intn(0, 1) != 0 {
		t.Fatal("a draw below 1 is 0")
	}
}
