package kernel

import "math"

// resize is ATen's upsampling of uint8: horizontally into uint8, then vertically, each
// by the integer weights of an axis. A dimension whose size stays the same is not
// resampled.
func resize(p Pixels, w, h int, f Filter) Pixels {
	switch {
	case f == Nearest:
		return resizeNearest(p, w, h, nearestAt)
	case f == NearestExact:
		return resizeNearest(p, w, h, nearestExactAt)
	}
	if w != p.W {
		p = resizeH(p, w, fullSpan(p.W), f)
	}
	if h != p.H {
		p = resizeV(p, h, fullSpan(p.H), f)
	}
	return p
}

// span is what an axis resamples: size pixels from at on, of the in that exist.
type span struct {
	in       int
	at, size float64
}

func fullSpan(n int) span { return span{in: n, size: float64(n)} }

// axis is one dimension of an antialiased resampling: output i is (sum of
// w[i*k+t] * source[start[i]+t] + half) >> prec. axis.c explains the weights.
type axis struct {
	k     int
	prec  uint
	start []int
	cnt   []int
	w     []int32
}

func newAxis(s span, out int, f Filter) axis {
	scale := s.size / float64(out)
	support, inv := 1.0, 1.0
	if scale >= 1 {
		support, inv = scale, 1/scale
	}
	weight := triangle
	if f == Bicubic {
		support, weight = 2*support, keys
	}
	a := axis{k: int(math.Ceil(support))*2 + 1, start: make([]int, out), cnt: make([]int, out)}
	wf := make([]float64, out*a.k)
	most := 0.0
	for i := range out {
		center := float64(scale*(float64(i)+0.5)) + s.at
		lo := max(int(float64(center-support)+0.5), 0)
		n := min(max(min(int(float64(center+support)+0.5), s.in)-lo, 0), a.k)
		w := wf[i*a.k : i*a.k+n]
		sum := 0.0
		for j := range w {
			w[j] = weight(float64(float64(float64(j+lo)-center)+0.5) * inv)
			sum += w[j]
		}
		for j := range w {
			if sum != 0 {
				w[j] /= sum
			}
			most = max(most, w[j])
		}
		a.start[i], a.cnt[i] = lo, n
	}
	for ; a.prec < 22; a.prec++ {
		if int(0.5+float64(most*float64(int(1)<<(a.prec+1)))) >= 1<<15 {
			break
		}
	}
	a.w = make([]int32, len(wf))
	for i, v := range wf {
		half := math.Copysign(0.5, v)
		a.w[i] = int32(half + float64(v*float64(int(1)<<a.prec)))
	}
	return a
}

func triangle(x float64) float64 {
	x = math.Abs(x)
	if x < 1 {
		return 1 - x
	}
	return 0
}

// keys is Keys's cubic with a = -1/2.
func keys(x float64) float64 {
	x = math.Abs(x)
	switch {
	case x < 1:
		return float64(float64((float64(1.5*x)-2.5)*x)*x) + 1
	case x < 2:
		return float64((float64((float64(-0.5*x)+2.5)*x)-4)*x) + 2
	}
	return 0
}

// dot applies output i's weights to samples at p[0], p[step], ...
func (a *axis) dot(i int, p []byte, step int) uint8 {
	s := int32(1) << a.prec >> 1
	for t := range a.cnt[i] {
		s += a.w[i*a.k+t] * int32(p[t*step])
	}
	return uint8(min(max(s>>a.prec, 0), 255))
}

func resizeH(p Pixels, w int, s span, f Filter) Pixels {
	a, q := newAxis(s, w, f), newPixels(w, p.H, p.C)
	for y := range p.H {
		in, out := p.row(y), q.row(y)
		for x := range w {
			for c := range p.C {
				out[x*p.C+c] = a.dot(x, in[a.start[x]*p.C+c:], p.C)
			}
		}
	}
	return q
}

func resizeV(p Pixels, h int, s span, f Filter) Pixels {
	a, q := newAxis(s, h, f), newPixels(p.W, h, p.C)
	stride := p.W * p.C
	for y := range h {
		out := q.row(y)
		for e := range out {
			out[e] = a.dot(y, p.Pix[a.start[y]*stride+e:], stride)
		}
	}
	return q
}

// nearestAt is ATen's nearest position: scale and product in single precision.
func nearestAt(i, in, out int) int {
	if in == out {
		return i
	}
	if out == 2*in {
		return i >> 1
	}
	scale := float32(in) / float32(out)
	x := float32(i) * scale
	return min(int(math.Floor(float64(x))), in-1)
}

// nearestExactAt is ATen's nearest-exact position: the scale is in single precision, and
// the product is rounded after 1/2 is taken off.
func nearestExactAt(i, in, out int) int {
	scale := float64(float32(in) / float32(out))
	x := max(float32(float64((float64(i)+0.5)*scale)-0.5), 0)
	return min(int(x+0.5), in-1)
}

func resizeNearest(p Pixels, w, h int, at func(i, in, out int) int) Pixels {
	q := newPixels(w, h, p.C)
	for y := range h {
		in, out := p.row(at(y, p.H, h)), q.row(y)
		for x := range w {
			copy(out[x*p.C:(x+1)*p.C], in[at(x, p.W, w)*p.C:])
		}
	}
	return q
}
