package transform

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// chain is the geometry of a test beside the steps as they were asked for.
type chain struct {
	geometry
	asked []kernel.Step
}

// grow asks for one random step.
func (c *chain) grow(t *rapid.T) {
	at := size{c.w, c.h}
	switch rapid.IntRange(0, 6).Draw(t, "step") {
	case 0, 1:
		b := box{w: rapid.IntRange(1, at.w).Draw(t, "w"), h: rapid.IntRange(1, at.h).Draw(t, "h")}
		b.x, b.y = rapid.IntRange(0, at.w-b.w).Draw(t, "x"), rapid.IntRange(0, at.h-b.h).Draw(t, "y")
		c.asked = append(c.asked, kernel.Step{Op: kernel.OpCrop, X: b.x, Y: b.y, W: b.w, H: b.h})
		c.crop(b)
	case 2:
		w, h := rapid.IntRange(1, 40).Draw(t, "to w"), rapid.IntRange(1, 40).Draw(t, "to h")
		f := kernel.Filter(rapid.IntRange(0, 1).Draw(t, "filter"))
		c.asked = append(c.asked, kernel.Step{Op: kernel.OpResize, W: w, H: h, Filter: f})
		c.resize(w, h, f, false)
	case 3, 4:
		margin := rapid.IntRange(0, 9)
		m := margins{margin.Draw(t, "l"), margin.Draw(t, "t"), margin.Draw(t, "r"), margin.Draw(t, "b")}
		mode := kernel.PadMode(rapid.IntRange(0, 3).Draw(t, "mode"))
		fill := [3]uint8{1, 100, 200}
		if c.c == 1 {
			fill = [3]uint8{7, 7, 7}
		}
		c.asked = append(c.asked, kernel.Step{
			Op: kernel.OpPad, X: m.left, Y: m.top, W: m.left + at.w + m.right, H: m.top + at.h + m.bottom, Mode: mode, Fill: fill,
		})
		c.pad(m, mode, fill)
	case 5:
		op := rapid.SampledFrom([]kernel.Op{kernel.OpFlipH, kernel.OpFlipV}).Draw(t, "flip")
		c.asked = append(c.asked, kernel.Step{Op: op})
		c.flip(op)
	case 6:
		n := rapid.SampledFrom([]int{1, 3}).Draw(t, "channels")
		c.asked = append(c.asked, kernel.Step{Op: kernel.OpGray, C: n})
		c.gray(n)
	}
}

// TestGeometryEqualsStepByStep: the composed steps in one job give the bytes
// that the steps asked for give one job after the other.
func TestGeometryEqualsStepByStep(t *testing.T) {
	lane := kernel.NewLane()
	defer lane.Close()
	rapid.Check(t, func(t *rapid.T) {
		p := kernel.Pixels{W: rapid.IntRange(1, 40).Draw(t, "picture w"), H: rapid.IntRange(1, 40).Draw(t, "picture h")}
		p.C = rapid.SampledFrom([]int{1, 3}).Draw(t, "picture c")
		p.Pix = make([]byte, p.W*p.H*p.C)
		noise := rapid.Uint32().Draw(t, "noise")
		for i := range p.Pix {
			noise = noise*1664525 + 1013904223
			p.Pix[i] = byte(noise >> 24)
		}
		var c chain
		c.reset(p.W, p.H, p.C)
		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			c.grow(t)
		}
		fused := make([]byte, c.w*c.h*c.c)
		if err := lane.Run(&kernel.Job{Src: p, Steps: c.steps, Dst: fused}); err != nil {
			t.Fatalf("%v\nasked %+v\ncomposed %+v", err, c.asked, c.steps)
		}
		for i := range c.asked {
			w, h, n, err := kernel.ResultSize(c.asked[i:i+1], p.W, p.H, p.C)
			if err != nil {
				t.Fatal(err)
			}
			next := kernel.Pixels{Pix: make([]byte, w*h*n), W: w, H: h, C: n}
			if err := lane.Run(&kernel.Job{Src: p, Steps: c.asked[i : i+1], Dst: next.Pix}); err != nil {
				t.Fatal(err)
			}
			p = next
		}
		if p.W != c.w || p.H != c.h || p.C != c.c {
			t.Fatalf("%d x %d x %d, step by step %d x %d x %d", c.w, c.h, c.c, p.W, p.H, p.C)
		}
		if !bytes.Equal(p.Pix, fused) {
			t.Fatalf("differs\nasked %+v\ncomposed %+v", c.asked, c.steps)
		}
	})
}

// TestGeometryIsShort: what composes, is composed, and a crop leads.
func TestGeometryIsShort(t *testing.T) {
	H, V := kernel.Step{Op: kernel.OpFlipH}, kernel.Step{Op: kernel.OpFlipV}
	for name, c := range map[string]struct {
		make func(g *geometry)
		want []kernel.Step
	}{
		"crop of crop": {
			func(g *geometry) { g.crop(box{10, 20, 50, 40}); g.crop(box{5, 6, 7, 8}) },
			[]kernel.Step{{Op: kernel.OpCrop, X: 15, Y: 26, W: 7, H: 8}},
		},
		"crop of all": {func(g *geometry) { g.crop(box{0, 0, 100, 80}) }, nil},
		"flip twice":  {func(g *geometry) { g.flip(kernel.OpFlipH); g.flip(kernel.OpFlipV); g.flip(kernel.OpFlipH) }, []kernel.Step{V}},
		"crop of flip": {
			func(g *geometry) { g.flip(kernel.OpFlipH); g.crop(box{10, 0, 20, 80}) },
			[]kernel.Step{{Op: kernel.OpCrop, X: 70, W: 20, H: 80}, H},
		},
		"crop of grey": {
			func(g *geometry) { g.gray(1); g.crop(box{0, 0, 20, 80}); g.gray(3) },
			[]kernel.Step{{Op: kernel.OpCrop, W: 20, H: 80}, {Op: kernel.OpGray, C: 3}},
		},
		"crop inside a pad": {
			func(g *geometry) {
				g.pad(margins{4, 4, 4, 4}, kernel.PadReflect, [3]uint8{})
				g.crop(box{5, 6, 90, 70})
			},
			[]kernel.Step{{Op: kernel.OpCrop, X: 1, Y: 2, W: 90, H: 70}},
		},
		"crop with a little pad": {
			func(g *geometry) {
				g.pad(margins{4, 4, 4, 4}, kernel.PadConstant, [3]uint8{9})
				g.crop(box{1, 6, 90, 70})
			},
			[]kernel.Step{
				{Op: kernel.OpCrop, X: 0, Y: 2, W: 87, H: 70},
				{Op: kernel.OpPad, X: 3, Y: 0, W: 90, H: 70, Fill: [3]uint8{9}},
			},
		},
		"resize stays": {
			func(g *geometry) { g.resize(50, 40, kernel.Bilinear, false); g.crop(box{1, 2, 3, 4}) },
			[]kernel.Step{{Op: kernel.OpResize, W: 50, H: 40}, {Op: kernel.OpCrop, X: 1, Y: 2, W: 3, H: 4}},
		},
		"flip stays before resize": {
			func(g *geometry) {
				g.flip(kernel.OpFlipV)
				g.resize(50, 40, kernel.Bilinear, false)
				g.flip(kernel.OpFlipV)
			},
			[]kernel.Step{V, {Op: kernel.OpResize, W: 50, H: 40}, V},
		},
		"same size": {func(g *geometry) { g.resize(100, 80, kernel.Bilinear, false) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var g geometry
			g.reset(100, 80, 3)
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
