package dataset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Mix is the batch transform of a Spec, and the columns that it mixes.
type Mix struct {
	*transform.Mix
	// Label and Picture are the numbers of their columns; -1 if samples are made elsewhere,
	// so that columns are not known, and whoever has the batch mixes it.
	Label, Picture int
	// Soft is the column of the mixed labels, which replaces column Label; without a name if
	// the labels are probabilities already, and are mixed where they are.
	Soft batch.Field
	// Left means that whoever has the batch mixes it, also if the columns are known.
	Left bool

	axes string // of pictures: hwc, or chw for floats and arrays
}

// Mix is nil unless the Spec has a batch transform.
func (c *Collection) Mix() *Mix { return c.mix }

// Planes is how the pixels of a row of this shape are in memory.
func (m *Mix) Planes(shape mem.Shape, dtype mem.DType) kernel.Planes {
	if m.axes == "hwc" {
		return kernel.Planes{Planes: 1, Height: shape[0], Width: shape[1], Bytes: shape[2] * dtype.Size()}
	}
	return kernel.Planes{Planes: shape[0], Height: shape[1], Width: shape[2], Bytes: dtype.Size()}
}

// Size is the width and height of all pictures; 0 if they differ or are not known.
func (c *Collection) Size() (w, h int) {
	if c.mix == nil || c.mix.Picture < 0 || c.columns[c.mix.Picture].Loose {
		return 0, 0
	}
	f := &c.columns[c.mix.Picture]
	if becomes := c.becomes(c.mix.Picture); becomes != nil {
		return becomes[1], becomes[0]
	}
	p := c.mix.Planes(f.Seen(), f.DType)
	return p.Width, p.Height
}

// compileMix reads the batch transform and, if the columns are known, finds its own. left is
// Mix.Left.
func (c *Collection) compileMix(p *spec.Problems, known, left bool) {
	op := c.spec.BatchTransform
	if op == nil {
		return
	}
	m, err := transform.CompileMix(*op)
	if err != nil {
		p.Addf("%s", withHint(err))
		return
	}
	c.mix = &Mix{Mix: m, Label: -1, Picture: -1, Left: left}
	switch {
	case c.spec.Batch.Pack > 0:
		p.Addf("batch_transform %s needs rows that are samples: leave pack out", op.Name)
	case known && len(*p) == 0:
		c.findMix(op.Name, p)
	}
}

// findMix finds the columns of labels and pictures, and says what is wrong with them in
// torchvision's words, where it has any.
func (c *Collection) findMix(name string, p *spec.Problems) {
	m := c.mix
	m.Label = c.labelColumn()
	switch {
	case m.Label < 0 && m.Labels == "":
		p.Addf("batch_transform %s needs labels, and samples have only %s: add their field", name, c.names())
		return
	case m.Label < 0:
		p.Addf("batch_transform %s needs labels, and no field is called %q: there are %s", name, m.Labels, c.names())
		return
	}
	label := &c.columns[m.Label]
	if err := m.labels(label); err != "" {
		p.Addf("batch_transform %s: field %q: %s", name, label.Name, err)
	}
	fields := c.columns[:len(c.Parts[0].Programs)]
	for i := range fields {
		if i != m.Label && fields[i].DType != mem.Object {
			m.Picture = i
			break
		}
	}
	if m.Picture < 0 {
		p.Addf("batch_transform %s needs pictures, or arrays of numbers, and there are only %s", name, c.names())
		return
	}
	f := &c.columns[m.Picture]
	m.axes, _ = c.Parts[0].axes(m.Picture)
	image := c.Parts[0].Kind(m.Picture) == "image"
	dtype := f.DType
	if left := c.Parts[0].left; m.Picture < len(left) && left[m.Picture] != nil {
		dtype = left[m.Picture].DType
	}
	switch {
	case f.Form != batch.Dense || !image && len(f.Seen()) != 3:
		p.Addf("batch_transform %s mixes the first field of numbers that is not the label, and %q is not pictures: put the pictures first", name, f.Name)
	case m.Needs() && !dtype.Float():
		p.Addf("MixUp needs floats, and field %q is %s: end its transform with ToDtype(float32, scale=True), or set its dtype", f.Name, dtype)
	}
}

// labels checks the column of the labels, and makes that of the mixed ones.
func (m *Mix) labels(f *batch.Field) (wrong string) {
	whole := slices.Contains([]mem.DType{mem.Int64, mem.Int32, mem.Int16, mem.Int8, mem.Uint8, mem.Uint16, mem.Uint32, mem.Uint64}, f.DType)
	float := f.DType == mem.Float32 || f.DType == mem.Float64
	shape := f.Seen()
	switch {
	case f.DType == mem.Object || f.Loose || f.Form != batch.Dense || len(shape) > 1:
		return "labels must be class numbers, one for each sample, or probabilities, one for each class"
	case len(shape) == 0 && !whole:
		return fmt.Sprintf("labels of one number each must be whole class numbers, and these are %s", f.DType)
	case len(shape) == 0 && m.Classes == 0:
		return "num_classes must be passed if the labels are class numbers"
	case len(shape) == 0:
		m.Soft = batch.Field{Name: f.Name, DType: mem.Float32, Shape: mem.Shape{m.Classes}}
	case !whole && !float:
		return fmt.Sprintf("probabilities must be float32 or float64, and these are %s: set the dtype of the field", f.DType)
	case m.Classes != 0 && shape[0] != m.Classes:
		return fmt.Sprintf("its samples have %d numbers, and num_classes is %d: leave num_classes out", shape[0], m.Classes)
	case whole:
		m.Soft = batch.Field{Name: f.Name, DType: mem.Float32, Shape: mem.Shape{shape[0]}}
	}
	return ""
}

// labelColumn is the column of the labels: the one that is named, else, as torchvision
// finds it in a dict, labels, or the first with "label" in its name, else the second, as in
// a tuple; -1: there is none.
func (c *Collection) labelColumn() int {
	fields := c.columns[:len(c.Parts[0].Programs)]
	find := func(is func(name string) bool) int {
		return slices.IndexFunc(fields, func(f batch.Field) bool { return is(strings.ToLower(f.Name)) })
	}
	if c.mix.Labels != "" {
		return slices.IndexFunc(fields, func(f batch.Field) bool { return f.Name == c.mix.Labels })
	}
	if at := find(func(name string) bool { return name == "labels" }); at >= 0 {
		return at
	}
	if at := find(func(name string) bool { return strings.Contains(name, "label") }); at >= 0 {
		return at
	}
	if len(fields) > 1 {
		return 1
	}
	return -1
}

func (c *Collection) names() string {
	var names []string
	for _, f := range c.columns {
		names = append(names, fmt.Sprintf("%q", f.Name))
	}
	return strings.Join(names, ", ")
}

// mixDigest is what the digest of the pipeline has of the batch transform.
func (c *Collection) mixDigest(names bool) string {
	switch {
	case c.mix == nil:
		return ""
	case c.mix.Label < 0:
		return fmt.Sprintf("%s of %q\n", c.mix.Canon(), c.mix.Labels)
	case names:
		return fmt.Sprintf("%s of %q\n", c.mix.Canon(), c.columns[c.mix.Label].Name)
	}
	return fmt.Sprintf("%s of %d\n", c.mix.Canon(), c.mix.Label)
}

// Class is the class number in a row of the labels, or an error if it is not one of
// num_classes.
func (m *Mix) Class(number int64, sample int64) (int, error) {
	if number >= 0 && number < int64(m.Classes) {
		return int(number), nil
	}
	return 0, errs.New(errs.Config, "sample %d has label %d, and num_classes is %d", sample, number, m.Classes).
		Try("labels go from 0 to num_classes - 1: give the batch transform the number of all classes")
}
