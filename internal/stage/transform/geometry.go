package transform

import "github.com/stoker-data/stoker/internal/base/kernel"

// geometry is the chain of steps of one sample, kept short while it grows: a
// crop moves to the front past everything it commutes with to the bit and
// joins the crop that is there, since a leading crop of a JPEG decodes only its
// region; a flip cancels the same flip; grey after grey is one. Nothing moves
// past a resize: the kernel fuses resize and crop itself, and a flip before
// resampling rounds differently from one behind it.
//
// Its slices are reused from sample to sample.
type geometry struct {
	source  size
	steps   []kernel.Step
	sizes   []size // sizes[i] is what step i is given
	w, h, c int    // what the chain gives
}

type size struct{ w, h int }

func (g *geometry) reset(w, h, c int) {
	g.source = size{w, h}
	g.steps, g.sizes = g.steps[:0], g.sizes[:0]
	g.w, g.h, g.c = w, h, c
}

func (g *geometry) add(s kernel.Step) {
	g.steps = append(g.steps, s)
	g.measure()
}

// measure works out the sizes anew, from the source on.
func (g *geometry) measure() {
	g.sizes = g.sizes[:0]
	at := g.source
	for i := range g.steps {
		g.sizes = append(g.sizes, at)
		switch s := &g.steps[i]; s.Op {
		case kernel.OpCrop, kernel.OpResize, kernel.OpPad:
			at = size{s.W, s.H}
		}
	}
	g.w, g.h = at.w, at.h
}

func (g *geometry) remove(i int) {
	g.steps = append(g.steps[:i], g.steps[i+1:]...)
}

func (g *geometry) insert(i int, s kernel.Step) {
	g.steps = append(g.steps, kernel.Step{})
	copy(g.steps[i+1:], g.steps[i:])
	g.steps[i] = s
}

// crop keeps only b, which lies inside the picture as it stands.
func (g *geometry) crop(b box) {
	at := size{g.w, g.h} // what b is a part of
	i := len(g.steps)    // b stands behind step i-1
	for {
		if b == (box{0, 0, at.w, at.h}) {
			break
		}
		if i == 0 || !g.pass(i-1, &b) {
			g.insert(i, kernel.Step{Op: kernel.OpCrop, X: b.x, Y: b.y, W: b.w, H: b.h})
			break
		}
		i--
		at = g.sizes[i]
	}
	g.dropEmpty()
	g.measure()
}

// pass rewrites b, a region behind step i, to the region before it, and step i
// to what it then is: the result is the same to the bit. It says false, and
// changes nothing, where that can not be.
func (g *geometry) pass(i int, b *box) bool {
	s, in := &g.steps[i], g.sizes[i]
	switch s.Op {
	case kernel.OpGray:
		return true
	case kernel.OpFlipH:
		b.x = in.w - b.x - b.w
		return true
	case kernel.OpFlipV:
		b.y = in.h - b.y - b.h
		return true
	case kernel.OpCrop:
		*b = box{s.X + b.x, s.Y + b.y, b.w, b.h}
		s.X, s.Y, s.W, s.H = 0, 0, b.w, b.h // now takes everything
		return true
	case kernel.OpPad:
		return passPad(s, in, b)
	}
	return false
}

// passPad takes a region of a padded picture apart: the part that is picture,
// and the padding around it. Edges stay edges, because padding is left only on
// a side where the region begins outside; reflections would need pixels that
// the region does not hold.
func passPad(s *kernel.Step, in size, b *box) bool {
	x0, x1 := max(b.x, s.X), min(b.x+b.w, s.X+in.w)
	y0, y1 := max(b.y, s.Y), min(b.y+b.h, s.Y+in.h)
	if x0 >= x1 || y0 >= y1 {
		return false // padding only
	}
	inside := box{x0 - s.X, y0 - s.Y, x1 - x0, y1 - y0}
	whole := inside.w == b.w && inside.h == b.h
	if !whole && s.Mode != kernel.PadConstant && s.Mode != kernel.PadEdge {
		return false
	}
	s.X, s.Y, s.W, s.H = x0-b.x, y0-b.y, b.w, b.h
	*b = inside
	return true
}

// dropEmpty removes the pads and crops that a crop moving past has left
// without work. They alone can be told by their numbers: sizes are stale here.
func (g *geometry) dropEmpty() {
	at := g.source
	for i := 0; i < len(g.steps); {
		s := &g.steps[i]
		moves := s.Op == kernel.OpCrop || s.Op == kernel.OpPad
		if moves && s.X == 0 && s.Y == 0 && s.W == at.w && s.H == at.h {
			g.remove(i)
			continue
		}
		if moves || s.Op == kernel.OpResize {
			at = size{s.W, s.H}
		}
		i++
	}
}

func (g *geometry) resize(w, h int, f kernel.Filter, draft bool) {
	if w == g.w && h == g.h {
		return // torchvision returns the picture as it is
	}
	g.add(kernel.Step{Op: kernel.OpResize, W: w, H: h, Filter: f, Draft: draft})
}

// pad puts m pixels around the picture.
func (g *geometry) pad(m margins, mode kernel.PadMode, fill [3]uint8) {
	if m == (margins{}) {
		return
	}
	if mode != kernel.PadConstant {
		fill = [3]uint8{}
	}
	g.add(kernel.Step{
		Op: kernel.OpPad, X: m.left, Y: m.top, W: m.left + g.w + m.right, H: m.top + g.h + m.bottom,
		Mode: mode, Fill: fill,
	})
}

// flip is OpFlipH or OpFlipV.
func (g *geometry) flip(op kernel.Op) {
	for i := len(g.steps) - 1; i >= 0; i-- {
		switch g.steps[i].Op {
		case op:
			g.remove(i)
			g.measure()
			return
		case kernel.OpFlipH, kernel.OpFlipV, kernel.OpGray:
			continue
		}
		break
	}
	g.add(kernel.Step{Op: op})
}

// gray makes the picture grey, in c channels. The luma of a grey is itself:
// (19595+38470+7471) x + 32768 >> 16 = x.
func (g *geometry) gray(c int) {
	if g.c == 1 && c == 1 {
		return
	}
	g.c = c
	for i := len(g.steps) - 1; i >= 0; i-- {
		switch s := &g.steps[i]; s.Op {
		case kernel.OpGray:
			s.C = c
			return
		case kernel.OpFlipH, kernel.OpFlipV, kernel.OpCrop:
			continue
		}
		break
	}
	g.add(kernel.Step{Op: kernel.OpGray, C: c})
}
