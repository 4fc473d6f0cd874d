package kernel

import (
	"fmt"
	"math"
)

// Colours: steps that give each pixel new values, whatever its position. They are those
// of torchvision's tensor kernels on uint8, in float32, with every product rounded before
// it is added. Most of them are a table for each channel. Three of them need numbers
// computed over the whole picture that they are given: its histograms, or its mean luma.
//
// The twin is in this file; colour.c and colour.h are the C.

// local reports whether the step's result at a pixel depends on that pixel alone.
func (o Op) local() bool {
	switch o {
	case OpGray, OpInvert, OpPosterize, OpSolarize, OpBrightness, OpSaturation, OpHue, OpPermute:
		return true
	}
	return false
}

// The numbers over a whole picture that a step needs.
const (
	needsLuma = 1 << iota
	needsRange
	needsHistogram
)

func (o Op) needs() int {
	switch o {
	case OpContrast:
		return needsLuma
	case OpAutocontrast:
		return needsRange
	case OpEqualize:
		return needsHistogram
	}
	return 0
}

// colour reports whether the step is one of this file.
func (o Op) colour() bool { return o >= OpInvert && o <= OpPermute }

// mostFactor bounds factors: 255 times as much, and differences of such, are finite floats.
const mostFactor = 1e30

// checkColour refuses numbers that make no sense.
func (s *Step) checkColour() error {
	least, most := 0.0, mostFactor
	switch s.Op {
	case OpPosterize:
		most = 8
		if s.N != math.Trunc(s.N) {
			return JobError(fmt.Sprintf("posterize to %v bits", s.N))
		}
	case OpSolarize:
		least = -math.MaxFloat32
	case OpHue:
		least, most = -0.5, 0.5
	case OpPermute:
		var seen [3]bool
		for _, c := range s.Perm {
			if c > 2 || seen[c] {
				return JobError(fmt.Sprintf("%v is not an order of three channels", s.Perm))
			}
			seen[c] = true
		}
	}
	if !(s.N >= least && s.N <= most) {
		return JobError(fmt.Sprintf("operation %d by %v", s.Op, s.N))
	}
	return nil
}

// unchanging reports whether a colour step leaves every picture of c channels as it is.
func (s *Step) unchanging(c int) bool {
	switch s.Op {
	case OpPosterize:
		return s.N == 8
	case OpBrightness, OpContrast:
		return s.N == 1
	case OpSaturation:
		return s.N == 1 || c == 1
	case OpHue:
		return s.N == 0 || c == 1
	case OpPermute:
		return c == 1 || s.Perm == [3]uint8{0, 1, 2}
	}
	return false
}

// clipped is a float as a byte: clamped, its fraction cut off.
func clipped(x float32) uint8 { return uint8(max(0, min(255, x))) }

// colour is the step's result.
func colour(p Pixels, s *Step) Pixels {
	q := newPixels(p.W, p.H, p.C)
	switch s.Op {
	case OpSaturation:
		f, rest := float32(s.N), float32(1-s.N)
		for i := 0; i < len(p.Pix); i += 3 {
			y := float32(float32(flatLuma(p.Pix[i:])) * rest)
			for c := range 3 {
				q.Pix[i+c] = clipped(float32(float32(p.Pix[i+c])*f) + y)
			}
		}
	case OpHue:
		turn := float32(6 * s.N)
		for i := 0; i < len(p.Pix); i += 3 {
			turnHue(q.Pix[i:i+3], p.Pix[i:i+3], turn)
		}
	case OpPermute:
		for i := range p.Pix {
			q.Pix[i] = p.Pix[i-i%3+int(s.Perm[i%3])]
		}
	default:
		for c, t := range colourTables(p, s) {
			for i := c; i < len(p.Pix); i += p.C {
				q.Pix[i] = t[p.Pix[i]]
			}
		}
	}
	return q
}

// colourTables are the new values of each value, for each channel.
func colourTables(p Pixels, s *Step) [][256]uint8 {
	out := make([][256]uint8, p.C)
	var mean float32
	if s.Op == OpContrast {
		mean = float32(meanLuma(p) * (1 - s.N))
	}
	for c := range out {
		t := &out[c]
		switch s.Op {
		case OpAutocontrast:
			*t = stretched(histogram(p, c))
			continue
		case OpEqualize:
			*t = equalized(histogram(p, c), p.W*p.H)
			continue
		}
		for v := range t {
			t[v] = s.value(uint8(v), mean)
		}
	}
	return out
}

// value is the new value of v. mean is what contrast adds.
func (s *Step) value(v uint8, mean float32) uint8 {
	switch s.Op {
	case OpInvert:
		return 255 - v
	case OpPosterize:
		return v & uint8(255<<(8-int(s.N)))
	case OpSolarize:
		if float64(v) >= s.N {
			return 255 - v
		}
		return v
	case OpBrightness:
		return clipped(float32(v) * float32(s.N))
	case OpContrast:
		return clipped(float32(float32(v)*float32(s.N)) + mean)
	}
	panic("kernel: a step without a table")
}

// flatLuma is torchvision's luma of an RGB pixel, (2989 R + 5870 G + 1140 B) / 10000
// with its fraction cut off. It is not that of OpGray: white is 254.
func flatLuma(rgb []byte) int {
	return (2989*int(rgb[0]) + 5870*int(rgb[1]) + 1140*int(rgb[2])) / 10000
}

// meanLuma is the mean of flatLuma; of one channel, its mean.
func meanLuma(p Pixels) float64 {
	sum := 0
	for i := 0; i < len(p.Pix); i += p.C {
		if p.C == 1 {
			sum += int(p.Pix[i])
		} else {
			sum += flatLuma(p.Pix[i:])
		}
	}
	return float64(sum) / float64(p.W*p.H)
}

func histogram(p Pixels, c int) *[256]int {
	var h [256]int
	for i := c; i < len(p.Pix); i += p.C {
		h[p.Pix[i]]++
	}
	return &h
}

// stretched is autocontrast's table. A channel of one value stays.
func stretched(h *[256]int) (t [256]uint8) {
	least, most := 0, 255
	for least < 255 && h[least] == 0 {
		least++
	}
	for most > least && h[most] == 0 {
		most--
	}
	scale := float32(float32(most-least) * float32(1.0/255))
	for v := range t {
		t[v] = uint8(v)
		if most > least {
			t[v] = clipped(float32(v-least) / scale)
		}
	}
	return t
}

// equalized is Pillow's table: the number of pixels of smaller values, of n pixels, in steps
// of a 255th of those that do not have the greatest value.
func equalized(h *[256]int, n int) (t [256]uint8) {
	most := 255
	for most > 0 && h[most] == 0 {
		most--
	}
	step, below := (n-h[most])/255, 0
	for v := range t {
		t[v] = uint8(v)
		if step > 0 {
			t[v] = uint8(min(255, (below+step/2)/step))
		}
		below += h[v]
	}
	return t
}

// turnHue turns the hue of a pixel, by sixths of a turn: from RGB to the hexagon of hues
// and back. Value and chroma stay.
func turnHue(out, in []byte, turn float32) {
	r, g, b := int(in[0]), int(in[1]), int(in[2])
	most, least := max(r, g, b), min(r, g, b)
	chroma := float32(most - least)
	h := float32(r-g)/max(chroma, 1) + 4
	switch {
	case r == most:
		h = float32(g-b) / max(chroma, 1)
	case g == most:
		h = float32(b-r)/max(chroma, 1) + 2
	}
	if h += turn; h < 0 {
		h += 6
	}
	if h >= 6 {
		h -= 6
	}
	for c, from := range [3]float32{5, 3, 1} {
		k := h + from
		if k >= 6 {
			k -= 6
		}
		lack := max(0, min(1, k, 4-k)) // of the chroma
		out[c] = uint8(float32(float32(most)-float32(chroma*lack)) * (255.999 / 255))
	}
}
