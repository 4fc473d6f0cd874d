package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
)

// Warps: torchvision's affine, rotate and perspective, as maps for the kernel. Angles are in
// degrees, as torchvision's.
//
// torchvision computes a map in float64 and rounds its coefficients to float32. So does this;
// what it then adds to them for each pixel in float32, the kernel adds likewise for nearest, and
// more exactly for bilinear.

// warper is what the operations that warp have in common: how pixels are made, and what is
// outside the picture.
type warper struct {
	filter kernel.Filter
	fill   fill
	filled bool // false: torchvision's fill=None, which is 0, but blended otherwise
}

// warper reads interpolation and fill.
func (a *arguments) warper(standard kernel.Filter) warper {
	names := []string{kernel.Bilinear: "bilinear", kernel.Nearest: "nearest"}
	w := warper{filter: standard, fill: a.fill(), filled: string(a.op.Args["fill"]) != "null"}
	if _, given := a.raw("interpolation"); given {
		if name, _ := a.text("interpolation", names...); name == "nearest" {
			w.filter = kernel.Nearest
		} else {
			w.filter = kernel.Bilinear
		}
	}
	for _, v := range w.fill.v {
		if !(v >= 0 && v <= 255) {
			a.wrong("give fill as one number from 0 to 255, or one for each channel", "the fill %v is not a byte", v)
			break
		}
	}
	return w
}

// plan refuses what would give other numbers than torchvision's.
func (w *warper) plan(name string, k *known) *problem {
	if w.fill.each && k.c == 1 {
		return problemf("give fill as one number", "the fill has 3 channels, but the picture has 1")
	}
	if k.tone.float {
		return before(name, k)
	}
	return nil
}

func (w *warper) canon(b []byte) []byte {
	return fmt.Appendf(b, "%d %t %v", w.filter, w.filled, w.fill.v)
}

// to warps the picture.
func (w *warper) to(r *run, m kernel.Map, s size) {
	for _, v := range m {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			m = kernel.Map{2: -2, 5: -2} // nothing of the picture is left
		}
	}
	var fill *[3]uint8
	if w.filled {
		fill = &[3]uint8{}
		for i, v := range w.fill.v {
			fill[i] = uint8(math.RoundToEven(v))
		}
	}
	r.chain.Warp(m, s.w, s.h, w.filter, fill)
}

// point is a position in pixels, from the upper left corner.
type point struct{ x, y float64 }

// affinity is the arguments of torchvision's affine. Its shifts are whole pixels.
type affinity struct {
	angle  float64 // clockwise
	shift  point
	scale  float64
	shear  point
	center *point // nil: the picture's
}

// affine is torchvision's affine.
func (w *warper) affine(r *run, a affinity) {
	at := r.at().size
	w.to(r, at.around(a.matrix(at), at), at)
}

// rotate is torchvision's rotate: counterclockwise, to a picture that has room for all of
// the old one if expand is set. A turn by quarters moves pixels only, where it fits.
func (w *warper) rotate(r *run, angle float64, expand bool, center *point) *errs.Error {
	at := r.at().size
	angle = math.Mod(angle, 360)
	if angle < 0 {
		angle += 360
	}
	fits := center == nil && (expand || at.w == at.h)
	switch {
	case center == nil && angle == 0:
	case center == nil && angle == 180:
		r.chain.Flip(kernel.OpFlipH)
		r.chain.Flip(kernel.OpFlipV)
	case fits && angle == 90:
		w.to(r, kernel.Map{0, -1, float64(at.w), 1, 0, 0}, size{at.h, at.w})
	case fits && angle == 270:
		w.to(r, kernel.Map{0, 1, 0, -1, 0, float64(at.h)}, size{at.h, at.w})
	default:
		to, m := at, rotation(at, angle, center)
		if expand {
			to = at.expanded(m)
		}
		if !to.possible() {
			return misfit("leave expand out, or make the pictures smaller first", "a rotation would make %d x %d pixels of a picture of %d x %d", to.w, to.h, at.w, at.h)
		}
		w.to(r, at.around(m, to), to)
	}
	return nil
}

// rotation is the matrix of rotate for a picture of this size.
func rotation(at size, angle float64, center *point) [6]float64 {
	a := affinity{angle: -angle, scale: 1, center: center}
	return a.matrix(at)
}

// matrix is the inverse map of a picture of this size, in pixels from its centre, rounded as
// torchvision's.
func (a *affinity) matrix(at size) [6]float64 {
	var c point
	if a.center != nil {
		c = point{a.center.x - float64(float64(at.w)/2), a.center.y - float64(float64(at.h)/2)}
	}
	sinRot, cosRot := sinCos(a.angle)
	sinX, cosX := sinCos(a.shear.x)
	_, cosY := sinCos(a.shear.y)
	sinPart, cosPart := sinCos(a.angle - a.shear.y)
	tanX := sinX / cosX
	// The matrix of the map itself, without the scale; its determinant is 1.
	m00 := cosPart / cosY
	m01 := -(float64(m00*tanX) + sinRot)
	m10 := sinPart / cosY
	m11 := cosRot - float64(m10*tanX)
	m := [6]float64{m11 / a.scale, -m01 / a.scale, 0, -m10 / a.scale, m00 / a.scale, 0}
	to := point{c.x + a.shift.x, c.y + a.shift.y}
	m[2] = c.x - float64(m[0]*to.x) - float64(m[1]*to.y)
	m[5] = c.y - float64(m[3]*to.x) - float64(m[4]*to.y)
	for i := range m {
		m[i] = float64(float32(m[i]))
	}
	return m
}

// around is m, in pixels from the centres of a picture and its result, in pixels from their
// corners.
func (s size) around(m [6]float64, to size) kernel.Map {
	x, y := float64(to.w)/2, float64(to.h)/2
	cx, cy := float64(float64(s.w)/2), float64(float64(s.h)/2)
	return kernel.Map{
		m[0], m[1], m[2] + cx - float64(m[0]*x) - float64(m[1]*y),
		m[3], m[4], m[5] + cy - float64(m[3]*x) - float64(m[4]*y),
	}
}

// expanded is the size of what has room for a picture turned by m: torchvision's, in its
// float32.
func (s size) expanded(m [6]float64) size {
	side := func(half float32, m []float64) int {
		w, h := float32(s.w)/2, float32(s.h)/2
		least, most := float32(math.Inf(1)), float32(math.Inf(-1))
		for _, p := range [4][2]float32{{-w, -h}, {-w, h}, {w, h}, {w, -h}} {
			at := float32(p[0]*float32(m[0])) + float32(p[1]*float32(m[1])) + float32(m[2])
			least, most = min(least, at+half), max(most, at+half)
		}
		cut := func(v float32) float64 { return float64(float32(math.Trunc(float64(v*10000)) * 1e-4)) }
		return int(math.Ceil(cut(most)) - math.Floor(cut(least)))
	}
	return size{side(float32(s.w)/2, m[:3]), side(float32(s.h)/2, m[3:])}
}

// corners are the positions of the corner pixels of a picture: upper left, upper right,
// lower right, lower left.
func (s size) corners() [4]point {
	x, y := float64(s.w-1), float64(s.h-1)
	return [4]point{{0, 0}, {x, 0}, {x, y}, {0, y}}
}

// perspective is torchvision's perspective: start is moved to end. It returns false, and does
// nothing, if no map does that, because three of the points are on a line.
func (w *warper) perspective(r *run, start, end [4]point) bool {
	m, ok := quadMap(start, end)
	if ok {
		w.to(r, m, r.at().size)
	}
	return ok
}

// quadMap is the inverse of the perspective that moves start to end.
func quadMap(start, end [4]point) (kernel.Map, bool) {
	var rows [8][9]float64 // equations for the eight coefficients
	for i, e := range end {
		s := start[i]
		rows[2*i] = [9]float64{e.x, e.y, 1, 0, 0, 0, -s.x * e.x, -s.x * e.y, s.x}
		rows[2*i+1] = [9]float64{0, 0, 0, e.x, e.y, 1, -s.y * e.x, -s.y * e.y, s.y}
	}
	for i := range rows {
		best := i
		for j := i + 1; j < 8; j++ {
			if math.Abs(rows[j][i]) > math.Abs(rows[best][i]) {
				best = j
			}
		}
		rows[i], rows[best] = rows[best], rows[i]
		if math.Abs(rows[i][i]) < 1e-9 {
			return kernel.Map{}, false
		}
		for j := range rows {
			if j == i {
				continue
			}
			f := rows[j][i] / rows[i][i]
			for k := i; k < 9; k++ {
				rows[j][k] -= float64(f * rows[i][k])
			}
		}
	}
	var m kernel.Map
	for i := range m {
		m[i] = float64(float32(rows[i][8] / rows[i][i]))
	}
	return m, true
}

// sinCos is the sine and the cosine of an angle in degrees, with an error below 1e-15; those
// of the standard library differ in the last bit between processors. They are exact for
// quarters of a turn. The divisions keep a compiler from fusing a multiplication with an
// addition.
func sinCos(degrees float64) (sin, cos float64) {
	d := math.Mod(degrees, 360)
	quarter := math.RoundToEven(d / 90)
	x := float64((d-float64(quarter*90))*math.Pi) / 180 // |x| < 0.79: the terms after the last are below 1e-19
	square := float64(x * x)
	sin, cos = 1, 1
	for i := 8; i >= 1; i-- {
		sin = 1 - sin*square/float64(2*i*(2*i+1))
		cos = 1 - cos*square/float64(2*i*(2*i-1))
	}
	sin = float64(sin * x)
	switch int(quarter) & 3 {
	case 1:
		return cos, -sin
	case 2:
		return -sin, -cos
	case 3:
		return -cos, sin
	}
	return sin, cos
}
