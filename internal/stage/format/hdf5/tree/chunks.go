package tree

import (
	"bytes"
	"slices"
)

// Chunk is where one chunk of a dataset is stored.
type Chunk struct {
	Off  int64  // -1: it was never written, and holds the fill value
	Size int64  // bytes as stored
	Mask uint32 // bit i: filter i was left out
}

// Kinds of chunk indexes.
const (
	indexTree1      = iota // a B-tree of version 1: what files have unless they are of libver='latest'
	indexSingle            // one chunk is the dataset
	indexImplicit          // all chunks, one after the other
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
		if g[i] = d.Dims[i] / n; d.Dims[i]%n != 0 {
			g[i]++
		}
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

// put records the chunk at these coordinates, counted in chunks.
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

// sparse is how many chunks a dataset may have in addition to one for every eight
// bytes of its file, before it is refused.
const sparse = 1 << 20

// Chunks is where every chunk of a dataset is stored, in the order of the grid, the
// last dimension fastest.
func (f *File) Chunks(d *Dataset) ([]Chunk, error) {
	if d.Err != nil {
		return nil, d.Err // its layout may be half read
	}
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

// unpackEdges marks every chunk that extends beyond the edge of the dataset as one to
// which no filter was applied.
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

// implicit: the chunks are stored one after the other, counted by what the dataset
// may grow to.
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
			return g.f.Damaged(g.d.off, "chunk %d of %q would be beyond the end of any file", k, g.d.Path)
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
// These trees have neither a checksum nor a count. But a page begins and ends with
// the keys around it in the page above, and the last key of all is that of a chunk of
// no bytes: so a page that lost some of its entries is detected, where they would
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

// visit reads a page at a level, or at any level if it is -1. around are the keys
// before and after it in the page above.
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
