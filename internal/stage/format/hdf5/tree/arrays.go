package tree

import "math/bits"

// entries is an array of chunks, whichever of the two kinds.
type entries struct {
	*grid
	width    int  // of an entry, bytes
	filtered bool // an entry has a size and a mask
	steps    []int64
	order    []int
}

// entriesOf checks what an array holds: chunks, with or without filters.
func (g *grid) entriesOf(c *cursor, width int, kind uint8) (entries, error) {
	if kind > 1 || kind == 0 && width != 8 || kind == 1 && (width < 13 || width > 20) {
		return entries{}, g.f.Damaged(c.off, "an array of kind %d with entries of %d bytes in the index of %q", kind, width, g.d.Path)
	}
	e := entries{grid: g, width: width, filtered: kind == 1}
	e.steps, e.order = g.d.steps()
	return e, nil
}

// putAt records a chunk by its number in the array.
func (e *entries) putAt(no uint64, address uint64, size int64, mask uint32, from int64) error {
	at := make([]int64, len(e.steps))
	rest := no
	for i, s := range e.steps {
		at[e.order[i]] = int64(rest / uint64(s))
		rest %= uint64(s)
	}
	return e.put(at, address, size, mask, from)
}

// steps says how an array counts chunks: by the dimensions that the dataset may
// grow to, the endless one first.
func (d *Dataset) steps() (steps []int64, order []int) {
	n := len(d.Dims)
	order = make([]int, 0, n)
	for i, m := range d.Max {
		if m < 0 {
			order = append(order, i)
		}
	}
	for i, m := range d.Max {
		if m >= 0 {
			order = append(order, i)
		}
	}
	steps = make([]int64, n)
	step := int64(1)
	for k := n - 1; k >= 0; k-- {
		steps[k] = step
		i := order[k]
		most := max(d.Max[i], d.Dims[i], 1)
		count := (most-1)/d.Layout.Chunk[i] + 1
		if k > 0 && step > (1<<62)/count {
			step = 1 << 62
			continue
		}
		step *= count
	}
	return steps, order
}

// take records the next n entries, of which the first is number first.
func (e *entries) take(c *cursor, n int64, first uint64) error {
	rest := 0
	if e.filtered {
		rest = e.width - 8
	}
	for i := range n {
		from := c.here()
		address, size, mask := e.chunkRecord(c, rest)
		if c.short {
			return e.f.Damaged(from, "a part of the index of %q ends too early", e.d.Path)
		}
		if address == undefined {
			continue
		}
		if err := e.putAt(first+uint64(i), address, size, mask, from); err != nil {
			return err
		}
	}
	return nil
}

// fixed reads a fixed array: one data block, in pages where it is long. Pages
// that were never written have their bit unset.
func (g *grid) fixed(address uint64) error {
	c, err := g.f.summed(address, 28, "FAHD")
	if err != nil {
		return err
	}
	c.skip(1)
	kind, width, pageBits := c.u8(), int(c.u8()), uint(c.u8())
	n, data := c.u64(), c.u64()
	e, err := g.entriesOf(c, width, kind)
	if err != nil {
		return err
	}
	if pageBits > 32 || n > uint64(g.f.obj.Size) && data != undefined || n > 1<<40 {
		return g.f.Damaged(c.off, "an array of %d chunks in the index of %q", n, g.d.Path)
	}
	if data == undefined {
		return nil
	}
	const prefix = 4 + 1 + 1 + 8
	if n <= 1<<pageBits {
		if c, err = g.long(data, prefix+int64(n)*int64(width)+4, "FADB"); err != nil {
			return err
		}
		c.skip(prefix - 4)
		return e.take(c, int64(n), 0)
	}
	perPage := int64(1) << pageBits
	pages := (int64(n) + perPage - 1) >> pageBits
	head := prefix + (pages+7)/8 + 4
	if c, err = g.long(data, head, "FADB"); err != nil {
		return err
	}
	c.skip(prefix - 4)
	return e.pages(data+uint64(head), c.bytes(int((pages+7)/8)), int64(n), perPage, 0)
}

// pages reads those pages of a block whose bits are set.
func (e *entries) pages(address uint64, written []byte, n, perPage int64, first uint64) error {
	for p := int64(0); n > 0; p++ {
		have := min(n, perPage)
		if written[p/8]&(0x80>>(p%8)) != 0 {
			c, err := e.long(address, have*int64(e.width)+4, "")
			if err != nil {
				return err
			}
			if err := e.take(c, have, first); err != nil {
				return err
			}
		}
		first, n, address = first+uint64(have), n-have, address+uint64(perPage*int64(e.width)+4)
	}
	return nil
}

// long is summed for blocks of an array, which may be longer than other structures
// are, and may have no mark.
func (g *grid) long(address uint64, n int64, mark string) (*cursor, error) {
	if n > int64(maxBlock)*4 {
		return nil, g.f.Unsupported(g.d.off, repack, "a part of %d bytes in the index of %q", n, g.d.Path)
	}
	c, err := g.f.longBlock(address, n)
	if err != nil {
		return nil, err
	}
	if got := c.bytes(len(mark)); string(got) != mark {
		return nil, g.f.Damaged(c.off, "found %q instead of %q", got, mark)
	}
	if err := g.f.sum(c.b, c.off); err != nil {
		return nil, err
	}
	c.b = c.b[:len(c.b)-4]
	return c, nil
}

// array is an extensible array (the header's parts that are needed).
type array struct {
	entries
	maxBits, inIndex       uint
	blockMin, pointersMin  uint64
	pageBits               uint
	first                  uint64 // number of the next entry
	address                uint64 // of the index block
	offLen, supers, direct int
}

// extensible reads an extensible array. Its entries are stored in an index block, in
// data blocks that the index block names, and in data blocks that super blocks name,
// each twice as long as the ones before or twice as many, in turn.
func (g *grid) extensible(address uint64) error {
	a, err := g.arrayHead(address)
	if err != nil || a.address == undefined {
		return err
	}
	n := 6 + 8 + int64(a.inIndex)*int64(a.width) + 8*int64(a.direct) + 8*int64(a.supers) + 4
	c, err := g.long(a.address, n, "EAIB")
	if err != nil {
		return err
	}
	c.skip(2 + 8)
	if err := a.take(c, int64(a.inIndex), 0); err != nil {
		return err
	}
	a.first = uint64(a.inIndex)
	super := 0
	inSuper := func() (blocks, each uint64) {
		return 1 << (super / 2), a.blockMin << ((super + 1) / 2)
	}
	for left := a.direct; left > 0; super++ {
		blocks, each := inSuper()
		for range min(blocks, uint64(left)) {
			if err := a.dataBlock(c.u64(), each, nil); err != nil {
				return err
			}
			left--
		}
	}
	for range a.supers {
		blocks, each := inSuper()
		if err := a.superBlock(c.u64(), blocks, each); err != nil {
			return err
		}
		super++
	}
	return nil
}

func (g *grid) arrayHead(address uint64) (*array, error) {
	c, err := g.f.summed(address, 6+6+6*8+8+4, "EAHD")
	if err != nil {
		return nil, err
	}
	c.skip(1)
	kind := c.u8()
	width := int(c.u8())
	a := &array{maxBits: uint(c.u8()), inIndex: uint(c.u8()), blockMin: uint64(c.u8()), pointersMin: uint64(c.u8()), pageBits: uint(c.u8())}
	c.skip(6 * 8)
	a.address = c.u64()
	if a.entries, err = g.entriesOf(c, width, kind); err != nil {
		return nil, err
	}
	powers := bits.OnesCount64(a.blockMin) == 1 && bits.OnesCount64(a.pointersMin) == 1
	if !powers || a.pointersMin < 2 || a.maxBits < 1 || a.maxBits > 64 || a.pageBits > 32 {
		return nil, g.f.Damaged(c.off, "the index of %q is an array of 2^%d entries in blocks of %d", g.d.Path, a.maxBits, a.blockMin)
	}
	all := 1 + int(a.maxBits) - bits.TrailingZeros64(a.blockMin)
	inIndex := 2 * bits.TrailingZeros64(a.pointersMin)
	a.direct, a.supers, a.offLen = 2*int(a.pointersMin-1), max(all-inIndex, 0), int(a.maxBits+7)/8
	return a, nil
}

// superBlock names data blocks.
func (a *array) superBlock(address, blocks, each uint64) error {
	if address == undefined {
		a.first += blocks * each
		return nil
	}
	perPage := uint64(1) << a.pageBits
	bitmap := uint64(0)
	if each > perPage {
		bitmap = (each/perPage + 7) / 8
	}
	if blocks > 1<<32 || bitmap > 1<<32 {
		return a.f.Damaged(a.d.off, "a block of %d blocks in the index of %q", blocks, a.d.Path)
	}
	c, err := a.long(address, 6+8+int64(a.offLen)+int64(blocks*bitmap)+8*int64(blocks)+4, "EASB")
	if err != nil {
		return err
	}
	c.skip(2 + 8 + a.offLen)
	written := c.bytes(int(blocks * bitmap))
	for i := range blocks {
		if err := a.dataBlock(c.u64(), each, written[i*bitmap:(i+1)*bitmap]); err != nil {
			return err
		}
	}
	return nil
}

// dataBlock holds n entries, in pages where it is long.
func (a *array) dataBlock(address, n uint64, written []byte) error {
	first := a.first
	a.first += n
	if address == undefined {
		return nil
	}
	if n > 1<<40 {
		return a.f.Damaged(a.d.off, "a block of %d entries in the index of %q", n, a.d.Path)
	}
	head := 6 + 8 + int64(a.offLen)
	if n <= 1<<a.pageBits || written == nil {
		c, err := a.long(address, head+int64(n)*int64(a.width)+4, "EADB")
		if err != nil {
			return err
		}
		c.skip(int(head) - 4)
		return a.take(c, int64(n), first)
	}
	if _, err := a.long(address, head+4, "EADB"); err != nil {
		return err
	}
	return a.pages(address+uint64(head)+4, written, int64(n), 1<<a.pageBits, first)
}
