package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/pages"
)

// wanted is the columns of the wanted fields, one a field (-1: there is none),
// into room; of nil, all that can be read.
func (d *Dataset) wanted(fields []string, room []int) []int {
	if fields == nil {
		for c := range d.columns {
			if d.columns[c].Why == "" {
				room = append(room, c)
			}
		}
		return room
	}
	for _, f := range fields {
		room = append(room, d.resolve(f))
	}
	return room
}

// stored says whether field i of pick is read from pages, and no earlier one has
// brought them.
func (d *Dataset) stored(pick []int, i int) bool {
	c := pick[i]
	if c < 0 || c == d.label || d.columns[c].Why != "" {
		return false
	}
	for _, before := range pick[:i] {
		if before == c {
			return false
		}
	}
	return true
}

// Extents is format.Stored's. A column's is the value, if the index has its place;
// else they are the dictionary of its chunk, if the page may need it, and the page, or
// the pages, where a list goes on over their edges: each whole, or the beginning of a
// large one.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(d.x.Len()) {
		return dst
	}
	var room [16]int
	pick := d.wanted(fields, room[:0])
	g := d.group(id)
	row, file := id-d.groupFirst[g], int(d.groupFile[g])
	for i, c := range pick {
		if !d.stored(pick, i) {
			continue
		}
		first, end := d.pages(g, c, row)
		if v, ok := d.placed(first, row); ok {
			if v.n >= 0 {
				dst = append(dst, v.extent(file))
			}
			continue
		}
		if d.dictionary(g, c, first, end) {
			at := g*len(d.columns) + c
			dst = append(dst, stretch(file, d.dictOff[at], d.dictLen[at]))
		}
		for p := first; p < end; p++ {
			dst = append(dst, stretch(file, d.pageOff[p], d.pageLen[p]))
		}
	}
	return dst
}

func (d *Dataset) dictionary(g, c, first, end int) bool {
	for p := first; p < end; p++ {
		if d.numbered(g, c, p) {
			return true
		}
	}
	return false
}

// Parse is format.Stored's. With fields nil, a row's nulls are left out.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(d.x.Len()) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, d.x.Len())
	}
	s.Begin(id)
	var room [16]int
	pick := d.wanted(fields, room[:0])
	r := rowReader{d: d, id: id, raw: raw, g: d.group(id)}
	r.row = id - d.groupFirst[r.g]
	var lost error
	for i := range pick {
		f, err := r.field(fields, pick, i, s)
		switch {
		case err == nil:
			s.Fields = append(s.Fields, f)
		case errs.CodeOf(err) != errs.MissingField:
			return err
		case fields != nil && lost == nil:
			lost = err // what is wrong with the bytes comes first
		}
	}
	if lost == nil && len(r.raw) != r.used {
		return errs.New(errs.Bug, "%d extents were passed in instead of %d", len(r.raw), r.used).At(r.where(-1, -1))
	}
	return lost
}

// rowReader reads the fields of one row.
type rowReader struct {
	d    *Dataset
	id   int64
	g    int
	row  int64 // in its group
	raw  [][]byte
	used int // extents
}

// field is wanted field i.
func (r *rowReader) field(fields []string, pick []int, i int, s *format.Sample) (format.Field, error) {
	d, c := r.d, pick[i]
	switch {
	case c < 0:
		e := errs.New(errs.MissingField, "a row has no column %q", fields[i]).At(r.where(-1, -1))
		e.Where.Field = fields[i]
		return format.Field{}, e.Try("%s", d.advice(fields[i]))
	case d.columns[c].Why != "":
		return format.Field{}, d.refused(c).At(r.where(c, -1))
	case c == d.label:
		v := d.class[r.id : r.id+1]
		return format.Field{
			Name: d.columns[c].Name, Int: v[0], IsInt: true, File: -1,
			Data: unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 8),
		}, nil
	case d.stored(pick, i):
		return r.read(c)
	}
	for j := range s.Fields { // an earlier field is the same column
		if s.Fields[j].Name == d.columns[c].Name {
			return s.Fields[j], nil
		}
	}
	return format.Field{}, r.null(c, 1)
}

// read takes the extents of a column and gives its field.
func (r *rowReader) read(c int) (format.Field, error) {
	d := r.d
	first, end := d.pages(r.g, c, r.row)
	if v, ok := d.placed(first, r.row); ok {
		return r.value(c, v)
	}
	at := r.g*len(d.columns) + c
	var dictRaw []byte
	if d.dictionary(r.g, c, first, end) {
		var err error
		if dictRaw, err = r.next(c, stretch(0, d.dictOff[at], d.dictLen[at])); err != nil {
			return format.Field{}, err
		}
	}
	col := &d.columns[c]
	f := format.Field{Name: col.Name, File: int(d.groupFile[r.g]), Off: d.pageOff[first], Unpacked: true}
	for p := first; p < end; p++ {
		page, err := r.next(c, stretch(0, d.pageOff[p], d.pageLen[p]))
		if err != nil {
			return f, err
		}
		if err := r.part(&f, c, p, first, page, dictRaw); err != nil {
			if errs.CodeOf(err) == errs.MissingField {
				r.used += end - p - 1
			}
			return f, err
		}
	}
	if col.Fixed > 0 && len(f.Data) != col.Fixed*col.DType.Size() {
		return f, d.damaged(errors.New("a list of another length than the column's type says"), r.where(c, d.pageOff[first]))
	}
	return f, nil
}

// value takes the extent of a value whose place the index has.
func (r *rowReader) value(c int, v place) (format.Field, error) {
	f := format.Field{Name: r.d.columns[c].Name, File: int(r.d.groupFile[r.g]), Off: v.off}
	if v.n < 0 {
		return f, r.null(c, 1)
	}
	e := v.extent(f.File)
	raw, err := r.next(c, e)
	if err != nil {
		return f, err
	}
	if n := binary.LittleEndian.Uint32(raw); int64(n) != int64(v.n) {
		return f, r.d.damaged(fmt.Errorf("found a value of %d bytes where the index has one of %d", n, v.n), r.where(c, e.Off))
	}
	f.Data = raw[lengthBytes:]
	return f, nil
}

// next is the next extent, which has to be as long as it was asked for.
func (r *rowReader) next(c int, e format.Extent) ([]byte, error) {
	if r.used >= len(r.raw) || int64(len(r.raw[r.used])) != e.Len {
		return nil, errs.New(errs.Bug, "the bytes passed in do not match the extents").At(r.where(c, e.Off))
	}
	r.used++
	return r.raw[r.used-1], nil
}

// part adds what page p has of the row.
func (r *rowReader) part(f *format.Field, c, p, first int, page, dictRaw []byte) error {
	d := r.d
	col := &d.columns[c]
	var dict pages.Block
	var err error
	numbered := d.numbered(r.g, c, p)
	if numbered {
		if dict, err = d.dict(r.g, c, dictRaw); err != nil {
			return d.damaged(err, r.where(c, d.dictOff[r.g*len(d.columns)+c]))
		}
	}
	b, err := d.block(r.g, c, p, page, dict)
	if err != nil {
		return d.damaged(err, r.where(c, d.pageOff[p]))
	}
	i := int(r.row - d.pageRow[p])
	if !col.List() {
		if b.Null(i) != 0 {
			return r.null(c, 1)
		}
		f.Data = b.Value(i, page, dict)
		if b.Get(pages.BlockForm) == pages.FormViews {
			pos := int64(b.U32(b.Get(pages.BlockData) + 8*i))
			f.Off, f.Unpacked = d.pageOff[p]+pos, false
		}
		return nil
	}
	starts := b.Get(pages.BlockStarts)
	rows := b.Get(pages.BlockRows)
	from, to, at := 0, b.U32(starts), rows // of a later page: what its first row does not begin
	if p == first {
		from, to, at = b.U32(starts+4*i), b.U32(starts+4*i+4), i
	}
	if what := b.Null(at); what != 0 {
		return r.null(c, what)
	}
	if p == first {
		f.Data = b.Items(from, to)
	} else {
		f.Data = append(f.Data[:len(f.Data):len(f.Data)], b.Items(from, to)...)
	}
	return nil
}

// dict is the block of the dictionary of a chunk.
func (d *Dataset) dict(g, c int, raw []byte) (pages.Block, error) {
	at := g*len(d.columns) + c
	return d.blocks.Get(^int64(at), func() ([]byte, error) {
		page, _, done, err := d.whole(g, d.dictOff[at], d.dictLen[at], raw)
		if err != nil {
			return nil, err
		}
		defer done()
		return pages.DecodeDict(&d.columns[c], int(d.chunkCodec[at]), page)
	})
}

// block is the block of page p, which has to have as many rows as the index says.
func (d *Dataset) block(g, c, p int, raw []byte, dict pages.Block) (pages.Block, error) {
	at := g*len(d.columns) + c
	return d.blocks.Get(int64(p), func() ([]byte, error) {
		page, read, done, err := d.whole(g, d.pageOff[p], d.pageLen[p], raw)
		if err != nil {
			return nil, err
		}
		defer done()
		b, err := pages.Decode(&d.columns[c], int(d.chunkCodec[at]), page, dict, !read)
		if err != nil {
			return nil, err
		}
		if int64(b.Get(pages.BlockRows)) != d.rowsOf(g, c, p) {
			return nil, errors.New("it has another number of rows than it had when it was indexed")
		}
		if head := d.columns[c].List() && b.U32(b.Get(pages.BlockStarts)) > 0; head && d.pageFlags[p]&flagMid == 0 {
			return nil, errors.New("it begins within a row, but did not when it was indexed")
		}
		return b, nil
	})
}

// where is the place of a column of the row.
func (r *rowReader) where(c int, off int64) errs.Where {
	w := errs.Where{Shard: string(r.d.x.AppendPath(int(r.d.groupFile[r.g]), nil)), Offset: errs.Known(off), Sample: errs.Known(r.id)}
	if c >= 0 {
		w.Field = r.d.columns[c].Name
	}
	return w
}

func (d *Dataset) damaged(err error, at errs.Where) error {
	if e := new(errs.Error); errors.As(err, &e) { // of the source
		return err
	}
	g := d.group(at.Sample.Or(-1))
	return errs.New(errs.Damaged, "cannot decode column %q of row group %d", at.Field, d.inFile(g)).At(at).Because(err).
		Try("fetch or write the file again")
}

// inFile is the number of a row group within its file.
func (d *Dataset) inFile(g int) int {
	return g - d.firstGroup(g)
}

// firstGroup is the first row group of the file of group g.
func (d *Dataset) firstGroup(g int) int {
	for g > 0 && d.groupFile[g-1] == d.groupFile[g] {
		g--
	}
	return g
}

// null is the error of a row that has no value, or a null in its list.
func (r *rowReader) null(c int, what byte) error {
	name, first, group := r.d.columns[c].Name, r.d.firstGroup(r.g), r.d.inFile(r.g)
	row := r.id - r.d.groupFirst[first]
	e := errs.New(errs.MissingField, "column %q is null in row %d of the file (row group %d)", name, row, group)
	if what == 2 {
		e = errs.New(errs.MissingField, "the list in column %q has a null in it, in row %d of the file (row group %d)", name, row, group)
	}
	if what != 2 && r.d.sidePath(c) != "" {
		return errs.New(errs.MissingField, "column %q has a path and no bytes in row %d of the file (row group %d)", name, row, group).At(r.where(c, -1)).
			Try("load the files that the paths name: %s; or set on_bad to skip such samples", r.d.tableLine(c))
	}
	return e.At(r.where(c, -1)).Try("fill in the nulls of the column when the file is written (an empty list is none), leave the field out, or set on_bad to skip such samples")
}
