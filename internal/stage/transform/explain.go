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
//	{"op": "RandomChoice", "chosen": 1}                    the second of what it holds follows
//	{"op": "RandomOrder", "order": [2, 0, 1]}              what it holds follows, the third first
//	{"op": "RandomHorizontalFlip", "flipped": true}
//	{"op": "RandomResizedCrop", BOX, "to_height": 224, "to_width": 224, STORED}
//	{"op": "RandomCrop", BOX, STORED}
//	{"op": "Resize", "from_height": 300, "from_width": 451, "to_height": 256, "to_width": 384}
//	{"op": "RandomResize", "from_height": 300, "from_width": 451, "to_height": 256, "to_width": 384}
//	{"op": "Pad", "pad_left": 4, "pad_top": 4, "pad_right": 4, "pad_bottom": 4}
//	{"op": "Grayscale", "channels": 1}
//	{"op": "RandomInvert", "applied": true}                and of other operations with p
//	{"op": "RandomChannelPermutation", "order": 312}       channel 1 of the result was channel 3, and so on
//	{"op": "RandAugment", "operations": ["ShearX", "Equalize"], "magnitudes": [-0.09, 0]}     and of other policies
//	{"op": "AugMix", "weights": [0.3, 0.7], "operations": [["Rotate"]], "magnitudes": [[3.3]]} weights: the picture's, and each chain's
//	{"op": "ColorJitter", ADJUSTED, "order": 2143}         the second of ADJUSTED is done first
//	{"op": "RandomPhotometricDistort", ADJUSTED, "contrast_first": 1, "order": 123}
//	{"op": "RandomRotation", "angle": 12.5}                degrees, counterclockwise
//	{"op": "RandomAffine", "angle": -3.25, "translate_x": 12, "translate_y": 0, "scale": 1.1, "shear_x": 0, "shear_y": 0}
//	{"op": "RandomPerspective", CORNERS}
//
// CORNERS is where the four corners of the picture are moved, in whole pixels:
// "top_left_x", "top_left_y", "top_right_x" and so on to "bottom_left_y". If they stay
// where they are, nothing is done.
//
// ADJUSTED is "brightness", "contrast", "saturation" and "hue", the factors; 1 and, for the
// hue, 0 change nothing.
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
//
// What the client does on its device ends with "device": true.
type Choice struct {
	Op     string // torchvision's name
	Values []Value
}

// Value is one number or fact of a choice.
type Value struct {
	Name string // in snake case
	Of   any    // bool; int; []int, parts of a RandomOrder; float64, pixels of the stored picture or an amount; lists of a policy
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
	return p.explain(l, encoded, key, len(p.steps))
}

// ExplainSent is Explain for a picture that is sent if it can be: all of its steps are done on
// the device then. repeats is that of Sent.
func (p *Program) ExplainSent(l *Lane, encoded []byte, key rng.Key, repeats bool) ([]Choice, error) {
	away := len(p.steps)
	if p.of == "image" {
		if _, err := p.Begin(l, encoded, key); err != nil {
			return nil, err
		}
		if _, sent, err := p.Sent(l, 0, make([]byte, 4*WindowNumbers), nil, repeats); err != nil {
			return nil, err
		} else if sent {
			away = 0
		}
	}
	return p.explain(l, encoded, key, away)
}

// explain explains a picture whose steps from away on are done on the device.
func (p *Program) explain(l *Lane, encoded []byte, key rng.Key, away int) ([]Choice, error) {
	if p.of != "image" {
		return nil, nil
	}
	l.run.away = away
	if p.rest != nil {
		p = p.rest.whole
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
	switch d.says {
	case operations:
		names, magnitudes, _ := r.list.operations(0)
		*r.told = append(*r.told, Choice{d.name, append(values, Value{d.numbers[0], names}, Value{d.numbers[1], magnitudes})})
		return
	case mixture:
		weights, names, magnitudes := r.list.chains()
		*r.told = append(*r.told, Choice{d.name, append(values, Value{d.numbers[0], weights}, Value{d.numbers[1], names}, Value{d.numbers[2], magnitudes})})
		return
	}
	for i, name := range d.numbers {
		switch d.says {
		case order:
			values = append(values, Value{name, permutation(int(c[0]), int(c[1]), nil)})
		case facts:
			values = append(values, Value{name, c[i] != 0})
		case amounts:
			values = append(values, Value{name, c[i]})
		default:
			values = append(values, Value{name, int(c[i])})
		}
	}
	if d.says == region {
		o := r.chain.Origin(kernel.Region{X: c[1], Y: c[0], W: c[3], H: c[2]})
		values = append(values, Value{"stored_top", o.Y}, Value{"stored_left", o.X}, Value{"stored_height", o.H}, Value{"stored_width", o.W})
	}
	*r.told = append(*r.told, Choice{d.name, values})
}
