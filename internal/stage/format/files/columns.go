package files

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// readParquet reads the columns of numbers and texts of a Parquet file, one after
// the other, so that every page is read once; lists are left out.
func (t *table) readParquet(ctx context.Context, src source.Source, obj source.Info) error {
	d, err := parquet.Open(ctx, src, []string{obj.Name}, parquet.Options{Store: &index.Store{}, Cache: 32 << 20})
	if err != nil {
		return err
	}
	defer d.Close()
	rows := d.Index().Len()
	t.lines = make([]int64, rows)
	in := format.NewReader(d, src)
	var s format.Sample
	for _, name := range d.Index().Meta().Fields {
		typ, ok := d.Type(name)
		if !ok || typ.Ragged || len(typ.Shape) > 0 {
			continue
		}
		i, err := t.column(name)
		if err != nil {
			return err
		}
		c := t.cols[i]
		for id := range rows {
			err := in.Read(ctx, id, []string{name}, &s)
			switch {
			case errs.CodeOf(err) == errs.MissingField && err != nil:
				c.add("", cellNull)
			case err != nil:
				return err
			default:
				c.addTyped(typ.DType, s.Fields[0].Data)
			}
		}
	}
	t.rows = int(rows)
	return nil
}

// addTyped adds a value of Parquet.
func (c *cells) addTyped(t mem.DType, p []byte) {
	le := binary.LittleEndian
	whole := func(n int64) { c.add(strconv.FormatInt(n, 10), cellInt) }
	float := func(f float64) { c.add(strconv.FormatFloat(f, 'g', -1, 64), cellFloat) }
	switch t {
	case mem.Bool:
		c.add(strconv.FormatBool(p[0] != 0), cellBool)
	case mem.Int8:
		whole(int64(int8(p[0])))
	case mem.Uint8:
		whole(int64(p[0]))
	case mem.Int16:
		whole(int64(int16(le.Uint16(p))))
	case mem.Uint16:
		whole(int64(le.Uint16(p)))
	case mem.Int32:
		whole(int64(int32(le.Uint32(p))))
	case mem.Uint32:
		whole(int64(le.Uint32(p)))
	case mem.Int64:
		whole(int64(le.Uint64(p)))
	case mem.Uint64:
		v := strconv.FormatUint(le.Uint64(p), 10)
		c.add(v, size(v))
	case mem.Float32:
		float(float64(math.Float32frombits(le.Uint32(p))))
	case mem.Float64:
		float(math.Float64frombits(le.Uint64(p)))
	default:
		c.add(string(p), cellText)
	}
}

// dtype is the type of a column as a field. An empty cell of CSV is nothing among
// numbers, and an empty text among texts. A column of whole numbers that has some that
// no integer type has beside the others is text, as in pandas: as float64 they would be
// other numbers, and most often they are names.
func (c *cells) dtype() mem.DType {
	has := c.has()
	whole := has[cellInt] || has[cellUint] || has[cellHuge]
	switch {
	case has[cellText]:
		return mem.Object
	case has[cellBool] && (whole || has[cellFloat]):
		return mem.Object
	case has[cellBool]:
		return mem.Bool
	case has[cellFloat]:
		return mem.Float64
	case has[cellHuge], has[cellUint] && c.negative() >= 0:
		return mem.Object
	case has[cellUint]:
		return mem.Uint64
	case whole:
		return mem.Int64
	}
	return mem.Object
}

// negative is the first row with a whole number below zero; -1: there is none.
func (c *cells) negative() int {
	for row, k := range c.kinds {
		if k == cellInt && c.text.At(row)[0] == '-' {
			return row
		}
	}
	return -1
}

// empty says whether a cell is nothing in a column of that type.
func empty(kind byte, t mem.DType) bool {
	return kind == cellNull || (kind == cellEmpty || kind == cellMissing) && t != mem.Object
}

// write adds column i of the index.
func (c *cells) write(i int, t mem.DType, b *index.Builder) {
	nulls, any := make([]byte, len(c.kinds)), false
	for row, k := range c.kinds {
		if empty(k, t) {
			nulls[row], any = 1, true
		}
	}
	if any {
		b.Bytes(fmt.Sprintf(columnNull, i), nulls, index.Identity)
	}
	if t == mem.Object {
		b.Strings(fmt.Sprintf(columnText, i), &c.text, index.Identity)
		return
	}
	out := make([]byte, 0, len(c.kinds)*t.Size())
	for row := range c.kinds {
		v := string(c.text.At(row))
		if nulls[row] != 0 {
			v = ""
		}
		switch t {
		case mem.Bool:
			out = append(out, map[string]byte{"true": 1}[v])
		case mem.Int64:
			n, _ := strconv.ParseInt(v, 10, 64) // its kind says that it is one
			out = binary.LittleEndian.AppendUint64(out, uint64(n))
		case mem.Uint64:
			n, _ := strconv.ParseUint(v, 10, 64)
			out = binary.LittleEndian.AppendUint64(out, n)
		default:
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float(v)))
		}
	}
	b.Bytes(fmt.Sprintf(columnNumber, i), out, index.Identity)
}

// labels returns the classes of a label column: numbers as they are, or texts by their
// sorted values, which are names. ids is nil if the numbers are not classes: fractions,
// or below zero.
func (t *table) labels(c *cells) (ids []int64, names []string, err error) {
	first, dtype := byte(cellNull), c.dtype()
	classes := true
	for row, k := range c.kinds {
		if k == cellMissing && !empty(k, dtype) {
			k = cellText
		}
		switch {
		case k == cellNull || k == cellEmpty || k == cellMissing:
			return nil, nil, t.fail(errs.MissingField, -1, "%s has no label in column %q", t.row(row), c.name).
				Try("give every row a label, or have none: label=None in Python, label: %q in a Spec", None)
		case first == cellNull:
			first = k
		case first != cellText && k == cellText:
			return nil, nil, t.fail(errs.Damaged, -1, "%s has the label %q, which is not a number, although those before it are", t.row(row), c.text.At(row)).
				Try("labels are whole numbers, or all of them names")
		}
		if first != cellText {
			n, err := strconv.ParseInt(string(c.text.At(row)), 10, 64)
			if k == cellBool {
				n, err = map[string]int64{"true": 1}[string(c.text.At(row))], nil
			}
			classes = classes && err == nil && n >= 0 && n <= math.MaxInt32 && k != cellFloat
			ids = append(ids, n)
		}
	}
	if first != cellText {
		if !classes {
			return nil, nil, nil
		}
		return ids, nil, nil
	}
	for row := range c.kinds {
		names = append(names, string(c.text.At(row)))
	}
	return ranked(names)
}

// ranked is the number of every name among all names, sorted by their bytes.
func ranked(all []string) (ids []int64, names []string, err error) {
	names = slices.Clone(all)
	slices.Sort(names)
	names = slices.Compact(names)
	no := make(map[string]int64, len(names))
	for i, n := range names {
		no[n] = int64(i)
	}
	for _, n := range all {
		ids = append(ids, no[n])
	}
	return ids, names, nil
}

// writeLabels adds the classes of all samples.
func writeLabels(b *index.Builder, column int, ids []int64, names []string) {
	b.Int32s(labelOf, []int32{int32(column)}, index.Aside)
	if ids == nil {
		return
	}
	class := make([]int32, len(ids))
	for i, n := range ids {
		class[i] = int32(n)
	}
	b.Int64s(labelValue, ids, index.Aside)
	b.Int32s(index.SampleClass, class, index.Identity)
	if names != nil {
		var texts index.Texts
		for _, n := range names {
			texts.AppendString(n)
		}
		b.Strings(index.ClassName, &texts, index.Identity)
	}
}

// unclassed is the column that labels are taken from if its numbers are not classes; -1: there is none. want is
// Options.Label.
func (d *Dataset) unclassed(want string) int {
	if d.class != nil || want == None {
		return -1
	}
	usual := []string{want}
	if want == "" {
		usual = LabelColumns()
	}
	for _, name := range usual {
		for i := range d.cols {
			if d.cols[i].name == name {
				if t := d.cols[i].dtype; t == mem.Int64 || t == mem.Float64 {
					return i
				}
				return -1
			}
		}
	}
	return -1
}

// Notes says that labels are not classes: a loss for classes refuses them, or ignores some.
func (d *Dataset) Notes() []string {
	if d.plain < 0 {
		return nil
	}
	c := &d.cols[d.plain]
	told := fmt.Sprintf("the labels (column %q) are %s numbers, not classes: ", c.name, c.dtype)
	classes := true // but for the decimal points
	for id := range d.x.Len() {
		n := binary.LittleEndian.Uint64(c.value(id))
		if c.dtype == mem.Float64 {
			f := math.Float64frombits(n)
			classes = classes && f >= 0 && f == math.Trunc(f)
		} else if n > math.MaxInt32 {
			return []string{told + fmt.Sprintf("there is %d, and classes are whole numbers from 0 to %d", int64(n), math.MaxInt32)}
		}
	}
	if classes {
		return []string{told + "they are written with a decimal point; for a loss over classes, write labels.long() in the loop"}
	}
	return []string{told + "there are fractions; for a loss of float32, write labels.float() in the loop"}
}
