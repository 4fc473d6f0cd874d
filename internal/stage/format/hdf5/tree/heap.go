package tree

import "math/bits"

// heap is a fractal heap, in which large groups keep their links, and objects with
// many attributes keep these.
type heap struct {
	f                  *File
	address            uint64
	idLen              int
	offLen, lenLen     int
	width, start, most uint64 // of the table of blocks: columns, bytes of the first and the longest direct block
	root               uint64
	rows               int // of the root; 0: it is a direct block
	checked            bool
	filtered           bool
}

func (f *File) heap(address uint64) (*heap, error) {
	c, err := f.block(address, 16)
	if err != nil {
		return nil, err
	}
	c.skip(7)
	n := int64(146)
	if filters := int64(c.u16()); filters > 0 {
		n += 12 + filters
	}
	if c, err = f.summed(address, n, "FRHP"); err != nil {
		return nil, err
	}
	c.skip(1)
	h := &heap{f: f, address: address, idLen: int(c.u16()), filtered: c.u16() > 0}
	h.checked = c.u8()&2 != 0
	largest := c.u32()
	c.skip(12 * 8)
	h.width, h.start, h.most = uint64(c.u16()), c.u64(), c.u64()
	offBits := c.u16()
	c.skip(2)
	h.root, h.rows = c.u64(), int(c.u16())
	power := func(n uint64) bool { return bits.OnesCount64(n) == 1 }
	if c.short || !power(h.width) || !power(h.start) || !power(h.most) || h.most < h.start || h.most > 1<<31 || h.width > 1<<15 || offBits < 1 || offBits > 64 {
		return nil, f.Damaged(c.off, "a heap of blocks from %d to %d bytes, %d in a row", h.start, h.most, h.width)
	}
	h.offLen = int(offBits+7) / 8
	h.lenLen = min((bits.Len64(h.most)-1+7)/8, encoded(uint64(largest)))
	return h, nil
}

// get is the object whose ID comes next.
func (h *heap) get(c *cursor) (*cursor, error) {
	id := cursor{b: c.bytes(h.idLen), off: c.here()}
	head := id.u8()
	switch kind := head >> 4 & 3; {
	case c.short:
		return nil, h.f.Damaged(c.off, "an ID of a heap that is cut")
	case kind == 2 && h.idLen <= 18:
		at := id.here()
		return &cursor{b: id.bytes(int(head&15) + 1), off: at}, nil
	case kind != 0:
		return nil, h.f.Unsupported(c.off, repack, "an object of kind %d in a heap", kind)
	case h.filtered:
		return nil, h.f.Unsupported(c.off, repack, "a heap that is compressed")
	}
	off, n := id.uint(h.offLen), id.uint(h.lenLen)
	if h.rows == 0 {
		return h.direct(h.root, h.start, off, n)
	}
	return h.indirect(h.root, h.rows, off, n, 0)
}

// direct is n bytes at an offset of a direct block, whose head counts too.
func (h *heap) direct(address, size, off, n uint64) (*cursor, error) {
	if off > size || n > size-off {
		return nil, h.f.Damaged(h.f.base+int64(address), "an object of %d bytes at %d of a block of %d", n, off, size)
	}
	c, err := h.f.marked(address, int64(size), "FHDB")
	if err != nil {
		return nil, err
	}
	if h.checked { // the sum is that of the block with zeros instead of the sum
		at := 13 + h.offLen
		if at+4 > len(c.b) {
			return nil, h.f.Damaged(c.off, "a block of %d bytes", size)
		}
		b := append([]byte(nil), c.b...)
		clear(b[at : at+4])
		if err := h.f.sameSum(b, c.off, le.Uint32(c.b[at:]), checksum(b)); err != nil {
			return nil, err
		}
	}
	c.at = int(off)
	at := c.here()
	return &cursor{b: c.bytes(int(n)), off: at}, nil
}

// indirect finds the block of a table of rows that holds an offset. The blocks of
// the first two rows have the length of the first one, those of each later row
// twice that of the row before.
func (h *heap) indirect(address uint64, rows int, off, n uint64, deep int) (*cursor, error) {
	firstRow := h.start * h.width
	row, base, size := 0, uint64(0), h.start
	if off >= firstRow {
		row = bits.Len64(off / firstRow) // 1 for the second row
		if row > 40 {
			return nil, h.f.Damaged(h.f.base+int64(address), "an object at %d of a heap", off)
		}
		base, size = firstRow<<(row-1), h.start<<(row-1)
	}
	col := (off - base) / size
	off -= base + col*size
	directRows := bits.Len64(h.most) - bits.Len64(h.start) + 2
	if row >= rows || deep > 8 {
		return nil, h.f.Damaged(h.f.base+int64(address), "an object in row %d of %d of a heap", row, rows)
	}
	// The whole block is read for its checksum.
	head := 4 + 1 + 8 + h.offLen
	all := rows * int(h.width)
	c, err := h.f.summed(address, int64(head)+8*int64(all)+4, "FHIB")
	if err != nil {
		return nil, err
	}
	c.at = head + 8*(row*int(h.width)+int(col))
	child := c.u64()
	if row < directRows {
		return h.direct(child, size, off, n)
	}
	// A child table of that many bytes.
	below := bits.Len64(size) - bits.Len64(firstRow) + 1
	return h.indirect(child, below, off, n, deep+1)
}
