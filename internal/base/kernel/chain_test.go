package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// asking is a chain beside the steps as they were asked for.
type asking struct {
	Chain
	asked []Step
}

// grow asks for one random step.
func (c *asking) grow(t *rapid.T) {
	at := size{c.w, c.h}
	switch rapid.IntRange(0, 12).Draw(t, "step") {
	case 0, 1:
		b := rect{w: rapid.IntRange(1, at.w).Draw(t, "w"), h: rapid.IntRange(1, at.h).Draw(t, "h")}
		b.x, b.y = rapid.IntRange(0, at.w-b.w).Draw(t, "x"), rapid.IntRange(0, at.h-b.h).Draw(t, "y")
		c.asked = append(c.asked, Step{Op: OpCrop, X: b.x, Y: b.y, W: b.w, H: b.h})
		c.Crop(b.x, b.y, b.w, b.h)
	case 2:
		w, h := rapid.IntRange(1, 40).Draw(t, "to w"), rapid.IntRange(1, 40).Draw(t, "to h")
		f := Filter(rapid.IntRange(0, 3).Draw(t, "filter"))
		c.asked = append(c.asked, Step{Op: OpResize, W: w, H: h, Filter: f})
		c.Resize(w, h, f, false)
	case 3, 4:
		margin := rapid.IntRange(0, 9)
		left, top, right, bottom := margin.Draw(t, "l"), margin.Draw(t, "t"), margin.Draw(t, "r"), margin.Draw(t, "b")
		mode := PadMode(rapid.IntRange(0, 3).Draw(t, "mode"))
		fill := [3]uint8{1, 100, 200}
		if c.c == 1 {
			fill = [3]uint8{7, 7, 7}
		}
		c.asked = append(c.asked, Step{
			Op: OpPad, X: left, Y: top, W: left + at.w + right, H: top + at.h + bottom, Mode: mode, Fill: fill,
		})
		c.Pad(left, top, right, bottom, mode, fill)
	case 5:
		op := rapid.SampledFrom([]Op{OpFlipH, OpFlipV}).Draw(t, "flip")
		c.asked = append(c.asked, Step{Op: op})
		c.Flip(op)
	case 6:
		n := rapid.SampledFrom([]int{1, 3}).Draw(t, "channels")
		c.asked = append(c.asked, Step{Op: OpGray, C: n})
		c.Gray(n)
	case 7:
		s := anyBlur(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "blur"), 1)), at.w, at.h)
		c.asked = append(c.asked, s)
		c.Apply(s)
	case 10:
		s := anyErase(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "erase"), 1)), at.w, at.h)
		c.asked = append(c.asked, s)
		c.Apply(s)
	case 8, 9:
		s := anyColour(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "colour"), 1)))
		c.asked = append(c.asked, s)
		c.Apply(s)
	case 12:
		s := anyWarp(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "warp"), 1)), at.w, at.h, 40)
		fill := &s.Fill
		if !s.Filled {
			fill = nil
		}
		c.asked = append(c.asked, s)
		c.Warp(s.Map, s.W, s.H, s.Filter, fill)
	case 11:
		for _, s := range anySum(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "sum"), 1)), at.w, at.h) {
			c.asked = append(c.asked, s)
			c.Apply(s)
		}
	}
}

// TestChainEqualsStepByStep: the composed steps in one job give the bytes
// that the steps asked for give one job after the other.
func TestChainEqualsStepByStep(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	rapid.Check(t, func(t *rapid.T) {
		p := Pixels{W: rapid.IntRange(1, 40).Draw(t, "picture w"), H: rapid.IntRange(1, 40).Draw(t, "picture h")}
		p.C = rapid.SampledFrom([]int{1, 3}).Draw(t, "picture c")
		p.Pix = make([]byte, p.W*p.H*p.C)
		noise := rapid.Uint32().Draw(t, "noise")
		for i := range p.Pix {
			noise = noise*1664525 + 1013904223
			p.Pix[i] = byte(noise >> 24)
		}
		var c asking
		c.Reset(p.W, p.H, p.C)
		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			c.grow(t)
		}
		fused := make([]byte, c.w*c.h*c.c)
		if err := lane.Run(&Job{Src: p, Steps: c.steps, Dst: fused}); err != nil {
			t.Fatalf("%v\nasked %+v\ncomposed %+v", err, c.asked, c.steps)
		}
		for i := 0; i < len(c.asked); {
			last := i + 1 // a sum is one
			for c.asked[i].Op == OpKeep && c.asked[last-1].Op != OpSum {
				last++
			}
			w, h, n, err := ResultSize(c.asked[i:last], p.W, p.H, p.C)
			if err != nil {
				t.Fatal(err)
			}
			next := Pixels{Pix: make([]byte, w*h*n), W: w, H: h, C: n}
			if err := lane.Run(&Job{Src: p, Steps: c.asked[i:last], Dst: next.Pix}); err != nil {
				t.Fatal(err)
			}
			p, i = next, last
		}
		if p.W != c.w || p.H != c.h || p.C != c.c {
			t.Fatalf("%d x %d x %d, step by step %d x %d x %d", c.w, c.h, c.c, p.W, p.H, p.C)
		}
		if !bytes.Equal(p.Pix, fused) {
			t.Fatalf("differs\nasked %+v\ncomposed %+v", c.asked, c.steps)
		}
	})
}

// TestChainIsShort: what composes, is composed, and a crop leads.
func TestChainIsShort(t *testing.T) {
	H, V := Step{Op: OpFlipH}, Step{Op: OpFlipV}
	for name, c := range map[string]struct {
		make func(g *Chain)
		want []Step
	}{
		"crop of crop": {
			func(g *Chain) { g.Crop(10, 20, 50, 40); g.Crop(5, 6, 7, 8) },
			[]Step{{Op: OpCrop, X: 15, Y: 26, W: 7, H: 8}},
		},
		"crop of all": {func(g *Chain) { g.Crop(0, 0, 100, 80) }, nil},
		"flip twice":  {func(g *Chain) { g.Flip(OpFlipH); g.Flip(OpFlipV); g.Flip(OpFlipH) }, []Step{V}},
		"crop of flip": {
			func(g *Chain) { g.Flip(OpFlipH); g.Crop(10, 0, 20, 80) },
			[]Step{{Op: OpCrop, X: 70, W: 20, H: 80}, H},
		},
		"crop of grey": {
			func(g *Chain) { g.Gray(1); g.Crop(0, 0, 20, 80); g.Gray(3) },
			[]Step{{Op: OpCrop, W: 20, H: 80}, {Op: OpGray, C: 3}},
		},
		"crop inside a pad": {
			func(g *Chain) {
				g.Pad(4, 4, 4, 4, PadReflect, [3]uint8{})
				g.Crop(5, 6, 90, 70)
			},
			[]Step{{Op: OpCrop, X: 1, Y: 2, W: 90, H: 70}},
		},
		"crop with a little pad": {
			func(g *Chain) {
				g.Pad(4, 4, 4, 4, PadConstant, [3]uint8{9})
				g.Crop(1, 6, 90, 70)
			},
			[]Step{
				{Op: OpCrop, X: 0, Y: 2, W: 87, H: 70},
				{Op: OpPad, X: 3, Y: 0, W: 90, H: 70, Fill: [3]uint8{9}},
			},
		},
		"resize stays": {
			func(g *Chain) { g.Resize(50, 40, Bilinear, false); g.Crop(1, 2, 3, 4) },
			[]Step{{Op: OpResize, W: 50, H: 40}, {Op: OpCrop, X: 1, Y: 2, W: 3, H: 4}},
		},
		"flip stays before resize": {
			func(g *Chain) {
				g.Flip(OpFlipV)
				g.Resize(50, 40, Bilinear, false)
				g.Flip(OpFlipV)
			},
			[]Step{V, {Op: OpResize, W: 50, H: 40}, V},
		},
		"same size": {func(g *Chain) { g.Resize(100, 80, Bilinear, false) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var g Chain
			g.Reset(100, 80, 3)
			c.make(&g)
			if len(g.steps) != len(c.want) {
				t.Fatalf("%+v", g.steps)
			}
			for i := range g.steps {
				if g.steps[i] != c.want[i] {
					t.Errorf("step %d: %+v, not %+v", i, g.steps[i], c.want[i])
				}
			}
		})
	}
}

// TestChainWithin: a chain gives the same bytes of any region that has what it reads.
func TestChainWithin(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	rapid.Check(t, func(t *rapid.T) {
		p := Pixels{W: rapid.IntRange(1, 40).Draw(t, "picture w"), H: rapid.IntRange(1, 40).Draw(t, "picture h"), C: 3}
		p.Pix = make([]byte, p.W*p.H*p.C)
		for i := range p.Pix {
			p.Pix[i] = byte(i * i >> 3)
		}
		var c asking
		c.Reset(p.W, p.H, p.C)
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			c.grow(t)
		}
		want, got := make([]byte, c.w*c.h*c.c), make([]byte, c.w*c.h*c.c)
		if err := lane.Run(&Job{Src: p, Steps: c.steps, Dst: want}); err != nil {
			t.Fatal(err)
		}
		x, y, w, h := c.Reads()
		left, top := rapid.IntRange(0, x).Draw(t, "left"), rapid.IntRange(0, y).Draw(t, "top")
		part := Pixels{W: rapid.IntRange(x+w, p.W).Draw(t, "right") - left, H: rapid.IntRange(y+h, p.H).Draw(t, "bottom") - top, C: 3}
		for row := range part.H {
			at := ((top+row)*p.W + left) * 3
			part.Pix = append(part.Pix, p.Pix[at:at+3*part.W]...)
		}
		c.Within(left, top, part.W, part.H)
		if err := lane.Run(&Job{Src: part, Steps: c.steps, Dst: got}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Fatalf("%+v of a part: other bytes", c.steps)
		}
	})
}
