package meta

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
)

// ArrowLists sets the length of the lists in columns where the Arrow schema that
// Arrow's writers leave in a file says that all of them have the same length:
// Parquet's own schema cannot express it. A schema that cannot be read says nothing.
//
// The schema is a flatbuffer: tables of offsets, here read with every offset
// checked. Of Message: header 2; Schema: fields 1; Field: name 0, kind of type 2,
// type 3, children 5; FixedSizeList (kind 16): length 0 (Apache Arrow,
// format/Schema.fbs and Message.fbs).
func ArrowLists(text []byte, columns []Column) {
	if !slices.ContainsFunc(columns, func(c Column) bool { return c.List() }) {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(raw) < 8 {
		return
	}
	if binary.LittleEndian.Uint32(raw) == 0xffffffff {
		raw = raw[4:]
	}
	f := &flat{p: raw[4:], left: 1 << 16}
	fields := f.table(f.table(f.root(), 2), 1)
	f.lists(fields, "", 0, columns)
}

const (
	arrowStruct    = 13
	arrowFixedList = 16
)

// flat is a flatbuffer. Position 0 means that there is nothing: nothing can be stored
// there.
type flat struct {
	p    []byte
	left int // tables that may still be looked at
}

func (f *flat) u32(at int) int {
	if at <= 0 || at > len(f.p)-4 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(f.p[at:]))
}

func (f *flat) root() int {
	if len(f.p) < 4 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(f.p))
}

// slot is where a table has a field.
func (f *flat) slot(table, field int) int {
	if table <= 0 || table > len(f.p)-4 {
		return 0
	}
	vtable := table - int(int32(binary.LittleEndian.Uint32(f.p[table:])))
	at := vtable + 4 + 2*field
	if vtable < 0 || vtable > len(f.p)-4 || at > len(f.p)-2 || 4+2*field+2 > int(binary.LittleEndian.Uint16(f.p[vtable:])) {
		return 0
	}
	off := int(binary.LittleEndian.Uint16(f.p[at:]))
	if off == 0 || table+off > len(f.p)-1 {
		return 0
	}
	return table + off
}

// table is where the table, vector or text that a field points to begins.
func (f *flat) table(table, field int) int {
	at := f.slot(table, field)
	if off := f.u32(at); off > 0 && off < len(f.p)-at {
		return at + off
	}
	return 0
}

func (f *flat) text(at int) string {
	n := f.u32(at)
	if at == 0 || n > len(f.p)-at-4 {
		return ""
	}
	return string(f.p[at+4 : at+4+n])
}

// lists looks at a vector of fields below prefix.
func (f *flat) lists(vector int, prefix string, depth int, columns []Column) {
	for i := range f.u32(vector) {
		at := vector + 4 + 4*i
		off := f.u32(at)
		if f.left--; off == 0 || off >= len(f.p)-at || f.left < 0 || depth > maxDepth {
			return
		}
		field := at + off
		name := prefix + f.text(f.table(field, 0))
		kind := f.slot(field, 2)
		if kind == 0 {
			continue
		}
		switch f.p[kind] {
		case arrowStruct:
			f.lists(f.table(field, 5), name+".", depth+1, columns)
		case arrowFixedList:
			n := f.u32(f.slot(f.table(field, 3), 0))
			for c := range columns {
				if col := &columns[c]; col.List() && n > 0 && n < 1<<24 && col.Name == strings.TrimSuffix(name, ".") {
					col.Fixed = n
				}
			}
		}
	}
}
