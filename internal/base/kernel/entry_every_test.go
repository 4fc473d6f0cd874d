//go:build cgo && stoker_libjpeg

package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// checkPoints has every entry point of a picture found by every target and the twin, and
// decodes boxes from each of them, which the targets share. whole is libjpeg's picture. It
// returns the points; there are none if another decoder takes the picture.
func checkPoints(t failing, r *rand.Rand, places []*place, jpeg []byte, whole Pixels, spacing int) []Point {
	t.Helper()
	f, taken := readFrame(jpeg)
	if !taken {
		return nil
	}
	all, err := pointsGo(jpeg, spacing)
	if err != nil {
		t.Fatalf("the twin: %v", err)
	}
	for _, p := range places {
		e := Entries{Spacing: spacing}
		box := Step{Op: OpCrop, W: whole.W, H: whole.H}
		if d := diff(p.decode(t, jpeg, r.IntN(placeMost), r.IntN(placeMost), box, &e), whole.Pix); d != "" {
			t.Fatalf("%s, recording: %s", p.lane.target, d)
		}
		if !slices.Equal(e.Found, all) {
			t.Fatalf("%s: a decode of all finds the points %v, and the twin %v", p.lane.target, e.Found, all)
		}
	}
	e := Entries{Known: all}
	twin := Job{JPEG: jpeg, Dst: make([]byte, len(whole.Pix)), Entries: &e}
	if err := runTwin(&twin); err != nil || e.Wrong || e.Compared != len(all) {
		t.Fatalf("the twin compared %d of %d points of its own: wrong %v, %v", e.Compared, len(all), e.Wrong, err)
	}
	if d := diff(twin.Dst, whole.Pix); d != "" {
		t.Fatalf("the twin: %s", d)
	}
	for k := range len(all) - 1 {
		checkPoint(t, r, places[(k+int(all[k].Bit))%len(places)], f, jpeg, whole, all[k:k+2])
	}
	return all
}

func runTwin(j *Job) error {
	twin := newLane("go")
	defer twin.Close()
	return twin.Run(j)
}

// checkPoint decodes a box that begins between two points, of which nothing else is known, so
// that it is decoded from the first one.
func checkPoint(t failing, r *rand.Rand, p *place, f *frame, jpeg []byte, whole Pixels, two []Point) {
	t.Helper()
	a, b := int(two[0].MCU), int(two[1].MCU)
	if f.ri > 0 && a/f.ri != b/f.ri {
		return // the last point of a segment is only compared with
	}
	m := a + r.IntN(b-a)
	x, y := m%f.mcusAcross()*8*f.hmax, m/f.mcusAcross()*8*f.vmax
	// Pixels at the edge of an MCU may need the MCU beside or above it.
	inside := x+4 < whole.W && y+4 < whole.H
	box := Step{Op: OpCrop, X: min(x+4, whole.W-1), Y: min(y+4, whole.H-1)}
	box.W, box.H = 1+r.IntN(min(70, whole.W-box.X)), 1+r.IntN(min(70, whole.H-box.Y))
	e := Entries{Known: two}
	got := p.decode(t, jpeg, r.IntN(placeMost), r.IntN(placeMost), box, &e)
	if d := diff(got, crop(whole, box.X, box.Y, box.W, box.H).Pix); d != "" || e.Wrong {
		t.Fatalf("%s: box %+v from point %+v: %s; %+v", p.lane.target, box, two[0], d, e)
	}
	if inside && (e.Jumps != 1 || e.Compared != 1) {
		t.Fatalf("%s: box %+v was not decoded from point %+v: %+v", p.lane.target, box, two[0], e)
	}
}

// Points where predictors are at both ends of 16 bits, and go on at the other end.
func TestPointsAtTheEndsOfPredictors(t *testing.T) {
	measure := newReference()
	defer measure.Close()
	places, end := allPlaces()
	defer end()
	r := rand.New(rand.NewPCG(91, 92))
	for _, kind := range []string{"gray", "4:4:4", "4:2:0", "4:2:2", "4:4:0"} {
		for _, restart := range []int{0, 97} {
			w, h := 600+r.IntN(20), 90+r.IntN(20)
			jpeg := scanned(t, kind, w, h, restart, steep(restart))
			in := named{t, boxed{kind: fmt.Sprintf("%s restart %d", kind, restart)}}
			whole := Pixels{Pix: run(in, measure.of(jpeg), Job{JPEG: jpeg}), W: w, H: h, C: 3}
			points := checkPoints(in, r, places, jpeg, whole, 1)
			least, most := int16(0), int16(0)
			for _, p := range points {
				for _, v := range p.Pred {
					least, most = min(least, v), max(most, v)
				}
			}
			if most != 1<<15-1 || least != -1<<15 {
				in.Fatalf("%d points have predictors from %d to %d", len(points), least, most)
			}
		}
	}
}

// steep draws differences that lead each component to the ends of 16 bits, where it stays for
// some blocks, turns, or goes on at the other end.
func steep(restart int) func(r *rand.Rand, mcu, component int) (diff int, full bool) {
	var pred, way [3]int
	var segment [3]int
	return func(r *rand.Rand, mcu, c int) (int, bool) {
		if restart > 0 && mcu/restart != segment[c] {
			segment[c], pred[c] = mcu/restart, 0
		}
		if way[c] == 0 {
			way[c] = 1 - 2*r.IntN(2)
		}
		end := 1<<15 - 1
		if way[c] < 0 {
			end = -1 << 15
		}
		d := min(2047, (end-pred[c])*way[c]) * way[c]
		if pred[c] == end {
			switch d = 0; r.IntN(3) {
			case 0:
				d = way[c]
			case 1:
				way[c] = -way[c]
			}
		}
		pred[c] = int(int16(pred[c] + d))
		return d, false
	}
}

// Points inside, before and after bytes that are stuffed: an MCU begins with 0xff if it has a
// difference of DC of 11 bits, and ends with it if it ends with a large coefficient.
func TestPointsAtStuffedBytes(t *testing.T) {
	measure := newReference()
	defer measure.Close()
	places, end := allPlaces()
	defer end()
	r := rand.New(rand.NewPCG(93, 94))
	var within, at, after int
	for i := range 16 {
		restart := i / 2 % 2 * 50
		next := steep(restart)
		if i%2 == 0 {
			next = func(r *rand.Rand, _, _ int) (int, bool) { return r.IntN(31) - 15, r.IntN(3) == 0 }
		}
		jpeg := scanned(t, []string{"gray", "4:4:4"}[i%2], 200+r.IntN(90), 200+r.IntN(90), restart, next)
		f, _ := readFrame(jpeg)
		whole := Pixels{Pix: run(t, measure.of(jpeg), Job{JPEG: jpeg}), W: f.x, H: f.y, C: 3}
		for _, q := range checkPoints(t, r, places, jpeg, whole, 1) {
			i := f.scan + int(q.Byte)
			switch {
			case jpeg[i] == 0xff && q.Bit > 0:
				within++
			case jpeg[i] == 0xff:
				at++
			case jpeg[i-1] == 0 && jpeg[i-2] == 0xff && q.Bit == 0:
				after++
			}
		}
	}
	t.Logf("points within stuffed bytes: %d, right before: %d, right after: %d", within, at, after)
	if within == 0 || at == 0 || after == 0 {
		t.Error("not all kinds of points at stuffed bytes were met")
	}
}
