package tfrecord

import (
	"encoding/binary"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// wantsAny says whether any alternative of any wanted field can come out of a
// payload.
func (d *Dataset) wantsAny(fields []string) bool {
	if fields == nil {
		return true
	}
	for _, f := range fields {
		for more := true; more; {
			var name string
			name, f, more = d.cut(f)
			if d.known(name) {
				return true
			}
		}
	}
	return false
}

// cut returns the first alternative of a wanted field, and those after it. The name of
// a feature that contains a ; is not a list of alternatives.
func (d *Dataset) cut(wanted string) (name, rest string, more bool) {
	if name, rest, more = strings.Cut(wanted, ";"); more && d.findString(wanted) != nil {
		return wanted, "", false
	}
	return name, rest, more
}

func (d *Dataset) known(name string) bool {
	return name == Data || name == Payload || d.findString(name) != nil
}

func (d *Dataset) findString(name string) *feature {
	lo, hi := 0, len(d.fields)
	for lo < hi {
		if mid := (lo + hi) / 2; d.fields[mid].name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(d.fields) && d.fields[lo].name == name {
		return &d.fields[lo]
	}
	return nil
}

// payload returns the file of sample id's payload and its range in it, unpacked.
func (d *Dataset) payload(id int64) (file int, off, n int64) {
	lo, hi := 0, len(d.first)-1 // first[lo] <= id < first[hi]
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; d.first[mid] <= id {
			lo = mid
		} else {
			hi = mid
		}
	}
	end := d.sizes[lo]
	if id+1 < d.first[lo+1] {
		end = d.start[id+1]
	}
	off = d.start[id] + headLen
	return lo, off, end - footLen - off
}

// extent is the payload of sample id with its check.
func (d *Dataset) extent(id int64) format.Extent {
	file, off, n := d.payload(id)
	if d.compressed.Compressed(file) {
		return d.compressed.Extent(file, off, n+footLen)
	}
	return format.Extent{File: file, Off: off, Len: n + footLen}
}

// Extents is format.Stored's.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(len(d.start)) || !d.wantsAny(fields) {
		return dst
	}
	return append(dst, d.extent(id))
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if that is not known: of bytes, and of numbers whose count differs.
func (d *Dataset) Size(id int64, field string) int64 {
	_, _, n := d.payload(id)
	for more := true; more; {
		var name string
		name, field, more = d.cut(field)
		f := d.findString(name)
		switch {
		case f == nil && (name == Data || name == Payload):
			return n
		case f == nil:
			continue
		case f.kind == intKind && d.fixed(f):
			return f.most * 8
		case f.kind == floatKind && d.fixed(f):
			return f.most * 4
		}
		return -1
	}
	return -1
}

// record is a sample that is being parsed.
type record struct {
	d     *Dataset
	id    int64
	file  int
	base  int64 // of the payload in its file, or of the compressed bytes it came out of
	p     []byte
	apart bool // p is unpacked
}

// take holds a payload against its check.
func (d *Dataset) take(id int64, raw [][]byte) (record, error) {
	file, off, n := d.payload(id)
	r := record{d: d, id: id, file: file, base: off, apart: d.compressed.Compressed(file)}
	e := d.extent(id)
	if len(raw) != 1 || int64(len(raw[0])) != e.Len {
		return r, errs.New(errs.Bug, "the bytes passed in do not match the extents").At(r.where(""))
	}
	p := raw[0]
	if r.apart {
		var err error
		r.base = e.Off
		if p, err = d.compressed.Unpack(file, off, n+footLen, p); err != nil {
			return r, sampled(err, id)
		}
	}
	if want := binary.LittleEndian.Uint32(p[n:]); masked(p[:n]) != want {
		return r, errs.New(errs.Damaged, "the payload of a record does not match the CRC after it").At(r.where("")).
			Try("fetch or write the file again, or leave the sample out (on_bad)")
	}
	r.p = p[:n]
	return r, nil
}

func sampled(err error, id int64) error {
	e := *errs.From(err)
	e.Where.Sample = errs.Known(id)
	return &e
}

func (r *record) where(field string) errs.Where {
	return errs.Where{Shard: string(r.d.x.AppendPath(r.file, nil)), Field: field, Offset: errs.Known(r.base), Sample: errs.Known(r.id)}
}

// found is a wanted field in a payload.
type found struct {
	name    []byte
	message []byte
	rank    int // number of the alternative; -1: none is there
	whole   bool
}

// maxRoom is the wanted fields that cost no heap.
const maxRoom = 16

// Parse is format.Stored's.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(len(d.start)) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, len(d.start))
	}
	s.Begin(id)
	if !d.wantsAny(fields) {
		if len(fields) > 0 {
			return d.missing(&record{d: d, id: id, base: -1}, fields[0])
		}
		return nil
	}
	r, err := d.take(id, raw)
	if err != nil {
		return err
	}
	if fields == nil {
		return r.everything(s)
	}
	var room [maxRoom]found
	list := room[:0]
	for i := range fields {
		list = append(list, found{rank: d.rank(fields[i])})
	}
	if err := r.search(fields, list); err != nil {
		return err
	}
	for i := range list {
		if err := r.field(fields[i], &list[i], s); err != nil {
			return err
		}
	}
	return nil
}

// rank returns the number of the first alternative that every sample has, which is the
// payload, or -1 if there is none.
func (d *Dataset) rank(field string) int {
	for i := 0; field != ""; i++ {
		var name string
		name, field, _ = d.cut(field)
		if name == Payload || name == Data && d.findString(Data) == nil {
			return i
		}
	}
	return -1
}

// features says whether any alternative of a field, up to that number, is a
// feature that there is; -1: any at all.
func (d *Dataset) features(field string, rank int) bool {
	for i, more := 0, true; more && i != rank; i++ {
		var name string
		if name, field, more = d.cut(field); d.findString(name) != nil {
			return true
		}
	}
	return false
}

// search goes through the features and keeps for every wanted field the first
// alternative that is there.
func (r *record) search(fields []string, list []found) error {
	looked := false
	for i := range list {
		list[i].whole = list[i].rank >= 0
		looked = looked || r.d.features(fields[i], list[i].rank)
	}
	if !looked {
		return nil
	}
	for w := (walk{example: r.p}); ; {
		name, message, more, err := w.next()
		if err != nil {
			return r.bad("", err)
		}
		if !more {
			return nil
		}
		for i := range list {
			if k := r.d.alternative(fields[i], name); k >= 0 && (list[i].rank < 0 || k <= list[i].rank) {
				list[i] = found{name: name, message: message, rank: k} // of two that are called the same the last counts
			}
		}
	}
}

// alternative returns the number of name among the alternatives of a field, or -1 if it
// is not one of them.
func (d *Dataset) alternative(field string, name []byte) int {
	for i, more := 0, true; more; i++ {
		var alt string
		if alt, field, more = d.cut(field); alt == view(name) {
			return i
		}
	}
	return -1
}

func (r *record) bad(field string, err error) error {
	return errs.New(errs.Damaged, "the payload of a record is not a tf.train.Example, but the first one is").At(r.where(field)).Because(err).
		Try("take the field %q, which is the whole payload, or write the file again", r.d.whole())
}

// everything is all features of a sample but those that are refused, and its
// payload.
func (r *record) everything(s *format.Sample) error {
	var room [1]found
	field := [1]string{}
	for i := range r.d.fields {
		f := &r.d.fields[i]
		field[0], room[0] = f.name, found{rank: -1}
		if err := r.search(field[:], room[:]); err != nil {
			return err
		}
		switch f.kind {
		case noKind, mixed:
			continue
		case bytesKind:
			values, k, err := list(room[0].message)
			if err != nil {
				return r.bad(f.name, err)
			}
			if n, err := count(values, k); err != nil {
				return r.bad(f.name, err)
			} else if n != 1 {
				continue
			}
		}
		if err := r.field(f.name, &room[0], s); err != nil {
			return err
		}
	}
	return r.field(r.d.whole(), &found{whole: true, rank: 0}, s)
}
