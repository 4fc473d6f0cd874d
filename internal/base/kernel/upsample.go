package kernel

import (
	"image"
	"image/color"
)

// fromYCbCr interpolates chroma as libjpeg's fancy upsampling does: each
// sample stands for the middle of what it covers, and an output takes three
// quarters of the nearest and one of the next. So what remains between the
// standard library and libjpeg is the rounding of their DCTs. Samples that
// cover four pixels, or more, are repeated, as libjpeg repeats them.
func fromYCbCr(m *image.YCbCr) Pixels {
	s := m.Bounds().Size()
	p := newPixels(s.X, s.Y, 3)
	hs, vs := 1, 1
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		hs = 2
	case image.YCbCrSubsampleRatio420:
		hs, vs = 2, 2
	case image.YCbCrSubsampleRatio440:
		vs = 2
	case image.YCbCrSubsampleRatio411:
		hs = 4
	case image.YCbCrSubsampleRatio410:
		hs, vs = 4, 2
	}
	u := upsampler{hs: hs, vs: vs, w: s.X, cw: (s.X + hs - 1) / hs, ch: (s.Y + vs - 1) / vs, stride: m.CStride}
	u.sum = make([]int, u.cw)
	cb, cr := make([]byte, s.X), make([]byte, s.X)
	for y := range s.Y {
		u.row(cb, m.Cb, y)
		u.row(cr, m.Cr, y)
		row := p.row(y)
		for x := range s.X {
			row[3*x], row[3*x+1], row[3*x+2] = color.YCbCrToRGB(m.Y[y*m.YStride+x], cb[x], cr[x])
		}
	}
	return p
}

type upsampler struct {
	hs, vs int // pixels a chroma sample covers
	w      int // of the picture
	cw, ch int // of the chroma plane
	stride int
	sum    []int // a row of samples, vertically interpolated: times 4
}

// row makes chroma row y of the picture, all columns.
func (u *upsampler) row(out, plane []byte, y int) {
	near := plane[y/u.vs*u.stride:]
	if u.hs > 2 || u.hs == 2 && u.cw <= 2 {
		for x := range out {
			out[x] = near[x/u.hs]
		}
		return
	}
	if u.hs == 2 && u.vs == 1 {
		for x := range out {
			i := x / 2
			next, bias := i-1, 1
			if x&1 == 1 {
				next, bias = i+1, 2
			}
			if next < 0 || next >= u.cw {
				out[x] = near[i]
				continue
			}
			out[x] = byte((3*int(near[i]) + int(near[next]) + bias) >> 2)
		}
		return
	}
	if u.vs == 1 {
		copy(out, near[:u.w])
		return
	}
	// The row above for the upper half of a sample, below for the lower; at
	// the picture's edge the row itself.
	far := min(max(y/2-1+2*(y&1), 0), u.ch-1)
	next := plane[far*u.stride:]
	for i := range u.sum {
		u.sum[i] = 3*int(near[i]) + int(next[i])
	}
	if u.hs == 1 {
		bias := 1 + y&1
		for x := range out {
			out[x] = byte((u.sum[x] + bias) >> 2)
		}
		return
	}
	for x := range out {
		i := x / 2
		j, bias := i-1, 8
		if x&1 == 1 {
			j, bias = i+1, 7
		}
		if j < 0 || j >= u.cw {
			out[x] = byte((4*u.sum[i] + bias) >> 4)
			continue
		}
		out[x] = byte((3*u.sum[i] + u.sum[j] + bias) >> 4)
	}
}
