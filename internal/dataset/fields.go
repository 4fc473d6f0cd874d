package dataset

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// checker is a dataset that can say, before anything is read, that no sample
// has a field.
type checker interface {
	Check(fields []string) error
}

// noted is a dataset with notes about how it is stored.
type noted interface{ Notes() []string }

// notedFor is a dataset with notes about how the wanted fields are stored.
type notedFor interface {
	NotesFor(fields []string) []string
}

// Format is the name of the dataset's format; of a mixture, its members'.
func (c *Collection) Format() string {
	var names []string
	for _, p := range c.Parts {
		if !slices.Contains(names, p.format) {
			names = append(names, p.format)
		}
	}
	return strings.Join(names, ", ")
}

// imageFields are the stored names that hold images in shards.
var imageFields = []string{"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "webp", "gif", "bmp", "tif", "tiff"}

// decoder is a dataset that knows how the bytes of a field must be decoded.
type decoder interface {
	// Decode is rgb, text, json, npy, ...; "none" if the field is better left out,
	// because not all samples have it; "": unknown.
	Decode(field string) string
}

// omitter is a dataset that says why Decode leaves a field out, in words that follow the
// field's name; "": no note is needed, for example for a path beside its picture.
type omitter interface {
	LeftOut(field string) string
}

// defaultFields are the fields that a dataset delivers if the Spec names none: arrays as
// they are stored, images decoded, classes as numbers, and the rest as the format, the
// name or the first sample suggests.
func (c *Collection) defaultFields(ctx context.Context, d *Part) []spec.Field {
	var out []spec.Field
	var left []string
	for _, name := range d.Stored.Index().Meta().Fields {
		if strings.HasPrefix(name, "__") {
			continue
		}
		if !utf8.ValidString(name) {
			d.notes = append(d.notes, fmt.Sprintf("the name of field %q is not UTF-8, so the field is left out; to load it, pass a Field with another name and this one as source=", name))
			continue
		}
		f := spec.Field{Name: name}
		if why := d.refused(name); why != "" {
			d.notes = append(d.notes, "field "+why+"; it is left out, and decode \"bytes\" gives it unchanged")
			continue
		}
		ds, knows := d.Dataset.(decoder)
		if _, array := d.stored(name); !array || knows && ds.Decode(name) == "none" {
			f.Decode = c.guess(ctx, d, name)
		}
		if f.Decode == "none" {
			why := "not every sample has it"
			if ds, ok := d.Dataset.(omitter); ok {
				why = ds.LeftOut(name)
			}
			if why != "" {
				left = append(left, fmt.Sprintf("%q (%s)", name, why))
			}
			continue
		}
		out = append(out, f)
	}
	if left != nil {
		d.leaveOut(left)
	}
	return out
}

// leaveOut notes stored fields that were not requested and are not delivered, each with
// its reason.
func (d *Part) leaveOut(fields []string) {
	left := fmt.Sprintf("left out of the batches: %s; fields=[...] takes what can be read, and on_bad=\"skip\" passes over samples without it",
		listed(fields))
	d.notes = append(d.notes, left)
	if d.missing != "" {
		left = d.missing + "; " + left
	}
	d.missing = left
}

// refuser is a dataset that says why a field is delivered only if it is requested as
// bytes; "": it is delivered.
type refuser interface{ Refused(field string) string }

// shaped is a dataset that knows which field holds the shape of a field's raw array; "":
// none does.
type shaped interface{ ShapeOf(field string) string }

// refused says why a stored field is delivered only if it is requested as bytes; "": it
// is delivered.
func (d *Part) refused(from string) string {
	ds, ok := d.Dataset.(refuser)
	if !ok {
		return ""
	}
	for name := range strings.SplitSeq(from, ";") {
		if why := ds.Refused(name); why != "" {
			return why
		}
	}
	return ""
}

// guess decides how a field of encoded bytes is decoded if the Spec does not say.
func (c *Collection) guess(ctx context.Context, d *Part, name string) string {
	if ds, ok := d.Dataset.(decoder); ok {
		if how := ds.Decode(name); how != "" {
			return how
		}
	}
	if c.raw(ctx, d, name) {
		return "bytes"
	}
	switch {
	case slices.Contains(imageFields, name):
		return "rgb"
	case name == "cls" || name == "cls2" || name == "index":
		return "int"
	case name == "txt" || name == "text":
		return "text"
	case name == "json" || name == "jsn":
		return "json"
	case name == "npy":
		return "npy"
	}
	if d.kind.Values != "" {
		return d.kind.Values
	}
	var s format.Sample
	err := format.NewReader(d.Stored, c.src).Read(ctx, 0, []string{name}, &s)
	switch {
	case errs.CodeOf(err) == errs.MissingField:
		return "none"
	case err == nil && s.Fields[0].IsInt:
		return "int"
	case err != nil:
		return "bytes"
	case decode.Sniff(s.Fields[0].Data) != decode.KindUnknown:
		return "rgb"
	case d.kind.Arrays && bytes.HasPrefix(s.Fields[0].Data, []byte("\x93NUMPY")):
		return "npy" // as stoker pack writes float64
	}
	return "bytes"
}

// raw reports that a bytes feature holds the elements of an array, whatever its name: a
// shape is stored beside it, as stoker pack does, and fits. An encoded picture with its
// shape beside it has a different number of bytes.
func (c *Collection) raw(ctx context.Context, d *Part, name string) bool {
	ds, ok := d.Dataset.(shaped)
	if !ok || ds.ShapeOf(name) == "" {
		return false
	}
	shape := ds.ShapeOf(name)
	var s format.Sample
	err := format.NewReader(d.Stored, c.src).Read(ctx, 0, []string{name, shape}, &s)
	if err != nil || s.Fields[0].IsInt {
		return false
	}
	have, n := uint64(len(s.Fields[0].Data)), uint64(s.Fields[1].Int)
	if !s.Fields[1].IsInt {
		n = 1
		for p := s.Fields[1].Data; len(p) >= 8; p = p[8:] {
			hi, lo := bits.Mul64(n, binary.LittleEndian.Uint64(p))
			if n = lo; hi > 0 {
				return false
			}
		}
	}
	return n > 0 && (have == n || have/8 == n && have%8 == 0)
}

// Notes are lines to show to the user once.
func (c *Collection) Notes() (notes []string) {
	for _, p := range c.Parts {
		if p.Stored != nil {
			if note := p.Stored.Index().Note(); note != "" {
				notes = append(notes, note)
			}
		}
		if ds, ok := p.Dataset.(noted); ok {
			notes = append(notes, ds.Notes()...)
		}
		if ds, ok := p.Dataset.(notedFor); ok {
			notes = append(notes, ds.NotesFor(p.Wanted)...)
		}
		notes = append(notes, p.notes...)
	}
	return notes
}

// Table is columns of the dataset, one row per sample: "label" (the number of its class)
// and "path" (of its file or shard).
func (c *Collection) Table(names []string) (map[string]any, error) {
	out := map[string]any{}
	for _, name := range names {
		labels := c.Labels()
		switch {
		case !c.Stored():
			return nil, errs.New(errs.Config, "a synthetic dataset has no column %q", name)
		case name == "label" && labels != nil:
			out[name] = labels
		case name == "path":
			out[name] = c.paths()
		default:
			return nil, errs.New(errs.Config, "a %s dataset has no column %q", c.Format(), name).Try("there are \"path\", and \"label\" where samples have classes")
		}
	}
	return out, nil
}

// paths is the file or shard that each sample is in.
func (c *Collection) paths() []jsontext.Name {
	out := make([]jsontext.Name, c.n)
	var extents []format.Extent
	var text []byte
	for _, p := range c.stored {
		for id := range p.N {
			extents = p.Stored.Extents(id, nil, extents[:0])
			if len(extents) > 0 {
				text = p.Stored.Index().AppendPath(extents[0].File, text[:0])
				out[p.First+id] = jsontext.Name(text)
			}
		}
	}
	return out
}
