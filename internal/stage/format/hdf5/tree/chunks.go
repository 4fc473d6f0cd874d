package tree

import (
	"bytes"
	"math/bits"
	"slices"
)

// Chunk is where one chunk of a dataset lies.
type Chunk struct {
	Off  int64  // -1: it was never written, and holds the fill value
	Size int64  // bytes as stored
	Mask uint32 // bit i: filter i was left out
}

// Kinds of chunk indexes.
const (
	indexTree1      = iota // a B-tree of version 1: what files have unless they are of libver='latest'
	indexSingle            // one chunk is the dataset
	indexImplicit          // all chunks, one behind the other
	indexFixed             // an array of as many as there can be
	indexExtensible        // an array that grows along one dimension
	indexTree2             // a B-tree of version 2: several dimensions grow
)

type chunkIndex struct {
	kind    int
	address uint64
	single  Chunk // indexSingle: all but its offset
}

// chunkIndex reads which index a layout of version 4 has.
func (f *File) chunkIndex(d *Dataset, c *cursor, flags uint8) error {
	start := c.here()
	index := &d.Layout.index
	switch kind := c.u8(); kind {
	case 1:
		index.kind, index.single.Size = indexSingle, d.Layout.Size
		if flags&2 != 0 {
			index.single.Size, index.single.Mask = int64(c.u64()), c.u32()
		}
	case 2:
		index.kind = indexImplicit
	case 3:
		index.kind = indexFixed
		c.skip(1)
	case 4:
		index.kind = indexExtensible
		c.skip(5)
	case 5:
		index.kind = indexTree2
		c.skip(6)
	default:
		return f.Damaged(start, "an index of chunks of kind %d", kind)
	}
	index.address = c.u64()
	if c.short {
		return f.Damaged(start, "the layout of the dataset %q ends too early", d.Path)
	}
	return nil
}

// Grid is how many chunks there are along each dimension.
func (d *Dataset) Grid() []int64 {
	g := make([]int64, len(d.Layout.Chunk))
	for i, n := range d.Layout.Chunk {
		g[i] = (d.Dims[i] + n - 1) / n
	}
	return g
}

// grid is where chunks are put while they are found.
type grid struct {
	f     *File
	d     *Dataset
	dims  []int64 // Grid
	all   []Chunk
	found int64
}

// put enters the chunk at these coordinates, counted in chunks.
func (g *grid) put(at []int64, address uint64, size int64, mask uint32, from int64) error {
	no := int64(0)
	for i, x := range at {
		if x < 0 || x >= g.dims[i] {
			return g.f.Damaged(from, "the dataset %q has a chunk at %v, and %v chunks", g.d.Path, at, g.dims)
		}
		no = no*g.dims[i] + x
	}
	off, err := g.f.at(address)
	if err != nil {
		return err
	}
	switch plain := len(g.d.Filters) == 0; {
	case g.all[no].Off >= 0:
		return g.f.Damaged(from, "the dataset %q has two chunks at %v", g.d.Path, at)
	case size < 1 || size > g.f.obj.Size-off:
		return g.f.Damaged(from, "the chunk of %q at %v has %d bytes at %d, and the file %d", g.d.Path, at, size, off, g.f.obj.Size)
	case plain && size != g.d.Layout.Size:
		return g.f.Damaged(from, "the chunk of %q at %v has %d bytes, and should have %d", g.d.Path, at, size, g.d.Layout.Size)
	}
	g.all[no] = Chunk{off, size, mask}
	g.found++
	return nil
}

// putAt enters a chunk by its number in an index that counts in the order of
// steps.
func (g *grid) putAt(no uint64, steps []int64, order []int, address uint64, size int64, mask uint32, from int64) error {
	at := make([]int64, len(steps))
	rest := no
	for i, s := range steps {
		at[order[i]] = int64(rest / uint64(s))
		rest %= uint64(s)
	}
	return g.put(at, address, size, mask, from)
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

// sparse is how many chunks a dataset may have beside one for every eight bytes
// of its file, before it is refused.
const sparse = 1 << 20

// Chunks is where every chunk of a dataset lies, in the order of the grid, the
// last dimension fastest.
func (f *File) Chunks(d *Dataset) ([]Chunk, error) {
	g := &grid{f: f, d: d, dims: d.Grid()}
	n := bytesOf(g.dims, 1)
	if n < 0 || n > sparse+f.obj.Size/8 {
		return nil, f.Unsupported(d.off, "write chunks of more rows, or the data that is there", "the dataset %q has %v chunks in a file of %d bytes", d.Path, g.dims, f.obj.Size)
	}
	if slices.Contains(d.Dims, 0) {
		return nil, nil
	}
	g.all = make([]Chunk, n)
	for i := range g.all {
		g.all[i].Off = -1
	}
	index := d.Layout.index
	if index.address == undefined {
		return g.all, nil
	}
	var err error
	switch index.kind {
	case indexTree1:
		err = g.tree1(index.address)
	case indexSingle:
		err = g.put(make([]int64, len(g.dims)), index.address, index.single.Size, index.single.Mask, d.off)
	case indexImplicit:
		err = g.implicit(index.address)
	case indexFixed:
		err = g.fixed(index.address)
	case indexExtensible:
		err = g.extensible(index.address)
	case indexTree2:
		err = g.tree2(index.address)
	}
	if err != nil {
		return nil, err
	}
	if d.Layout.edgesUnpacked {
		g.unpackEdges()
	}
	return g.all, nil
}

// unpackEdges says of every chunk that reaches over the edge that no filter was
// at work.
func (g *grid) unpackEdges() {
	for no := range g.all {
		rest := int64(no)
		for i := len(g.dims) - 1; i >= 0; i-- {
			at := rest % g.dims[i]
			rest /= g.dims[i]
			if (at+1)*g.d.Layout.Chunk[i] > g.d.Dims[i] {
				g.all[no].Mask = ^uint32(0)
			}
		}
	}
}

// implicit: the chunks lie one behind the other, counted by what the dataset may
// grow to.
func (g *grid) implicit(address uint64) error {
	steps, order := g.d.steps()
	at := make([]int64, len(g.dims))
	for no := range g.all {
		rest := int64(no)
		for i := len(g.dims) - 1; i >= 0; i-- {
			at[i] = rest % g.dims[i]
			rest /= g.dims[i]
		}
		k := int64(0)
		for i, s := range steps {
			k += at[order[i]] * s
		}
		if k > (1<<62)/g.d.Layout.Size {
			return g.f.Damaged(g.d.off, "chunk %d of %q would lie beyond all files", k, g.d.Path)
		}
		if err := g.put(at, address+uint64(k*g.d.Layout.Size), g.d.Layout.Size, 0, g.d.off); err != nil {
			return err
		}
	}
	return nil
}

// tree1 reads a B-tree of version 1. A key is the size of a chunk, its mask and
// where it begins, in elements; one more key than there are children ends a page.
//
// These trees have neither a checksum nor a count. But a page begins and ends
// with the keys around it in the page above, and the last key of all is that of a
// chunk of no bytes: so a page that lost some of its entries is found, which would
// otherwise be read as fill values.
func (g *grid) tree1(address uint64) error {
	t := &oldTree{grid: g, seen: make(map[uint64]bool), keyLen: 8 + 8*(len(g.dims)+1)}
	return t.visit(address, -1, nil)
}

type oldTree struct {
	*grid
	seen   map[uint64]bool
	keyLen int
}

// visit reads a page at a level, or at any for -1. around are the keys before and
// after it in the page above.
func (t *oldTree) visit(address uint64, level int, around []byte) error {
	if t.seen[address] {
		return t.f.Damaged(t.d.off, "the index of %q leads to address %d twice", t.d.Path, address)
	}
	t.seen[address] = true
	head, err := t.f.marked(address, 24, "TREE")
	if err != nil {
		return err
	}
	kind, here, used := head.u8(), int(head.u8()), int(head.u16())
	if kind != 1 || level >= 0 && here != level || level >= 0 && used == 0 {
		return t.f.Damaged(head.off, "a page of kind %d with %d entries at level %d of the index of %q", kind, used, here, t.d.Path)
	}
	if used == 0 {
		return nil
	}
	step := t.keyLen + 8
	c, err := t.f.block(address, int64(24+used*step+t.keyLen))
	if err != nil {
		return err
	}
	// A key without its size and mask, which only those of chunks have.
	key := func(i int) []byte { return c.b[24+i*step+8 : 24+i*step+t.keyLen] }
	if around == nil && le.Uint32(c.b[24+used*step:]) != 0 ||
		around != nil && (!bytes.Equal(around[:t.keyLen-8], key(0)) || !bytes.Equal(around[t.keyLen-8:], key(used))) {
		return t.f.Damaged(head.off, "a page of the index of %q has lost some of its %d entries", t.d.Path, used)
	}
	c.skip(24)
	at := make([]int64, len(t.dims))
	for i := range used {
		from := c.here()
		size, mask := int64(c.u32()), c.u32()
		for i := range at {
			x := int64(c.u64())
			if x%t.d.Layout.Chunk[i] != 0 {
				return t.f.Damaged(from, "the dataset %q has a chunk that begins at %d of dimension %d, and chunks of %v", t.d.Path, x, i, t.d.Layout.Chunk)
			}
			at[i] = x / t.d.Layout.Chunk[i]
		}
		c.skip(8)
		child := c.u64()
		if here > 0 {
			err = t.visit(child, here-1, slices.Concat(key(i), key(i+1)))
		} else {
			err = t.put(at, child, size, mask, from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chunkRecord reads what arrays and B-trees of version 2 keep of a chunk: its
// address and, where there are filters, its size in some bytes and its mask.
// rest is how many bytes of the entry are left for these two; 0: no filters.
func (g *grid) chunkRecord(c *cursor, rest int) (address uint64, size int64, mask uint32) {
	address, size = c.u64(), g.d.Layout.Size
	if rest > 0 {
		size, mask = int64(c.uint(rest-4)), c.u32()
	}
	return address, size, mask
}

// tree2 reads a B-tree of version 2.
func (g *grid) tree2(address uint64) error {
	rank := len(g.dims)
	at := make([]int64, rank)
	return g.f.records(address, func(kind uint8, c *cursor) error {
		rest := 0
		switch kind {
		case 10:
		case 11:
			rest = len(c.b) - 8 - 8*rank
		}
		if kind != 10 && kind != 11 || rest < 0 || rest > 12 || kind == 11 && rest < 5 || len(c.b) != 8+rest+8*rank {
			return g.f.Damaged(c.off, "entries of kind %d and %d bytes in the index of %q", kind, len(c.b), g.d.Path)
		}
		address, size, mask := g.chunkRecord(c, rest)
		for i := range at {
			at[i] = int64(c.u64())
		}
		return g.put(at, address, size, mask, c.off)
	})
}

// entries takes the entries of a part of an array, of which the first is number
// first.
func (g *grid) entries(c *cursor, n int64, width int, filtered bool, first uint64, steps []int64, order []int) error {
	rest := 0
	if filtered {
		rest = width - 8
	}
	for i := range n {
		from := c.here()
		address, size, mask := g.chunkRecord(c, rest)
		if c.short {
			return g.f.Damaged(from, "a part of the index of %q ends too early", g.d.Path)
		}
		if address == undefined {
			continue
		}
		if err := g.putAt(first+uint64(i), steps, order, address, size, mask, from); err != nil {
			return err
		}
	}
	return nil
}

// client checks what an array holds: chunks, with or without filters.
func (g *grid) client(c *cursor, width int, kind uint8) (filtered bool, err error) {
	if kind > 1 || kind == 0 && width != 8 || kind == 1 && (width < 13 || width > 20) {
		return false, g.f.Damaged(c.off, "an array of kind %d with entries of %d bytes in the index of %q", kind, width, g.d.Path)
	}
	return kind == 1, nil
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
	filtered, err := g.client(c, width, kind)
	if err != nil {
		return err
	}
	if pageBits > 32 || n > uint64(g.f.obj.Size) && data != undefined || n > 1<<40 {
		return g.f.Damaged(c.off, "an array of %d chunks in the index of %q", n, g.d.Path)
	}
	if data == undefined {
		return nil
	}
	steps, order := g.d.steps()
	const prefix = 4 + 1 + 1 + 8
	if n <= 1<<pageBits {
		if c, err = g.long(data, prefix+int64(n)*int64(width)+4, "FADB"); err != nil {
			return err
		}
		c.skip(prefix - 4)
		return g.entries(c, int64(n), width, filtered, 0, steps, order)
	}
	perPage := int64(1) << pageBits
	pages := (int64(n) + perPage - 1) >> pageBits
	head := prefix + (pages+7)/8 + 4
	if c, err = g.long(data, head, "FADB"); err != nil {
		return err
	}
	c.skip(prefix - 4)
	return g.pages(data+uint64(head), c.bytes(int((pages+7)/8)), int64(n), perPage, width, filtered, 0, steps, order)
}

// pages reads those pages of a block whose bits are set.
func (g *grid) pages(address uint64, written []byte, n, perPage int64, width int, filtered bool, first uint64, steps []int64, order []int) error {
	for p := int64(0); n > 0; p++ {
		have := min(n, perPage)
		if written[p/8]&(0x80>>(p%8)) != 0 {
			c, err := g.long(address, have*int64(width)+4, "")
			if err != nil {
				return err
			}
			if err := g.entries(c, have, width, filtered, first, steps, order); err != nil {
				return err
			}
		}
		first, n, address = first+uint64(have), n-have, address+uint64(perPage*int64(width)+4)
	}
	return nil
}

// long is summed for blocks of an array, which may be longer than other
// structures are, and may have no mark.
func (g *grid) long(address uint64, n int64, mark string) (*cursor, error) {
	if n > int64(maxBlock)*4 {
		return nil, g.f.Unsupported(g.d.off, repack, "a part of %d bytes in the index of %q", n, g.d.Path)
	}
	c, err := g.f.longBlock(address, n)
	if err != nil {
		return nil, err
	}
	if got := c.bytes(len(mark)); string(got) != mark {
		return nil, g.f.Damaged(c.off, "%q stands where %q should", got, mark)
	}
	if err := g.f.sum(c.b, c.off); err != nil {
		return nil, err
	}
	c.b = c.b[:len(c.b)-4]
	return c, nil
}

// array is an extensible array (the header's parts that are needed).
type array struct {
	width                  int
	filtered               bool
	maxBits, inIndex       uint
	blockMin, pointersMin  uint64
	pageBits               uint
	first                  uint64 // number of the next entry
	steps                  []int64
	order                  []int
	address                uint64 // of the index block
	offLen, supers, direct int
}

// extensible reads an extensible array. Its entries lie in an index block, in data
// blocks that the index block names, and in data blocks that super blocks name,
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
	if err := g.entries(c, int64(a.inIndex), a.width, a.filtered, 0, a.steps, a.order); err != nil {
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
			if err := g.dataBlock(a, c.u64(), each, nil); err != nil {
				return err
			}
			left--
		}
	}
	for range a.supers {
		blocks, each := inSuper()
		if err := g.superBlock(a, c.u64(), blocks, each); err != nil {
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
	a := &array{width: int(c.u8()), maxBits: uint(c.u8()), inIndex: uint(c.u8()), blockMin: uint64(c.u8()), pointersMin: uint64(c.u8()), pageBits: uint(c.u8())}
	c.skip(6 * 8)
	a.address = c.u64()
	if a.filtered, err = g.client(c, a.width, kind); err != nil {
		return nil, err
	}
	powers := bits.OnesCount64(a.blockMin) == 1 && bits.OnesCount64(a.pointersMin) == 1
	if !powers || a.pointersMin < 2 || a.maxBits < 1 || a.maxBits > 64 || a.pageBits > 32 {
		return nil, g.f.Damaged(c.off, "the index of %q is an array of 2^%d entries in blocks of %d", g.d.Path, a.maxBits, a.blockMin)
	}
	all := 1 + int(a.maxBits) - bits.TrailingZeros64(a.blockMin)
	inIndex := 2 * bits.TrailingZeros64(a.pointersMin)
	a.direct, a.supers, a.offLen = 2*int(a.pointersMin-1), max(all-inIndex, 0), int(a.maxBits+7)/8
	a.steps, a.order = g.d.steps()
	return a, nil
}

// superBlock names data blocks.
func (g *grid) superBlock(a *array, address, blocks, each uint64) error {
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
		return g.f.Damaged(g.d.off, "a block of %d blocks in the index of %q", blocks, g.d.Path)
	}
	c, err := g.long(address, 6+8+int64(a.offLen)+int64(blocks*bitmap)+8*int64(blocks)+4, "EASB")
	if err != nil {
		return err
	}
	c.skip(2 + 8 + a.offLen)
	written := c.bytes(int(blocks * bitmap))
	for i := range blocks {
		if err := g.dataBlock(a, c.u64(), each, written[i*bitmap:(i+1)*bitmap]); err != nil {
			return err
		}
	}
	return nil
}

// dataBlock holds n entries, in pages where it is long.
func (g *grid) dataBlock(a *array, address, n uint64, written []byte) error {
	first := a.first
	a.first += n
	if address == undefined {
		return nil
	}
	if n > 1<<40 {
		return g.f.Damaged(g.d.off, "a block of %d entries in the index of %q", n, g.d.Path)
	}
	head := 6 + 8 + int64(a.offLen)
	if n <= 1<<a.pageBits || written == nil {
		c, err := g.long(address, head+int64(n)*int64(a.width)+4, "EADB")
		if err != nil {
			return err
		}
		c.skip(int(head) - 4)
		return g.entries(c, int64(n), a.width, a.filtered, first, a.steps, a.order)
	}
	if _, err := g.long(address, head+4, "EADB"); err != nil {
		return err
	}
	return g.pages(address+uint64(head)+4, written, int64(n), 1<<a.pageBits, a.width, a.filtered, first, a.steps, a.order)
}
