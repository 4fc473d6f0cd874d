package transform

import (
	"encoding/binary"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
)

// A picture may be decoded by the client, on its device. Then the program's first operations,
// its head, are done there too, in one go: a box, its resampling, a part of that, and flips.

// WindowNumbers is how many int32 say how a row follows from what the client is sent of a
// JPEG. The first is 0 if the row has been made here; the others are then 0 too. It is 1 for
// what is sent, and then these follow:
//
//	 1  2        width and height of the JPEG that is sent
//	 3  4  5  6  x, y, w, h of the box, in the picture
//	 7  8  9     width and height to which the box is resampled, and the kernel.Filter
//	10 11        x, y of the row in the resampled box
//	12           flips, summed: after resampling 1 left to right, 2 top to bottom; before it
//	             4 left to right, 8 top to bottom
//	13           MCUs in a row of the strip; 0: the whole picture is sent, the others are 0
//	14           MCUs in a row of the picture
//	15 16        width and height of an MCU
//	17 18 19     kernel.Strip's First, Last and Top
//	20 21        the sample's number: its lower and its upper 32 bits
const WindowNumbers = 22

// Head returns how many operations, from the first on, only crop, pad, resample and mirror a
// colour picture, up to the last after which its size is known. It fails if there are none,
// and if pixels may be approximate: a device decodes whole pictures, and would make others.
func (p *Program) Head() (n int, err error) {
	k, ok := p.kind.(*picture)
	switch {
	case !ok || k.stored != (size{}):
		return 0, errs.New(errs.Config, "decode_device decodes JPEGs, and this field holds pixels").Try("leave decode_device out")
	case k.gray:
		return 0, errs.New(errs.Config, "decode_device decodes colour pictures, and this field is decoded as gray").
			Try("decode it as rgb, with Grayscale as a step; or leave decode_device out")
	case drafts(p.steps):
		return 0, errs.New(errs.Config, "draft=True decodes a smaller picture, and decode_device decodes whole ones, with other pixels").
			Try("leave draft out, or decode_device")
	}
	other := "" // the first that does something else
	for i := range p.steps {
		s := &p.steps[i]
		if !s.frames {
			other = s.name
			break
		}
		if i+1 < len(p.steps) && p.steps[i+1].in.sized() || i+1 == len(p.steps) && p.at.sized() {
			n = i + 1
		}
	}
	switch {
	case n > 0:
		return n, nil
	case other != "":
		return 0, errs.New(errs.Config, "decode_device makes pictures of one size first, and %s comes before that", other).
			Try("put RandomResizedCrop, or Resize and CenterCrop, before %s: only crops, padding, resizing and flips may come earlier", other)
	default:
		return 0, errs.New(errs.Config, "decode_device makes pictures of one size, and this transform leaves them in many sizes").
			Try("add RandomResizedCrop, or CenterCrop, or Resize to two numbers, to transform=")
	}
}

// window is the steps of a picture's kernel as far as a client does them.
type window struct {
	box     box
	to      size
	filter  kernel.Filter
	x, y    int
	flipped int32
}

// windowOf reads the steps of a chain that makes a picture of the size at of one of the size
// from; false if the client does not do all of them.
func windowOf(steps []kernel.Step, from, at size) (w window, ok bool) {
	w = window{box: box{0, 0, from.w, from.h}}
	now, resized := from, false
	for i := range steps {
		s := &steps[i]
		switch {
		case s.Op == kernel.OpCrop && !resized && w.flipped == 0:
			w.box = box{w.box.x + s.X, w.box.y + s.Y, s.W, s.H}
			now = size{s.W, s.H}
		case s.Op == kernel.OpCrop && resized && w.flipped&3 == 0:
			w.x, w.y, now = w.x+s.X, w.y+s.Y, size{s.W, s.H}
		case s.Op == kernel.OpResize && !resized:
			w.to, w.filter, resized, now = size{s.W, s.H}, s.Filter, true, size{s.W, s.H}
			w.flipped <<= 2
		case s.Op == kernel.OpFlipH:
			w.flipped ^= 1
		case s.Op == kernel.OpFlipV:
			w.flipped ^= 2
		default:
			return w, false
		}
	}
	if !resized {
		w.to = size{w.box.w, w.box.h}
	}
	return w, now == at
}

// Sent appends to dst what a client needs of the JPEG begun last to make its row, and writes
// to numbers, WindowNumbers int32, how. false: the row has to be made here, and the numbers are
// zero. repeats: the decoder repeats samples of chroma. After true, there is no Finish.
func (p *Program) Sent(l *Lane, sample int64, numbers, dst []byte, repeats bool) ([]byte, bool, error) {
	clear(numbers)
	if l.program != p || p.of != "image" {
		return dst, false, errs.New(errs.Bug, "transform: Sent without a Begin of the same program")
	}
	if !l.jpeg {
		return dst, false, nil
	}
	at := l.run.at().size
	w, ok := windowOf(l.run.chain.Steps(), l.picture, at)
	if !ok {
		return dst, false, nil
	}
	dst, s, err := l.Kernel.Strip(dst, l.value, w.box.x, w.box.y, w.box.w, w.box.h, repeats)
	if err != nil { // the lane says what is wrong, if something is
		return dst, false, nil
	}
	l.program, l.decoded, l.spent = nil, false, Spent{}
	for i, v := range [WindowNumbers]int{
		1, s.W, s.H, w.box.x, w.box.y, w.box.w, w.box.h, w.to.w, w.to.h, int(w.filter), w.x, w.y, int(w.flipped),
		s.Interval, s.Cols, s.MCUW, s.MCUH, s.First, s.Last, s.Top, int(sample), int(sample >> 32),
	} {
		binary.LittleEndian.PutUint32(numbers[4*i:], uint32(v))
	}
	return dst, true, nil
}
