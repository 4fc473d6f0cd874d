package hdf5

import (
	"errors"
	"slices"
	"strings"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
)

// resolve is the number of the first alternative of a wanted field that exists,
// or -1.
func (d *Dataset) resolve(field string) int {
	return format.First(field, func(name string) int {
		for i := range d.fields {
			if d.fields[i].Name == name {
				return i
			}
		}
		return -1
	})
}

func (d *Dataset) wants(fields []string, i int) bool {
	if fields == nil {
		return true
	}
	for _, f := range fields {
		if d.resolve(f) == i {
			return true
		}
	}
	return false
}

// Extents is format.Stored's: of every wanted field in the order of the dataset, a
// row that is stored in the file unchanged, the part of each chunk that is the row's,
// or each compressed chunk that the row goes through.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(d.x.Len()) {
		return dst
	}
	no, row := d.locate(id)
	for i := range d.fields {
		if d.wants(fields, i) {
			dst = d.extents(no, i, row, dst)
		}
	}
	return dst
}

func (d *Dataset) extents(no, i int, row int64, dst []format.Extent) []format.Extent {
	l := &d.files[no].Layouts[i]
	switch {
	case d.fields[i].Class == tree.VLen || d.fields[i].Class == tree.VLenText:
		if at := l.First + row; d.valueSize[at] > 0 {
			dst = append(dst, format.Extent{File: no, Off: d.valueOff[at], Len: d.valueSize[at]})
		}
	case l.Chunk == nil:
		if l.Off >= 0 {
			n := l.row()
			dst = append(dst, format.Extent{File: no, Off: l.Off + row*n, Len: n})
		}
	default:
		across := l.across()
		for c := row / l.Chunk[0] * across; across > 0; c, across = c+1, across-1 {
			if off, n := d.chunk(l, c, row); off >= 0 {
				dst = append(dst, format.Extent{File: no, Off: off, Len: n})
			}
		}
	}
	return dst
}

// chunk is what has to be read of chunk c for a row; off is -1 where it was never
// written.
func (d *Dataset) chunk(l *layout, c, row int64) (off, n int64) {
	at := l.First + c
	off, n = d.chunkOff[at], d.chunkSize[at]
	if off >= 0 && !l.compressed(d.chunkMask[at]) {
		n = l.part()
		off += row % l.Chunk[0] * n
	}
	return off, n
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if the sample has no such field, or it is not known.
func (d *Dataset) Size(id int64, name string) int64 {
	i := d.resolve(name)
	if i < 0 {
		return -1
	}
	no, row := d.locate(id)
	l := &d.files[no].Layouts[i]
	switch d.fields[i].Class {
	case tree.Number, tree.Opaque:
		return l.row()
	case tree.VLen, tree.VLenText:
		return d.valueSize[l.First+row]
	}
	return -1
}

// Parse is format.Stored's.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(d.x.Len()) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, d.x.Len())
	}
	s.Begin(id)
	n := len(fields)
	if fields == nil {
		n = len(d.fields)
	}
	for k := range n {
		i := k
		if fields != nil {
			if i = d.resolve(fields[k]); i < 0 {
				return d.missing(id, fields[k])
			}
		}
		s.Fields = append(s.Fields, format.Field{Name: d.fields[i].Name, File: -1})
	}
	no, row := d.locate(id)
	for i := range d.fields {
		if !d.wants(fields, i) {
			continue
		}
		f, rest, err := d.field(id, no, i, row, raw, s)
		if err != nil {
			return err
		}
		raw = rest
		for k := range s.Fields {
			if s.Fields[k].Name == f.Name {
				s.Fields[k] = f
			}
		}
	}
	return nil
}

// field makes one field of the first of raw, and returns the rest.
func (d *Dataset) field(id int64, no, i int, row int64, raw [][]byte, s *format.Sample) (format.Field, [][]byte, error) {
	l := &d.files[no].Layouts[i]
	class := d.fields[i].Class
	f := format.Field{Name: d.fields[i].Name, File: no, Member: view(l.Path)}
	take := func(n int64) ([]byte, bool) {
		if len(raw) == 0 || int64(len(raw[0])) != n {
			return nil, false
		}
		p := raw[0]
		raw = raw[1:]
		return p[:n:n], true
	}
	ok := true
	var err error
	switch {
	case class == tree.VLen || class == tree.VLenText:
		if at := l.First + row; d.valueSize[at] > 0 {
			f.Off = d.valueOff[at]
			f.Data, ok = take(d.valueSize[at])
		} else {
			f.Data, f.Unpacked = s.Room(0), true
		}
	case l.Chunk == nil && l.Off >= 0:
		n := l.row()
		f.Off = l.Off + row*n
		f.Data, ok = take(n)
	case l.Chunk == nil:
		f.Data, f.Unpacked = s.Room(int(l.row())), true
		l.fill(f.Data)
	default:
		ok, err = d.gather(l, row, &f, take, s)
	}
	if !ok {
		return f, raw, errs.New(errs.Bug, "the bytes passed in do not match the extents").At(d.where(id, no, l, &f))
	}
	if err != nil {
		return f, raw, broken(err, d.where(id, no, l, &f))
	}
	if l.Swapped && len(f.Data) > 0 {
		p := s.Room(len(f.Data))
		format.Swap(p, f.Data, int(l.Unit))
		f.Data, f.Unpacked = p, true
	}
	if class == tree.Text {
		f.Data = tree.Trim(f.Data, l.Pad)
	}
	return f, raw, nil
}

// gather assembles a row from the chunks that it goes through.
func (d *Dataset) gather(l *layout, row int64, f *format.Field, take func(int64) ([]byte, bool), s *format.Sample) (ok bool, err error) {
	across := l.across()
	c := row / l.Chunk[0] * across
	if across == 1 && l.even() {
		f.Data, f.Off, ok, err = d.part(l, c, row, take)
		if f.Unpacked = f.Off < 0 || l.compressed(d.chunkMask[l.First+c]); f.Off < 0 {
			f.Data, f.Off = s.Room(int(l.row())), 0
			l.fill(f.Data)
		}
		return ok, err
	}
	f.Data, f.Unpacked, f.Off = s.Room(int(l.row())), true, max(d.chunkOff[l.First+c], 0)
	var at [32]int64 // where chunk c begins in the row, in chunks
	for range across {
		part, off, ok, err := d.part(l, c, row, take)
		switch {
		case !ok || err != nil:
			f.Off = off
			return ok, err
		case off >= 0:
			l.scatter(f.Data, part, &at)
		default:
			l.scatter(f.Data, nil, &at)
		}
		for i := len(l.Dims) - 1; i > 0; i-- {
			if at[i]++; at[i] < l.grid(i) {
				break
			}
			at[i] = 0
		}
		c++
	}
	return true, nil
}

// part is a row of chunk c, and where it, or the compressed chunk, is stored; -1:
// nowhere.
func (d *Dataset) part(l *layout, c, row int64, take func(int64) ([]byte, bool)) (p []byte, off int64, ok bool, err error) {
	off, n := d.chunk(l, c, row)
	if off < 0 {
		return nil, off, true, nil
	}
	if p, ok = take(n); !ok {
		return nil, off, false, nil
	}
	at := l.First + c
	if !l.compressed(d.chunkMask[at]) {
		return p, off, true, nil
	}
	block, err := d.blocks.Get(at, func() ([]byte, error) {
		return d.packing.unpack(l.Filters, d.chunkMask[at], p, l.unpacked())
	})
	if err != nil {
		return nil, off, true, err
	}
	size := l.part()
	from := row % l.Chunk[0] * size
	return block[from : from+size : from+size], off, true, nil
}

// fill fills p with elements that were never written.
func (l *layout) fill(p []byte) {
	if len(l.Fill) == 0 {
		clear(p)
		return
	}
	for n := copy(p, l.Fill); n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

// scatter copies a row of a chunk to where it belongs in the row of the dataset,
// as far as it does not reach over the edge; part nil: the fill value. at is the
// place of the chunk, counted in chunks.
func (l *layout) scatter(row, part []byte, at *[32]int64) {
	last := len(l.Dims) - 1
	var have [32]int64 // elements of the chunk along each dimension that count
	lines := int64(1)
	for i := 1; i <= last; i++ {
		have[i] = min(l.Chunk[i], l.Dims[i]-at[i]*l.Chunk[i])
		if i < last {
			lines *= have[i]
		}
	}
	run := have[last] * l.Elem
	var pos [32]int64 // of the line within the chunk
	for range lines {
		to, from := int64(0), int64(0)
		for i := 1; i <= last; i++ {
			to = to*l.Dims[i] + at[i]*l.Chunk[i] + pos[i]
			from = from*l.Chunk[i] + pos[i]
		}
		to, from = to*l.Elem, from*l.Elem
		if part == nil {
			l.fill(row[to : to+run])
		} else {
			copy(row[to:to+run], part[from:from+run])
		}
		for i := last - 1; i > 0; i-- {
			if pos[i]++; pos[i] < have[i] {
				break
			}
			pos[i] = 0
		}
	}
}

// view returns the bytes of a text; they must not be written to.
func view(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func (d *Dataset) where(id int64, no int, l *layout, f *format.Field) errs.Where {
	return errs.Where{Shard: string(d.x.AppendPath(no, nil)), Member: l.Path, Field: f.Name, Offset: errs.Known(f.Off), Sample: errs.Known(id)}
}

func (d *Dataset) names() []string {
	var out []string
	for i := range d.fields {
		out = append(out, d.fields[i].Name)
	}
	return out
}

func (d *Dataset) missing(id int64, field string) error {
	no, _ := d.locate(id)
	have := d.names()
	for _, l := range d.left.Shown {
		if format.First(field, func(name string) int {
			if name == l.Name {
				return 0
			}
			return -1
		}) < 0 {
			continue
		}
		code := errs.MissingField
		if l.Damaged {
			code = errs.Damaged
		}
		return errs.New(code, "a sample has no field %q: the dataset was left out", l.Name).
			At(errs.Where{Shard: string(d.x.AppendPath(no, nil)), Member: l.Name, Field: field, Sample: errs.Known(id)}).Because(errors.New(l.Why)).
			Try("ask for one of these fields: %s", brief(have))
	}
	e := errs.New(errs.MissingField, "a sample has no field %q; it has %s", field, brief(have)).
		At(errs.Where{Shard: string(d.x.AppendPath(no, nil)), Field: field, Sample: errs.Known(id)})
	for alt := range strings.SplitSeq(field, ";") {
		if near := errs.Nearest(alt, have); near != "" {
			return e.Try("did you mean %q?", near)
		}
	}
	return e.Try("ask for one of these fields, or open the file with other columns; a;b takes the first that is there")
}

// Check says, before the first sample is read, whether samples have these
// fields.
func (d *Dataset) Check(fields []string) error {
	if i := slices.IndexFunc(fields, func(f string) bool { return d.resolve(f) < 0 }); i >= 0 {
		e := errs.From(d.missing(0, fields[i]))
		if e.Code == errs.Damaged {
			e.Where.Sample = errs.Number{}
			return e
		}
		e.Code, e.Where = errs.Config, errs.Where{Shard: e.Where.Shard, Field: fields[i]}
		return e
	}
	return nil
}
