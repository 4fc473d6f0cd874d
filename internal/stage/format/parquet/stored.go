package parquet

import (
	"strings"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/index"
)

// open sees an index as a dataset, without its blocks.
func open(x *index.Index) *Dataset {
	d := &Dataset{
		x: x, label: -1,
		groupFirst: x.Int64s(groupFirst), groupFile: x.Int32s(groupFile),
		chunkPage: x.Int64s(chunkPage), chunkCodec: x.Int32s(chunkCodec), dictOff: x.Int64s(chunkDict), dictLen: x.Int64s(chunkDictN),
		pageOff: x.Int64s(pageOff), pageLen: x.Int64s(pageLen), pageRow: x.Int64s(pageRow), pageFlags: x.Int32s(pageFlags),
		pageValue: x.Int64s(pageValue), valueOff: x.Int64s(valueOff), valueLen: x.Int32s(valueLen),
		class: x.Int64s(labelValue), nulls: x.Int64s(columnNull), holes: x.Int64s(columnHole),
	}
	names, paths, whys, spec := x.Strings(columnName), x.Strings(columnPath), x.Strings(columnWhy), x.Int32s(columnSpec)
	n := names.Len()
	if paths.Len() != n || whys.Len() != n || len(spec) != n*columnInts {
		return d // valid says no
	}
	for i := range n {
		s := spec[i*columnInts:]
		d.columns = append(d.columns, column{
			name: string(names.At(i)), path: strings.Split(string(paths.At(i)), "\x00"), why: string(whys.At(i)),
			physical: int(s[0]), width: int(s[1]), dtype: mem.DType(s[2]), def: int(s[3]), rep: int(s[4]), listDef: int(s[5]), fixed: int(s[6]),
			text: s[7] != 0, side: s[8] != 0,
		})
	}
	if at := x.Int32s(labelOf); len(at) == 1 {
		d.label = int(at[0])
	}
	return d
}

// valid says whether every number of the index can be used without further checks.
func (d *Dataset) valid() bool {
	samples, groups, chunks, pages := d.x.Len(), len(d.groupFile), len(d.groupFile)*len(d.columns), len(d.pageOff)
	switch {
	case samples < 1, len(d.columns) < 1, len(d.groupFirst) != groups+1, groups < 1, len(d.chunkPage) != chunks+1, len(d.chunkCodec) != chunks,
		len(d.nulls) != len(d.columns), len(d.holes) != len(d.columns),
		len(d.dictOff) != chunks, len(d.dictLen) != chunks, len(d.pageLen) != pages, len(d.pageRow) != pages, len(d.pageFlags) != pages, len(d.pageValue) != pages, len(d.valueLen) != len(d.valueOff),
		!d.x.Watched(), d.groupFirst[0] != 0, d.groupFirst[groups] != samples,
		d.chunkPage[0] != 0, d.chunkPage[chunks] != int64(pages), d.label >= len(d.columns), d.label >= 0 && int64(len(d.class)) != samples:
		return false
	}
	for i := range d.columns {
		if !d.columns[i].valid() {
			return false
		}
	}
	for g := range groups {
		if d.groupFirst[g+1] < d.groupFirst[g] || uint32(d.groupFile[g]) >= uint32(d.x.Files()) || g > 0 && d.groupFile[g] < d.groupFile[g-1] {
			return false
		}
		size, _ := d.x.Stamp(int(d.groupFile[g]))
		for c := range d.columns {
			if !d.validChunk(g, c, size) {
				return false
			}
		}
	}
	return true
}

// valid says whether the numbers of a column fit each other.
func (c *column) valid() bool {
	widths := [...]int{physBool: 0, physInt32: 4, physInt64: 8, physInt96: 12, physFloat: 4, physDouble: 8, physBytes: 0, physFixed: c.width}
	if c.physical < 0 || c.physical >= len(widths) || c.width != widths[c.physical] || c.width < 0 || c.width > 1<<24 || c.dtype > mem.Float16 ||
		c.def < 0 || c.def > 255 || c.rep < 0 || c.fixed < 0 || c.listDef < 0 || c.listDef > c.def {
		return false
	}
	object := c.dtype == mem.Object
	switch {
	case c.why != "":
		return true
	case c.rep > 1 || c.rep == 1 && (object || c.listDef < 1) || c.physical == physFixed && c.width < 1:
		return false
	case c.physical == physBool:
		return c.dtype == mem.Bool
	case c.physical == physBytes:
		return object
	case c.physical == physFixed:
		return object || c.dtype == mem.Float16 && c.width == 2
	}
	return !object && c.dtype.Size() <= c.width
}

func (d *Dataset) validChunk(g, c int, size int64) bool {
	at := g*len(d.columns) + c
	lo, hi := d.chunkPage[at], d.chunkPage[at+1]
	if lo < 0 || hi < lo || hi > int64(len(d.pageOff)) {
		return false
	}
	rows := d.groupFirst[g+1] - d.groupFirst[g]
	if d.columns[c].why == "" && rows > 0 && (hi == lo || d.pageRow[lo] != 0) {
		return false
	}
	inside := func(off, n int64) bool { return off >= 0 && n >= 0 && off <= size && n <= size-off }
	if !inside(d.dictOff[at], d.dictLen[at]) {
		return false
	}
	row := int64(0)
	for p := lo; p < hi; p++ {
		if !inside(d.pageOff[p], d.pageLen[p]) || d.pageLen[p] < 1 || d.pageRow[p] < row || d.pageRow[p] > rows {
			return false
		}
		row = d.pageRow[p]
	}
	for p := lo; p < hi; p++ {
		if !d.validPlaces(c, int(p), d.rowsOf(g, c, int(p)), size) {
			return false
		}
	}
	return true
}
