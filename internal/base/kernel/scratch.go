package kernel

import mathbits "math/bits"

// Scratch is the most memory, in bytes, that Run takes for a job, besides its input and
// its result. head is the header of the job's JPEG; nil for raw pixels, of which only
// the size matters. Memory that does not grow with pictures is not counted.
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

// jpegScratch is the memory with which C decodes a JPEG: rows of its planes; all
// coefficients, if libjpeg keeps them; or what the standard library needs instead.
func jpegScratch(jpeg []byte, h *Header) int64 {
	n := 256*int64(h.W) + h.Coefficients
	if h.Restart > 0 {
		n += int64(h.W) * int64(h.H) / 16 // offsets of segments: 4 bytes per block of 64 pixels
	}
	if !HasLibjpeg {
		rest := twinDecode(h)
		if rest > 8<<20 { // finding out who decodes a small picture costs more than counting it as the library's
			if _, own := readFrame(jpeg); own {
				rest = 0
			}
		}
		n += rest
	}
	return n
}

// rowScratch is the rows in work in a pass.
func rowScratch(w, rows, c int) int64 { return int64(w) * int64(rows*c+16) }

// stepScratch is the memory of a job's passes: the pictures between them, the pictures
// inside pads, tables of weights, and rings of rows.
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
		case OpErase:
			n += int64(w) * int64(h) * int64(c) // the picture that the next pass reads
		case OpAffine, OpPerspective:
			n += int64(w) * int64(h) * int64(c)
			w, h = s.W, s.H
			n += rowScratch(w, 4, c)
			resampled = true
		case OpKeep:
			n += 7 * int64(w) * int64(h) * int64(c) // the picture kept, the sum in floats, and two pictures between passes
		default:
			n += rowScratch(w, 4, 1)
			if s.Op == OpBlur {
				n += blurScratch(w, h, c, s)
			}
			if s.Op.needs() != 0 || s.Op == OpSharpness || s.Op == OpBlur {
				n += int64(w) * int64(h) * int64(c) // the picture that they are of
			}
		}
	}
	return n
}

// blurScratch is the ring of rows of a blur, its weights, and the rows in work.
func blurScratch(w, h, c int, s *Step) int64 {
	row := 2 * int64(w*c+256)
	return row*int64(min(s.H, h)+4) + int64(2*s.W*c) + 18*int64(s.W+s.H)
}

// axisScratch is the weights of one dimension, several times over.
func axisScratch(in, out int) int64 { return 48 * int64(out+8) * int64(taps(in, out)) }

// taps is the most source pixels that one output pixel is made from.
func taps(in, out int) int { return 2*(in/out+1) + 2 }

// ringScratch is the pair rows, 4 bytes per element, that one output row needs.
func ringScratch(in, out, elems int) int64 {
	pairs := taps(in, out)/2 + 5
	return int64(elems+128) * 4 << mathbits.Len(uint(pairs))
}

// twinDecode is the memory with which the twin, or the standard library, decodes a whole
// JPEG: planes rounded up to whole MCUs, coefficients of 4 bytes, and the pixels.
func twinDecode(h *Header) int64 {
	if h == nil {
		return 0
	}
	whole := int64(h.W+32) * int64(h.H+32)
	c := int64(h.Components)
	return whole*(2*c+4) + 2*h.Coefficients
}

// twinSteps is the pictures that the twin makes, one or two per step. They are garbage
// that is not collected before the job is done.
func twinSteps(w, h, c int, steps []Step) (n int64) {
	for i := range steps {
		s := &steps[i]
		switch s.Op {
		case OpCrop, OpPad, OpAffine, OpPerspective:
			w, h = s.W, s.H
		case OpGray:
			c = max(c, s.C)
		case OpResize:
			n += axisScratch(w, s.W) + axisScratch(h, s.H) + int64(s.W)*int64(h)*int64(c)
			w, h = s.W, s.H
		case OpKeep:
			n += 4 * int64(w) * int64(h) * int64(c) // the sum in floats
		}
		if s.Op == OpBlur {
			n += 2*int64(w)*int64(h)*int64(c) + 16*int64(s.W+s.H)
		}
		n += int64(w) * int64(h) * int64(c)
	}
	return n
}

// Garbage reports whether the memory that Run took for the job is Go's, and so stays
// until the collector runs. C frees its memory if it is large.
func (l *Lane) Garbage(j *Job) bool { return l.target == "go" || j.Way == WayGo }
