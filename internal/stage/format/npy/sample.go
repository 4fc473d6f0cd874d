package npy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// pick is one wanted field.
type pick struct {
	field int // -1: there is none of that name
	raw   int // number of its extent; a field that is wanted twice has one
}

// choose settles the wanted fields, into room.
func (d *Dataset) choose(fields []string, room []pick) []pick {
	if fields == nil {
		for f := range d.fields {
			room = append(room, pick{f, f})
		}
		return room
	}
	extents := 0
	for _, name := range fields {
		p := pick{d.resolve(name), -1}
		for _, before := range room {
			if p.field >= 0 && before.field == p.field {
				p.raw = before.raw
				break
			}
		}
		if p.field >= 0 && p.raw < 0 {
			p.raw = extents
			extents++
		}
		room = append(room, p)
	}
	return room
}

// Extents is format.Stored's.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(d.x.Len()) {
		return dst
	}
	var room [16]pick
	have := 0
	for _, p := range d.choose(fields, room[:0]) {
		if p.field < 0 || p.raw < have {
			continue
		}
		have++
		_, e := d.extent(&d.fields[p.field], id)
		dst = append(dst, e)
	}
	return dst
}

// Parse is format.Stored's.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(d.x.Len()) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, d.x.Len())
	}
	s.Begin(id)
	var room [16]pick
	for i, p := range d.choose(fields, room[:0]) {
		if p.field < 0 {
			return d.missing(id, fields[i])
		}
		f := &d.fields[p.field]
		part, e := d.extent(f, id)
		if p.raw >= len(raw) || int64(len(raw[p.raw])) != e.Len {
			return errs.New(errs.Bug, "the bytes passed in do not match the extents").At(d.where(f, part, e.Off, id))
		}
		out := format.Field{Name: f.name, Data: raw[p.raw], File: e.File, Member: d.memberName(part), Off: e.Off}
		if d.compressed[part] >= 0 {
			data, err := d.unpacked(f, part, raw[p.raw], id)
			if err != nil {
				return err
			}
			at := d.off[part] + (id-d.start[part])*f.row
			out.Data, out.Unpacked = data[at:at+f.row:at+f.row], true
		}
		if d.swap[part] == 1 {
			room := s.Room(len(out.Data))
			format.Swap(room, out.Data, f.dtype.Size())
			out.Data, out.Unpacked = room, true
		}
		s.Fields = append(s.Fields, out)
	}
	return nil
}

// memberName is the member of a .npz; nil: the array is a file.
func (d *Dataset) memberName(part int) []byte {
	if name := d.member.At(part); len(name) > 0 {
		return name
	}
	return nil
}

// unpacked is all of a compressed member; head is its header as it was read now.
func (d *Dataset) unpacked(f *field, part int, head []byte, id int64) ([]byte, error) {
	if binary.LittleEndian.Uint32(head) != localMagic || binary.LittleEndian.Uint16(head[8:]) != deflated {
		return nil, errs.New(errs.Damaged, "the header of a member is not the one that was indexed").At(d.where(f, part, d.head[part], id)).
			Try("the file's size and time have not changed, so its disk or memory is to blame; fetch the file again")
	}
	return d.blocks.Get(int64(part), func() ([]byte, error) { return d.unpack(f, part, id) })
}

// unpack reads and unpacks a compressed member.
func (d *Dataset) unpack(f *field, part int, id int64) ([]byte, error) {
	size, version := d.x.Stamp(int(d.file[part]))
	obj := source.Info{Name: string(d.x.AppendPath(int(d.file[part]), nil)), Size: size, Version: version}
	in := &stretch{ctx: context.Background(), src: d.src, obj: obj, off: d.body[part], n: d.compressed[part]}
	data, err := whole(in, d.size[part], uint32(d.crc[part]))
	var known *errs.Error
	if err != nil && !errors.As(err, &known) {
		return nil, errs.New(errs.Damaged, "cannot decompress an array").At(d.where(f, part, d.head[part], id)).Because(err).Try("fetch or write the file again")
	}
	return data, err
}

func (d *Dataset) where(f *field, part int, off, id int64) errs.Where {
	return errs.Where{
		Shard: string(d.x.AppendPath(int(d.file[part]), nil)), Member: string(d.member.At(part)), Field: f.name, Offset: errs.Known(off), Sample: errs.Known(id),
	}
}

func (d *Dataset) names() []string {
	out := make([]string, len(d.fields))
	for i, f := range d.fields {
		out[i] = f.name
	}
	return out
}

func (d *Dataset) missing(id int64, field string) error {
	have := d.names()
	e := errs.New(errs.MissingField, "the dataset has no field %q; it has %s", field, strings.Join(have, ", ")).
		At(errs.Where{Shard: string(d.x.AppendPath(int(d.file[0]), nil)), Field: field, Sample: errs.Known(id)})
	for alt := range strings.SplitSeq(field, ";") {
		if near := errs.Nearest(alt, have); near != "" {
			return e.Try("did you mean %q?", near)
		}
	}
	return e.Try("ask for one of these fields, which are named after files or arrays")
}

// Check says whether there are these fields, before the first sample is read.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		if d.resolve(f) < 0 {
			if why := d.leftOut(f); why != "" {
				return errs.New(errs.Unsupported, "cannot read the array %q: %s", f, why).
					At(errs.Where{Shard: string(d.x.AppendPath(int(d.file[0]), nil)), Field: f}).
					Try("leave it out, or save it as an array of numbers with a row for every sample")
			}
			e := errs.From(d.missing(-1, f))
			e.Code = errs.Config
			return e
		}
	}
	return nil
}

// leftOut says why an array is not a field; "" means that there is no such array.
func (d *Dataset) leftOut(name string) string {
	names, whys := d.x.Strings(leftName), d.x.Strings(leftWhy)
	for i := range min(names.Len(), whys.Len()) {
		if string(names.At(i)) == name {
			return string(whys.At(i))
		}
	}
	return ""
}

// Left returns the arrays that cannot be read.
func (d *Dataset) Left() (all []format.Left) {
	names, whys := d.x.Strings(leftName), d.x.Strings(leftWhy)
	for i := range min(names.Len(), whys.Len()) {
		all = append(all, format.Left{Name: string(names.At(i)), Reason: string(whys.At(i))})
	}
	return all
}

// Notes are what a user should know of the arrays.
func (d *Dataset) Notes() []string {
	var left []string
	names, whys := d.x.Strings(leftName), d.x.Strings(leftWhy)
	for i := range min(names.Len(), whys.Len()) {
		left = append(left, fmt.Sprintf("%q (%s)", names.At(i), whys.At(i)))
	}
	if left == nil {
		return nil
	}
	return []string{"arrays that cannot be read are left out: " + strings.Join(left, ", ")}
}
