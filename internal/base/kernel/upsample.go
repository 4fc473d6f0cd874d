package kernel

// upsampler makes rows of pixels of a component's samples, each of which covers
// hs x vs pixels.
//
// Where that is 2 across, or down, or both, pixels are interpolated as libjpeg's
// fancy upsampling does it: a sample stands for the middle of what it covers, and
// a pixel takes three quarters of the nearest and one of the next, in each
// direction. The last sample repeats beyond the edges. Samples that cover any
// other number, and two across of a component of 2 columns or fewer, are repeated,
// as are all of a picture at an eighth of its size.
type upsampler struct {
	pix    []byte
	stride int
	w, h   int // samples
	hs, vs int
	repeat bool
	sum    []int // a row of samples, interpolated vertically: times 4
}

func newUpsampler(pix []byte, stride, w, h, hs, vs int) upsampler {
	u := upsampler{pix: pix, stride: stride, w: w, h: h, hs: hs, vs: vs}
	if vs == 2 && hs <= 2 {
		u.sum = make([]int, w)
	}
	return u
}

// row makes row y of the picture, as many columns as out has.
func (u *upsampler) row(out []byte, y int) {
	near := u.line(y / u.vs)
	switch {
	case u.hs == 1 && u.vs == 1:
		copy(out, near)
	case u.repeat:
		spread(out, near, u.hs)
	case u.hs == 2 && u.vs == 1 && u.w > 2:
		widen2(out, near)
	case u.hs == 1 && u.vs == 2:
		u.add(y)
		// Halves are rounded up in lower rows, down in upper ones.
		for x := range out {
			out[x] = byte((u.sum[x] + 1 + y&1) >> 2)
		}
	case u.hs == 2 && u.vs == 2 && u.w > 2:
		u.add(y)
		widenSum2(out, u.sum)
	default:
		spread(out, near, u.hs)
	}
}

func spread(out, in []byte, hs int) {
	for x := range out {
		out[x] = in[x/hs]
	}
}

func (u *upsampler) line(i int) []byte { return u.pix[i*u.stride : i*u.stride+u.w] }

// add adds three times the nearest row of samples and once the next: the row above for
// the upper half of a sample, below for the lower.
func (u *upsampler) add(y int) {
	near := u.line(y / 2)
	next := u.line(min(max(y/2-1+2*(y&1), 0), u.h-1))
	for i := range u.sum {
		u.sum[i] = 3*int(near[i]) + int(next[i])
	}
}

// widen2 interpolates across. Halves are rounded down in left columns, up in
// right ones.
func widen2(out, in []byte) {
	for x := range out {
		i := x / 2
		switch {
		case x == 0 || x == 2*len(in)-1:
			out[x] = in[i]
		case x&1 == 0:
			out[x] = byte((3*int(in[i]) + int(in[i-1]) + 1) >> 2)
		default:
			out[x] = byte((3*int(in[i]) + int(in[i+1]) + 2) >> 2)
		}
	}
}

// widenSum2 is widen2 for sums of four.
func widenSum2(out []byte, in []int) {
	for x := range out {
		i := x / 2
		switch {
		case x == 0:
			out[x] = byte((4*in[i] + 8) >> 4)
		case x == 2*len(in)-1:
			out[x] = byte((4*in[i] + 7) >> 4)
		case x&1 == 0:
			out[x] = byte((3*in[i] + in[i-1] + 8) >> 4)
		default:
			out[x] = byte((3*in[i] + in[i+1] + 7) >> 4)
		}
	}
}

// yccToRGB is JFIF's
//
//	R = Y + 1.402 Cr, G = Y - 0.34414 Cb - 0.71414 Cr, B = Y + 1.772 Cb
//
// of Cb and Cr less 128, in 16 bits of fraction; the products of R and B are
// rounded, and the sum of G's two.
func yccToRGB(out, luma, cb, cr []byte) {
	const (
		bits = 16
		half = 1 << bits / 2
		crR  = 91881  // 1.40200 * 2^16, rounded
		cbG  = 22554  // 0.34414
		crG  = 46802  // 0.71414
		cbB  = 116130 // 1.77200
	)
	for x, l := range luma {
		y, b, r := int32(l), int32(cb[x])-128, int32(cr[x])-128
		o := out[3*x : 3*x+3 : 3*x+3]
		o[0] = clamp8(y + (crR*r+half)>>bits)
		o[1] = clamp8(y + (-cbG*b-crG*r+half)>>bits)
		o[2] = clamp8(y + (cbB*b+half)>>bits)
	}
}

func clamp8(v int32) byte { return byte(min(max(v, 0), 255)) }

// interleave is for planes that are RGB already.
func interleave(out, r, g, b []byte) {
	for x := range r {
		out[3*x], out[3*x+1], out[3*x+2] = r[x], g[x], b[x]
	}
}
