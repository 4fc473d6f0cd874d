package beton

import (
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// maxGap is the most bytes between two wanted values that are read along rather
// than stepped over: about what a disk reads while it seeks.
const maxGap = 64 << 10

// resolve is the number of the first alternative of a wanted field that exists;
// -1: no alternative does.
func (d *Dataset) resolve(field string) int {
	return format.First(field, func(name string) int {
		for i := range d.cols {
			if d.cols[i].Name == name {
				return i
			}
		}
		return -1
	})
}

// Type is format.Typed's.
func (d *Dataset) Type(field string) (format.Type, bool) {
	k := d.resolve(field)
	if k < 0 {
		return format.Type{}, false
	}
	c := &d.cols[k]
	if c.Kind == blob || c.Kind == text || c.Kind == image && (!c.Fixed || d.asPNM) || c.Why != "" {
		return format.Type{DType: mem.Object}, true
	}
	return format.Type{DType: c.DType, Shape: mem.Shape(c.Shape)}, true
}

// locate is where column k of sample id is stored; false: it is a number.
func (d *Dataset) locate(id int64, k int) (off, size int64, ok bool) {
	c := &d.cols[k]
	if c.number() {
		return 0, 0, false
	}
	i := id*int64(d.places) + int64(c.Place)
	return d.off[i], d.size[i], true
}

// wants says whether column k is one of the wanted fields.
func (d *Dataset) wants(fields []string, k int) bool {
	if fields == nil {
		return d.cols[k].Why == ""
	}
	for _, f := range fields {
		if d.resolve(f) == k {
			return true
		}
	}
	return false
}

// run is an extent that grows by the values of a sample, one after the other.
type run struct{ off, end int64 }

// takes says whether a value is near enough after the run to be read with it.
func (r run) takes(off int64) bool { return off >= r.end && off-r.end <= maxGap }

// Extents is format.Stored's.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(d.n) {
		return dst
	}
	have := len(dst)
	for k := range d.cols {
		off, size, ok := d.locate(id, k)
		if !ok || size == 0 || !d.wants(fields, k) {
			continue
		}
		if n := len(dst); n > have && (run{dst[n-1].Off, dst[n-1].Off + dst[n-1].Len}).takes(off) {
			dst[n-1].Len = off + size - dst[n-1].Off
			continue
		}
		dst = append(dst, format.Extent{Off: off, Len: size})
	}
	return dst
}

// picture is the mode and size of picture k of a sample.
func (d *Dataset) picture(id int64, k int) (mode, w, h int) {
	v := d.head[id*int64(d.heads)+int64(d.cols[k].Head)]
	return int(v & 0xff), int(v >> 8 & 0xffff), int(v >> 24 & 0xffff)
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if the sample has no such field.
func (d *Dataset) Size(id int64, field string) int64 {
	k := d.resolve(field)
	if k < 0 || uint64(id) >= uint64(d.n) || d.cols[k].Why != "" {
		return -1
	}
	c := &d.cols[k]
	_, size, ok := d.locate(id, k)
	switch {
	case !ok:
		return 8
	case c.Kind == text:
		return max(size-1, 0)
	case c.Kind == image && (!c.Fixed || d.asPNM):
		if mode, w, h := d.picture(id, k); mode == modeRaw {
			return size + int64(len("P6\n \n255\n")+len(strconv.Itoa(w))+len(strconv.Itoa(h)))
		}
	}
	return size
}

// Parse is format.Stored's. raw is the bytes of what Extents gave, in its order.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(d.n) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, d.n)
	}
	s.ID, s.Fields = id, s.Fields[:0]
	for _, f := range fields {
		if k := d.resolve(f); k < 0 {
			return d.missing(id, f)
		} else if d.cols[k].Why != "" {
			return d.refusal(k, errs.Where{Shard: d.path, Field: f, Sample: errs.Known(id)})
		}
		s.Fields = append(s.Fields, format.Field{})
	}
	at, last := -1, run{}
	for k := range d.cols {
		if !d.wants(fields, k) {
			continue
		}
		var data []byte
		off, size, ok := d.locate(id, k)
		if ok && size > 0 {
			if at < 0 || !last.takes(off) {
				at, last = at+1, run{off: off}
			}
			last.end = off + size
			if at >= len(raw) || int64(len(raw[at])) < last.end-last.off {
				return errs.New(errs.Bug, "the bytes passed in do not match the extents").At(errs.Where{Shard: d.path, Offset: errs.Known(off), Sample: errs.Known(id)})
			}
			data = raw[at][off-last.off : last.end-last.off : last.end-last.off]
		}
		f, err := d.field(id, k, data)
		if err != nil {
			return err
		}
		if fields == nil {
			s.Fields = append(s.Fields, f)
			continue
		}
		for i := range fields {
			if d.resolve(fields[i]) == k {
				s.Fields[i] = f
			}
		}
	}
	return nil
}

// field is column k of a sample, which is stored in data unless it is a number.
func (d *Dataset) field(id int64, k int, data []byte) (format.Field, error) {
	c := &d.cols[k]
	if c.number() {
		i := 8 * (id*int64(d.values) + int64(c.Value))
		return format.Field{Name: c.Name, Data: d.value[i : i+8 : i+8], File: -1}, nil
	}
	off, _, _ := d.locate(id, k)
	f := format.Field{Name: c.Name, Data: data, Off: off}
	if data == nil {
		f.Data = []byte{}
	}
	switch c.Kind {
	case text:
		if n := len(data) - 1; n < 0 || data[n] != 0 {
			return f, errs.New(errs.Damaged, "the JSON of field %q does not end in its zero byte", c.Name).
				At(errs.Where{Shard: d.path, Field: c.Name, Offset: errs.Known(off), Sample: errs.Known(id)}).Try("copy the file again, or write it again")
		} else {
			f.Data = data[:n:n]
		}
	case image:
		if mode, w, h := d.picture(id, k); mode == modeRaw && (!c.Fixed || d.asPNM) {
			return format.Field{Name: c.Name, Data: format.PNM(w, h, 3, data), File: -1}, nil
		}
	}
	return f, nil
}

func (d *Dataset) missing(id int64, field string) error {
	have := d.x.Meta().Fields
	e := errs.New(errs.MissingField, "a sample has no field %q; it has %s", field, strings.Join(have, ", ")).
		At(errs.Where{Shard: d.path, Field: field, Sample: errs.Known(id)})
	for alt := range strings.SplitSeq(field, ";") {
		if near := errs.Nearest(alt, have); near != "" {
			return e.Try("did you mean %q?", near)
		}
	}
	return e.Try("ask for one of these fields; a;b takes the first that is there")
}

func (d *Dataset) refusal(k int, at errs.Where) error {
	c := &d.cols[k]
	return errs.New(errs.Unsupported, "cannot read the field %q: %s", c.Name, c.Why).At(at).
		Try("write it as a little-endian array of numbers, or as a BytesField")
}

// Check says whether samples have these fields, before the first one is read.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		at := errs.Where{File: d.path, Field: f}
		if k := d.resolve(f); k < 0 {
			e := errs.From(d.missing(0, f))
			e.Code, e.Where = errs.Config, at
			return e
		} else if d.cols[k].Why != "" {
			return d.refusal(k, at)
		}
	}
	return nil
}
