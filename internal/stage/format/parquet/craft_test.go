package parquet_test

import (
	"bytes"
	"encoding/binary"
)

// A small writer of Parquet files, byte by byte, for what no real one writes.

// item is one field of a Thrift struct.
type item struct {
	id, typ int
	raw     []byte
}

func num(id int, v int64) item {
	return item{id, 6, binary.AppendUvarint(nil, uint64(v)<<1^uint64(v>>63))}
}

func text(id int, s string) item {
	return item{id, 8, append(binary.AppendUvarint(nil, uint64(len(s))), s...)}
}

func sub(id int, fields ...item) item { return item{id, 12, structOf(fields...)} }

func list(id, typ int, items ...[]byte) item {
	raw := binary.AppendUvarint([]byte{0xf0 | byte(typ)}, uint64(len(items)))
	return item{id, 9, append(raw, bytes.Join(items, nil)...)}
}

func structOf(fields ...item) (out []byte) {
	for _, f := range fields {
		out = append(out, byte(f.typ))
		out = binary.AppendUvarint(out, uint64(f.id)<<1)
		out = append(out, f.raw...)
	}
	return append(out, 0)
}

// crafted is a file of one column x and one row group of one page, as sound as
// its fields are.
type crafted struct {
	physical, repeats, codec, encoding int64
	rows, values                       int64 // of the group, of the chunk
	count, unpacked, packed            int64 // of the page; -1: what fits the body
	body                               []byte
	dict                               []byte // a dictionary of numbers
	dictCount                          int64
	length                             int64 // of the chunk; -1: what it is
	offset                             int64 // of the pages; -1: what it is
	columns                            int   // of the group
	chunk                              []item
	page                               []item // instead of a header
	footer                             []byte // instead of a footer
	group                              []item
}

// numbers is three int32s in one page.
func numbers() crafted {
	return crafted{
		physical: 1, rows: 3, values: 3, count: 3, unpacked: -1, packed: -1, length: -1, offset: -1, columns: 1,
		body: []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0},
	}
}

func or(v, other int64) int64 {
	if v < 0 {
		return other
	}
	return v
}

// file is the bytes; the header of the page begins at 4 unless there is a
// dictionary.
func (c crafted) file() []byte {
	out := []byte("PAR1")
	meta := []item{
		num(1, c.physical), list(2, 6, num(0, 0).raw), list(3, 8, text(0, "x").raw), num(4, c.codec), num(5, c.values),
	}
	if c.dict != nil {
		n := int64(len(c.dict))
		meta = append(meta, num(11, int64(len(out))))
		out = append(out, structOf(num(1, 2), num(2, n), num(3, n), sub(7, num(1, c.dictCount), num(2, 0)))...)
		out = append(out, c.dict...)
	}
	data := int64(len(out))
	if c.page != nil {
		out = append(out, structOf(c.page...)...)
	} else {
		n := int64(len(c.body))
		out = append(out, structOf(num(1, 0), num(2, or(c.unpacked, n)), num(3, or(c.packed, n)),
			sub(5, num(1, c.count), num(2, c.encoding), num(3, 3), num(4, 3)))...)
	}
	out = append(out, c.body...)
	meta = append(meta, num(7, or(c.length, int64(len(out)-4))), num(9, or(c.offset, data)))
	var chunks [][]byte
	for range c.columns {
		chunks = append(chunks, structOf(append(c.chunk, sub(3, meta...))...))
	}
	footer := c.footer
	if footer == nil {
		footer = structOf(num(1, 1),
			list(2, 12, structOf(text(4, "root"), num(5, 1)), structOf(num(1, c.physical), num(3, c.repeats), text(4, "x"))),
			num(3, c.rows), list(4, 12, structOf(append(c.group, list(1, 12, chunks...), num(3, c.rows))...)))
	}
	return closed(out, footer)
}

// closed is a file of these pages and this footer.
func closed(pages, footer []byte) []byte {
	out := append(bytes.Clone(pages), footer...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), "PAR1"...)
}
