package kernel

import (
	"encoding/binary"
	"math"
	"time"
)

// The twin: every stage in plain Go, one after the other, each over a whole picture. It
// is written to be easy to read and to verify; the C kernel must equal it bit for bit,
// JPEGs included.

func runGo(j *Job, h *header) error {
	if j.Timed {
		begin := time.Now()
		j.Spent = Spent{}
		defer func() { j.Spent.All = time.Since(begin) }()
	}
	p, steps := j.Src, j.Steps
	if j.JPEG != nil {
		begun := time.Now()
		var err error
		if p, steps, err = begin(j, h); err != nil {
			return err
		}
		if j.Timed {
			j.Spent.Decode = time.Since(begun)
		}
	}
	var sum pictureSum
	for i := range steps {
		s := &steps[i]
		begun := time.Now()
		switch s.Op {
		case OpCrop:
			p = crop(p, s.X, s.Y, s.W, s.H)
		case OpResize:
			p = resize(p, s.W, s.H, s.Filter)
		case OpPad:
			p = padTo(p, s)
		case OpFlipH:
			p = flipH(p)
		case OpFlipV:
			p = flipV(p)
		case OpGray:
			p = gray(p, s.C)
		case OpSharpness:
			p = sharpen(p, s.N)
		case OpErase:
			p = erase(p, s)
		case OpBlur:
			if !s.leaves() {
				p = blur(p, s)
			}
		case OpAffine, OpPerspective:
			p = warp(p, s)
		case OpKeep, OpAdd, OpSum:
			p = sum.step(p, s)
		default:
			if !s.unchanging(p.C) {
				p = colour(p, s)
			}
		}
		if j.Timed && s.Op >= OpInvert {
			j.Spent.Own[s.Owner%Owners] += time.Since(begun)
		}
	}
	last := time.Now()
	write(p, &j.Out, j.Dst)
	if j.Timed {
		j.Spent.Write = time.Since(last)
	}
	for i := range j.Out.Erased {
		begun := time.Now()
		e := &j.Out.Erased[i]
		e.erase(j.Dst, p, &j.Out)
		if j.Timed {
			j.Spent.Own[e.Owner%Owners] += time.Since(begun)
		}
	}
	return nil
}

// begin decodes the JPEG, and returns the remaining steps.
func begin(j *Job, h *header) (Pixels, []Step, error) {
	channels := 3
	if j.Gray {
		channels = 1
	}
	d, steps := newDraft(j, h)
	if d.shift > 0 {
		if f, taken := readFrame(j.JPEG); taken {
			j.Way = WayOwn
			f.strict, f.entries = j.Strict, j.entries()
			p, err := f.decode(d.shift)
			if err != nil {
				return p, nil, err
			}
			p = d.resize(inChannels(p, channels))
			return p, steps, nil
		}
	}
	p, way, err := decodeGo(j, h)
	j.Way = way
	if err != nil {
		return p, nil, err
	}
	return inChannels(p, channels), j.Steps, nil
}

// inChannels converts a decoded picture to the channels that a job wants.
func inChannels(p Pixels, c int) Pixels {
	if p.C == c {
		return p
	}
	return gray(p, c)
}

func newPixels(w, h, c int) Pixels { return Pixels{Pix: make([]byte, w*h*c), W: w, H: h, C: c} }

func (p *Pixels) row(y int) []byte { return p.Pix[y*p.W*p.C : (y+1)*p.W*p.C] }

func crop(p Pixels, x, y, w, h int) Pixels {
	q := newPixels(w, h, p.C)
	for i := range h {
		copy(q.row(i), p.row(y + i)[x*p.C:])
	}
	return q
}

func flipH(p Pixels) Pixels {
	q := newPixels(p.W, p.H, p.C)
	for y := range p.H {
		in, out := p.row(y), q.row(y)
		for x := range p.W {
			copy(out[x*p.C:(x+1)*p.C], in[(p.W-1-x)*p.C:])
		}
	}
	return q
}

func flipV(p Pixels) Pixels {
	q := newPixels(p.W, p.H, p.C)
	for y := range p.H {
		copy(q.row(y), p.row(p.H-1-y))
	}
	return q
}

// luma is Pillow's convert("L").
func luma(r, g, b uint8) uint8 {
	return uint8((19595*uint32(r) + 38470*uint32(g) + 7471*uint32(b) + 32768) >> 16)
}

func gray(p Pixels, c int) Pixels {
	if p.C == 1 && c == 1 {
		return p
	}
	q := newPixels(p.W, p.H, c)
	for i := range p.W * p.H {
		y := p.Pix[i*p.C]
		if p.C == 3 {
			y = luma(y, p.Pix[3*i+1], p.Pix[3*i+2])
		}
		for k := range c {
			q.Pix[i*c+k] = y
		}
	}
	return q
}

func padTo(p Pixels, s *Step) Pixels {
	q := newPixels(s.W, s.H, p.C)
	for y := range s.H {
		for x := range s.W {
			sx, sy := beyond(x-s.X, p.W, s.Mode), beyond(y-s.Y, p.H, s.Mode)
			in := s.Fill[:]
			if sx >= 0 && sy >= 0 {
				in = p.row(sy)[sx*p.C:]
			}
			copy(q.row(y)[x*p.C:(x+1)*p.C], in)
		}
	}
	return q
}

// beyond maps a coordinate outside [0, n) back inside by the mode; -1 is fill.
func beyond(i, n int, mode PadMode) int {
	if i >= 0 && i < n {
		return i
	}
	switch mode {
	case PadEdge:
		return min(max(i, 0), n-1)
	case PadReflect:
		if n == 1 {
			return 0
		}
		period := 2*n - 2
		i = (i%period + period) % period
		return min(i, period-i)
	case PadSymmetric:
		period := 2 * n
		i = (i%period + period) % period
		return min(i, period-1-i)
	}
	return -1
}

func write(p Pixels, o *Output, dst []byte) {
	if o.size() == 1 && (!o.CHW || p.C == 1) {
		copy(dst, p.Pix)
		return
	}
	n := p.W * p.H
	for i, v := range p.Pix {
		c, at := i%p.C, i
		if o.CHW {
			at = c*n + i/p.C
		}
		switch {
		case o.Halves != nil:
			binary.NativeEndian.PutUint16(dst[2*at:], o.Halves[c][v])
			continue
		case !o.Float:
			dst[at] = v
			continue
		}
		x := float32(float32(v)*o.Scale[c]) + o.Bias[c] // the conversion forbids fusing
		binary.NativeEndian.PutUint32(dst[4*at:], math.Float32bits(x))
	}
}
