package dataset

import (
	"slices"

	"github.com/stoker-data/stoker/internal/stage/batch"
)

// Column says what batches hold under a name.
type Column struct {
	Name  string
	Kind  string // image, array, number, bytes, text, json
	DType string // NumPy's name; "object" for bytes, text and json
	// Shape is that of one sample in memory; nil where it depends on the
	// sample; of an array whose first axis differs -1 comes first.
	Shape []int
	Batch string // of an array whose samples differ: padded, ragged
	Of    string // lengths of a padded field, int64 a sample: that field's name
	// Axes is the order of an image's axes in memory, "hwc" or "chw"; View is how it
	// is shown.
	Axes, View string
}

// Columns says what batches hold.
func (c *Collection) Columns() []Column {
	var out []Column
	first := c.Parts[0]
	for i, f := range c.columns {
		w := Column{Name: f.Name, Kind: "number", DType: f.DType.String(), Shape: f.Seen()}
		if i < len(first.Programs) && (f.Packed == 0 || first.Kind(i) == "array") {
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
		out = append(out, w)
	}
	return out
}
