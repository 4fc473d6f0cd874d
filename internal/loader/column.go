package loader

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// stored is what a format says of a field that it stores as an array; false: it
// stores bytes that something has to decode.
func (d *part) stored(from string) (format.Type, bool) {
	typed, ok := d.ds.(format.Typed)
	if !ok {
		return format.Type{}, false
	}
	t, ok := typed.Type(from)
	return t, ok && t.DType != mem.Object
}

// column compiles one field: what is done to every sample, and where it goes.
func (l *Loader) column(d *part, f *Field) (*transform.Program, batch.Field, error) {
	stored, array := d.stored(f.From)
	if array && pictured(f, stored) {
		return pixelsColumn(f, stored.Shape)
	}
	if f.Decode == "" {
		if why := d.refused(f.From); why != "" {
			return nil, batch.Field{}, errs.New(errs.Config, "%s", why).
				Try("leave the field out, write it as .npy or .json, or take its bytes with decode \"bytes\"")
		}
		f.Decode = "bytes"
		if array {
			f.Decode = "array"
		}
	}
	a := transform.Array{From: stored.DType, Shape: stored.Shape, Ragged: stored.Ragged}
	scalar := array && len(stored.Shape) == 0 && !stored.Ragged
	switch f.Decode {
	case "array":
		if !array {
			return nil, batch.Field{}, errs.New(errs.Config, "it is stored as bytes of a file, not as an array").
				Try("decode it as rgb, text, json, int, float or npy, or leave it as bytes")
		}
	case "npy":
		if array {
			return nil, batch.Field{}, errs.New(errs.Config, "it is stored as an array of %s, not as a .npy file", stored.DType).Try("leave decode out")
		}
		h, err := l.firstArray(d, f.From)
		if err != nil {
			return nil, batch.Field{}, err
		}
		a.From, a.Shape, array = h.dtype, h.shape, true
		if len(f.Transform) > 0 && pictured(f, format.Type{DType: h.dtype, Shape: h.shape}) {
			if d.npy == nil {
				d.npy = map[string]*npyHeader{}
			}
			d.npy[f.From] = h
			return pixelsColumn(f, h.shape)
		}
		if f.Batch == "padded" || f.Batch == "ragged" {
			if len(a.Shape) == 0 {
				return nil, batch.Field{}, scalars(f.Batch)
			}
			a.Shape, a.Ragged = a.Shape[1:], true
		}
		if d.npy == nil {
			d.npy = map[string]*npyHeader{}
		}
		h.ragged = a.Ragged
		d.npy[f.From] = h
	case "int", "float":
		if array && !scalar {
			return nil, batch.Field{}, errs.New(errs.Config, "it is stored as an array of %s, and %s is for one number", stored.DType, f.Decode).Try("leave decode out, or cast with dtype")
		}
		a.To = mem.Int64
		if f.Decode == "float" {
			a.To = mem.Float64
		}
		array = scalar
	case "bytes":
		array = false
	default:
		if stored.DType == mem.Uint8 && stored.Ragged && len(stored.Shape) == 0 {
			array = false // bytes of any number: files, as HDF5 keeps them
		} else if array && len(f.Transform) > 0 {
			return nil, batch.Field{}, errs.New(errs.Config, "it is stored as %s, and transforms are for pictures", described(stored)).
				Try("leave its transform out; dtype casts numbers")
		} else if array {
			return nil, batch.Field{}, errs.New(errs.Config, "it is stored as an array of %s, which needs no decoding as %s", stored.DType, f.Decode).Try("leave decode out")
		}
	}
	if array {
		if len(f.Transform) > 0 || f.Layout != "" {
			return nil, batch.Field{}, errs.New(errs.Config, "transforms and layout are for pictures, and this field holds an array").
				Try("leave them out, or decode pictures as rgb or gray")
		}
		return arrayColumn(f, a)
	}
	return valueColumn(f)
}

// described is a stored array in words.
func described(t format.Type) string {
	switch {
	case t.Ragged:
		return fmt.Sprintf("arrays of %s of many lengths", t.DType)
	case len(t.Shape) == 0:
		return fmt.Sprintf("a number, %s", t.DType)
	}
	return fmt.Sprintf("an array of %s of shape %v", t.DType, []int(t.Shape))
}

// pictured says whether an array is a picture, and is treated as one: decoded
// bytes, HWC, that are asked for as rgb or gray or with transforms.
func pictured(f *Field, t format.Type) bool {
	if t.DType != mem.Uint8 || t.Ragged || len(t.Shape) != 3 || t.Shape[2] != 1 && t.Shape[2] != 3 {
		return false
	}
	switch f.Decode {
	case "rgb":
		return t.Shape[2] == 3
	case "gray":
		return t.Shape[2] == 1
	}
	return len(f.Transform) > 0 || f.Layout != ""
}

// pixelsColumn is the column of pictures that lie decoded.
func pixelsColumn(f *Field, stored mem.Shape) (*transform.Program, batch.Field, error) {
	if f.Batch != "" || !f.View.IsZero() || f.DType != "" {
		return nil, batch.Field{}, errs.New(errs.Config, "batch, view and dtype are for arrays, and this field holds pictures").Try("leave them out, or leave out transforms, layout and decode")
	}
	prog, err := transform.CompilePixels(stored, f.Transform, f.Layout)
	if err != nil {
		return nil, batch.Field{}, err
	}
	shape, fixed := prog.Shape()
	return prog, batch.Field{Name: f.Name, DType: prog.DType(), Shape: shape, Loose: !fixed}, nil
}

// valueColumn is the column of a field that is decoded.
func valueColumn(f *Field) (*transform.Program, batch.Field, error) {
	if f.Batch != "" || !f.View.IsZero() {
		return nil, batch.Field{}, errs.New(errs.Config, "batch and view are for arrays, and this field is decoded as %s", f.Decode).Try("leave them out")
	}
	prog, err := transform.Compile(f.Decode, f.Transform, f.Layout)
	if err != nil {
		return nil, batch.Field{}, err
	}
	if f.DType != "" {
		to, err := dtypeOf(f.DType)
		if err != nil {
			return nil, batch.Field{}, err
		}
		if prog, err = prog.As(to); err != nil {
			return nil, batch.Field{}, err
		}
	}
	shape, fixed := prog.Shape()
	return prog, batch.Field{Name: f.Name, DType: prog.DType(), Shape: shape, Loose: !fixed}, nil
}

func dtypeOf(name string) (mem.DType, error) {
	d, ok := mem.ParseDType(name)
	if ok && d != mem.Object {
		return d, nil
	}
	e := errs.New(errs.Config, "there is no dtype %q", name)
	if near := errs.Nearest(name, mem.DTypes()); near != "" {
		return d, e.Try("did you mean %q?", near)
	}
	return d, e.Try("there are %s", strings.Join(mem.DTypes(), ", "))
}

func scalars(how string) error {
	return errs.New(errs.Config, "its samples are single numbers, and %s is for arrays that differ in length", how).Try("leave batch out")
}

// arrayColumn is the column of an array, or of a number that is stored as one.
func arrayColumn(f *Field, a transform.Array) (*transform.Program, batch.Field, error) {
	out := batch.Field{Name: f.Name}
	if f.DType != "" {
		to, err := dtypeOf(f.DType)
		if err != nil {
			return nil, out, err
		}
		a.To = to
	}
	prog, err := transform.CompileArray(a)
	if err != nil {
		return nil, out, err
	}
	out.DType, out.Shape = prog.DType(), a.Shape
	switch {
	case f.Batch == "dense" && a.Ragged:
		return nil, out, errs.New(errs.Config, "its samples differ in the length of their first axis, and a dense batch needs one shape").
			Try("use batch ragged (the default) or padded")
	case (f.Batch == "padded" || f.Batch == "ragged") && !a.Ragged:
		if len(a.Shape) == 0 {
			return nil, out, scalars(f.Batch)
		}
		out.Shape = a.Shape[1:]
	}
	switch {
	case f.Batch == "padded":
		err = padColumn(f, &out)
	case f.Batch == "ragged" || a.Ragged:
		out.Form, out.Loose = batch.Ragged, true
		if !f.View.IsZero() {
			err = errs.New(errs.Config, "a view is of arrays of one shape, and its samples differ in length").Try("cut them in your own code, or leave view out")
		}
	case !f.View.IsZero():
		if len(a.Shape) == 0 {
			return nil, out, errs.New(errs.Config, "a view is of arrays, and its samples are single numbers").Try("leave view out")
		}
		out.From, out.To = f.View.of(a.Shape[0])
		if out.From == out.To {
			err = errs.New(errs.Config, "its view of an axis of %d is empty", a.Shape[0]).Try("view is [from, to] as in Python's slices, null for an open end")
		}
	}
	return prog, out, err
}

// padColumn makes a column whose shape is that of one step a padded one.
func padColumn(f *Field, out *batch.Field) error {
	value, ok := decode.Number(f.Pad.Value, out.DType)
	if !ok {
		return errs.New(errs.Config, "pad.value is %v, which is no %s", f.Pad.Value, out.DType).Try("choose a value that fits, or another dtype")
	}
	if out.Shape.Elems() == 0 {
		return errs.New(errs.Config, "its samples hold nothing: their shape is %v behind the first axis", out.Shape)
	}
	out.Form = batch.Padded
	out.Pad = batch.Pad{To: int(f.Pad.To), Multiple: f.Pad.Multiple, Value: value, Truncate: f.Pad.Truncate}
	if f.Pad.To == 0 {
		out.Loose = true
		return nil
	}
	steps := out.Pad.Steps(0)
	if steps > maxRow/int64(max(out.Shape.Elems()*out.DType.Size(), 1)) {
		return errs.New(errs.Config, "samples padded to %d steps of shape %v are too large", steps, out.Shape)
	}
	out.Shape = append(mem.Shape{int(steps)}, out.Shape...)
	return nil
}

// maxRow bounds the bytes of one row of a batch.
const maxRow = 1 << 36

// share tells of fields that differ in nothing but their view which is the first.
func (d *part) share(columns []batch.Field) {
	for i := range columns {
		for j := range i {
			a, b := d.fields[i], d.fields[j]
			same := a.From == b.From && a.Decode == b.Decode && a.DType == b.DType
			viewed := !a.View.IsZero() || !b.View.IsZero()
			dense := func(c batch.Field) bool { return c.Form == batch.Dense && !c.Loose }
			if same && viewed && columns[j].Of == 0 && dense(columns[i]) && dense(columns[j]) {
				columns[i].Of = j + 1
				break
			}
		}
	}
}

// lengthColumns adds the lengths of padded fields, behind all fields.
func (l *Loader) lengthColumns(p *problems) {
	for i := range l.fields {
		if l.fields[i].Form != batch.Padded {
			continue
		}
		name := l.fields[i].Name + lengthsSuffix
		if slices.ContainsFunc(l.fields, func(f batch.Field) bool { return f.Name == name }) {
			p.addf("field %q is padded, its lengths are called %q, and another field has that name: rename it", l.fields[i].Name, name)
		}
		l.fields[i].Lengths = len(l.fields)
		l.fields = append(l.fields, batch.Field{Name: name, DType: mem.Int64})
	}
}

// lengthsSuffix is what the column of a padded field's lengths is called behind
// the field's name.
const lengthsSuffix = "_lengths"

// firstArray is the header of the first .npy file of a field that can be read.
func (l *Loader) firstArray(d *part, from string) (*npyHeader, error) {
	r := format.NewReader(d.ds, l.data.src)
	var s format.Sample
	var first error
	for id := range min(d.n, firstTries) {
		err := r.Read(context.Background(), id, []string{from}, &s)
		var h *npyHeader
		if err == nil {
			h, err = readHeader(s.Fields[0].Data)
		}
		if err == nil {
			return h, nil
		}
		if first == nil {
			first = format.Place(d.ds, err, id, nil)
		}
	}
	e := *errs.From(first)
	e.What = fmt.Sprintf("the first samples have no .npy array there to go by; sample 0: %s", e.What)
	return nil, &e
}

// firstTries is how many samples are looked at where the first ones are damaged.
const firstTries = 16
