package lmdb

import (
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// resolve is the first alternative of a wanted field that samples have, or "".
func (d *Dataset) resolve(field string) string {
	for more := true; more; {
		var alt string
		alt, field, more = strings.Cut(field, ";")
		switch {
		case alt == Key:
			return Key
		case alt == Value && d.kind == rawBytes:
			return Value
		case alt == Image && d.kind != rawBytes:
			return Image
		case alt == Label && d.kind != rawBytes:
			return Label
		}
	}
	return ""
}

func (d *Dataset) wants(fields []string) bool {
	if fields == nil {
		return true
	}
	for _, f := range fields {
		if name := d.resolve(f); name != "" && name != Key {
			return true
		}
	}
	return false
}

// before is the bytes in front of a value that say what it is: the head of its page
// if it has its own pages, otherwise the node with the key.
func (d *Dataset) before(id int64) int64 {
	file := d.file[id]
	switch {
	case d.off[id]%d.page[file] == headLen: // no node begins that early in a page
		return headLen
	case d.keyLen[file] != 0:
		return nodeLen + d.keyLen[file]
	}
	return nodeLen + int64(len(d.keys.At(int(id))))
}

// Extents is format.Stored's.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(len(d.off)) || !d.wants(fields) {
		return dst
	}
	n := d.before(id)
	return append(dst, format.Extent{File: int(d.file[id]), Off: d.off[id] - n, Len: n + d.size[id]})
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if the sample has no such field, has a number there, or it is not known.
func (d *Dataset) Size(id int64, field string) int64 {
	switch d.resolve(field) {
	case Key:
		return int64(len(d.keys.At(int(id))))
	case Value:
		return d.size[id]
	case Image:
		switch d.kind {
		case datumBytes:
			return int64(d.shape.Elems())
		case datumFloats:
			return 4 * int64(d.shape.Elems())
		}
	}
	return -1
}

// Parse is format.Stored's.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(len(d.off)) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, len(d.off))
	}
	s.Begin(id)
	var dm datum
	var value []byte
	if d.wants(fields) {
		n := d.before(id)
		if len(raw) != 1 || int64(len(raw[0])) != n+d.size[id] {
			return errs.New(errs.Bug, "the bytes passed in do not match the extents").At(d.where(id, ""))
		}
		if !d.sound(id, raw[0][:n]) {
			return errs.New(errs.Damaged, "the bytes before a value are not those that were indexed").At(d.where(id, "")).
				Try("the file's size and time have not changed, so its disk or memory is to blame; copy the environment again")
		}
		value = raw[0][n:]
		if d.kind != rawBytes {
			var err error
			if dm, err = d.datum(id, value); err != nil {
				return err
			}
		}
	}
	for i := range max(len(fields), d.all(fields)) {
		name := ""
		if fields == nil {
			name = d.kind.fieldAt(i)
		} else {
			name = d.resolve(fields[i])
		}
		f := format.Field{Name: name, File: -1}
		switch name {
		case Key:
			f.Data = d.keys.At(int(id))
		case Value:
			f.Data, f.File, f.Off, f.Member = value, int(d.file[id]), d.off[id], d.keys.At(int(id))
		case Label:
			f.Int, f.IsInt = dm.label, true
		case Image:
			f.Data, f.File, f.Off, f.Member = dm.data, int(d.file[id]), d.off[id]+int64(dm.dataAt), d.keys.At(int(id))
			if d.kind == datumFloats {
				f.Data, f.Off, f.Unpacked = dm.floats, d.off[id], true
			}
		default:
			return d.missing(id, fields[i])
		}
		s.Fields = append(s.Fields, f)
	}
	return nil
}

// all is how many fields there are when everything is wanted.
func (d *Dataset) all(fields []string) int {
	switch {
	case fields != nil:
		return 0
	case d.kind == rawBytes:
		return 2
	}
	return 3
}

// fieldAt is fields()[i], without a heap allocation.
func (k valueKind) fieldAt(i int) string {
	if k == rawBytes {
		return [...]string{Value, Key}[i]
	}
	return [...]string{Image, Label, Key}[i]
}

// sound checks the bytes stored before a value against the index.
func (d *Dataset) sound(id int64, b []byte) bool {
	page := d.page[d.file[id]]
	if d.off[id]%page == headLen {
		return le.Uint64(b) == uint64(d.off[id]/page) && le.Uint16(b[10:])&kindMask == isOverflow &&
			int64(le.Uint32(b[12:])) >= overflows(d.size[id], page)
	}
	if int64(le.Uint32(b)) != d.size[id] || le.Uint16(b[4:]) != 0 || int(le.Uint16(b[6:])) != len(b)-nodeLen {
		return false
	}
	key := b[nodeLen:]
	var room [20]byte
	if d.keyLen[d.file[id]] != 0 {
		key = strconv.AppendUint(room[:0], integer(key), 10)
	}
	return string(key) == string(d.keys.At(int(id)))
}

// datum parses the value of a sample as what the index says that all of them are.
func (d *Dataset) datum(id int64, value []byte) (datum, error) {
	dm, err := parseDatum(value)
	if err != nil {
		return dm, errs.New(errs.Damaged, "the value is not a Datum, but the first one is").At(d.where(id, Image)).Because(err).
			Try("open the environment with values=%q to see what it is", Raw)
	}
	if k := dm.kind(); k != d.kind || k != datumEncoded && !slices.Equal(d.shape, []int{int(dm.shape[0]), int(dm.shape[1]), int(dm.shape[2])}) {
		return dm, errs.New(errs.Unsupported, "this Datum is an array of %v (encoded: %v), and the first one of %v (encoded: %v)", dm.shape, dm.encoded, d.shape, d.kind == datumEncoded).
			At(d.where(id, Image)).Try("write the environment with encoded images, whose sizes may differ, or with arrays of one shape")
	}
	return dm, nil
}

func (d *Dataset) where(id int64, field string) errs.Where {
	return errs.Where{
		Shard: string(d.x.AppendPath(int(d.file[id]), nil)), Member: string(d.keys.At(int(id))), Field: field,
		Offset: errs.Known(d.off[id]), Sample: errs.Known(id),
	}
}

func (d *Dataset) missing(id int64, field string) error {
	have := d.kind.fields()
	e := errs.New(errs.MissingField, "a sample of this environment has no field %q; it has %s", field, strings.Join(have, ", ")).At(d.where(id, field))
	if near := errs.Nearest(field, have); near != "" {
		return e.Try("did you mean %q?", near)
	}
	return e.Try("ask for one of these fields; a;b takes the first that is there")
}

// Check says, before the first sample is read, whether samples have these
// fields.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		if d.resolve(f) != "" {
			continue
		}
		e := errs.From(d.missing(0, f))
		e.Code, e.Where = errs.Config, errs.Where{Shard: e.Where.Shard, Field: f}
		return e
	}
	return nil
}
