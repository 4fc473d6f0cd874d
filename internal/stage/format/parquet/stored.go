package parquet

import (
	"strings"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
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
	if paths.Len() != n || whys.Len() != n || len(spec) != n*meta.ColumnInts {
		return d // valid says no
	}
	for i := range n {
		s := spec[i*meta.ColumnInts:]
		d.columns = append(d.columns, meta.Column{
			Name: string(names.At(i)), Path: strings.Split(string(paths.At(i)), "\x00"), Why: string(whys.At(i)),
			Physical: int(s[0]), Width: int(s[1]), DType: mem.DType(s[2]), Def: int(s[3]), Rep: int(s[4]), ListDef: int(s[5]), Fixed: int(s[6]),
			Text: s[7] != 0, Side: s[8] != 0,
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
		if !d.columns[i].Valid() {
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

func (d *Dataset) validChunk(g, c int, size int64) bool {
	at := g*len(d.columns) + c
	lo, hi := d.chunkPage[at], d.chunkPage[at+1]
	if lo < 0 || hi < lo || hi > int64(len(d.pageOff)) {
		return false
	}
	rows := d.groupFirst[g+1] - d.groupFirst[g]
	if d.columns[c].Why == "" && rows > 0 && (hi == lo || d.pageRow[lo] != 0) {
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
