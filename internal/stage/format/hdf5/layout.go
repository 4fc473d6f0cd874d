package hdf5

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
)

// The columns in addition to those that every index has.
const (
	fieldsColumn = "hdf5.fields" // bytes: JSON, []field
	layoutColumn = "hdf5.layout" // bytes: JSON, []file
	leftColumn   = "hdf5.left"   // bytes: JSON, leftOut
	chunkOff     = "chunk.off"   // int64: of a chunk, bytes; -1: never written
	chunkSize    = "chunk.size"  // int64: as stored, bytes
	chunkMask    = "chunk.mask"  // int32: filters that were left out
	valueOff     = "value.off"   // int64: of a value of variable length, bytes; -1: it is empty
	valueSize    = "value.size"  // int64: bytes
)

// Limits of one chunk and of one row, bytes. HDF5's own is 4 GiB.
const (
	maxUnpacked = 1 << 30
	maxRow      = 1 << 30
)

// field is what a dataset is, in whichever file it is stored.
type field struct {
	Name  string     `json:"name"`
	Class tree.Class `json:"class"`
	DType mem.DType  `json:"dtype"` // of Number and VLen
	Shape []int64    `json:"shape"` // of a row
}

// file is one stored file.
type file struct {
	Rows    int64    `json:"rows"`
	Layouts []layout `json:"layouts"` // one a field
}

// layout is where a dataset is stored in one file.
type layout struct {
	Path    string        `json:"path"`
	Elem    int64         `json:"elem"` // bytes of an element
	Dims    []int64       `json:"dims"` // in elements
	Swapped bool          `json:"swapped,omitempty"`
	Unit    int64         `json:"unit"` // bytes of a number, which are swapped
	Pad     uint8         `json:"pad,omitempty"`
	Fill    []byte        `json:"fill,omitempty"`  // an element; none: zeros
	Chunk   []int64       `json:"chunk,omitempty"` // none: all rows are stored from Off on, one after the other
	Off     int64         `json:"off"`             // -1: nothing was written
	Filters []tree.Filter `json:"filters,omitempty"`
	// First is the number of the first chunk in the columns, or, of a field of
	// variable length, of the first value.
	First int64 `json:"first"`
}

// product is that of a shape, or -1 where it is more than most.
func product(dims []int64, n, most int64) int64 {
	for _, d := range dims {
		if d < 0 || n < 0 {
			return -1
		}
		if d != 0 && n > most/d {
			return -1
		}
		n *= d
	}
	return n
}

// row is the bytes of a row.
func (l *layout) row() int64 { return product(l.Dims[1:], l.Elem, maxRow) }

// unpacked is the bytes of a chunk.
func (l *layout) unpacked() int64 { return product(l.Chunk, l.Elem, maxUnpacked) }

// part is the bytes of a row of a chunk.
func (l *layout) part() int64 { return product(l.Chunk[1:], l.Elem, maxUnpacked) }

// grid is how many chunks there are along dimension i.
func (l *layout) grid(i int) int64 { return (l.Dims[i]-1)/l.Chunk[i] + 1 }

// across is how many chunks a row goes through.
func (l *layout) across() int64 {
	n := int64(1)
	for i := 1; i < len(l.Chunk); i++ {
		n *= l.grid(i)
	}
	return n
}

// even says whether a row of a chunk is a row of the dataset.
func (l *layout) even() bool {
	return slices.Equal(l.Chunk[1:], l.Dims[1:])
}

// compressed says whether a chunk with this mask has to be unpacked.
func (l *layout) compressed(mask int32) bool {
	for i := range l.Filters {
		if uint32(mask)>>i&1 == 0 {
			return true
		}
	}
	return false
}

// sized is the bytes before each filter, and -1 after one whose output has no known
// length.
func sized(filters []tree.Filter, mask int32, n int64) []int64 {
	sizes := []int64{n}
	for i, f := range filters {
		if n >= 0 && uint32(mask)>>i&1 == 0 {
			switch f.ID {
			case tree.Fletcher:
				n += 4
			case tree.Deflate, tree.LZF:
				n = -1
			}
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// The most that one stored byte can become: a match of 258 bytes in two bits, of
// 264 bytes in three bytes.
const (
	deflateGrows = 1032
	lzfGrows     = 88
)

// fits says whether a chunk of size stored bytes can be what it should be.
func (l *layout) fits(size int64, mask int32) error {
	n := l.unpacked()
	most := n
	for i, f := range l.Filters {
		switch {
		case uint32(mask)>>i&1 != 0:
		case f.ID == tree.Deflate:
			most = deflateGrows * (size + 16)
		case f.ID == tree.LZF:
			most = lzfGrows * (size + 16)
		}
	}
	for i, f := range l.Filters {
		// HDF5 writes a shuffle of no number of bytes for data of variable length, and
		// skips it in every chunk.
		if f.ID == tree.Shuffle && uint32(mask)>>i&1 == 0 && (len(f.Values) < 1 || f.Values[0] < 1 || int64(f.Values[0]) > maxUnpacked) {
			return fmt.Errorf("its shuffle filter has the element size %v, which is not a number of bytes", f.Values)
		}
	}
	if known := sized(l.Filters, mask, n); known[len(known)-1] >= 0 && known[len(known)-1] != size {
		return fmt.Errorf("it has %d bytes, and should have %d", size, known[len(known)-1])
	}
	if n > most {
		return fmt.Errorf("its %d bytes cannot decompress to %d", size, n)
	}
	return nil
}

// span is a run of bytes that has an owner.
type span struct{ off, size int64 }

// disjoint is the first run that begins before the preceding one ends.
func disjoint(spans []span) (span, bool) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.size, b.size)) })
	end := int64(0)
	for _, s := range spans {
		if s.off < end {
			return s, false
		}
		end = s.off + s.size
	}
	return span{}, true
}

// check says whether every number of the index can be used without further checks: no
// number leads out of its column or its file, no product overflows, and no two runs
// of bytes overlap. The check is the same for an index that was just built.
func (d *Dataset) check() error {
	if len(d.files) != d.x.Files() || len(d.fields) == 0 || d.x.Len() != d.first[len(d.files)] || d.x.Len() < 1 {
		return fmt.Errorf("%d fields in %d files, %d samples", len(d.fields), len(d.files), d.x.Len())
	}
	if !d.x.Watched() {
		return fmt.Errorf("files without times")
	}
	sizes := make([]int64, len(d.files))
	for i := range sizes {
		sizes[i], _ = d.x.Stamp(i)
	}
	return d.checkFiles(sizes)
}

func (d *Dataset) checkFiles(sizes []int64) error {
	for i, f := range d.files {
		if f.Rows < 0 || len(f.Layouts) != len(d.fields) {
			return fmt.Errorf("file %d: %d rows, %d layouts", i, f.Rows, len(f.Layouts))
		}
		var spans []span
		for k := range f.Layouts {
			l := &f.Layouts[k]
			var err error
			if spans, err = d.checkLayout(l, &d.fields[k], f.Rows, sizes[i], spans); err != nil {
				return fmt.Errorf("the dataset %q: %w", l.Path, err)
			}
		}
		if s, ok := disjoint(spans); !ok {
			return fmt.Errorf("the bytes at %d, %d of them, overlap other data", s.off, s.size)
		}
	}
	return nil
}

// checkLayout appends the runs of bytes of one dataset.
func (d *Dataset) checkLayout(l *layout, f *field, rows, size int64, spans []span) ([]span, error) {
	if len(l.Dims) < 1 || len(l.Dims) > 32 || l.Dims[0] != rows || l.Elem < 1 || l.Unit < 1 || l.Elem%l.Unit != 0 || l.Pad > tree.PadSpace ||
		slices.Contains(l.Dims[1:], 0) || l.row() < 0 || len(l.Fill) != 0 && int64(len(l.Fill)) != l.Elem {
		return nil, fmt.Errorf("%v elements of %d bytes", l.Dims, l.Elem)
	}
	switch f.Class {
	case tree.Number:
		if f.DType.Size() == 0 || product(f.Shape, int64(f.DType.Size()), maxRow) != l.row() || l.Swapped && int64(f.DType.Size()) != l.Unit {
			return nil, fmt.Errorf("rows of %d bytes for %v", l.row(), f.Shape)
		}
	case tree.Text, tree.Opaque:
		if len(l.Dims) != 1 {
			return nil, fmt.Errorf("texts of %v", l.Dims)
		}
	case tree.VLen, tree.VLenText:
		return d.checkValues(l, f, rows, size, spans)
	default:
		return nil, fmt.Errorf("class %d", f.Class)
	}
	if l.Chunk == nil {
		if l.Off < 0 {
			return spans, nil
		}
		n := product(l.Dims, l.Elem, math.MaxInt64/4)
		if n < 0 || l.Off > size || n > size-l.Off {
			return nil, fmt.Errorf("%d bytes at %d of %d", n, l.Off, size)
		}
		return append(spans, span{l.Off, n}), nil
	}
	return d.checkChunks(l, size, spans)
}

func (d *Dataset) checkValues(l *layout, f *field, rows, size int64, spans []span) ([]span, error) {
	unit := int64(1)
	if f.Class == tree.VLen {
		unit = int64(f.DType.Size())
	}
	if len(l.Dims) != 1 || unit == 0 || l.First < 0 || rows > int64(len(d.valueOff))-l.First || len(d.valueSize) != len(d.valueOff) || l.Swapped && l.Unit != unit {
		return nil, fmt.Errorf("%v values from %d on, of %d", l.Dims, l.First, len(d.valueOff))
	}
	for i := l.First; i < l.First+rows; i++ {
		off, n := d.valueOff[i], d.valueSize[i]
		switch {
		case off < 0 && n == 0:
			continue
		case off < 0, n < 0, n%unit != 0, off > size, n > size-off:
			return nil, fmt.Errorf("row %d: %d bytes at %d of %d", i-l.First, n, off, size)
		}
		spans = append(spans, span{off, n})
	}
	return spans, nil
}

func (d *Dataset) checkChunks(l *layout, size int64, spans []span) ([]span, error) {
	all := int64(len(d.chunkOff))
	n := int64(1)
	if len(l.Chunk) != len(l.Dims) || int64(len(d.chunkSize)) != all || int64(len(d.chunkMask)) != all || l.First < 0 || len(l.Filters) > 32 {
		return nil, fmt.Errorf("chunks of %v", l.Chunk)
	}
	for i, c := range l.Chunk {
		if c < 1 || l.Dims[0] == 0 {
			return nil, fmt.Errorf("chunks of %v", l.Chunk)
		}
		if g := l.grid(i); n > all/g {
			return nil, fmt.Errorf("%v elements in chunks of %v, and %d chunks", l.Dims, l.Chunk, all)
		} else {
			n *= g
		}
	}
	if l.unpacked() < 0 || l.First > all-n {
		return nil, fmt.Errorf("chunks of %v elements of %d bytes", l.Chunk, l.Elem)
	}
	for _, f := range l.Filters {
		switch f.ID {
		case tree.Deflate, tree.LZF, tree.Fletcher, tree.Shuffle:
		default:
			return nil, fmt.Errorf("filter %d", f.ID)
		}
	}
	for i := l.First; i < l.First+n; i++ {
		off, stored := d.chunkOff[i], d.chunkSize[i]
		if off < 0 {
			continue
		}
		if stored < 1 || off > size || stored > size-off {
			return nil, fmt.Errorf("chunk %d: %d bytes at %d of %d", i-l.First, stored, off, size)
		}
		if err := l.fits(stored, d.chunkMask[i]); err != nil {
			return nil, fmt.Errorf("chunk %d, at %d: %w", i-l.First, off, err)
		}
		if known := sized(l.Filters, d.chunkMask[i], 0); l.compressed(d.chunkMask[i]) && ambiguous(l.Filters, d.chunkMask[i], known) {
			return nil, fmt.Errorf("chunk %d was compressed twice", i-l.First)
		}
		spans = append(spans, span{off, stored})
	}
	return spans, nil
}

// ambiguous says whether something that has to be unpacked to a known length was
// compressed before, so that this length is not known.
func ambiguous(filters []tree.Filter, mask int32, sizes []int64) bool {
	for i, f := range filters {
		if uint32(mask)>>i&1 == 0 && (f.ID == tree.Deflate || f.ID == tree.LZF) && sizes[i] < 0 {
			return true
		}
	}
	return false
}
