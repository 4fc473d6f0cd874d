package kernel

import "fmt"

// gauss is the weights of a blur along one axis, in 65536ths: of the pixel itself, and of
// the pixels at each distance from it, on both sides.
type gauss []uint32

// gaussian is the weights of a blur over size pixels. next, q, is the weight of the next
// pixel divided by that of the pixel itself; at distance i it is q^(i*i). The running sums
// from the middle on are rounded, not the weights, so that these add up to 65536. Weights far
// out that round to nothing are left out. A single weight is 65535, to fit into 16 bits.
func gaussian(size int, next float64) gauss {
	at, factor, all := 1.0, next, 0.5
	for range size / 2 {
		at = float64(at * factor)
		factor = float64(factor * next * next)
		all += at
	}
	at, factor = 1, next
	sum := 0.5
	done := uint32(float64(sum/all*32768) + 0.5)
	g := gauss{min(2*done, 65535)}
	for done < 32768 {
		at = float64(at * factor)
		factor = float64(factor * next * next)
		sum += at
		now := uint32(float64(sum/all*32768) + 0.5)
		g = append(g, now-done)
		done = now
	}
	return g
}

// mostPairs is the reach up to which products are cut to 128ths before they are added, so
// that 16 bits are enough. It is STK_BLUR_REACH.
const mostPairs = 62

// sum is the weighted sum of values in 128ths; at returns the value at a distance.
func (g gauss) sum(at func(i int) int) int {
	sum := 0
	for i, w := range g {
		v := at(i)
		if i > 0 {
			v += at(-i)
		}
		if v *= int(w); len(g)-1 <= mostPairs {
			v >>= 16
		}
		sum += v
	}
	if len(g)-1 <= mostPairs {
		return sum
	}
	return (sum + 32768) >> 16
}

// cut is how many products of a sum are cut.
func (g gauss) cut() int {
	if len(g)-1 <= mostPairs {
		return len(g)
	}
	return 0
}

// blur is torchvision's gaussian_blur over s.W x s.H pixels, within 1 level: along the rows,
// then along the columns, in 128ths. Beyond the edges the picture is reflected.
func blur(p Pixels, s *Step) Pixels {
	q := newPixels(p.W, p.H, p.C)
	gx, gy := gaussian(s.W, s.N), gaussian(s.H, s.N)
	rows := make([]uint16, len(p.Pix))
	for y := range p.H {
		row := p.row(y)
		for i := range row {
			rows[y*len(row)+i] = uint16(gx.sum(func(d int) int {
				return int(row[beyond(i/p.C+d, p.W, PadReflect)*p.C+i%p.C]) << 7
			}))
		}
	}
	half := 64 + (gx.cut()+gy.cut())/2
	for y := range p.H {
		out := q.row(y)
		for i := range out {
			sum := gy.sum(func(d int) int { return int(rows[beyond(y+d, p.H, PadReflect)*len(out)+i]) })
			out[i] = uint8(min(255, (sum+half)>>7))
		}
	}
	return q
}

// checkBlur refuses a blur that makes no sense, or one of a picture that is too small to be
// reflected.
func (s *Step) checkBlur(w, h int) error {
	if s.W <= 0 || s.H <= 0 || s.W%2 == 0 || s.H%2 == 0 || !(s.N >= 0 && s.N <= 1) {
		return JobError(fmt.Sprintf("a blur over %dx%d by %v", s.W, s.H, s.N))
	}
	if s.W/2 >= w || s.H/2 >= h {
		return JobError(fmt.Sprintf("a blur over %dx%d of %dx%d", s.W, s.H, w, h))
	}
	return nil
}

// leaves reports whether a blur changes nothing: the weight of the next pixel rounds to 0.
func (s *Step) leaves() bool { return s.W == 1 && s.H == 1 || s.N < 0x1p-17 }
