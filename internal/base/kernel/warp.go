package kernel

import (
	"fmt"
	"math"
)

// Warps: each pixel of the result is taken from a place of its own, between the pixels of
// the picture. The weights of the four pixels around it have 14 bits; a place has 32 bits of
// fraction, or 30 where it is a quotient. Outside the picture is the fill.
//
// Where only the nearest pixel is wanted, places of OpAffine are torchvision's to the bit: in
// float32, in its order, with every product rounded before it is added. With more exact ones,
// a scale of 1/2 or 2, a shear of 45 degrees or a quarter of a turn gave other pixels than
// torchvision wherever a place is halfway between two, up to half of the picture.
//
// torchvision samples a mask of ones beside the picture, and blends with the fill by it: a
// pixel that is inside by the share m is m * (what is inside, with zeros around) + (1 - m) *
// fill. This does the same. Without a fill, it is what is inside, with zeros around.

// Map is where a pixel of the result comes from, in pixels from the corner of the picture:
// the first pixel is at 1/2, 1/2. It has the order of torchvision's coefficients: the
// result's x, y is taken from
//
//	(m[0] x + m[1] y + m[2]) / (m[6] x + m[7] y + 1), (m[3] x + m[4] y + m[5]) / (m[6] x + m[7] y + 1)
//
// m[6] and m[7] are for OpPerspective only.
type Map [8]float64

const (
	warpBits  = 14 // of weights
	placeBits = 32 // of places
)

// warps reports whether the step is one of this file.
func (o Op) warps() bool { return o == OpAffine || o == OpPerspective }

// checkWarp refuses warps of a w x h picture that make no sense.
func (s *Step) checkWarp(w, h int) error {
	if s.W <= 0 || s.H <= 0 || s.W > maxSide || s.H > maxSide || int64(s.W)*int64(s.H) > MaxPixels {
		return JobError(fmt.Sprintf("a result of %dx%d", s.W, s.H))
	}
	if w > maxSide || h > maxSide {
		return UnsupportedError(fmt.Sprintf("cannot warp a picture of %d x %d: its sides can have at most %d pixels", w, h, maxSide))
	}
	if s.Filter != Bilinear && s.Filter != Nearest {
		return JobError(fmt.Sprintf("a warp by filter %d", s.Filter))
	}
	for _, v := range s.Map {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return JobError(fmt.Sprintf("a warp by %v", s.Map))
		}
	}
	return nil
}

// places computes where the pixels of a result come from. Exact ones count in whole
// numbers of 2^-placeBits, and are linear; others are quotients of floats, and so are linear
// ones with too large numbers. Those of the nearest pixels, if they are linear,
// are float32.
type places struct {
	exact  bool
	whole  [6]int64   // as Map's first six, for the pixel whose number is x, y
	real   [9]float64 // as Map's, for the centre of a pixel; the last is what is taken off
	single bool
	grid   [6]float32 // as Map's first six, from -1 to 1 across the picture, 0 in its middle
	middle [2]float32 // of the result, in numbers of pixels
	half   [2]float32 // of the picture's width and height
}

// places is for a w x h picture.
func (s *Step) places(w, h int) places {
	m := &s.Map
	var p places
	off := 0.5 // from the corner of a pixel to its centre; the nearest begins at its corner
	if s.Filter == Nearest {
		off = 0
	}
	if s.Filter == Nearest && s.Op == OpAffine {
		p.single = true
		p.middle = [2]float32{float32(s.W-1) / 2, float32(s.H-1) / 2}
		p.half = [2]float32{float32(w) / 2, float32(h) / 2}
		for i := range p.grid {
			v := m[i]
			if i%3 == 2 { // from middle to middle; what float64 has left of nothing is nothing
				v += float64(m[i-2]*float64(s.W)/2) + float64(m[i-1]*float64(s.H)/2) - float64(p.half[i/3])
				v = math.Round(v*(1<<36)) / (1 << 36)
			}
			p.grid[i] = float32(v) / p.half[i/3]
		}
		return p
	}
	p.exact = s.Op == OpAffine
	for i := 0; i < 6; i += 3 {
		from := float64(m[i]/2) + float64(m[i+1]/2) + m[i+2] - off
		reach := float64(math.Abs(m[i])*float64(s.W)) + float64(math.Abs(m[i+1])*float64(s.H)) + math.Abs(from)
		if !(reach < 1<<(62-placeBits)) {
			p.exact = false
			break
		}
		for k, v := range [3]float64{m[i], m[i+1], from} {
			p.whole[i+k] = int64(math.RoundToEven(math.Ldexp(v, placeBits)))
		}
	}
	copy(p.real[:], m[:])
	if s.Op == OpAffine {
		p.real[6], p.real[7] = 0, 0
	}
	p.real[8] = off
	return p
}

// limits keep a quotient in the range of fixed, and outside the picture if it is.
const (
	leastPlace = -2
	mostPlace  = maxSide + 2
)

// at is where pixel x, y comes from, in a picture of w x h pixels.
func (p *places) at(x, y int) (sx, sy int64) {
	if p.exact {
		m := &p.whole
		return m[0]*int64(x) + m[1]*int64(y) + m[2], m[3]*int64(x) + m[4]*int64(y) + m[5]
	}
	m := &p.real
	fx, fy := float64(x)+0.5, float64(y)+0.5
	part := 1 / (float64(m[6]*fx) + (float64(m[7]*fy) + 1))
	return fixed(float64((float64(m[0]*fx)+(float64(m[1]*fy)+m[2]))*part) - m[8]),
		fixed(float64((float64(m[3]*fx)+(float64(m[4]*fy)+m[5]))*part) - m[8])
}

// nearest is the number of the column, or with axis 1 of the row, that is nearest to where
// pixel x, y comes from, or -1 if that is not one of size. Of two, it is the even one.
func (p *places) nearest(axis, x, y, size int) int {
	m := p.grid[3*axis:]
	at := float32((float32(x)-p.middle[0])*m[0]) + float32((float32(y)-p.middle[1])*m[1])
	at += m[2]
	at++
	at = float32(at*p.half[axis]) - 0.5
	if !(at >= -0.5 && at <= float32(size)) {
		return -1
	}
	return int(math.RoundToEven(float64(at)))
}

// fixed is v in fixed point. Adding 3 * 2^21 leaves 30 bits of fraction.
func fixed(v float64) int64 {
	const add = 3 << 21
	if !(v < mostPlace) {
		v = mostPlace
	}
	if !(v > leastPlace) {
		v = leastPlace
	}
	return int64(math.Float64bits(v+add)-math.Float64bits(add)) << (placeBits - 30)
}

// warp is the step's result.
func warp(p Pixels, s *Step) Pixels {
	q := newPixels(s.W, s.H, p.C)
	from := s.places(p.W, p.H)
	for y := range s.H {
		for x := range s.W {
			out := q.row(y)[x*p.C : (x+1)*p.C]
			if from.single {
				near(out, p, s, from.nearest(0, x, y, p.W), from.nearest(1, x, y, p.H))
				continue
			}
			sx, sy := from.at(x, y)
			if s.Filter == Nearest {
				near(out, p, s, int(sx>>placeBits), int(sy>>placeBits))
			} else {
				between(out, p, s, sx, sy)
			}
		}
	}
	return q
}

// near makes the pixel x, y, or the fill.
func near(out []byte, p Pixels, s *Step, x, y int) {
	if x >= 0 && x < p.W && y >= 0 && y < p.H {
		copy(out, p.row(y)[x*p.C:])
	} else if s.Filled {
		copy(out, s.Fill[:])
	}
}

// between weighs the four pixels around sx, sy.
func between(out []byte, p Pixels, s *Step, sx, sy int64) {
	const one = 1 << warpBits
	x, y := int(sx>>placeBits), int(sy>>placeBits)
	fx, fy := int(uint32(sx)>>(placeBits-warpBits)), int(uint32(sy)>>(placeBits-warpBits))
	both := fx * fy >> warpBits
	weights := [4]int{one - fx - fy + both, fx - both, fy - both, both}
	var sum [3]int
	inside := 0
	for i, w := range weights {
		x, y := x+i%2, y+i/2
		if x < 0 || x >= p.W || y < 0 || y >= p.H {
			continue
		}
		inside += w
		for c := range p.C {
			sum[c] += w * int(p.row(y)[x*p.C+c])
		}
	}
	for c := range out {
		if s.Filled {
			sum[c] = (inside*sum[c] + (one-inside)*one*int(s.Fill[c])) >> warpBits
		}
		out[c] = uint8((sum[c] + one/2) >> warpBits)
	}
}

// bounds is a box around the places that r, a region of the result, is taken from.
func (m *Map) bounds(r Region) Region {
	var x0, y0, x1, y1 float64
	for i, at := range [4][2]float64{{r.X, r.Y}, {r.X + r.W, r.Y}, {r.X, r.Y + r.H}, {r.X + r.W, r.Y + r.H}} {
		part := float64(m[6]*at[0]) + float64(m[7]*at[1]) + 1
		x := (float64(m[0]*at[0]) + float64(m[1]*at[1]) + m[2]) / part
		y := (float64(m[3]*at[0]) + float64(m[4]*at[1]) + m[5]) / part
		if i == 0 {
			x0, y0, x1, y1 = x, y, x, y
		}
		x0, y0, x1, y1 = min(x0, x), min(y0, y), max(x1, x), max(y1, y)
	}
	return Region{x0, y0, x1 - x0, y1 - y0}
}

// Warp takes every pixel of a w x h result from where m says: by a perspective if one of
// its last two numbers is not zero. fill is nil for torchvision's None.
func (g *Chain) Warp(m Map, w, h int, f Filter, fill *[3]uint8) {
	s := Step{Op: OpAffine, W: w, H: h, Filter: f, Map: m}
	if m[6] != 0 || m[7] != 0 {
		s.Op = OpPerspective
	}
	if fill != nil {
		s.Fill, s.Filled = *fill, true
	}
	if g.shift(&s) {
		return
	}
	g.add(s)
}

// shift does a warp that only moves the picture by whole pixels: a crop and a pad, which
// touch nothing else.
func (g *Chain) shift(s *Step) bool {
	m := &s.Map
	x, y := m[2], m[5]
	if *m != (Map{1, 0, x, 0, 1, y}) || x != math.Trunc(x) || y != math.Trunc(y) {
		return false
	}
	left, top := max(x, 0), max(y, 0)
	right, bottom := min(x+float64(s.W), float64(g.w)), min(y+float64(s.H), float64(g.h))
	if left >= right || top >= bottom {
		return false // nothing of the picture is left
	}
	g.Crop(int(left), int(top), int(right-left), int(bottom-top))
	g.Pad(int(left-x), int(top-y), int(x+float64(s.W)-right), int(y+float64(s.H)-bottom), PadConstant, s.Fill)
	return true
}
