package dataset

import (
	"slices"

	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Column describes one column of a batch.
type Column struct {
	Name  string
	Kind  string // image, array, number, bytes, text, json; steps: see Steps; sent: see Windows
	DType string // NumPy's name; "object" for bytes, text and json
	// Shape is that of one sample in memory; nil if it depends on the sample. If the
	// first axis differs between samples, it is -1.
	Shape []int
	Batch string // how samples of different lengths are stored: padded or ragged
	Of    string // this column has the lengths of that padded field, one int64 per sample
	// ViewOf is the field of the Spec of which this column is one of several views.
	ViewOf string
	// Axes is the order of an image's axes in memory, "hwc" or "chw"; View is how it
	// is shown.
	Axes, View string
	// Steps is the name of the column that has what is left to be done to the bytes of this
	// picture, and Becomes what that makes of them: rows, columns, channels. That column is
	// of kind steps.
	Steps   string
	Becomes []int
	// Windows is the name of the column that says how a row of this picture is made of the
	// JPEG that is in the column JPEGs, as transform.Sent writes them. Both are of kind sent.
	Windows, JPEGs string
	// Left is how the numbers, of type DType, are made of the bytes that are in memory; nil:
	// they are there.
	Left *transform.Left
	// Mix says that whoever gets the batches mixes this column, and what is in memory; nil: it
	// is mixed already, or not at all.
	Mix *wire.Mix
}

// Told is the column as messages describe it.
func (c *Column) Told() wire.Field {
	out := wire.Field{
		Name: c.Name, Kind: c.Kind, DType: c.DType, Shape: c.Shape, Batch: c.Batch, Of: c.Of, ViewOf: c.ViewOf,
		Axes: c.Axes, View: c.View, Steps: c.Steps, Becomes: c.Becomes, Mix: c.Mix,
		Windows: c.Windows, JPEGs: c.JPEGs,
	}
	if c.Left == nil {
		return out
	}
	out.Left = &wire.Left{Scale: c.Left.Scale, Bias: c.Left.Bias}
	for _, s := range c.Left.Steps {
		step := wire.LeftStep{Scale: s.Scale, Mean: s.Mean, Std: s.Std}
		if s.Mean == nil {
			step.To = s.To.String()
		}
		out.Left.Steps = append(out.Left.Steps, step)
	}
	return out
}

// Columns describes the columns of a batch.
func (c *Collection) Columns() []Column {
	var out []Column
	first := c.Parts[0]
	for i, f := range c.columns {
		w := Column{Name: f.Name, Kind: "number", DType: f.DType.String(), Shape: f.Seen()}
		if i < len(first.Programs) && (f.RunBytes == 0 || first.Kind(i) == "array") {
			w.Kind = first.Kind(i)
			w.Axes, w.View = first.axes(i)
		}
		if f.Form != batch.Dense {
			w.Batch = f.Form.String()
			if f.Loose {
				w.Shape = append([]int{-1}, f.Shape...)
			}
		}
		if at := slices.IndexFunc(c.columns, func(p batch.Field) bool { return p.Lengths == i && i > 0 }); at >= 0 {
			w.Of = c.columns[at].Name
		}
		w.ViewOf = first.viewOf[f.Name]
		if slices.ContainsFunc(c.columns, func(p batch.Field) bool { return p.Steps == i && i > 0 }) {
			w.Kind = "steps"
		}
		if slices.ContainsFunc(c.columns, func(p batch.Field) bool { return p.Sent > 0 && (p.Sent == i || p.Sent+1 == i) }) {
			w.Kind = "sent"
		}
		if f.Sent > 0 {
			w.Windows, w.JPEGs = c.columns[f.Sent].Name, c.columns[f.Sent+1].Name
		}
		if f.Steps > 0 {
			w.Steps, w.Becomes = c.columns[f.Steps].Name, c.becomes(i)
		}
		if i < len(c.left) && c.left[i] != nil {
			w.Left, w.DType = c.left[i], c.left[i].DType.String()
		}
		if m := c.mix; m != nil && m.Label == i && m.Soft.Name != "" {
			w = Column{Name: f.Name, Kind: "array", DType: m.Soft.DType.String(), Shape: m.Soft.Shape}
		}
		if m := c.mix; m != nil && m.Left && (m.Label == i || m.Picture == i) {
			w.Mix = &wire.Mix{Label: m.Label == i, Stored: f.DType.String()}
		}
		out = append(out, w)
	}
	return out
}

// becomes is the rows, columns and channels that the steps left make of the pictures of a
// column; nil: none are left.
func (c *Collection) becomes(i int) []int {
	if c.columns[i].Steps == 0 {
		return nil
	}
	for _, part := range c.Parts { // one of them has steps
		if _, becomes, ok := part.Programs[i].Given(); ok {
			return becomes
		}
	}
	return nil
}
