package dataset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// compile turns the fields into programs and columns.
func (c *Collection) compile(ctx context.Context, p spec.Problems, opt Options) error {
	unnamed := len(c.spec.Fields) == 0 && len(c.Parts[0].spec.Fields) == 0
	for i, part := range c.Parts {
		if part.Samples == nil { // its samples say what they have
			if len(part.spec.Fields) > 0 || len(c.spec.Fields) > 0 {
				p.Addf("fields are not known of %s datasets: their samples have what the code gives them", part.format)
			}
			continue
		}
		columns := c.compileFields(ctx, part, opt.Stored, &p)
		if !opt.Stored && len(part.Fields) == 0 {
			p.Addf("nothing is left to deliver where no fields are named: %s", cmp.Or(part.missing, "no stored field is taken unasked"))
		}
		if i == 0 {
			c.columns, c.spec.Fields = columns, part.Fields
		} else if len(p) == 0 {
			c.sameColumns(i, columns, &p)
		}
	}
	if c.spec.Batch.Pack > 0 && len(p) == 0 {
		c.packColumns(&p)
	} else {
		c.lengthColumns(&p)
	}
	c.compileMix(&p, c.Parts[0].Samples != nil && !opt.Crew && !(opt.Order && unnamed), opt.Mixes || opt.Order)
	if len(p) == 0 {
		c.deviceColumns(&p)
	}
	if c.spec.Batch.Tokens > 0 && c.spec.OnBad.Policy == spec.Replace {
		p.Addf("on_bad replace does not go with tokens: another sample may be longer than the batch has room for; skip does")
	}
	if err := ctx.Err(); err != nil {
		return err // a field compiled from a sample that was read may be wrong
	}
	if err := p.Err(); err != nil {
		return err
	}
	c.pipeline, c.processing = c.pipelineDigest(true), c.pipelineDigest(false)
	if opt.Bare && (c.mix == nil || c.mix.Left) && !opt.Crew && c.left == nil {
		c.bare()
	}
	return nil
}

// bare leaves the floats of pictures to whoever gets the batches, if all datasets make them
// in the same way.
func (c *Collection) bare() {
	c.left = make([]*transform.Left, len(c.columns))
	for i := range c.Parts[0].Programs {
		var programs []*transform.Program
		for _, part := range c.Parts {
			if part.Programs[i] == nil {
				break
			}
			prog, left := part.Programs[i].Bare()
			if left == nil || c.left[i] != nil && !reflect.DeepEqual(left, c.left[i]) {
				break
			}
			c.left[i] = left
			programs = append(programs, prog)
		}
		if len(programs) < len(c.Parts) {
			c.left[i] = nil
			continue
		}
		for n, part := range c.Parts {
			part.Programs[i] = programs[n]
		}
		c.columns[i].DType = mem.Uint8
		c.columns[i].Shape, _ = programs[0].Shape()
		if c.mix != nil && c.mix.Picture == i {
			c.mix.axes = "hwc"
		}
	}
}

// compileFields turns the fields of one dataset into programs, and returns the columns
// that they fill. Fields that the Spec did not name are left out, with a note, if they
// cannot be read; with Options.Stored, so are all that cannot be delivered.
func (c *Collection) compileFields(ctx context.Context, d *Part, stored bool, p *spec.Problems) (columns []batch.Field) {
	if ds, ok := d.Dataset.(format.Ready); ok {
		return d.ready(ds)
	}
	d.Fields = slices.Clone(d.spec.Fields)
	if d.Fields == nil {
		d.Fields = slices.Clone(c.spec.Fields)
	}
	named := len(d.Fields) > 0
	if !named {
		d.Fields = c.defaultFields(ctx, d)
	}
	d.views(p)
	whole := len(*p) == 0
	var left []string
	for i := 0; i < len(d.Fields); i++ {
		f := &d.Fields[i]
		if f.From == "" {
			f.From = f.Name
		}
		if c, ok := d.Dataset.(checker); ok {
			if err := c.Check([]string{f.From}); err != nil {
				p.Addf("%s", withHint(err))
				whole = false
				continue // what it would be decoded to does not matter
			}
		}
		prog, leaves, column, err := c.column(ctx, d, f)
		if err != nil && !named && (stored || errs.CodeOf(err) == errs.Unsupported) {
			left = append(left, fmt.Sprintf("%q (%s)", f.Name, errs.From(err).What))
			d.Fields = slices.Delete(d.Fields, i, i+1)
			i--
			continue
		}
		if err != nil {
			p.Addf("field %q: %s", f.Name, withHint(err))
			whole = false
			continue
		}
		prog.Limit(d.spec.MaxPixels)
		at := slices.Index(d.Wanted, f.From)
		if at < 0 {
			at = len(d.Wanted)
			d.Wanted = append(d.Wanted, f.From)
		}
		d.Value = append(d.Value, at)
		d.Programs, d.left = append(d.Programs, prog), append(d.left, leaves)
		columns = append(columns, column)
	}
	if left != nil {
		d.leaveOut(left)
	}
	if whole {
		d.share(columns)
	}
	return columns
}

// ready is the columns of a dataset whose samples are rows already: no program runs for
// them.
func (d *Part) ready(ds format.Ready) (columns []batch.Field) {
	for i, f := range ds.Ready() {
		d.Fields = append(d.Fields, spec.Field{Name: f.Name})
		d.Wanted, d.Value = append(d.Wanted, f.Name), append(d.Value, i)
		columns = append(columns, batch.Field{Name: f.Name, DType: f.DType, Shape: f.Shape})
	}
	d.Programs = make([]*transform.Program, len(columns))
	return columns
}

// sameColumns reports every column of member i of a mixture that differs from the first
// member's in type, shape, meaning or order of axes.
func (c *Collection) sameColumns(i int, columns []batch.Field, p *spec.Problems) {
	text := func(part *Part, fields []batch.Field) string {
		var out []string
		for n, f := range fields {
			shape := "of any size"
			if !f.Loose || f.Form != batch.Dense {
				shape = fmt.Sprint(f.Shape)
			}
			axes, _ := part.axes(n)
			text := strings.TrimSpace(fmt.Sprintf("%s: %s %s %s %s", f.Name, part.Kind(n), f.DType, shape, axes))
			if f.Form != batch.Dense {
				text += " " + f.Form.String()
			}
			if f.To > 0 {
				text += fmt.Sprintf(", of which %d to %d", f.From, f.To)
			}
			if f.Of > 0 {
				text += ", of " + fields[f.Of-1].Name
			}
			out = append(out, text)
		}
		return strings.Join(out, ", ")
	}
	if mine, theirs := text(c.Parts[i], columns), text(c.Parts[0], c.columns); mine != theirs {
		p.Addf("dataset %d of the mixture gives (%s), and dataset 0 (%s): batches need the same columns from all; give each its fields", i, mine, theirs)
	}
}

// packColumns makes columns of bytes and of one-dimensional arrays dense, with rows of
// Pack tokens, and adds the columns that separate the samples in a row.
func (c *Collection) packColumns(p *spec.Problems) {
	size := int64(c.spec.Batch.Size) * c.spec.Batch.Pack
	tokens := 0
	for i := range c.columns {
		f := &c.columns[i]
		kind, dtype := c.Parts[0].Kind(i), mem.Uint8
		switch kind {
		case "array":
			dtype = f.DType
			fallthrough
		case "bytes":
			if (f.Form == batch.Dense || f.Loose) && len(f.Shape) > 1 || f.Form != batch.Dense && len(f.Shape) > 0 {
				p.Addf("field %q has more than one dimension, and pack fills rows with tokens: leave the field out", f.Name)
			}
			if f.Form == batch.Padded || f.To > 0 {
				p.Addf("pack puts field %q into rows of tokens: batch padded and view are for batches of whole samples", f.Name)
			}
			*f = batch.Field{Name: f.Name, DType: dtype, Shape: mem.Shape{int(c.spec.Batch.Pack)}, RunBytes: size * int64(dtype.Size())}
			tokens++
		case "number":
		default:
			p.Addf("field %q is %s, and pack fills rows with tokens or bytes: leave the field out", f.Name, kind)
		}
	}
	if tokens == 0 {
		p.Addf("pack needs a field of tokens or bytes, and there is none")
	}
	if c.spec.OnBad.Policy == spec.Replace {
		p.Addf("on_bad replace does not go with pack: another sample has another length; skip leaves its tokens 0")
	}
	c.columns = append(c.columns,
		batch.Field{Name: batch.PositionIDs, DType: mem.Int32, Shape: mem.Shape{int(c.spec.Batch.Pack)}, RunBytes: 4 * size},
		batch.Field{Name: batch.SeqLens, DType: mem.Int32})
}

// Kind is the kind of value in field i.
func (d *Part) Kind(i int) string {
	if d.Programs[i] == nil {
		return "image"
	}
	return d.Programs[i].Kind()
}

// axes are the axes of field i in memory, and as users see them.
func (d *Part) axes(i int) (stored, seen string) {
	if d.Programs[i] == nil {
		return "hwc", "hwc"
	}
	return d.Programs[i].Axes()
}

func withHint(err error) string {
	e := errs.From(err)
	if e.Hint == "" {
		return e.Error()
	}
	return e.Error() + " (" + e.Hint + ")"
}

// pipelineDigest is the digest of fields and transforms. With the names of fields it is
// State.Pipeline, without them State.Processing.
func (c *Collection) pipelineDigest(names bool) string {
	h := xxhash.New()
	for n, part := range c.Parts {
		if n > 0 {
			fmt.Fprintf(h, "dataset %d\n", n)
		}
		if part.spec.Code != "" {
			fmt.Fprintf(h, "code %q\n", part.spec.Code)
		}
		for i, f := range part.Fields {
			if names {
				fmt.Fprintf(h, "%q %q\n", f.Name, f.From)
			} else {
				fmt.Fprintf(h, "field %d\n", i)
			}
			switch {
			case part.Programs[i] == nil: // the row as it is
			case !names && part.Programs[i].Kind() == "number": // whether it is stored as one, or as its text
				fmt.Fprintf(h, "number %s\n", part.Programs[i].DType())
			default:
				fmt.Fprintln(h, part.Programs[i].Digest())
			}
			f.Name, f.From, f.Decode, f.Transform, f.Layout, f.DType = "", "", "", nil, "", ""
			if f.Batch != "" || !f.View.IsZero() {
				text, _ := json.Marshal(f)
				fmt.Fprintf(h, "%s\n", text)
			}
		}
	}
	if d := c.spec.DecodeDevice; d != (spec.DecodeDevice{}) {
		fmt.Fprintf(h, "%d of 16 rows decoded by %q\n", cmp.Or(d.Share, 16), d.By)
	}
	_, _ = h.WriteString(c.mixDigest(names))
	return fmt.Sprintf("%016x", h.Sum64())
}
