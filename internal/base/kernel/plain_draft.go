package kernel

// Decoding a picture at a half, a quarter or an eighth of its size: blocks of 8x8
// coefficients become 4x4, 2x2 or 1x1 samples.

// side is how many samples a component's block has across: 8 >> shift; or twice, four or
// eight times that if the component is subsampled by as much in both directions, because
// it is then reduced less instead of being upsampled.
func (f *frame) side(c *component, shift int) int {
	least := 8 >> shift
	side := least
	for side < 8 && f.hmax*least%(c.h*side*2) == 0 && f.vmax*least%(c.v*side*2) == 0 {
		side *= 2
	}
	return side
}

// transform makes side x side samples of a block.
func (c *component) transform(out []byte, s *block, q *quantTable) {
	switch c.side {
	case 8:
		inverseDCT(out, c.stride, s, q)
	case 4:
		inverse4(out, c.stride, s, q)
	case 2:
		inverse2(out, c.stride, s, q)
	case 1:
		// An eighth of DC, of which libjpeg uses ten bits.
		v := (int32(s[0])*int32(q[0]) + 4) >> 3
		out[0] = level((v+512)&1023 - 512)
	}
}

// With ck = cos(kπ/16), times 2^13 and rounded:
const (
	k0211 = 1730  // √2 (c1 - c3)
	k0509 = 4176  // √2 (c5 - c7)
	k0601 = 4926  // √2 (c1 - c5)
	k0720 = 5906  // √2 (c1 - c3 + c5 - c7)
	k0850 = 6967  // √2 (-c1 + c3 + c5 + c7)
	k1061 = 8697  // √2 (c5 + c7)
	k1272 = 10426 // √2 (c1 - c3 + c5 + c7)
	k1451 = 11893 // √2 (c3 + c7)
	k2172 = 17799 // √2 (c1 + c5)
	k3624 = 29692 // √2 (c1 + c3 + c5 + c7)
)

// idct4 returns the means of pairs of idct8's results, times 2, without the contribution
// of coefficient 4, which is zero. Its results have 14 more bits of fraction.
func idct4(x0, x1, x2, x3, x5, x6, x7 int16) [4]int32 {
	dc := int32(x0) << (constBits + 1)
	even := int32(x2)*k1847 - int32(x6)*k0765
	outer := int32(x1)*k2562 + int32(x3)*k0899 - int32(x5)*k0601 - int32(x7)*k0509
	inner := int32(x1)*k1061 - int32(x3)*k2172 + int32(x5)*k1451 - int32(x7)*k0211
	return [4]int32{dc + even + outer, dc - even + inner, dc - even - inner, dc + even - outer}
}

func inverse4(out []byte, stride int, s *block, q *quantTable) {
	var ws [4][8]int16
	flat := true // nothing but row 0, row 4 aside: wraps as inverseDCT's does
	for i, v := range s {
		flat = flat && (v == 0 || i < 8 || i/8 == 4)
	}
	for c := range 8 {
		at := func(r int) int16 { return s[8*r+c] * q[8*r+c] }
		y := idct4(at(0), at(1), at(2), at(3), at(5), at(6), at(7))
		for r := range ws {
			ws[r][c] = saturate16(descale(y[r], constBits-pass1Bits+1))
			if flat {
				ws[r][c] = at(0) << pass1Bits
			}
		}
	}
	for r := range ws {
		w := &ws[r]
		for x, y := range idct4(w[0], w[1], w[2], w[3], w[5], w[6], w[7]) {
			out[r*stride+x] = level(descale(y, constBits+pass1Bits+3+1))
		}
	}
}

// odd2 is the contribution of the odd coefficients to a transform to two samples.
func odd2(x1, x3, x5, x7 int16) int32 {
	return int32(x1)*k3624 - int32(x3)*k1272 + int32(x5)*k0850 - int32(x7)*k0720
}

func inverse2(out []byte, stride int, s *block, q *quantTable) {
	const columns, rows = constBits - pass1Bits + 2, constBits + pass1Bits + 3 + 2
	var ws [2][8]int32
	for c := range 8 {
		at := func(r int) int16 { return s[8*r+c] * q[8*r+c] }
		dc, ac := int32(at(0))<<(constBits+2), odd2(at(1), at(3), at(5), at(7))
		ws[0][c], ws[1][c] = descale(dc+ac, columns), descale(dc-ac, columns)
	}
	for r := range ws {
		w := &ws[r]
		dc := w[0] << (constBits + 2) // not saturated, as the others are
		ac := odd2(saturate16(w[1]), saturate16(w[3]), saturate16(w[5]), saturate16(w[7]))
		out[r*stride], out[r*stride+1] = level(descale(dc+ac, rows)), level(descale(dc-ac, rows))
	}
}

// draft is a resize that begins with a smaller JPEG: of a box, turned, to w x h.
type draft struct {
	shift        int // the JPEG is decoded at 1/2^shift; 0: as it is
	box          [2]span
	x, y         int // origin of box, in pixels of the smaller picture
	flipH, flipV bool
	channels     int
	w, h         int
}

// newDraft looks for a draft at the start of a job, and returns the steps after it. The
// steps before it must keep every pixel of a box.
func newDraft(j *Job, h *header) (d draft, rest []Step) {
	x, y, w, hh := 0, 0, h.W, h.H
	for i := range j.Steps {
		s := &j.Steps[i]
		switch s.Op {
		case OpCrop:
			sx, sy := s.X, s.Y
			if d.flipH {
				sx = w - s.X - s.W
			}
			if d.flipV {
				sy = hh - s.Y - s.H
			}
			x, y, w, hh = x+sx, y+sy, s.W, s.H
		case OpFlipH:
			d.flipH = !d.flipH
		case OpFlipV:
			d.flipV = !d.flipV
		case OpGray:
			d.channels = s.C
		default:
			if s.W == w && s.H == hh { // a step that does nothing
				continue
			}
			if s.Op != OpResize || s.Filter != Bilinear || !s.Draft {
				return draft{}, nil
			}
			for d.shift < 3 && w>>(d.shift+1) >= s.W && hh>>(d.shift+1) >= s.H {
				d.shift++
			}
			d.w, d.h = s.W, s.H
			d.x, d.box[0] = smaller(x, w, d.shift)
			d.y, d.box[1] = smaller(y, hh, d.shift)
			return d, j.Steps[i+1:]
		}
	}
	return draft{}, nil
}

// smaller is the position of n pixels from at on, after groups of 2^shift have become
// one.
func smaller(at, n, shift int) (first int, s span) {
	one := 1 << shift
	first = at >> shift
	return first, span{in: ceilDiv(at+n, one) - first, at: float64(at%one) / float64(one), size: float64(n) / float64(one)}
}

// turned is the span counted from its other end.
func (s span) turned() span { return span{s.in, float64(s.in) - s.at - s.size, s.size} }

func (d *draft) resize(p Pixels) Pixels {
	if d.channels > 0 {
		p = gray(p, d.channels)
	}
	p = crop(p, d.x, d.y, d.box[0].in, d.box[1].in)
	if d.flipH {
		p, d.box[0] = flipH(p), d.box[0].turned()
	}
	if d.flipV {
		p, d.box[1] = flipV(p), d.box[1].turned()
	}
	return resizeV(resizeH(p, d.w, d.box[0], Bilinear), d.h, d.box[1], Bilinear)
}
