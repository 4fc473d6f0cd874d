package spec

import (
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Field is one named value of a sample, and what is done with it.
type Field struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"` // stored name; "jpg;png" takes the first one that exists; "": Name
	// Decode is rgb, gray, bytes, text, int, float, json, array (numbers as they
	// are stored), or npy (each stored value is a .npy file). "": array if the
	// format stores one, otherwise bytes.
	Decode    string         `json:"decode,omitempty"`
	Transform []transform.Op `json:"transform,omitempty"` // the last may be Views: columns NAME_0, NAME_1, ...
	Layout    string         `json:"layout,omitempty"`    // for images: nchw (""), nhwc

	// For numbers and arrays.
	DType string `json:"dtype,omitempty"` // what they become, by NumPy's name; "": as stored
	// Batch is the layout of samples in a batch: dense, padded or ragged. "": dense
	// if all samples have one shape, ragged if their first axes differ.
	Batch string `json:"batch,omitempty"`
	Pad   Pad    `json:"pad,omitzero"`  // for Batch padded
	View  View   `json:"view,omitzero"` // the part of the first axis that is delivered; for dense arrays
}

// Pad is how a padded batch makes samples equal in their first axis.
type Pad struct {
	To       PadTo   `json:"to,omitempty"`       // a number, or longest (""): the longest of the batch
	Multiple int     `json:"multiple,omitempty"` // rounds up to a multiple of this; 0: does not
	Value    float64 `json:"value,omitempty"`
	Truncate bool    `json:"truncate,omitempty"` // cut samples longer than To; otherwise they are an error
}

// PadTo is a length along the first axis; 0 is written longest.
type PadTo int

// UnmarshalJSON reads a number or "longest".
func (p *PadTo) UnmarshalJSON(b []byte) error {
	var n int
	if string(b) != `"longest"` && (json.Unmarshal(b, &n) != nil || n < 1) {
		return errs.New(errs.Config, "pad.to is %s: it must be \"longest\" or a length of at least 1", b)
	}
	*p = PadTo(n)
	return nil
}

// View is the part [From, To) of the first axis of a sample. nil is that end of the
// axis, and a negative number counts from the end, as in Python's slices.
type View struct{ From, To *int }

// IsZero reports whether the view is the whole axis.
func (v View) IsZero() bool { return v.From == nil && v.To == nil }

// UnmarshalJSON reads a list of two, with null for an open end.
func (v *View) UnmarshalJSON(b []byte) error {
	var ends []*int
	if json.Unmarshal(b, &ends) != nil || len(ends) != 2 {
		return errs.New(errs.Config, "view is %s: it must be [from, to], with null for an open end, such as [null, -1]", b)
	}
	v.From, v.To = ends[0], ends[1]
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (v View) MarshalJSON() ([]byte, error) { return json.Marshal([]*int{v.From, v.To}) }

// Of is the view of an axis of length n, as Python cuts it.
func (v View) Of(n int) (from, to int) {
	from, to = 0, n
	if v.From != nil {
		from = bound(*v.From, n)
	}
	if v.To != nil {
		to = bound(*v.To, n)
	}
	return from, max(from, to)
}

func bound(i, n int) int {
	if i < 0 {
		i += n
	}
	return max(0, min(i, n))
}

// The layouts of samples in a batch.
var batches = []string{"", "dense", "padded", "ragged"}

func checkFields(p *Problems, fields []Field, oneOf choice) {
	names := map[string]bool{}
	for _, f := range fields {
		if f.Name == "" || names[f.Name] {
			p.Addf("two fields have the same name: %q", f.Name)
		}
		if !utf8.ValidString(f.Name) {
			p.Addf("the field name %q is not UTF-8: give the field another name, and put the stored name into from", f.Name)
		}
		names[f.Name] = true
		oneOf("batch of field "+f.Name, f.Batch, batches...)
		if f.Batch != "padded" && f.Pad != (Pad{}) {
			p.Addf("pad of field %q needs batch padded", f.Name)
		}
		if f.Pad.Multiple < 0 || f.Pad.To < 0 {
			p.Addf("field %q is padded to %d, to a multiple of %d: neither can be negative", f.Name, f.Pad.To, f.Pad.Multiple)
		}
		if f.Pad.Truncate && f.Pad.To == 0 {
			p.Addf("field %q is padded to the longest sample, but truncate needs a length in pad.to", f.Name)
		}
		if !f.View.IsZero() && slices.Contains([]string{"padded", "ragged"}, f.Batch) {
			p.Addf("view of field %q needs a dense array, but its batch is %s", f.Name, f.Batch)
		}
	}
}
