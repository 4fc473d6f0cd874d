package kernel

// Which steps may change places, become one, or be left out is decided in this
// file and nowhere else. Each rule keeps every pixel, to the bit:
//
//   - A crop moves in front of crops, flips and greys, and of a pad as far as the
//     padding that is left can still be made from the pixels that are left: it
//     always can for constant padding and edges unless only padding is left, for
//     reflections only if no padding is left. Never in front of a resize, which
//     reads beyond the region.
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

// mirrored is where a part begins that began at x, once the whole is mirrored.
func mirrored(x, part, whole int) int { return whole - x - part }

// result is the size of what the step gives, of a picture of at.
func (s *Step) result(at size) size {
	switch s.Op {
	case OpCrop, OpResize, OpPad:
		return size{s.W, s.H}
	}
	return at
}

// idle says whether the step gives the picture that it is given.
func (s *Step) idle(at size, c int) bool {
	switch s.Op {
	case OpResize:
		return s.W == at.w && s.H == at.h
	case OpCrop, OpPad:
		return s.X == 0 && s.Y == 0 && s.W == at.w && s.H == at.h
	case OpGray:
		return s.C == 1 && c == 1
	}
	return false
}

// before rewrites b, a region of what the step gives, to the region of what it is
// given, in, and the step to what it then is. It says false, and changes nothing,
// where no such region gives the same pixels.
func (s *Step) before(in size, b *rect) bool {
	switch s.Op {
	case OpGray:
		return true
	case OpFlipH:
		b.x = mirrored(b.x, b.w, in.w)
		return true
	case OpFlipV:
		b.y = mirrored(b.y, b.h, in.h)
		return true
	case OpCrop:
		*b = rect{s.X + b.x, s.Y + b.y, b.w, b.h}
		s.X, s.Y, s.W, s.H = 0, 0, b.w, b.h // now takes everything
		return true
	case OpPad:
		return s.beforePad(in, b)
	}
	return false
}

// beforePad takes a region of a padded picture apart: the part that is picture,
// and the padding around it. Edges stay edges, because padding is left only on a
// side where the region begins outside; reflections would need pixels that the
// region does not hold. The picture may begin left of what is shown, or above it.
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

// Chain is the steps of one picture, kept short while it grows, by the rules
// above: a leading crop of a JPEG decodes only its region. The zero value has to
// be Reset. Its memory is reused from picture to picture. One goroutine at a time.
type Chain struct {
	source  size
	steps   []Step
	sizes   []size // sizes[i] is what step i is given
	w, h, c int    // what the chain gives
}

// Reset begins the chain of a picture of w x h pixels and c channels.
func (g *Chain) Reset(w, h, c int) {
	g.source = size{w, h}
	g.steps, g.sizes = g.steps[:0], g.sizes[:0]
	g.w, g.h, g.c = w, h, c
}

// Size is the picture after all steps.
func (g *Chain) Size() (w, h, c int) { return g.w, g.h, g.c }

// Steps are what is left to do, in order, until the chain is changed.
func (g *Chain) Steps() []Step { return g.steps }

func (g *Chain) add(s Step) {
	g.steps = append(g.steps, s)
	g.measure()
}

// measure works out the sizes anew, from the source on.
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
	at := size{g.w, g.h} // what b is a part of
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

// dropIdle removes the pads and crops that a crop moving past has left without
// work. A resize is never passed, so that its size is still right.
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

// Region is a box with fractions of pixels.
type Region struct{ X, Y, W, H float64 }

// Origin is where r, a region of the chain's result, is in the picture that the
// chain is given: the way back through every step. Outside of that picture is
// padding.
func (g *Chain) Origin(r Region) Region {
	for i := len(g.steps) - 1; i >= 0; i-- {
		s, in := &g.steps[i], g.sizes[i]
		switch s.Op {
		case OpCrop:
			r.X, r.Y = r.X+float64(s.X), r.Y+float64(s.Y)
		case OpPad:
			r.X, r.Y = r.X-float64(s.X), r.Y-float64(s.Y)
		case OpFlipH:
			r.X = float64(in.w) - r.X - r.W
		case OpFlipV:
			r.Y = float64(in.h) - r.Y - r.H
		case OpResize:
			// A product is divided before anything is added to it: nothing to fuse.
			r.X, r.W = r.X*float64(in.w)/float64(s.W), r.W*float64(in.w)/float64(s.W)
			r.Y, r.H = r.Y*float64(in.h)/float64(s.H), r.H*float64(in.h)/float64(s.H)
		}
	}
	return r
}
