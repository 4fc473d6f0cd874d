package tree

import (
	"math"
)

// Dataset is one dataset of a file.
type Dataset struct {
	Path    string // without the first slash
	Type    Type
	Dims    []int64 // nil: a scalar
	Max     []int64 // what Dims may grow to; -1: without end
	Layout  Layout
	Filters []Filter
	Fill    []byte // an element; nil: zeros
	// Why it cannot be read, other than by its type; "": it can be.
	Why  string
	Hint string
	// Err is why its header cannot be read beyond its dimensions; nil: it can.
	Err error

	off int64 // of its header
}

// Layout is how the data of a dataset is stored.
type Layout struct {
	// Chunk is nil where the data is stored in one piece of Size bytes at Off; Off is
	// -1 where nothing was written.
	Chunk []int64
	Off   int64
	Size  int64

	index         chunkIndex
	edgesUnpacked bool // chunks that extend beyond the edge have no filters
}

// Filter is one step by which chunks were packed.
type Filter struct {
	ID     int
	Name   string
	Values []uint32
}

// The filters that stoker undoes.
const (
	Deflate  = 1
	Shuffle  = 2
	Fletcher = 3
	LZF      = 32000
)

var filterNames = map[int]string{
	Deflate: "gzip", Shuffle: "shuffle", Fletcher: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", LZF: "lzf",
	32001: "blosc", 32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32015: "zstd", 32026: "blosc2",
}

const maxRank = 32

// dataset reads what the header of a dataset says: its dimensions, and everything
// else. Without dimensions it is an error.
func (f *File) dataset(path string, o *object) (*Dataset, error) {
	d := &Dataset{Path: path, off: o.off}
	c := o.first(msgSpace)
	if c == nil {
		return nil, f.Damaged(o.off, "the dataset %q has no dimensions", path)
	}
	var err error
	if d.Dims, d.Max, err = f.space(c); err != nil {
		return nil, err
	}
	if d.Err = f.stored(d, o); d.Err != nil && !ofData(d.Err) {
		return nil, d.Err
	}
	return d, nil
}

// stored reads how the elements of a dataset are stored.
func (f *File) stored(d *Dataset, o *object) (err error) {
	c := o.first(msgType)
	if c == nil {
		return f.Damaged(o.off, "the dataset %q has no type", d.Path)
	}
	if d.Type, err = f.datatype(c, 0); err != nil {
		return err
	}
	if c = o.first(msgFill); c != nil {
		err = f.fill(d, c)
	} else if c = o.first(msgFillOld); c != nil {
		d.Fill = c.bytes(int(c.u32()))
	}
	if err != nil {
		return err
	}
	if n := int64(len(d.Fill)); n != 0 && n != d.Type.Size {
		return f.Damaged(o.off, "the fill value of %q has %d bytes, but an element has %d", d.Path, n, d.Type.Size)
	}
	if c = o.first(msgFilters); c != nil {
		if d.Filters, err = f.filters(c); err != nil {
			return err
		}
	}
	if o.first(msgExternal) != nil {
		d.Why, d.Hint = "its data is in other files", "copy it into one: h5py, dst[name] = src[name][...]"
		return nil
	}
	if c = o.first(msgLayout); c == nil {
		return f.Damaged(o.off, "the dataset %q does not say where its data is stored", d.Path)
	}
	return f.layout(d, c)
}

// space reads the dimensions of a dataset or attribute. A scalar has none; what has
// no elements at all is returned as having no rows.
func (f *File) space(c *cursor) (dims, most []int64, err error) {
	start := c.here()
	version, rank, flags := c.u8(), int(c.u8()), c.u8()
	kind := uint8(1)
	switch version {
	case 1:
		c.skip(5)
	case 2:
		kind = c.u8()
	default:
		return nil, nil, f.Damaged(start, "dimensions of version %d", version)
	}
	if kind == 2 {
		return []int64{0}, []int64{0}, nil
	}
	if rank > maxRank {
		return nil, nil, f.Damaged(start, "%d dimensions", rank)
	}
	for range rank {
		dims = append(dims, int64(c.u64()))
	}
	most = append(most, dims...)
	if flags&1 != 0 {
		for i := range most {
			most[i] = int64(c.u64())
		}
	}
	for i, d := range dims {
		if d < 0 || most[i] != -1 && most[i] < d || c.short {
			return nil, nil, f.Damaged(start, "dimensions %v of at most %v", dims, most)
		}
	}
	return dims, most, nil
}

func (f *File) fill(d *Dataset, c *cursor) error {
	start := c.here()
	version := c.u8()
	defined := true
	switch version {
	case 1, 2:
		c.skip(2)
		if u := c.u8(); version == 2 {
			defined = u != 0
		}
	case 3:
		defined = c.u8()&0x20 != 0
	default:
		return f.Damaged(start, "a fill value of version %d", version)
	}
	if !defined {
		return nil
	}
	n := int32(c.u32())
	if n <= 0 {
		return nil // zeros, or no value at all
	}
	if d.Fill = c.bytes(int(n)); c.short {
		return f.Damaged(start, "a fill value of %d bytes", n)
	}
	return nil
}

func (f *File) filters(c *cursor) (out []Filter, err error) {
	start := c.here()
	version, n := c.u8(), int(c.u8())
	if version == 1 {
		c.skip(6)
	}
	if version < 1 || version > 2 || n > maxRank {
		return nil, f.Damaged(start, "%d filters, in a list of version %d", n, version)
	}
	for range n {
		one := Filter{ID: int(c.u16())}
		named := 0
		if version == 1 || one.ID >= 256 {
			named = int(c.u16())
		}
		c.skip(2)
		count := int(c.u16())
		if version == 1 {
			named = (named + 7) &^ 7
		}
		name := c.bytes(named)
		for i, b := range name {
			if b == 0 {
				name = name[:i]
				break
			}
		}
		for range min(count, c.left()/4) {
			one.Values = append(one.Values, c.u32())
		}
		if len(one.Values) != count || c.short {
			return nil, f.Damaged(start, "the list of filters ends too early")
		}
		if version == 1 && count%2 == 1 {
			c.skip(4)
		}
		if one.Name = filterNames[one.ID]; one.Name == "" {
			one.Name = string(name)
		}
		out = append(out, one)
	}
	return out, nil
}

// bytesOf is the bytes of that many elements, or -1 where there are too many.
func bytesOf(dims []int64, size int64) int64 {
	n := size
	for _, d := range dims {
		if d != 0 && n > math.MaxInt64/4/d {
			return -1
		}
		n *= d
	}
	return n
}

// layout reads where the data is stored; Chunks reads which chunks there are.
func (f *File) layout(d *Dataset, c *cursor) error {
	start := c.here()
	version, class := c.u8(), c.u8()
	total := bytesOf(d.Dims, d.Type.Size)
	switch {
	case total < 0:
		return f.Damaged(start, "the dataset %q has %v elements of %d bytes", d.Path, d.Dims, d.Type.Size)
	case version < 3:
		d.Why, d.Hint = "its layout is of HDF5 1.4 or older", repack
		return nil
	case version > 5:
		d.Why, d.Hint = "its layout is from an HDF5 release after 2.0", "write it with an older bound: h5py.File(name, 'w', libver='v114')"
		return nil
	}
	switch class {
	case 0:
		size := int64(c.u16())
		d.Layout = Layout{Off: c.here(), Size: size}
		c.skip(int(size))
		if size == 0 {
			d.Layout.Off = -1
		}
	case 1:
		address, size := c.u64(), int64(c.u64())
		d.Layout = Layout{Off: -1, Size: size}
		if address != undefined && size != 0 {
			off, err := f.at(address)
			if err != nil {
				return err
			}
			if size < 0 || size > f.obj.Size-off {
				return f.Damaged(off, "the data of %q has %d bytes at %d, and the file %d", d.Path, size, off, f.obj.Size)
			}
			d.Layout.Off = off
		}
	case 2:
		return f.chunked(d, c, version)
	case 3:
		d.Why, d.Hint = "it is a virtual dataset, whose data is in other datasets", "give the files that hold the data, or copy it into one"
		return nil
	default:
		return f.Damaged(start, "the data of %q has the unknown layout class %d", d.Path, class)
	}
	if c.short || d.Layout.Off >= 0 && d.Layout.Size != total {
		return f.Damaged(start, "the data of %q has %d bytes, but %v elements need %d", d.Path, d.Layout.Size, d.Dims, total)
	}
	return nil
}

func (f *File) chunked(d *Dataset, c *cursor, version uint8) error {
	start := c.here()
	index := &d.Layout.index
	width := 4
	var flags uint8
	if version >= 4 {
		flags = c.u8()
	}
	rank := int(c.u8()) - 1
	if version >= 4 {
		width = int(c.u8())
	} else {
		index.address = c.u64()
	}
	if rank != len(d.Dims) || rank < 1 || width < 1 || width > 8 {
		return f.Damaged(start, "chunks of %d dimensions in the dataset %q of %d", rank, d.Path, len(d.Dims))
	}
	for range rank + 1 {
		d.Layout.Chunk = append(d.Layout.Chunk, int64(c.uint(width)))
	}
	last := d.Layout.Chunk[rank]
	d.Layout.Chunk = d.Layout.Chunk[:rank:rank]
	// Version 5, of HDF5 2, is 4 with chunks of any size; the indexes say themselves
	// in how many bytes they keep it.
	most := int64(math.MaxUint32)
	if version >= 5 {
		most = math.MaxInt64
	}
	for _, n := range d.Layout.Chunk {
		if n < 1 || n > most {
			return f.Damaged(start, "chunks of %v in the dataset %q", d.Layout.Chunk, d.Path)
		}
	}
	size := bytesOf(d.Layout.Chunk, d.Type.Size)
	if last != d.Type.Size || size < 0 || size > most || c.short {
		return f.Damaged(start, "chunks of %v elements of %d bytes in the dataset %q, whose elements have %d", d.Layout.Chunk, last, d.Path, d.Type.Size)
	}
	d.Layout.Size, d.Layout.Off = size, -1
	if version == 3 {
		index.kind = indexTree1
		return nil
	}
	d.Layout.edgesUnpacked = flags&1 != 0
	return f.chunkIndex(d, c, flags)
}
