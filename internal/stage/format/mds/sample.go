package mds

import (
	"context"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// resolve returns the number of the first alternative of a wanted field that exists, or
// -1 if there is none.
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
	if c := d.resolve(field); c >= 0 {
		return d.cols[c].typ(), true
	}
	return format.Type{}, false
}

// Left are the columns whose encodings are not read.
func (d *Dataset) Left() (all []format.Left) {
	for i := range d.cols {
		if d.cols[i].Kind == refused {
			all = append(all, format.Left{Name: d.cols[i].Name, Reason: "its encoding is not read: " + d.cols[i].Encoding})
		}
	}
	return all
}

// Notes are what a user should know of the columns.
func (d *Dataset) Notes() []string {
	var left []string
	for i := range d.cols {
		if d.cols[i].Kind == refused {
			left = append(left, fmt.Sprintf("%q (%s)", d.cols[i].Name, d.cols[i].Encoding))
		}
	}
	if left == nil {
		return nil
	}
	return []string{"left out of the batches, because their encodings are not read: " + strings.Join(left, ", ") + "; write such columns with another encoding, or name the fields to load: fields=[...]"}
}

// Decode says how a field is decoded if nothing else is asked for, by the encoding that
// index.json gives its column: "none" if it cannot be read, and "" to go by the look of
// its bytes.
func (d *Dataset) Decode(field string) string {
	k := d.resolve(field)
	if k < 0 || d.cols[k].Kind == refused {
		return "none"
	}
	switch d.cols[k].Encoding {
	case "str", "str_int", "str_float", "str_decimal":
		return "text"
	case "json":
		return "json"
	case "jpeg", "png", "pil":
		return "rgb"
	}
	return ""
}

// span is the byte range of sample id in its shard once that is unpacked.
func (d *Dataset) span(id int64) (begin, end int64) {
	at := id + int64(d.shard[id]) - 1
	return d.off[at], d.off[at+1]
}

// Extents is format.Stored's: the sample, or the witness of its compressed shard.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(len(d.shard)) || fields != nil && len(fields) == 0 {
		return dst
	}
	file := int(d.shard[id])
	if s := &d.stored[file]; s.pack != "" {
		return append(dst, format.Extent{File: file, Len: s.head, Whole: s.head == s.obj.Size})
	}
	begin, end := d.span(id)
	return append(dst, format.Extent{File: file, Off: begin, Len: end - begin})
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 where they are known only when it is read.
func (d *Dataset) Size(id int64, field string) int64 {
	k := d.resolve(field)
	if k < 0 || uint64(id) >= uint64(len(d.shard)) {
		return -1
	}
	c := &d.cols[k]
	switch {
	case c.Kind == fixed:
		return c.Size
	case c.Kind == refused, c.Kind == pixels, c.Kind == dynamic && c.Mixed:
		return -1
	}
	size := int64(-1)
	if d.size != nil {
		nth := 0
		for i := range k {
			if d.cols[i].Size == 0 {
				nth++
			}
		}
		size = d.size[id*int64(d.wide)+int64(nth)]
	} else if d.wide == 1 {
		begin, end := d.span(id)
		size = end - begin - 4
		for i := range d.cols {
			size -= d.cols[i].Size
		}
	}
	return size
}

// Parse is format.Stored's. raw is the bytes of what Extents gave.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(len(d.shard)) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, len(d.shard))
	}
	s.ID, s.Fields = id, s.Fields[:0]
	for _, f := range fields {
		if k := d.resolve(f); k < 0 {
			return d.missing(id, f)
		} else if d.cols[k].Kind == refused {
			return d.refusal(&d.cols[k], errs.Where{Shard: d.paths[d.shard[id]], Field: f, Sample: errs.Known(id)})
		}
	}
	if fields != nil && len(fields) == 0 {
		return nil
	}
	data, base, err := d.sample(id, raw)
	if err != nil {
		return err
	}
	var room [33]int64
	at := room[:]
	if len(d.cols) >= len(room) {
		at = make([]int64, len(d.cols)+1)
	}
	if wrong := split(d.cols, data, int64(len(data)), at); wrong != "" {
		return d.damaged(id, "", 0, "the sample is damaged: %s", wrong)
	}
	if fields == nil {
		for k := range d.cols {
			if d.cols[k].Kind == refused {
				continue
			}
			if err := d.add(id, k, data[at[k]:at[k+1]:at[k+1]], base, at[k], s); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range fields {
		k := d.resolve(f)
		if err := d.add(id, k, data[at[k]:at[k+1]:at[k+1]], base, at[k], s); err != nil {
			return err
		}
	}
	return nil
}

// sample returns the bytes of a sample and their offset in the stored file, which is -1
// if they come from an unpacked one.
func (d *Dataset) sample(id int64, raw [][]byte) (data []byte, base int64, err error) {
	file := d.shard[id]
	st := &d.stored[file]
	begin, end := d.span(id)
	want := end - begin
	if st.pack != "" {
		want = st.head
	}
	if len(raw) != 1 || int64(len(raw[0])) != want {
		return nil, 0, errs.New(errs.Bug, "the bytes passed in do not match the extents").
			At(errs.Where{Shard: d.paths[file], Sample: errs.Known(id)})
	}
	if st.pack == "" {
		return raw[0], begin, nil
	}
	if int64(xxhash.Sum64(raw[0])) != st.mark {
		return nil, 0, errs.New(errs.Damaged, "the beginning of the shard is not the one that was indexed").
			At(errs.Where{Shard: d.paths[file], Offset: errs.Known(0), Sample: errs.Known(id)}).
			Try("the shard's size and time have not changed, so its disk or memory is to blame; fetch the shard again")
	}
	shard, err := d.blocks.Get(int64(file), func() ([]byte, error) { return d.unpack.whole(context.Background(), st) })
	if err != nil {
		e := *errs.From(err)
		e.Where.Sample = errs.Known(id)
		return nil, 0, &e
	}
	return shard[begin:end:end], -1, nil
}

// add puts column k, whose bytes are v, at off of the sample, into s.
func (d *Dataset) add(id int64, k int, v []byte, base, off int64, s *format.Sample) error {
	c := &d.cols[k]
	f := format.Field{Name: c.Name, Data: v, File: -1}
	if base >= 0 {
		f.File, f.Off = int(d.shard[id]), base+off
	}
	switch c.Kind {
	case dynamic:
		h, wrong := c.head(v, int64(len(v)))
		if wrong == "" && !c.fits(&h) {
			wrong = "its array is not of the type or shape that was indexed"
		}
		if wrong != "" {
			return d.damaged(id, c.Name, off, "field %q is damaged: %s", c.Name, wrong)
		}
		if f.Data, f.Off = v[h.at:], f.Off+h.at; c.Mixed {
			f = format.Field{Name: c.Name, Data: format.NPY(h.dtype, h.shape[:h.ndim], v[h.at:]), File: -1}
		}
		if f.File < 0 {
			f.Off = 0
		}
	case pixels:
		pnm, err := picture(v)
		if err != nil {
			e := errs.From(d.damaged(id, c.Name, off, "%s", err.What))
			e.Code = err.Code
			if err.Hint != "" {
				e.Hint = err.Hint
			}
			return e
		}
		f = format.Field{Name: c.Name, Data: pnm, File: -1}
	}
	s.Fields = append(s.Fields, f)
	return nil
}

// damaged is an error of sample id, off bytes into it.
func (d *Dataset) damaged(id int64, field string, off int64, text string, a ...any) error {
	at := errs.Where{Shard: d.paths[d.shard[id]], Field: field, Offset: errs.Known(0), Sample: errs.Known(id)}
	if d.stored[d.shard[id]].pack == "" {
		begin, _ := d.span(id)
		at.Offset = errs.Known(begin + off)
	}
	return errs.New(errs.Damaged, text, a...).At(at).Try("fetch the shard again; stoker verify checks all shards against their hashes")
}

func (d *Dataset) missing(id int64, field string) error {
	have := d.x.Meta().Fields
	e := errs.New(errs.MissingField, "a sample has no field %q; it has %s", field, strings.Join(have, ", ")).
		At(errs.Where{Shard: d.paths[d.shard[id]], Field: field, Sample: errs.Known(id)})
	for alt := range strings.SplitSeq(field, ";") {
		if near := errs.Nearest(alt, have); near != "" {
			return e.Try("did you mean %q?", near)
		}
	}
	return e.Try("ask for one of these fields; a;b takes the first that is there")
}

func (d *Dataset) refusal(c *column, at errs.Where) error {
	return errs.New(errs.Unsupported, "cannot read the field %q: its encoding is %s", c.Name, c.Encoding).At(at).Try("%s", c.Why)
}

// Check says whether samples have these fields, before the first one is read.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		at := errs.Where{File: d.paths[0], Field: f}
		if k := d.resolve(f); k < 0 {
			e := errs.From(d.missing(0, f))
			e.Code, e.Where = errs.Config, at
			return e
		} else if d.cols[k].Kind == refused {
			return d.refusal(&d.cols[k], at)
		}
	}
	return nil
}
