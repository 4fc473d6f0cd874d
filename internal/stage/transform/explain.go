package transform

import (
	"bytes"
	"encoding/json"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// Choice is what one operation did to one picture. As JSON it is one flat
// object, "op" first, the values in their order:
//
//	{"op": "RandomApply", "applied": true}                 what it holds follows if it was applied
//	{"op": "RandomHorizontalFlip", "flipped": true}        RandomVerticalFlip too
//	{"op": "RandomGrayscale", "gray": false}
//	{"op": "RandomResizedCrop", BOX, "to_height": 224, "to_width": 224, STORED}
//	{"op": "RandomCrop", BOX, STORED}                      CenterCrop too
//	{"op": "Resize", "from_height": 300, "from_width": 451, "to_height": 256, "to_width": 384}
//	{"op": "Pad", "pad_left": 4, "pad_top": 4, "pad_right": 4, "pad_bottom": 4}
//	{"op": "Grayscale", "channels": 1}
//
// BOX is "top", "left", "height", "width": whole pixels of the picture as the
// operation is given it, after the operations before it and before its own
// padding. A box that begins below zero or ends beyond the picture takes in
// padding there. Doing one choice after the other gives the picture that is
// delivered.
//
// STORED is the same box as "stored_top", "stored_left", "stored_height",
// "stored_width": pixels of the picture as it is decoded, before every
// operation, with a fraction where a Resize stands between. The EXIF
// orientation of a JPEG, PNG or WebP is not applied, by decoding or here; a
// TIFF's orientation is, by both. A flip before the box is undone: the box says
// where in the file to look, the flip's own choice that what is seen there is
// mirrored.
type Choice struct {
	Op     string // torchvision's name
	Values []Value
}

// Value is one number or fact of a choice.
type Value struct {
	Name string // in snake case
	Of   any    // bool; int, pixels or channels; float64, pixels of the stored picture
}

// MarshalJSON writes the object above.
func (c Choice) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`{"op":`)
	op, err := json.Marshal(c.Op)
	if err != nil {
		return nil, err
	}
	b.Write(op)
	for _, v := range c.Values {
		name, err := json.Marshal(v.Name)
		if err != nil {
			return nil, err
		}
		of, err := json.Marshal(v.Of)
		if err != nil {
			return nil, err
		}
		b.WriteByte(',')
		b.Write(name)
		b.WriteByte(':')
		b.Write(of)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Explain says what Begin chooses for a sample with this key, one Choice for
// each operation that draws, resizes, crops, pads or makes grey, in the order
// in which they are written. Compose, conversions and Normalize say nothing,
// nor does what can change no picture of this program (CenterCrop to the size
// that it is given, RandomGrayscale of a grey field). Fields that are no
// pictures have no choices.
//
// It reads the header only: a picture whose pixels are damaged is explained as
// if they were not. It fails where Begin fails, by the same error. The lane
// forgets the sample that was begun; the choices stay valid.
func (p *Program) Explain(l *Lane, encoded []byte, key rng.Key) ([]Choice, error) {
	if p.kind != "image" {
		return nil, nil
	}
	l.program = nil
	var told []Choice
	l.run.told = &told
	_, err := p.beginImage(l, encoded, key)
	l.run.told = nil
	if err != nil {
		return nil, err
	}
	return told, nil
}

// The methods below are called by resolve with what it has just chosen, so that
// no choice is worked out twice. They take plain numbers: with nobody to tell,
// a sample allocates nothing.

// tellActed tells of an operation that acts or not.
func (r *run) tellActed(op, word string, acted bool) {
	if r.told != nil {
		r.tell(op, Value{word, acted})
	}
}

// tellCrop tells of the region b of the picture as it stands, to which the
// operation itself has just added m. It is told before the crop is made. to is
// what the region becomes if it is resized, else zero.
func (r *run) tellCrop(op string, b box, m margins, to size) {
	if r.told == nil {
		return
	}
	values := []Value{{"top", b.y - m.top}, {"left", b.x - m.left}, {"height", b.h}, {"width", b.w}}
	if to != (size{}) {
		values = append(values, Value{"to_height", to.h}, Value{"to_width", to.w})
	}
	s := r.stored(b)
	values = append(values, Value{"stored_top", s.y}, Value{"stored_left", s.x}, Value{"stored_height", s.h}, Value{"stored_width", s.w})
	r.tell(op, values...)
}

// tellResize is told before the resize is made.
func (r *run) tellResize(op string, to size) {
	if r.told != nil {
		r.tell(op, Value{"from_height", r.h}, Value{"from_width", r.w}, Value{"to_height", to.h}, Value{"to_width", to.w})
	}
}

func (r *run) tellPad(op string, m margins) {
	if r.told != nil {
		r.tell(op, Value{"pad_left", m.left}, Value{"pad_top", m.top}, Value{"pad_right", m.right}, Value{"pad_bottom", m.bottom})
	}
}

func (r *run) tellChannels(op string, c int) {
	if r.told != nil {
		r.tell(op, Value{"channels", c})
	}
}

func (r *run) tell(op string, values ...Value) { *r.told = append(*r.told, Choice{op, values}) }

// region is a box with fractions, in pixels of the source.
type region struct{ x, y, w, h float64 }

// stored is where b, a region of the picture as it stands, lies in the source:
// the way back through the very steps that the kernel is given. Outside of the
// source is padding.
func (g *geometry) stored(b box) region {
	r := region{float64(b.x), float64(b.y), float64(b.w), float64(b.h)}
	for i := len(g.steps) - 1; i >= 0; i-- {
		s, in := &g.steps[i], g.sizes[i]
		switch s.Op {
		case kernel.OpCrop:
			r.x, r.y = r.x+float64(s.X), r.y+float64(s.Y)
		case kernel.OpPad:
			r.x, r.y = r.x-float64(s.X), r.y-float64(s.Y)
		case kernel.OpFlipH:
			r.x = float64(in.w) - r.x - r.w
		case kernel.OpFlipV:
			r.y = float64(in.h) - r.y - r.h
		case kernel.OpResize:
			// A product is divided before anything is added to it: nothing to fuse.
			r.x, r.w = r.x*float64(in.w)/float64(s.W), r.w*float64(in.w)/float64(s.W)
			r.y, r.h = r.y*float64(in.h)/float64(s.H), r.h*float64(in.h)/float64(s.H)
		}
	}
	return r
}
