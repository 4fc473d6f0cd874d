package tree

import "math/bits"

// records calls f with every record of a B-tree of version 2, in order: kind is
// that of the tree.
func (f *File) records(address uint64, call func(kind uint8, c *cursor) error) error {
	c, err := f.summed(address, 38, "BTHD")
	if err != nil {
		return err
	}
	c.skip(1)
	t := &btree{f: f, kind: c.u8(), call: call, seen: make(map[uint64]bool)}
	t.page, t.width = int64(c.u32()), int(c.u16())
	depth := int(c.u16())
	c.skip(2)
	root, n, total := c.u64(), int64(c.u16()), c.u64()
	if t.width < 1 || t.page < 32 || t.page > maxBlock || depth > 16 {
		return f.Damaged(c.off, "a tree with records of %d bytes in pages of %d, %d deep", t.width, t.page, depth)
	}
	if root == undefined {
		return nil
	}
	t.plan(depth)
	if err := t.visit(root, n, depth); err != nil {
		return err
	}
	if t.count != total {
		return f.Damaged(c.off, "a tree should have %d records, but has %d", total, t.count)
	}
	return nil
}

type btree struct {
	f     *File
	kind  uint8
	page  int64 // bytes
	width int   // of a record, bytes
	call  func(kind uint8, c *cursor) error
	seen  map[uint64]bool
	count uint64

	countLen int   // bytes of the number of records in a child
	totalLen []int // of the number of records below a child, by the child's depth
}

// encoded is how many bytes a number takes that is at most n.
func encoded(n uint64) int { return (bits.Len64(max(n, 1))-1)/8 + 1 }

// plan computes how long the numbers in pages are: as long as the largest that a
// page could need.
func (t *btree) plan(depth int) {
	const around = 4 + 1 + 1 + 4 // mark, version, kind, checksum
	most := uint64(t.page-around) / uint64(t.width)
	t.countLen = encoded(most)
	below := most
	t.totalLen = append(t.totalLen, 0)
	for d := 1; d <= depth; d++ {
		pointer := 8 + t.countLen + t.totalLen[d-1]
		here := uint64(max(t.page-around-int64(pointer), 0)) / uint64(t.width+pointer)
		hi, lo := bits.Mul64(here+1, below)
		if below = lo + here; hi != 0 || below < lo {
			below = ^uint64(0)
		}
		t.totalLen = append(t.totalLen, encoded(below))
	}
}

// visit reads a page of n records.
func (t *btree) visit(address uint64, n int64, depth int) error {
	if t.seen[address] {
		return t.f.Damaged(int64(address)+t.f.base, "a tree leads to address %d twice", address)
	}
	t.seen[address] = true
	mark, pointer := "BTLF", 0
	if depth > 0 {
		mark, pointer = "BTIN", 8+t.countLen+t.totalLen[depth-1]
	}
	size := 6 + n*int64(t.width)
	if depth > 0 {
		size += (n + 1) * int64(pointer)
	}
	if size+4 > t.page {
		return t.f.Damaged(int64(address)+t.f.base, "%d records in a page of %d bytes", n, t.page)
	}
	c, err := t.f.summed(address, size+4, mark)
	if err != nil {
		return err
	}
	if c.skip(1); c.u8() != t.kind {
		return t.f.Damaged(c.off, "a page of another tree")
	}
	at := c.here()
	body := c.bytes(int(n) * t.width)
	for i := range n + 1 {
		if depth > 0 {
			child, have := c.u64(), int64(c.uint(t.countLen))
			c.skip(t.totalLen[depth-1])
			if err := t.visit(child, have, depth-1); err != nil {
				return err
			}
		}
		if i == n {
			break
		}
		t.count++
		off := int(i) * t.width
		if err := t.call(t.kind, &cursor{b: body[off : off+t.width], off: at + int64(off)}); err != nil {
			return err
		}
	}
	return nil
}
