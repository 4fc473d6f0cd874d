package entries

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

func anyPoints(t *rapid.T) (points []kernel.Point) {
	var mcu, place uint64
	steps := rapid.IntRange(1, 300).Draw(t, "steps")
	wide := rapid.Uint64Range(1, 1<<rapid.IntRange(1, 31).Draw(t, "width")).Draw(t, "most")
	for range rapid.IntRange(0, 300).Draw(t, "n") {
		mcu += max(1, wide/64/uint64(steps)) * uint64(rapid.IntRange(1, steps).Draw(t, "step"))
		place += rapid.Uint64Range(1, wide).Draw(t, "places")
		if mcu > math.MaxUint32 || place > 1<<35-1 {
			break
		}
		p := kernel.Point{MCU: uint32(mcu), Byte: uint32(place >> 3), Bit: uint16(place & 7)}
		for c := range p.Pred {
			p.Pred[c] = rapid.Int16().Draw(t, "pred")
		}
		points = append(points, p)
	}
	return points
}

func TestARecordHasItsPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := anyPoints(t)
		b, ok := appendRecord(nil, 7, points)
		if !ok { // too many different steps
			return
		}
		got, ok := parseRecord(nil, b, 7)
		if !ok || !slices.Equal(got, points) {
			t.Fatalf("%v became %v, %v", points, got, ok)
		}
		if _, ok := parseRecord(nil, b, 8); ok {
			t.Fatal("of another fingerprint")
		}
		if n := rapid.IntRange(0, max(0, len(b)-1)).Draw(t, "cut"); len(b) > 0 {
			if _, ok := parseRecord(nil, b[:n], 7); ok {
				t.Fatalf("%d of %d bytes are a record", n, len(b))
			}
		}
	})
}

// Points in the order of their scan, or nothing.
func FuzzRecord(f *testing.F) {
	seed, _ := appendRecord(nil, 1, []kernel.Point{{MCU: 3, Byte: 500, Bit: 2, Pred: [3]int16{-5, 7, 0}}, {MCU: 9, Byte: 1100}})
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 8 {
			return
		}
		copy(b, seed[:8])
		points, ok := parseRecord(nil, b, 1)
		for i := range points {
			p := &kernel.Point{}
			if i > 0 {
				p = &points[i-1]
			}
			if ok && (points[i].MCU <= p.MCU || points[i].Place() <= p.Place()) {
				t.Fatalf("%v", points)
			}
		}
	})
}

func usualPoints() (points []kernel.Point) {
	for i := range 200 {
		points = append(points, kernel.Point{MCU: uint32(16*i + i/20*3 + 8), Byte: uint32(560*i + i%90 + 9), Bit: uint16(i % 8), Pred: [3]int16{int16(i * 7919 % 900), int16(i * 31 % 120), int16(i * 17 % 120)}})
	}
	return points
}

func BenchmarkParseRecord(b *testing.B) {
	rec, _ := appendRecord(nil, 1, usualPoints())
	b.ReportMetric(float64(len(rec))/200, "bytes/point")
	var buf []kernel.Point
	for b.Loop() {
		buf, _ = parseRecord(buf[:0], rec, 1)
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	points := usualPoints()
	var buf []byte
	for b.Loop() {
		buf, _ = appendRecord(buf[:0], 1, points)
	}
}
