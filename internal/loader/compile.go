package loader

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// compile turns the fields into programs and a layout; stored is that of Options.
func (l *Loader) compile(p spec.Problems, stored bool) error {
	for i, part := range l.data.parts {
		columns := l.columns(part, stored, &p)
		if !stored && len(part.fields) == 0 {
			p.Addf("nothing is left to deliver where no fields are named: %s", cmp.Or(part.left, "no stored field is taken unasked"))
		}
		if i == 0 {
			l.fields, l.spec.Fields = columns, part.fields
		} else if len(p) == 0 {
			l.sameColumns(i, columns, &p)
		}
	}
	if l.spec.Batch.Pack > 0 && len(p) == 0 {
		l.packColumns(&p)
	} else {
		l.lengthColumns(&p)
	}
	if l.spec.Batch.Tokens > 0 && l.spec.OnBad.Policy == spec.Replace {
		p.Addf("on_bad replace does not go with tokens: another sample may be longer than the batch has room for; skip does")
	}
	if err := p.Err(); err != nil {
		return err
	}
	l.layout = batch.NewLayout(l.fields, max(l.spec.Batch.Size, 1))
	l.slotBytes = l.layout.Bytes()
	l.pipeline, l.processing = l.pipelineDigest(true), l.pipelineDigest(false)
	return nil
}

// columns turns the fields of one dataset into programs, and says what columns
// they fill. Of fields that nobody named, those that hold what is not read are left
// out, and told; so are all that can not be delivered where stored is looked at.
func (l *Loader) columns(d *part, stored bool, p *spec.Problems) (columns []batch.Field) {
	if d.ds == nil {
		d.fields = []spec.Field{{Name: "image"}}
		return []batch.Field{{Name: "image", DType: mem.Uint8, Shape: d.spec.Shape}}
	}
	d.fields = slices.Clone(d.spec.Fields)
	if d.fields == nil {
		d.fields = slices.Clone(l.spec.Fields)
	}
	named := len(d.fields) > 0
	if !named {
		d.fields = l.defaultFields(d)
	}
	whole := true
	var left []string
	for i := 0; i < len(d.fields); i++ {
		f := &d.fields[i]
		if f.From == "" {
			f.From = f.Name
		}
		if c, ok := d.ds.(checker); ok {
			if err := c.Check([]string{f.From}); err != nil {
				p.Addf("%s", withHint(err))
				whole = false
				continue // what it would be decoded to does not matter
			}
		}
		prog, column, err := l.column(d, f)
		if err != nil && !named && (stored || errs.CodeOf(err) == errs.Unsupported) {
			left = append(left, fmt.Sprintf("%q (%s)", f.Name, errs.From(err).What))
			d.fields = slices.Delete(d.fields, i, i+1)
			i--
			continue
		}
		if err != nil {
			p.Addf("field %q: %s", f.Name, withHint(err))
			whole = false
			continue
		}
		prog.Limit(d.spec.MaxPixels)
		at := slices.Index(d.wanted, f.From)
		if at < 0 {
			at = len(d.wanted)
			d.wanted = append(d.wanted, f.From)
		}
		d.value = append(d.value, at)
		d.programs = append(d.programs, prog)
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

// sameColumns says where member i of a mixture would fill other columns than the
// first: of another type, shape, meaning or order of axes.
func (l *Loader) sameColumns(i int, columns []batch.Field, p *spec.Problems) {
	text := func(part *part, fields []batch.Field) string {
		var out []string
		for n, f := range fields {
			shape := "of any size"
			if !f.Loose || f.Form != batch.Dense {
				shape = fmt.Sprint(f.Shape)
			}
			axes := "hwc" // of synthetic samples
			if part.ds != nil {
				axes, _ = part.programs[n].Axes()
			}
			text := strings.TrimSpace(fmt.Sprintf("%s: %s %s %s %s", f.Name, part.kind(n), f.DType, shape, axes))
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
	if mine, theirs := text(l.data.parts[i], columns), text(l.data.parts[0], l.fields); mine != theirs {
		p.Addf("dataset %d of the mixture gives (%s), and dataset 0 (%s): batches need the same columns from all; give each its fields", i, mine, theirs)
	}
}

// packColumns makes the columns of bytes, and those of arrays of one dimension,
// dense rows of Pack tokens, and adds those that tell the samples of a row apart.
func (l *Loader) packColumns(p *spec.Problems) {
	size := int64(l.spec.Batch.Size) * l.spec.Batch.Pack
	packed := 0
	for i := range l.fields {
		f := &l.fields[i]
		kind, dtype := l.data.parts[0].kind(i), mem.Uint8
		switch kind {
		case "array":
			dtype = f.DType
			fallthrough
		case "bytes":
			if (f.Form == batch.Dense || f.Loose) && len(f.Shape) > 1 || f.Form != batch.Dense && len(f.Shape) > 0 {
				p.Addf("field %q has more than one dimension, and pack fills rows with tokens: leave the field out", f.Name)
			}
			if f.Form == batch.Padded || f.To > 0 {
				p.Addf("field %q is packed: batch padded and view are for batches of whole samples", f.Name)
			}
			*f = batch.Field{Name: f.Name, DType: dtype, Shape: mem.Shape{int(l.spec.Batch.Pack)}, Packed: size * int64(dtype.Size())}
			packed++
		case "number":
		default:
			p.Addf("field %q is %s, and pack fills rows with tokens or bytes: leave the field out", f.Name, kind)
		}
	}
	if packed == 0 {
		p.Addf("pack needs a field of tokens or bytes, and there is none")
	}
	if l.spec.OnBad.Policy == spec.Replace {
		p.Addf("on_bad replace does not go with pack: another sample has another length; skip leaves its tokens 0")
	}
	l.fields = append(l.fields,
		batch.Field{Name: batch.PositionIDs, DType: mem.Int32, Shape: mem.Shape{int(l.spec.Batch.Pack)}, Packed: 4 * size},
		batch.Field{Name: batch.SeqLens, DType: mem.Int32})
}

// kind is what field i holds.
func (d *part) kind(i int) string {
	if d.ds == nil {
		return "image"
	}
	return d.programs[i].Kind()
}

func withHint(err error) string {
	e := errs.From(err)
	if e.Hint == "" {
		return e.Error()
	}
	return e.Error() + " (" + e.Hint + ")"
}

// pipelineDigest names what is done to a sample: fields and transforms. With the
// names of fields it is State.Pipeline, without them State.Processing.
func (l *Loader) pipelineDigest(names bool) string {
	h := xxhash.New()
	for n, part := range l.data.parts {
		if n > 0 {
			fmt.Fprintf(h, "dataset %d\n", n)
		}
		for i, f := range part.fields {
			if names {
				fmt.Fprintf(h, "%q %q\n", f.Name, f.From)
			} else {
				fmt.Fprintf(h, "field %d\n", i)
			}
			switch {
			case i >= len(part.programs): // synthetic
			case !names && part.programs[i].Kind() == "number": // whether it is stored as one, or as its text
				fmt.Fprintf(h, "number %s\n", part.programs[i].DType())
			default:
				fmt.Fprintln(h, part.programs[i].Digest())
			}
			f.Name, f.From, f.Decode, f.Transform, f.Layout, f.DType = "", "", "", nil, "", ""
			if f.Batch != "" || !f.View.IsZero() {
				text, _ := json.Marshal(f)
				fmt.Fprintf(h, "%s\n", text)
			}
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
