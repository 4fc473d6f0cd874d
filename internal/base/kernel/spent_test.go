package kernel

import (
	"bytes"
	"testing"
	"time"
)

// Taking the times of a job changes nothing of its result, and the parts are parts
// of the whole, which is part of what the caller waits.
func TestSpent(t *testing.T) {
	jpeg := photos(t)["coffee.jpg"]
	h, err := ReadHeader(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	steps := []Step{{Op: OpCrop, X: 20, Y: 30, W: h.W - 100, H: h.H - 90}, {Op: OpResize, W: 120, H: 90}, {Op: OpFlipH}, {Op: OpPad, X: 3, Y: 3, W: 126, H: 96}}
	for _, target := range targets() {
		l := newLane(target)
		defer l.Close()
		for _, out := range []Output{{}, {Float: true, CHW: true, Scale: [3]float32{1, 1, 1}}} {
			size := 126 * 96 * 3
			if out.Float {
				size *= 4
			}
			plain := Job{JPEG: jpeg, Steps: steps, Out: out, Dst: make([]byte, size)}
			timed := Job{JPEG: jpeg, Steps: steps, Out: out, Dst: make([]byte, size), Timed: true}
			if err := l.Run(&plain); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if err := l.Run(&timed); err != nil {
				t.Fatal(err)
			}
			most := time.Since(begin)
			if !bytes.Equal(plain.Dst, timed.Dst) {
				t.Errorf("%s: a job whose time is taken gives other pixels", target)
			}
			if plain.Spent != (Spent{}) {
				t.Errorf("%s: nobody asked for %+v", target, plain.Spent)
			}
			if s := timed.Spent; s.Decode <= 0 || s.Write <= 0 || s.Decode+s.Write > s.All || s.All > most {
				t.Errorf("%s: %+v of %v", target, s, most)
			}
		}
	}
}
