package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// anyWarp draws a warp of a w x h picture.
func anyWarp(r *rand.Rand, w, h, side int) Step {
	s := Step{Op: OpAffine, W: w, H: h, Filter: Filter(r.IntN(2)), Filled: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		s.W, s.H = 1+r.IntN(side), 1+r.IntN(side)
	}
	if s.Filled {
		s.Fill = [3]uint8{uint8(r.IntN(256)), uint8(r.IntN(256)), uint8(r.IntN(256))}
	}
	sin, cos := math.Sincos(2 * math.Pi * r.Float64())
	zoom := math.Exp(3*r.Float64() - 1.5)
	s.Map = Map{cos * zoom, -sin * zoom, 0, sin * zoom, cos * zoom, 0}
	s.Map[2] = r.Float64()*float64(w) - (s.Map[0]*float64(s.W)+s.Map[1]*float64(s.H))/2
	s.Map[5] = r.Float64()*float64(h) - (s.Map[3]*float64(s.W)+s.Map[4]*float64(s.H))/2
	switch r.IntN(8) {
	case 0: // whole pixels
		s.Map = Map{1, 0, float64(r.IntN(9) - 4), 0, 1, float64(r.IntN(9) - 4)}
	case 1: // halves
		s.Map = Map{-1, 0, float64(w) + 0.5, 0, 0.5, 0.5}
	case 2: // too large for whole numbers
		s.Map[r.IntN(6)] *= 1e12
	case 3, 4:
		s.Op = OpPerspective
		s.Map[6], s.Map[7] = (r.Float64()*2-1)/float64(w), (r.Float64()*2-1)/float64(h)
	case 5: // the horizon crosses the picture
		s.Op = OpPerspective
		s.Map[6], s.Map[7] = -2/float64(s.W), float64(r.IntN(3))
	}
	return s
}

// A warp that moves nothing, or turns by a quarter, gives the pixels themselves.
func TestWarpsOfWholePixels(t *testing.T) {
	each(t, func(t *testing.T, l *Lane) {
		r := rand.New(rand.NewPCG(5, 6))
		for range 50 {
			w, h := 1+r.IntN(60), 1+r.IntN(60)
			p := random(r, w, h, 1+2*r.IntN(2))
			for f := range Filter(2) {
				for name, c := range map[string]struct {
					s    Step
					from func(x, y int) (int, int)
				}{
					"as it is": {Step{W: w, H: h, Map: Map{1, 0, 0, 0, 1, 0}}, func(x, y int) (int, int) { return x, y }},
					"half a turn": {
						Step{W: w, H: h, Map: Map{-1, 0, float64(w), 0, -1, float64(h)}},
						func(x, y int) (int, int) { return w - 1 - x, h - 1 - y },
					},
					"quarter of a turn": {
						Step{W: h, H: w, Map: Map{0, -1, float64(w), 1, 0, 0}},
						func(x, y int) (int, int) { return w - 1 - y, x },
					},
				} {
					for _, op := range []Op{OpAffine, OpPerspective} {
						c.s.Op, c.s.Filter = op, f
						got := runPixels(t, l, p, c.s)
						for y := range got.H {
							for x := range got.W {
								sx, sy := c.from(x, y)
								for k := range p.C {
									if got.row(y)[x*p.C+k] != p.row(sy)[sx*p.C+k] {
										t.Fatalf("%s, filter %d, %dx%d: pixel %d, %d", name, f, w, h, x, y)
									}
								}
							}
						}
					}
				}
			}
		}
	})
}

// Of two pixels that are equally near, torchvision's float32 decides. The numbers are what its
// affine and rotate make of the numbers 1 to 40, 10 x 4.
func TestNearestOfTwo(t *testing.T) {
	p := newPixels(10, 4, 1)
	for i := range p.Pix {
		p.Pix[i] = byte(i + 1)
	}
	for name, c := range map[string]struct {
		m    [6]float64 // from the middle
		want [40]byte
	}{
		"scale by 2": {[6]float64{0.5, 0, 0, 0, 0.5, 0}, [40]byte{
			13, 14, 14, 15, 15, 16, 16, 17, 17, 18, 13, 14, 14, 15, 15, 16, 16, 17, 17, 18,
			23, 24, 24, 25, 25, 26, 26, 27, 27, 28, 23, 24, 24, 25, 25, 26, 26, 27, 27, 28,
		}},
		"scale by 1/2": {[6]float64{2, 0, 0, 0, 2, 0}, [40]byte{
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 5, 7, 9, 0, 0, 0,
			0, 0, 21, 22, 25, 27, 29, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		}},
		"shear by 45 degrees": {[6]float64{1, 1, 0, 0, 1, 0}, [40]byte{
			0, 1, 1, 2, 3, 4, 5, 7, 7, 9, 11, 11, 12, 13, 15, 15, 17, 17, 18, 19,
			21, 23, 23, 24, 25, 27, 27, 29, 29, 0, 32, 33, 35, 35, 37, 37, 39, 39, 0, 0,
		}},
		"quarter of a turn": {[6]float64{6.123234262925839e-17, -1, 0, 1, 6.123234262925839e-17, 0}, [40]byte{
			0, 0, 0, 7, 17, 27, 37, 0, 0, 0, 0, 0, 0, 6, 16, 26, 36, 0, 0, 0,
			0, 0, 0, 5, 15, 25, 35, 0, 0, 0, 0, 0, 0, 4, 14, 24, 34, 0, 0, 0,
		}},
		"shift and scale by 2/3": {[6]float64{1.5, 0, -1.5, 0, 1.5, 0}, [40]byte{
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 13, 15, 16, 18, 19, 0,
			0, 0, 0, 22, 23, 25, 26, 28, 29, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		}},
	} {
		m := c.m
		s := Step{Op: OpAffine, W: p.W, H: p.H, Filter: Nearest, Map: Map{
			m[0], m[1], m[2] + 5 - float64(m[0]*5) - float64(m[1]*2),
			m[3], m[4], m[5] + 2 - float64(m[3]*5) - float64(m[4]*2),
		}}
		each(t, func(t *testing.T, l *Lane) {
			if got := runPixels(t, l, p, s); [40]byte(got.Pix) != c.want {
				t.Errorf("%s: %v", name, got.Pix)
			}
		})
	}
}

// The pixels of a warp outside the picture are the fill, and between, a blend of both.
func TestWarpFill(t *testing.T) {
	each(t, func(t *testing.T, l *Lane) {
		p := Pixels{Pix: []byte{100, 100, 100, 100}, W: 2, H: 2, C: 1}
		for _, c := range []struct {
			fill []uint8
			want [4]byte
		}{
			{nil, [4]byte{0, 50, 100, 50}},
			{[]uint8{0}, [4]byte{0, 25, 100, 25}}, // half of the half that is inside
			{[]uint8{40}, [4]byte{40, 45, 100, 45}},
		} {
			s := Step{Op: OpAffine, W: 4, H: 1, Map: Map{1, 0, -1.5, 0, 1, 0.5}}
			if c.fill != nil {
				s.Filled, s.Fill = true, [3]uint8{c.fill[0]}
			}
			if got := runPixels(t, l, p, s); [4]byte(got.Pix) != c.want {
				t.Errorf("fill %v: %v, not %v", c.fill, got.Pix, c.want)
			}
		}
	})
}

// A chain makes a crop and a pad of a warp by whole pixels.
func TestChainShifts(t *testing.T) {
	var g Chain
	g.Reset(10, 8, 3)
	g.Warp(Map{1, 0, 3, 0, 1, -2}, 10, 8, Bilinear, &[3]uint8{7, 8, 9})
	want := []Step{
		{Op: OpCrop, X: 3, Y: 0, W: 7, H: 6},
		{Op: OpPad, X: 0, Y: 2, W: 10, H: 8, Fill: [3]uint8{7, 8, 9}},
	}
	if got := g.Steps(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v", got)
	}
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		w, h := 1+r.IntN(12), 1+r.IntN(12)
		p := random(r, w, h, 3)
		s := Step{Op: OpAffine, W: w, H: h, Map: Map{1, 0, float64(r.IntN(40) - 20), 0, 1, float64(r.IntN(40) - 20)}}
		fill := (*[3]uint8)(nil)
		if r.IntN(2) == 0 {
			s.Filled, s.Fill = true, [3]uint8{1, 2, 3}
			fill = &s.Fill
		}
		g.Reset(w, h, 3)
		g.Warp(s.Map, w, h, Filter(r.IntN(2)), fill)
		if string(runPixels(t, l, p, g.Steps()...).Pix) != string(runPixels(t, l, p, s).Pix) {
			t.Fatalf("%+v: %+v", s, g.Steps())
		}
	}
}

func runPixels(t *testing.T, l *Lane, p Pixels, steps ...Step) Pixels {
	t.Helper()
	w, h, c, err := ResultSize(steps, p.W, p.H, p.C)
	if err != nil {
		t.Fatal(err)
	}
	q := newPixels(w, h, c)
	if err := l.Run(&Job{Src: p, Steps: steps, Dst: q.Pix}); err != nil {
		t.Fatal(err)
	}
	return q
}
