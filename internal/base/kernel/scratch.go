package kernel

import mathbits "math/bits"

// Scratch is the most memory, in bytes, that Run takes for a job beside its input and
// its result. head is the header of the job's JPEG, nil where it has raw pixels, of which
// only the size is looked at. Not counted is what does not grow with pictures.
func (l *Lane) Scratch(j *Job, head *Header) int64 {
	w, h, c := j.Src.W, j.Src.H, j.Src.C
	if head != nil {
		w, h, c = head.W, head.H, 3
	}
	if l.target == "go" {
		return twinDecode(head) + twinSteps(w, h, c, j.Steps)
	}
	n := rowScratch(w, min(h, 4), c) + stepScratch(w, h, c, j.Steps)
	if head != nil {
		n += jpegScratch(j.JPEG, head)
	}
	return n + n/4 // stk_grow takes a quarter more
}

// jpegScratch is what C decodes a JPEG with: rows of its planes; where libjpeg keeps them,
// all coefficients; or what the standard library needs in its place.
func jpegScratch(jpeg []byte, h *Header) int64 {
	n := 256*int64(h.W) + h.Coefficients
	if h.Restart > 0 {
		n += int64(h.W) * int64(h.H) / 16 // where segments begin: 4 bytes of a block's 64 pixels
	}
	if !HasLibjpeg {
		rest := twinDecode(h)
		if rest > 8<<20 { // to look whose picture it is costs more than to count a small one as the library's
			if _, own := readFrame(jpeg); own {
				rest = 0
			}
		}
		n += rest
	}
	return n
}

// rowScratch is rows on their way through a pass.
func rowScratch(w, rows, c int) int64 { return int64(w) * int64(rows*c+16) }

// stepScratch is what the passes of a job keep: the pictures between them, what pads
// surround, tables of weights, and rings of rows.
func stepScratch(w, h, c int, steps []Step) (n int64) {
	resampled := false
	for i := range steps {
		s := &steps[i]
		switch s.Op {
		case OpCrop:
			w, h = s.W, s.H
		case OpGray:
			c = max(c, s.C)
		case OpPad:
			n += int64(w) * int64(h) * int64(c)
			resampled = true // a resampling after it begins another pass
			w, h = s.W, s.H
			n += rowScratch(w, 4, c)
		case OpResize:
			if resampled {
				n += int64(w) * int64(h) * int64(c)
			}
			resampled = true
			n += axisScratch(w, s.W) + axisScratch(h, s.H) + ringScratch(h, s.H, s.W*c)
			w, h = s.W, s.H
			n += rowScratch(w, 4, c)
		}
	}
	return n
}

// axisScratch is the weights of one dimension, several times over.
func axisScratch(in, out int) int64 { return 48 * int64(out+8) * int64(taps(in, out)) }

// taps is the most source pixels that one of out pixels is made of.
func taps(in, out int) int { return 2*(in/out+1) + 2 }

// ringScratch is the pair rows of 4 bytes an element that one output row needs.
func ringScratch(in, out, elems int) int64 {
	pairs := taps(in, out)/2 + 5
	return int64(elems+128) * 4 << mathbits.Len(uint(pairs))
}

// twinDecode is what the twin, or the standard library, decodes a whole JPEG with: planes
// up to whole MCUs, coefficients of 4 bytes, and the pixels.
func twinDecode(h *Header) int64 {
	if h == nil {
		return 0
	}
	whole := int64(h.W+32) * int64(h.H+32)
	c := int64(h.Components)
	return whole*(2*c+4) + 2*h.Coefficients
}

// twinSteps is the pictures that the twin makes, each step one or two. They are garbage
// that nobody collects before the job is done.
func twinSteps(w, h, c int, steps []Step) (n int64) {
	for i := range steps {
		s := &steps[i]
		switch s.Op {
		case OpCrop, OpPad:
			w, h = s.W, s.H
		case OpGray:
			c = max(c, s.C)
		case OpResize:
			n += axisScratch(w, s.W) + axisScratch(h, s.H) + int64(s.W)*int64(h)*int64(c)
			w, h = s.W, s.H
		}
		n += int64(w) * int64(h) * int64(c)
	}
	return n
}

// Garbage says whether what Run took for the job is Go's, and stays until the collector
// runs. What C takes is given back where it is large.
func (l *Lane) Garbage(j *Job) bool { return l.target == "go" || j.Way == WayGo }
