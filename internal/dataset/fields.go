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

// noted is a dataset that has something to say of how it is stored.
type noted interface{ Notes() []string }

// notedFor is one that has something to say of how wanted fields are stored.
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

// decoder is a dataset that knows how the bytes of a field are to be decoded.
type decoder interface {
	// Decode is rgb, text, json, npy, ...; "none" where it is better left out, since
	// not all samples have it; "": not known.
	Decode(field string) string
}

// omitter is a dataset that says why Decode leaves a field out: what follows the
// field's name; "": it needs no word, such as a path beside the picture it is of.
type omitter interface {
	LeftOut(field string) string
}

// defaultFields are what a dataset delivers when the Spec names nothing: arrays
// as they are stored, images decoded, classes as numbers, the rest by what the
// format, the name or the first sample says of it.
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
			d.notes = append(d.notes, "field "+why+"; it is left out, and decode \"bytes\" gives it as it lies")
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

// leaveOut notes fields that nobody named and that are not delivered, each with its
// reason.
func (d *Part) leaveOut(fields []string) {
	left := fmt.Sprintf("left out of the batches: %s; fields=[...] takes what can be read, and on_bad=\"skip\" passes over samples without it",
		listed(fields))
	d.notes = append(d.notes, left)
	if d.left != "" {
		left = d.left + "; " + left
	}
	d.left = left
}

// refuser is a dataset that says why a field is not taken unless it is asked for as
// bytes; "": it is.
type refuser interface{ Refused(field string) string }

// shaped is a dataset that knows which field holds the shape of a field's raw array;
// "": none does.
type shaped interface{ ShapeOf(field string) string }

// refused says why a stored field is not taken unless it is asked for as bytes; "":
// it is.
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

// guess is how a field of encoded bytes is decoded where nobody says it.
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

// raw says that a feature of bytes is the elements of an array, whatever it is
// called: its shape is beside it, as stoker pack writes it, and fits. An
// encoded picture with its shape beside it has other bytes than its pixels have.
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

// Notes are lines that the user should see once.
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

// Table is columns of the dataset, a row a sample: "label" (the number of its
// class) and "path" (of the file or shard it is in).
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
