package kernel

// Which steps may change places, become one, or be left out is decided in this
// file and nowhere else. Each rule keeps every pixel, to the bit:
//
//   - A crop moves in front of crops, flips, greys, and colours that depend on no other
//     pixels. It moves in front of a pad as far as the padding that is left can still be
//     made from the pixels that are left: always for constant padding and edges, unless
//     only padding is left; for reflections only if no padding is left. It never moves in
//     front of a resize, which reads beyond the region.
//   - Two crops are one. A flip cancels the same flip with only other flips and
//     greys between. Grey after grey is one.
//   - A flip moves in front of a pad and of a crop, never of a resize: resampling
//     is not symmetric to the last bit.
//   - A step that gives the picture that it is given is left out.
//
// Whatever is not listed keeps its place: so does a new step until it has a rule.
// Chain applies the rules to the steps of one picture as they are asked for, the
// planner of the C kernel when it lays them out in passes.

// size is the width and height of a picture.
type size struct{ w, h int }

// rect is a region of a picture, in pixels.
type rect struct{ x, y, w, h int }

// mirrored is where a part that began at x begins after the whole is mirrored.
func mirrored(x, part, whole int) int { return whole - x - part }

// result is the size of the step's result for a picture of size at.
func (s *Step) result(at size) size {
	switch s.Op {
	case OpCrop, OpResize, OpPad, OpAffine, OpPerspective:
		return size{s.W, s.H}
	}
	return at
}

// idle reports whether the step leaves the picture unchanged.
func (s *Step) idle(at size, c int) bool {
	switch s.Op {
	case OpResize:
		return s.W == at.w && s.H == at.h
	case OpCrop, OpPad:
		return s.X == 0 && s.Y == 0 && s.W == at.w && s.H == at.h
	case OpGray:
		return s.C == 1 && c == 1
	}
	return s.Op.colour() && s.unchanging(c) || s.Op == OpSharpness && s.N == 1 || s.Op == OpBlur && s.leaves() ||
		s.Op == OpErase && (s.W == 0 || s.H == 0)
}

// before moves a region in front of the step: it turns b, a region of the step's result,
// into the region of its input, in, and the step into what it then is. It returns false,
// and changes nothing, if no such region gives the same pixels.
func (s *Step) before(in size, b *rect) bool {
	switch s.Op {
	case OpFlipH:
		b.x = mirrored(b.x, b.w, in.w)
		return true
	case OpFlipV:
		b.y = mirrored(b.y, b.h, in.h)
		return true
	case OpCrop:
		*b = rect{s.X + b.x, s.Y + b.y, b.w, b.h}
		s.X, s.Y, s.W, s.H = 0, 0, b.w, b.h // it now takes the whole input
		return true
	case OpPad:
		return s.beforePad(in, b)
	}
	return s.Op.local()
}

// beforePad splits a region of a padded picture into the part that is picture and the
// padding around it. Edges stay edges, because padding is left only on a side where the
// region begins outside; reflections would need pixels that the region does not contain.
// The picture may begin to the left of the region, or above it.
func (s *Step) beforePad(in size, b *rect) bool {
	x0, x1 := max(b.x, s.X), min(b.x+b.w, s.X+in.w)
	y0, y1 := max(b.y, s.Y), min(b.y+b.h, s.Y+in.h)
	if x0 >= x1 || y0 >= y1 {
		return false // padding only
	}
	inside := rect{x0 - s.X, y0 - s.Y, x1 - x0, y1 - y0}
	whole := inside.w == b.w && inside.h == b.h
	if !whole && s.Mode != PadConstant && s.Mode != PadEdge {
		return false
	}
	s.X, s.Y, s.W, s.H = x0-b.x, y0-b.y, b.w, b.h
	*b = inside
	return true
}

// Chain is the steps of one picture, kept short by the rules above: a leading crop of a
// JPEG decodes only its region. The zero value must be Reset first. Its memory is reused
// for the next picture. One goroutine at a time may use it.
type Chain struct {
	source  size
	steps   []Step
	sizes   []size // sizes[i] is the input of step i
	w, h, c int    // the chain's result

	Owner uint8 // of the steps that are added; Reset sets it to 0
}

// Reset begins the chain of a picture of w x h pixels and c channels.
func (g *Chain) Reset(w, h, c int) {
	g.source = size{w, h}
	g.steps, g.sizes = g.steps[:0], g.sizes[:0]
	g.w, g.h, g.c, g.Owner = w, h, c, 0
}

// Size is the picture after all steps.
func (g *Chain) Size() (w, h, c int) { return g.w, g.h, g.c }

// Steps are the remaining steps, in order, valid until the chain is changed.
func (g *Chain) Steps() []Step { return g.steps }

func (g *Chain) add(s Step) {
	s.Owner = g.Owner
	g.steps = append(g.steps, s)
	g.measure()
}

// measure computes the sizes again, from the source on.
func (g *Chain) measure() {
	g.sizes = g.sizes[:0]
	at := g.source
	for i := range g.steps {
		g.sizes = append(g.sizes, at)
		at = g.steps[i].result(at)
	}
	g.w, g.h = at.w, at.h
}

func (g *Chain) remove(i int) { g.steps = append(g.steps[:i], g.steps[i+1:]...) }

func (g *Chain) insert(i int, s Step) {
	g.steps = append(g.steps, Step{})
	copy(g.steps[i+1:], g.steps[i:])
	g.steps[i] = s
}

// Crop keeps only a box, which must be inside the picture.
func (g *Chain) Crop(x, y, w, h int) {
	b := rect{x, y, w, h}
	at := size{g.w, g.h} // b is a part of it
	i := len(g.steps)    // b comes after step i-1
	for b != (rect{0, 0, at.w, at.h}) {
		if i == 0 || !g.steps[i-1].before(g.sizes[i-1], &b) {
			g.insert(i, Step{Op: OpCrop, X: b.x, Y: b.y, W: b.w, H: b.h})
			break
		}
		i--
		at = g.sizes[i]
	}
	g.dropIdle()
	g.measure()
}

// dropIdle removes the pads and crops that a crop moving past them made idle. A crop
// never passes a resize, so the resize's size stays right.
func (g *Chain) dropIdle() {
	at := g.source
	for i := 0; i < len(g.steps); {
		s := &g.steps[i]
		if (s.Op == OpCrop || s.Op == OpPad) && s.idle(at, g.c) {
			g.remove(i)
			continue
		}
		at = s.result(at)
		i++
	}
}

// Resize makes the picture w x h pixels.
func (g *Chain) Resize(w, h int, f Filter, draft bool) {
	s := Step{Op: OpResize, W: w, H: h, Filter: f, Draft: draft}
	if !s.idle(size{g.w, g.h}, g.c) {
		g.add(s)
	}
}

// Pad puts pixels around the picture.
func (g *Chain) Pad(left, top, right, bottom int, mode PadMode, fill [3]uint8) {
	if mode != PadConstant {
		fill = [3]uint8{}
	}
	s := Step{Op: OpPad, X: left, Y: top, W: left + g.w + right, H: top + g.h + bottom, Mode: mode, Fill: fill}
	if !s.idle(size{g.w, g.h}, g.c) {
		g.add(s)
	}
}

// Flip is OpFlipH or OpFlipV.
func (g *Chain) Flip(op Op) {
	for i := len(g.steps) - 1; i >= 0; i-- {
		switch g.steps[i].Op {
		case op:
			g.remove(i)
			g.measure()
			return
		case OpFlipH, OpFlipV, OpGray:
			continue
		}
		break
	}
	g.add(Step{Op: op})
}

// Gray makes the picture grey, in c channels. The luma of a grey is itself:
// (19595+38470+7471) x + 32768 >> 16 = x.
func (g *Chain) Gray(c int) {
	next := Step{Op: OpGray, C: c}
	if next.idle(size{g.w, g.h}, g.c) {
		return
	}
	g.c = c
	for i := len(g.steps) - 1; i >= 0; i-- {
		switch s := &g.steps[i]; s.Op {
		case OpGray:
			s.C = c
			return
		case OpFlipH, OpFlipV, OpCrop:
			continue
		}
		break
	}
	g.add(next)
}

// Apply adds a step that keeps the size: a colour, OpSharpness, OpBlur, OpErase, or a step of a sum.
func (g *Chain) Apply(s Step) {
	if !s.idle(size{g.w, g.h}, g.c) {
		g.add(s)
	}
}

// Region is a box with fractions of pixels.
type Region struct{ X, Y, W, H float64 }

// Origin is the position of r, a region of the chain's result, in the chain's input: the
// way back through every step. Positions outside that picture are padding.
func (g *Chain) Origin(r Region) Region {
	for i := len(g.steps) - 1; i >= 0; i-- {
		s, in := &g.steps[i], g.sizes[i]
		switch s.Op {
		case OpSum: // the picture that was kept is a part of it
			for g.steps[i].Op != OpKeep {
				i--
			}
		case OpCrop:
			r.X, r.Y = r.X+float64(s.X), r.Y+float64(s.Y)
		case OpPad:
			r.X, r.Y = r.X-float64(s.X), r.Y-float64(s.Y)
		case OpFlipH:
			r.X = float64(in.w) - r.X - r.W
		case OpFlipV:
			r.Y = float64(in.h) - r.Y - r.H
		case OpAffine, OpPerspective:
			r = s.Map.bounds(r)
		case OpResize:
			// The product is divided before the addition, so nothing can be fused.
			r.X, r.W = r.X*float64(in.w)/float64(s.W), r.W*float64(in.w)/float64(s.W)
			r.Y, r.H = r.Y*float64(in.h)/float64(s.H), r.H*float64(in.h)/float64(s.H)
		}
	}
	return r
}

// Reads is the region of the chain's input that its steps read: their leading crop, or
// all of it.
func (g *Chain) Reads() (x, y, w, h int) {
	if len(g.steps) > 0 && g.steps[0].Op == OpCrop {
		s := &g.steps[0]
		return s.X, s.Y, s.W, s.H
	}
	return 0, 0, g.source.w, g.source.h
}

// Within makes the chain read the region x, y, w, h of its input as if that were the
// whole of it. The region must have all that the chain Reads.
func (g *Chain) Within(x, y, w, h int) {
	if len(g.steps) > 0 && g.steps[0].Op == OpCrop {
		g.steps[0].X -= x
		g.steps[0].Y -= y
	}
	g.source = size{w, h}
	g.dropIdle()
	g.measure()
}
