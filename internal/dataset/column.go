package dataset

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// stored is the type of a field that the format stores as an array; false: the field is
// bytes that must be decoded.
func (d *Part) stored(from string) (format.Type, bool) {
	typed, ok := d.Dataset.(format.Typed)
	if !ok {
		return format.Type{}, false
	}
	t, ok := typed.Type(from)
	return t, ok && t.DType != mem.Object
}

// column compiles one field: the program that runs for every sample, and the batch
// column that it fills.
func (c *Collection) column(ctx context.Context, d *Part, f *spec.Field) (*transform.Program, *transform.Left, batch.Field, error) {
	t, array := d.stored(f.From)
	stored := transform.Stored{
		Array: array, DType: t.DType, Shape: t.Shape, Ragged: t.Ragged,
		Described: described(),
		First:     func(like func([]byte) error) error { return c.first(ctx, d, f.From, like) },
	}
	want := transform.Want{Decode: f.Decode, Ops: f.Transform, Layout: f.Layout, DType: f.DType, Ragged: f.Batch == "padded" || f.Batch == "ragged"}
	if f.Decode == "" && !want.Pictured(&stored) {
		if why := d.refused(f.From); why != "" {
			return nil, nil, batch.Field{}, errs.New(errs.Config, "%s", why).
				Try("leave the field out, write it as .npy or .json, or take its bytes with decode \"bytes\"")
		}
		f.Decode = "bytes"
		if array {
			f.Decode = "array"
		}
		want.Decode = f.Decode
	}
	prog, err := transform.CompileField(want, stored)
	if err != nil {
		return nil, nil, batch.Field{}, err
	}
	if a, ok := prog.Array(); ok {
		out, err := arrayColumn(f, prog, a)
		return prog, nil, out, err
	}
	if f.Batch != "" || !f.View.IsZero() {
		if want.Pictured(&stored) || f.Decode == "npy" {
			return nil, nil, batch.Field{}, errs.New(errs.Config, "batch, view and dtype are for arrays, and this field holds pictures").Try("leave them out, or leave out transforms, layout and decode")
		}
		return nil, nil, batch.Field{}, errs.New(errs.Config, "batch and view are for arrays, and this field is decoded as %s", f.Decode).Try("leave them out")
	}
	var left *transform.Left
	if prog.Kind() == "image" {
		if prog, left, err = c.leaves(prog, want, stored); err != nil {
			return nil, nil, batch.Field{}, err
		}
	}
	shape, fixed := prog.Shape()
	return prog, left, batch.Field{Name: f.Name, DType: prog.DType(), Shape: shape, Loose: !fixed}, nil
}

// leaves is the program of a picture, whose part on the device is left out, and how floats
// are made there.
func (c *Collection) leaves(prog *transform.Program, want transform.Want, stored transform.Stored) (*transform.Program, *transform.Left, error) {
	ops, decoded := c.spec.DeviceTransform, c.spec.DecodeDevice != (spec.DecodeDevice{})
	if len(ops) == 0 && !decoded {
		return prog, nil, nil
	}
	want.Ops = append(slices.Clone(want.Ops), ops...)
	whole, err := transform.CompileField(want, stored)
	n := prog.Steps()
	if err == nil && decoded {
		if n, err = whole.Head(); err != nil {
			return nil, nil, err
		}
	}
	var left *transform.Left
	if err == nil {
		asks := "device_transform"
		if decoded {
			asks = "decode_device"
		}
		prog, left, err = whole.Leave(n, asks)
	}
	if err == nil {
		return prog, left, nil
	}
	e := *errs.From(err)
	if len(ops) > 0 {
		e.What = "with device_transform after its transform: " + e.What
	}
	return nil, nil, &e
}

// described are the encodings of arrays in which each value carries its own shape.
func described() map[string]transform.Described {
	return map[string]transform.Described{
		"npy": {Name: ".npy", Swap: format.Swap, Read: func(value []byte) (transform.Header, error) {
			h, err := npy.ParseHeader(value)
			return transform.Header(h), err
		}},
	}
}

func scalars(how string) error {
	return errs.New(errs.Config, "its samples are single numbers, and %s is for arrays that differ in length", how).Try("leave batch out")
}

// arrayColumn is the column of an array, or of a number that is stored as one.
func arrayColumn(f *spec.Field, prog *transform.Program, a transform.Array) (out batch.Field, err error) {
	out = batch.Field{Name: f.Name, DType: prog.DType(), Shape: a.Shape}
	switch {
	case f.Batch == "dense" && a.Ragged:
		return out, errs.New(errs.Config, "its samples differ in the length of their first axis, and a dense batch needs one shape").
			Try("use batch ragged (the default) or padded")
	case (f.Batch == "padded" || f.Batch == "ragged") && !a.Ragged:
		if len(a.Shape) == 0 {
			return out, scalars(f.Batch)
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
			return out, errs.New(errs.Config, "a view is of arrays, and its samples are single numbers").Try("leave view out")
		}
		out.From, out.To = f.View.Of(a.Shape[0])
		if out.From == out.To {
			err = errs.New(errs.Config, "its view of an axis of %d is empty", a.Shape[0]).Try("view is [from, to] as in Python's slices, null for an open end")
		}
	}
	return out, err
}

// padColumn makes a column whose shape is that of one step a padded one.
func padColumn(f *spec.Field, out *batch.Field) error {
	value, ok := decode.Number(f.Pad.Value, out.DType)
	if !ok {
		return errs.New(errs.Config, "pad.value is %v, which is not a valid %s", f.Pad.Value, out.DType).Try("choose a value that fits, or another dtype")
	}
	if out.Shape.Elems() == 0 {
		return errs.New(errs.Config, "its samples are empty: their shape is %v after the first axis", out.Shape)
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

// maxRow is the limit of one row of a batch, in bytes.
const maxRow = 1 << 36

// share marks fields that differ only in their view, so that they share the first one's
// column.
func (d *Part) share(columns []batch.Field) {
	for i := range columns {
		for j := range i {
			a, b := d.Fields[i], d.Fields[j]
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

// deviceColumns adds what the client's device needs of pictures, after all fields: the steps
// that are left of them, and those that it decodes. It keeps how floats are made there.
func (c *Collection) deviceColumns(p *spec.Problems) {
	decoded := c.spec.DecodeDevice != (spec.DecodeDevice{})
	who := "device_transform"
	if decoded {
		who = "decode_device"
	}
	if !decoded && len(c.spec.DeviceTransform) == 0 || c.Parts[0].Samples == nil {
		return
	}
	first := c.Parts[0]
	c.left = make([]*transform.Left, len(first.Programs))
	pictures := 0
	for i, prog := range first.Programs {
		if prog == nil || prog.Kind() != "image" {
			continue
		}
		pictures++
		steps := 0
		for n, part := range c.Parts {
			switch {
			case part.Programs[i] == nil:
				p.Addf("dataset %d of the mixture has rows that are made already, and %s needs pictures from all", n, who)
			case !reflect.DeepEqual(part.left[i], first.left[i]):
				p.Addf("dataset %d of the mixture makes other floats than dataset 0: %s needs the same conversions in all", n, who)
			default:
				steps = max(steps, part.Programs[i].StepsLeft())
			}
		}
		c.left[i] = first.left[i]
		if steps > 0 {
			c.columns[i].Steps = len(c.columns)
			c.columns = append(c.columns, batch.Field{Name: stepsPrefix + c.columns[i].Name, DType: mem.Float64, Shape: mem.Shape{steps, transform.StepNumbers}})
		}
		if decoded {
			c.columns[i].Sent = len(c.columns)
			c.columns = append(c.columns,
				batch.Field{Name: windowsPrefix + c.columns[i].Name, DType: mem.Int32, Shape: mem.Shape{transform.WindowNumbers}},
				batch.Field{Name: jpegsPrefix + c.columns[i].Name, DType: mem.Object, Loose: true})
		}
	}
	if pictures == 0 {
		p.Addf("%s is for pictures that the engine makes, and no field is one", who)
	}
	if c.mix != nil && !c.mix.Left {
		p.Addf("batch_transform %s would be done before %s here: only stoker.DataLoader mixes batches after it", c.spec.BatchTransform.Name, who)
	}
	if decoded && !c.spec.Cache.IsZero() {
		p.Addf("cache keeps pictures that the engine has decoded, and decode_device leaves that to the device: leave one of them out")
	}
}

// These begin the names of the columns with the steps that are left of a picture, with how
// its rows are made of what is sent, and with that.
const (
	stepsPrefix   = "__steps__"
	windowsPrefix = "__windows__"
	jpegsPrefix   = "__jpegs__"
)

// lengthColumns adds the lengths of padded fields, after all fields.
func (c *Collection) lengthColumns(p *spec.Problems) {
	for i := range c.columns {
		if c.columns[i].Form != batch.Padded {
			continue
		}
		name := c.columns[i].Name + lengthsSuffix
		if slices.ContainsFunc(c.columns, func(f batch.Field) bool { return f.Name == name }) {
			p.Addf("field %q is padded, its lengths are called %q, and another field has that name: rename it", c.columns[i].Name, name)
		}
		c.columns[i].Lengths = len(c.columns)
		c.columns = append(c.columns, batch.Field{Name: name, DType: mem.Int64})
	}
}

// lengthsSuffix is appended to the name of a padded field; the result is the name of its
// column of lengths.
const lengthsSuffix = "_lengths"

// first calls like with the first values of a field until one of them can be read.
func (c *Collection) first(ctx context.Context, d *Part, from string, like func(value []byte) error) error {
	r := format.NewReader(d.Stored, c.src)
	var s format.Sample
	var first error
	for id := range min(d.N, firstTries) {
		err := r.Read(ctx, id, []string{from}, &s)
		if err == nil {
			err = like(s.Fields[0].Data)
		}
		if err == nil {
			return nil
		}
		if first == nil {
			first = format.Locate(d.Stored, err, id, nil)
		}
	}
	e := *errs.From(first)
	e.What = fmt.Sprintf("the first samples have no .npy array there to go by; sample 0: %s", e.What)
	return &e
}

// firstTries is how many samples are tried if the first ones are damaged.
const firstTries = 16
