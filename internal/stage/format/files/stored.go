package files

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The columns beside those that every index has. Files are those that samples
// are, each once; of a table, the table itself.
const (
	sampleFile    = "sample.file"    // int32: file of each sample; a table has none
	labelOf       = "label.of"       // int32: one row, the column that the labels come from; -1: none
	labelValue    = "label.value"    // int64: the class of each sample; no rows: no label
	pathOf        = "path.of"        // int32: one row, the column that the paths come from; -1: none, or it is not a field
	columnName    = "column.name"    // strings
	columnType    = "column.type"    // int32: mem.DType of each column
	manifestStamp = "manifest.stamp" // int64: size and time of the manifest
	columnOdd     = "column.odd"     // int64: cells that make columns of numbers text; see oddSize
	// Of column i: "column.i.text" strings or "column.i.number" bytes, and
	// "column.i.null" bytes, one a sample, where there are any.
	columnText, columnNumber, columnNull = "column.%d.text", "column.%d.number", "column.%d.null"
)

// column is one column of the index that is a field.
type column struct {
	name  string
	dtype mem.DType
	text  index.Strings
	raw   []byte // numbers, one after another
	nulls []byte // 1: nothing there; nil: there is something everywhere
}

func (c *column) null(id int64) bool { return c.nulls != nil && c.nulls[id] != 0 }

func (c *column) value(id int64) []byte {
	if c.dtype == mem.Object {
		return c.text.At(int(id))
	}
	n := int64(c.dtype.Size())
	return c.raw[id*n : (id+1)*n : (id+1)*n]
}

// number sees one number as the bytes it is.
func number(v *int64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), 8) }

// open sees an index as a dataset.
func open(x *index.Index) *Dataset {
	d := &Dataset{
		x: x, label: -1, path: -1, plain: -1, sizes: x.Int64s(index.FileSize), keys: x.Strings(index.FileName),
		file: x.Int32s(sampleFile), class: x.Int64s(labelValue),
	}
	if at := x.Int32s(labelOf); len(at) == 1 {
		d.label = int(at[0])
	}
	if at := x.Int32s(pathOf); len(at) == 1 {
		d.path = int(at[0])
	}
	names, types := x.Strings(columnName), x.Int32s(columnType)
	if names.Len() != len(types) {
		return d // valid says no
	}
	for i := range names.Len() {
		d.cols = append(d.cols, column{
			name: string(names.At(i)), dtype: mem.DType(types[i]),
			text: x.Strings(fmt.Sprintf(columnText, i)), raw: x.Bytes(fmt.Sprintf(columnNumber, i)), nulls: x.Bytes(fmt.Sprintf(columnNull, i)),
		})
	}
	return d
}

// valid reports whether every number of the index can be used without further checks.
func (d *Dataset) valid() bool {
	n := d.x.Len()
	if n < 1 || len(d.cols) != len(d.x.Int32s(columnType)) || d.label >= len(d.cols) || d.label >= 0 && d.class == nil ||
		!d.x.Watched() || d.class != nil && int64(len(d.class)) != n || d.file != nil && int64(len(d.file)) != n {
		return false
	}
	for _, f := range d.file {
		if uint32(f) >= uint32(len(d.sizes)) {
			return false
		}
	}
	if d.file == nil && (len(d.sizes) == 0 || len(d.cols) == 0) {
		return false
	}
	for i := range d.cols {
		c := &d.cols[i]
		if c.nulls != nil && int64(len(c.nulls)) != n {
			return false
		}
		switch c.dtype {
		case mem.Object:
			if int64(c.text.Len()) != n {
				return false
			}
		case mem.Int64, mem.Uint64, mem.Float64, mem.Bool:
			if int64(len(c.raw)) != n*int64(c.dtype.Size()) {
				return false
			}
		default:
			return false
		}
	}
	return d.validOdd()
}

// current says whether the manifest is the one that was indexed.
func current(ctx context.Context, src source.Source, paths []string, x *index.Index) bool {
	stamp := x.Int64s(manifestStamp)
	objs, err := format.Stat(ctx, src, paths, "manifest")
	return err == nil && len(stamp) == 2 && objs[0].Size == stamp[0] && objs[0].Version != "" && format.Mark(objs[0].Version) == stamp[1]
}
