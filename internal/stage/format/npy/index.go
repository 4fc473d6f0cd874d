package npy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/index"
)

// The columns beside those that every index has.
const (
	fieldName      = "field.name"  // strings
	fieldDType     = "field.dtype" // int32: a mem.DType
	fieldRank      = "field.rank"  // int32: dimensions of a row
	fieldDims      = "field.dims"  // int64: of all fields
	fieldPart      = "field.part"  // int64, one more than fields: number of the first part
	partFile       = "part.file"   // int32: stored file
	partOff        = "part.off"    // int64: of row 0 in it, or in the unpacked member, bytes
	partStart      = "part.start"  // int64: number of the sample that row 0 is
	partCompressed = "part.packed" // int64: bytes of a compressed member in the file; -1: not compressed
	partHead       = "part.head"   // int64: of the member's header, bytes
	partBody       = "part.body"   // int64: of its data, bytes
	partSize       = "part.size"   // int64: unpacked, bytes
	partCRC        = "part.crc"    // int64: CRC-32 of what is unpacked
	leftName       = "left.name"   // strings: arrays that cannot be read, and were not asked for by name
	leftWhy        = "left.why"    // strings: why
	partSwap       = "part.swap"   // int32: 1 where elements are big-endian
	partMember     = "part.member" // strings: name of the member of a .npz; "": the array is the file
)

// columns are fields and their parts, one after another.
type columns struct {
	names, member, leftNames, leftWhys                        index.Texts
	dtype, rank, file, swap                                   []int32
	dims, part, off, start, compressed, head, body, size, crc []int64

	rows     int64 // of the dataset
	unpacked int64 // bytes of all compressed parts
}

func merge(fields []Field, files []string, found []*holding, held map[string]int, opt Options, b *index.Builder) error {
	c := &columns{part: []int64{0}}
	var counts [][]int64 // rows of the parts of each field
	for i, f := range fields {
		rows, err := c.field(f, files, found, held)
		if err != nil {
			return err
		}
		counts = append(counts, rows)
		if err := agree(fields[0], counts[0], fields[i], rows); err != nil {
			return err
		}
		b.Meta.Fields = append(b.Meta.Fields, f.Name)
	}
	if c.rows == 0 {
		return errs.New(errs.Empty, "the arrays have no row").At(errs.Where{Shard: files[0]}).Try("look at the program that wrote them")
	}
	b.Meta.Samples = c.rows
	var left []string
	for _, h := range found {
		b.Meta.Skipped += h.others
		for _, l := range h.left {
			if !slices.Contains(left, l.name) {
				left = append(left, l.name)
				c.leftNames.AppendString(l.name)
				c.leftWhys.AppendString(l.why)
			}
		}
	}
	if c.unpacked > opt.UnpackedBytes {
		b.Meta.Note = fmt.Sprintf("the compressed arrays have %d bytes and %d are kept, so in random order whole arrays are decompressed again and again; numpy.savez, which does not compress, or stoker pack makes it fast", c.unpacked, opt.UnpackedBytes)
	}
	c.write(b)
	return nil
}

// agree wants fields of the same length. Where they are in as many files, those
// have to agree one by one: files in another order would pair images with the
// labels of others.
func agree(f Field, a []int64, g Field, b []int64) error {
	sum := func(v []int64) (n int64) {
		for _, k := range v {
			n += k
		}
		return n
	}
	at := errs.Where{Shard: g.Paths[0], Field: g.Name}
	if sum(a) != sum(b) {
		hint := "every field needs a row for every sample; name the arrays to load (columns=)"
		if !zipped(f.Paths[0]) && !zipped(g.Paths[0]) {
			hint = "every field needs a row for every sample; name the fields, each with its paths: columns: [{name: x, path: x.npy}]; a field that is stored in several files takes a list of them"
		}
		return errs.New(errs.Config, "the field %q has %d rows, and the field %q has %d", f.Name, sum(a), g.Name, sum(b)).At(at).Try("%s", hint)
	}
	if len(a) != len(b) {
		return nil
	}
	for i := range a {
		if a[i] != b[i] {
			at.Shard = g.Paths[i]
			return errs.New(errs.Config, "file %d of the field %q has %d rows, and file %d of the field %q has %d", i, f.Name, a[i], i, g.Name, b[i]).
				At(at).Try("give the files of every field in the same order")
		}
	}
	return nil
}

// field adds one field and returns the rows of its parts.
func (c *columns) field(f Field, files []string, found []*holding, held map[string]int) (rows []int64, err error) {
	var first Header
	next := int64(0)
	for i, p := range f.Paths {
		a, err := taken(f, found[held[p]], p)
		if err != nil {
			return nil, err
		}
		h := a.header
		if i == 0 {
			first = h
		}
		if h.DType != first.DType || !slices.Equal(h.Shape[1:], first.Shape[1:]) {
			return nil, errs.New(errs.Config, "the rows of the field %q are %s of %s in %s and %s of %s in %s",
				f.Name, shown(first.Shape[1:]), first.DType, f.Paths[0], shown(h.Shape[1:]), h.DType, p).
				At(errs.Where{Shard: p, Field: f.Name}).Try("save all with one shape and dtype")
		}
		if next > math.MaxInt64-h.Shape[0] {
			return nil, errs.New(errs.Damaged, "more rows than can be counted").At(errs.Where{Shard: p})
		}
		c.add(a, int32(held[p]), next)
		rows, next = append(rows, h.Shape[0]), next+h.Shape[0]
	}
	if next > 0 && slices.Contains(first.Shape[1:], 0) {
		return nil, errs.New(errs.Empty, "the rows of the field %q, %s, have no element", f.Name, shown(first.Shape[1:])).
			At(errs.Where{Shard: f.Paths[0], Field: f.Name}).Try("leave it out")
	}
	c.rows = next
	c.names.AppendString(f.Name)
	c.dtype, c.rank = append(c.dtype, int32(first.DType)), append(c.rank, int32(len(first.Shape)-1))
	c.dims = append(c.dims, first.Shape[1:]...)
	c.part = append(c.part, int64(len(c.file)))
	return rows, nil
}

// taken is the array that a field takes of a file.
func taken(f Field, h *holding, p string) (array, error) {
	if h.only != nil {
		return *h.only, nil
	}
	if a, ok := h.arrays[f.Array]; ok {
		return a, nil
	}
	e := errs.New(errs.Config, "there is no array %q in %s; it has %s", f.Array, p, strings.Join(h.names[:min(len(h.names), 20)], ", ")).
		At(errs.Where{Shard: p, Field: f.Name})
	if near := errs.Nearest(f.Array, h.names); near != "" {
		return array{}, e.Try("did you mean %q?", near)
	}
	return array{}, e.Try("a field takes the array of its own name, unless from= names another")
}

func (c *columns) add(a array, file int32, start int64) {
	c.file, c.start = append(c.file, file), append(c.start, start)
	swap := int32(0)
	if a.header.Swapped {
		swap = 1
	}
	c.swap = append(c.swap, swap)
	off, compressed, head, body, size, crc, name := a.header.Off, int64(-1), int64(0), int64(0), int64(0), int64(0), ""
	if m := a.member; m != nil {
		name = m.name
		if a.deflated() {
			compressed, head, body, size, crc = m.compressed, m.head, m.body, m.size, int64(m.crc)
			c.unpacked += m.size
		} else {
			off += m.body
		}
	}
	c.off, c.compressed, c.head, c.body = append(c.off, off), append(c.compressed, compressed), append(c.head, head), append(c.body, body)
	c.size, c.crc = append(c.size, size), append(c.crc, crc)
	c.member.AppendString(name)
}

// write adds the columns. Where arrays are stored, whether they are compressed, and
// their byte order are not part of the data's identity.
func (c *columns) write(b *index.Builder) {
	b.Strings(fieldName, &c.names, index.Identity)
	b.Strings(leftName, &c.leftNames, index.Aside)
	b.Strings(leftWhy, &c.leftWhys, index.Aside)
	b.Int32s(fieldDType, c.dtype, index.Identity)
	b.Int32s(fieldRank, c.rank, index.Identity)
	b.Int64s(fieldDims, c.dims, index.Identity)
	b.Int64s(fieldPart, c.part, index.Identity)
	b.Int32s(partFile, c.file, index.Identity)
	b.Int32s(partSwap, c.swap, index.Aside)
	b.Int64s(partOff, c.off, index.Aside)
	b.Int64s(partStart, c.start, index.Identity)
	b.Int64s(partCompressed, c.compressed, index.Aside)
	b.Int64s(partHead, c.head, index.Aside)
	b.Int64s(partBody, c.body, index.Aside)
	b.Int64s(partSize, c.size, index.Aside)
	b.Int64s(partCRC, c.crc, index.Aside)
	b.Strings(partMember, &c.member, index.Aside)
}

func open(x *index.Index) *Dataset {
	d := &Dataset{
		x:    x,
		file: x.Int32s(partFile), off: x.Int64s(partOff), start: x.Int64s(partStart), compressed: x.Int64s(partCompressed),
		swap: x.Int32s(partSwap), head: x.Int64s(partHead), body: x.Int64s(partBody), size: x.Int64s(partSize), crc: x.Int64s(partCRC), member: x.Strings(partMember),
	}
	names, dtype, rank, dims, part := x.Strings(fieldName), x.Int32s(fieldDType), x.Int32s(fieldRank), x.Int64s(fieldDims), x.Int64s(fieldPart)
	if len(dtype) != names.Len() || len(rank) != names.Len() || len(part) != names.Len()+1 {
		return d
	}
	for i := range names.Len() {
		n := int(rank[i])
		if n < 0 || n > len(dims) || part[i] < 0 || part[i+1] <= part[i] || part[i+1] > int64(len(d.file)) || uint32(dtype[i]) > uint32(mem.Float16) {
			d.fields = nil
			return d
		}
		f := field{name: string(names.At(i)), dtype: mem.DType(dtype[i]), shape: mem.Shape{}, from: int(part[i]), to: int(part[i+1])}
		row, err := product(dims[:n], int64(f.dtype.Size()))
		if err != nil || row < 1 || slices.Min(append(dims[:n:n], 1)) < 1 {
			d.fields = nil
			return d
		}
		f.row = row
		for _, k := range dims[:n] {
			f.shape = append(f.shape, int(k))
		}
		dims = dims[n:]
		d.fields = append(d.fields, f)
	}
	return d
}

// valid reports whether every number of the index can be used without further checks.
func valid(x *index.Index, opt Options) bool {
	d := open(x)
	n := len(d.file)
	if x.Len() < 1 || len(d.fields) == 0 || d.fields[0].from != 0 || d.fields[len(d.fields)-1].to != n ||
		len(d.swap) != n || len(d.off) != n || len(d.start) != n || len(d.compressed) != n || len(d.head) != n || len(d.body) != n || len(d.size) != n ||
		len(d.crc) != n || d.member.Len() != n || !x.Watched() {
		return false
	}
	for i := range d.fields {
		f := &d.fields[i]
		if d.start[f.from] != 0 {
			return false
		}
		for p := f.from; p < f.to; p++ {
			end := x.Len()
			if p+1 < f.to {
				end = d.start[p+1]
			}
			if end < d.start[p] || uint32(d.file[p]) >= uint32(x.Files()) || !d.sound(f, p, end-d.start[p], opt) {
				return false
			}
		}
	}
	return true
}

// sound reports whether the rows of a part are within its file, or within its member.
func (d *Dataset) sound(f *field, p int, rows int64, opt Options) bool {
	size, _ := d.x.Stamp(int(d.file[p]))
	if d.compressed[p] != -1 {
		if d.head[p] < 0 || d.head[p] > size-localLen || d.body[p] < 0 || d.body[p] > size || d.compressed[p] < 0 || d.compressed[p] > size-d.body[p] ||
			d.size[p] < 0 || d.size[p] > opt.UnpackedBytes || d.size[p] > d.compressed[p]*deflateRatio {
			return false
		}
		size = d.size[p]
	}
	return d.off[p] >= 0 && d.off[p] <= size && rows <= (size-d.off[p])/f.row
}
