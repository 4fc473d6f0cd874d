package tar

import (
	"strings"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// maxGap is the most bytes between two wanted members that are read along rather
// than stepped over: about what a disk reads while it seeks.
const maxGap = 64 << 10

// What a wanted field was resolved to, if it is not a member.
const (
	isMissing = -1
	isKey     = -2
	isURL     = -3
)

// choose settles the alternatives of every wanted field: the number of its
// member, or one of the above, into room; nil where everything is wanted.
func (d *Dataset) choose(id int64, fields []string, room []int64) []int64 {
	if fields == nil {
		return nil
	}
	for _, f := range fields {
		m, _ := d.resolve(id, f)
		room = append(room, m)
	}
	return room
}

func wants(pick []int64, m int64) bool {
	if pick == nil {
		return true
	}
	for _, p := range pick {
		if p == m {
			return true
		}
	}
	return false
}

// resolve is the first alternative of a wanted field that sample id has.
func (d *Dataset) resolve(id int64, field string) (member int64, name string) {
	for more := true; more; {
		name, field, more = strings.Cut(field, ";")
		switch name {
		case Key:
			return isKey, name
		case URL:
			return isURL, name
		}
		for m := d.first[id]; m < d.first[id+1]; m++ {
			if string(d.fields.At(int(d.field[m]))) == name {
				return m, name
			}
		}
	}
	return isMissing, ""
}

// joins reports whether a member whose body is at off is close enough to the end of the
// wanted one before it to share an extent with it.
func joins(end, off int64) bool { return off-blockLen-end <= maxGap }

// Extents is format.Stored's. Every wanted member comes with the header before
// it.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(len(d.shard)) {
		return dst
	}
	var room [8]int64
	var spans [8]span
	shard := int(d.shard[id])
	for _, r := range d.spans(id, d.choose(id, fields, room[:0]), spans[:0]) {
		if d.compressed.Compressed(shard) {
			dst = append(dst, d.compressed.Extent(shard, r.off, r.end-r.off))
		} else {
			dst = append(dst, format.Extent{File: shard, Off: r.off, Len: r.end - r.off})
		}
	}
	return dst
}

// Places is format.Placed's.
func (d *Dataset) Places(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(len(d.shard)) || d.compressed.Compressed(int(d.shard[id])) {
		return dst
	}
	var room [8]int64
	pick := d.choose(id, fields, room[:0])
	for m := d.first[id]; m < d.first[id+1]; m++ {
		if wants(pick, m) {
			dst = append(dst, format.Extent{File: int(d.shard[id]), Off: d.off[m], Len: d.size[m]})
		}
	}
	return dst
}

// span is a run of bytes of an archive.
type span struct{ off, end int64 }

// spans are the byte ranges of the wanted members, each with the header before it.
func (d *Dataset) spans(id int64, pick []int64, dst []span) []span {
	for m := d.first[id]; m < d.first[id+1]; m++ {
		if !wants(pick, m) {
			continue
		}
		off, end := d.off[m]-blockLen, d.off[m]+d.size[m]
		if last := len(dst) - 1; last >= 0 && joins(dst[last].end, d.off[m]) {
			dst[last].end = end
			continue
		}
		dst = append(dst, span{off, end})
	}
	return dst
}

// unpack is the bytes of the spans of a compressed shard, of those of their extents.
func (d *Dataset) unpack(id int64, pick []int64, raw [][]byte) ([][]byte, error) {
	shard := int(d.shard[id])
	if !d.compressed.Compressed(shard) {
		return raw, nil
	}
	var room [8]span
	var out [][]byte
	for i, r := range d.spans(id, pick, room[:0]) {
		if i >= len(raw) {
			break // slice finds out
		}
		p, err := d.compressed.Unpack(shard, r.off, r.end-r.off, raw[i])
		if err != nil {
			e := *errs.From(err)
			e.Where.Sample = errs.Known(id)
			return nil, &e
		}
		out = append(out, p)
	}
	return out, nil
}

// stored is the offset in the stored file of what is at off in an archive: in a compressed
// file, where the bytes begin from which it is unpacked.
func (d *Dataset) stored(shard int, off int64) int64 {
	if d.compressed.Compressed(shard) {
		return d.compressed.Extent(shard, off, 1).Off
	}
	return off
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if the sample has no such field.
func (d *Dataset) Size(id int64, field string) int64 {
	m, _ := d.resolve(id, field)
	switch m {
	case isMissing:
		return -1
	case isKey:
		return int64(len(d.key(id)))
	case isURL:
		return int64(len(d.urls[d.shard[id]]))
	}
	return d.size[m]
}

// Parse is format.Stored's. raw is the bytes of what Extents gave, in its
// order.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(len(d.shard)) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, len(d.shard))
	}
	s.Begin(id)
	var room [8]int64
	pick := d.choose(id, fields, room[:0])
	for i := range fields {
		f, err := d.beside(id, pick[i], fields[i])
		if err != nil {
			return err
		}
		s.Fields = append(s.Fields, f)
	}
	raw, err := d.unpack(id, pick, raw)
	if err != nil {
		return err
	}
	if err := d.slice(id, pick, raw, s); err != nil {
		return err
	}
	if fields == nil {
		for _, name := range [...]string{Key, URL} {
			m, _ := d.resolve(id, name)
			f, err := d.beside(id, m, name)
			if err != nil {
				return err
			}
			s.Fields = append(s.Fields, f)
		}
	}
	return nil
}

// beside is a wanted field as far as it is known without the bytes.
func (d *Dataset) beside(id, m int64, field string) (format.Field, error) {
	switch m {
	case isMissing:
		return format.Field{}, d.missing(id, field)
	case isKey:
		return format.Field{Name: Key, Data: d.key(id), File: -1}, nil
	case isURL:
		return format.Field{Name: URL, Data: d.urls[d.shard[id]], File: -1}, nil
	}
	return format.Field{}, nil // of a member: slice fills it in
}

// slice walks the members as Extents does, cuts the wanted ones out of raw and
// puts them where they are wanted.
func (d *Dataset) slice(id int64, pick []int64, raw [][]byte, s *format.Sample) error {
	at, start, end := -1, int64(0), int64(0)
	for m := d.first[id]; m < d.first[id+1]; m++ {
		if !wants(pick, m) {
			continue
		}
		if at < 0 || !joins(end, d.off[m]) {
			at, start = at+1, d.off[m]-blockLen
		}
		end = d.off[m] + d.size[m]
		if at >= len(raw) || end-start > int64(len(raw[at])) {
			return errs.New(errs.Bug, "the bytes passed in do not match the extents").At(d.where(id, m))
		}
		head := d.off[m] - blockLen - start
		if int64(xxhash.Sum64(raw[at][head:head+blockLen])) != d.head[m] {
			return d.altered(id, m, raw[at][head:head+blockLen])
		}
		f := format.Field{
			Name: view(d.fields.At(int(d.field[m]))), Data: raw[at][head+blockLen : end-start : end-start],
			File: int(d.shard[id]), Member: d.name.At(int(m)), Off: d.off[m],
		}
		if d.compressed.Compressed(f.File) {
			f.Off, f.Unpacked = d.stored(f.File, d.off[m]-blockLen), true
		}
		if pick == nil {
			s.Fields = append(s.Fields, f)
			continue
		}
		for i, p := range pick {
			if p == m {
				s.Fields[i] = f
			}
		}
	}
	return nil
}

// view sees bytes of the index as a string, valid until it is closed.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (d *Dataset) key(id int64) []byte {
	n := d.keyLen[id]
	return d.name.At(int(d.first[id]))[:n:n]
}

func (d *Dataset) where(id, m int64) errs.Where {
	return errs.Where{
		Shard: string(d.urls[d.shard[id]]), Member: string(d.name.At(int(m))), Field: string(d.fields.At(int(d.field[m]))),
		Offset: errs.Known(d.stored(int(d.shard[id]), d.off[m]-blockLen)), Sample: errs.Known(id),
	}
}

// altered is the error of a header that is not the one that was indexed, though
// the size and time of its shard are.
func (d *Dataset) altered(id, m int64, h []byte) error {
	e := errs.New(errs.Damaged, "the header of a member is not the one that was indexed").At(d.where(id, m)).
		Try("the shard's size and time have not changed, so its disk or memory is to blame; fetch the shard again")
	if _, err := decode(h); err != nil {
		return e.Because(err)
	}
	return e
}

// missing says what there is instead.
func (d *Dataset) missing(id int64, field string) error {
	var have []string
	for m := d.first[id]; m < d.first[id+1] && len(have) < shownFields; m++ {
		have = append(have, string(d.fields.At(int(d.field[m]))))
	}
	e := errs.New(errs.MissingField, "sample %q has no field %q; it has %s", d.key(id), field, strings.Join(have, ", ")).
		At(errs.Where{Shard: string(d.urls[d.shard[id]]), Member: string(d.key(id)), Field: field, Offset: errs.Known(d.stored(int(d.shard[id]), d.off[d.first[id]]-blockLen)), Sample: errs.Known(id)})
	return e.Try("%s", advice(field, have))
}

func advice(field string, have []string) string {
	for _, alt := range strings.Split(field, ";") {
		if near := errs.Nearest(alt, append(have, Key, URL)); near != "" {
			return "did you mean \"" + near + "\"?"
		}
	}
	return "ask for one of these fields; a;b takes the first that is there"
}

// Check says, before the first sample is read, whether each of these fields is
// in any sample at all.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		if d.known(f) {
			continue
		}
		have := d.x.Meta().Fields
		return errs.New(errs.Config, "no sample has a field %q; there are %s", f, strings.Join(have, ", ")).
			At(errs.Where{Shard: string(d.urls[0]), Field: f}).Try("%s", advice(f, have))
	}
	return nil
}

func (d *Dataset) known(field string) bool {
	for alt := range strings.SplitSeq(field, ";") {
		if alt == Key || alt == URL {
			return true
		}
		for i := range d.fields.Len() {
			if string(d.fields.At(i)) == alt {
				return true
			}
		}
	}
	return false
}
