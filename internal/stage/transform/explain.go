package transform

import (
	"bytes"
	"encoding/json"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// Choice is what one operation did to one picture. As JSON it is one flat object:
// "op" first, then the numbers that its descriptor names, in their order:
//
//	{"op": "RandomApply", "applied": true}                 what it holds follows if it was applied
//	{"op": "RandomHorizontalFlip", "flipped": true}
//	{"op": "RandomResizedCrop", BOX, "to_height": 224, "to_width": 224, STORED}
//	{"op": "RandomCrop", BOX, STORED}
//	{"op": "Resize", "from_height": 300, "from_width": 451, "to_height": 256, "to_width": 384}
//	{"op": "Pad", "pad_left": 4, "pad_top": 4, "pad_right": 4, "pad_bottom": 4}
//	{"op": "Grayscale", "channels": 1}
//
// BOX is "top", "left", "height", "width": whole pixels of the picture that the
// operation is given, after the operations before it and before its own padding. A
// box that begins below zero or ends outside the picture includes padding there.
// Applying one choice after the other gives the picture that is delivered.
//
// STORED, after every BOX, is the same box as "stored_top", "stored_left",
// "stored_height", "stored_width": pixels of the picture as it is decoded, before
// every operation, with a fraction if a Resize is between. The EXIF orientation of
// a JPEG, PNG or WebP is not applied, neither by decoding nor here; a TIFF's
// orientation is, by both. A flip before the box is undone: the box says where in
// the file to look, and the flip's own choice says that the pixels there are
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

// Explain returns what Begin chooses for a sample with this key, one Choice for
// each operation whose choices have numbers, in the order in which they are
// written. Compose, conversions and Normalize have none, and neither do operations
// that cannot change a picture of this program (CenterCrop to the size that it is
// given, RandomGrayscale of a grey field). Fields that are not pictures have no
// choices.
//
// It only reads the header: a picture with damaged pixels is explained as if they
// were not. It fails where Begin fails, with the same error. The lane forgets the
// sample that was begun; the choices stay valid.
func (p *Program) Explain(l *Lane, encoded []byte, key rng.Key) ([]Choice, error) {
	if p.of != "image" {
		return nil, nil
	}
	var told []Choice
	l.run.told = &told
	_, err := p.Begin(l, encoded, key)
	l.run.told, l.program = nil, nil
	if err != nil {
		return nil, err
	}
	return told, nil
}

// tell records the choice c of an operation that is about to be done.
func (r *run) tell(d *descriptor, c choice) {
	if d.says == silent {
		return
	}
	values := make([]Value, 0, len(d.numbers)+4)
	for i, name := range d.numbers {
		if d.says == facts {
			values = append(values, Value{name, c[i] != 0})
		} else {
			values = append(values, Value{name, int(c[i])})
		}
	}
	if d.says == region {
		o := r.chain.Origin(kernel.Region{X: c[1], Y: c[0], W: c[3], H: c[2]})
		values = append(values, Value{"stored_top", o.Y}, Value{"stored_left", o.X}, Value{"stored_height", o.H}, Value{"stored_width", o.W})
	}
	*r.told = append(*r.told, Choice{d.name, values})
}
