package tfrecord

import (
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// field appends a wanted field.
func (r *record) field(wanted string, at *found, s *format.Sample) error {
	if f, rank := r.d.mayLack(wanted); f != nil && (at.rank < 0 || rank < at.rank) {
		s.Fields = append(s.Fields, r.made(f.name, nil, 0))
		return nil
	}
	switch {
	case at.rank < 0:
		return r.d.missing(r, wanted)
	case at.whole:
		name := Data
		if r.d.findString(Data) != nil || r.d.alternative(wanted, []byte(Payload)) == at.rank {
			name = Payload
		}
		s.Fields = append(s.Fields, r.view(name, r.p))
		return nil
	}
	f := r.d.find(at.name)
	if f == nil { // in a payload that indexing did not look into
		return r.d.missing(r, wanted)
	}
	values, k, err := list(at.message)
	if err != nil {
		return r.bad(f.name, err)
	}
	n, err := count(values, k)
	switch {
	case err != nil:
		return r.bad(f.name, err)
	case f.kind == mixed:
		return errs.New(errs.Unsupported, "the feature %q is a %s here, but a different list in other records", f.name, k).At(r.where(f.name)).
			Try("write the files again with one kind of list, or take %q and read the Example yourself", r.d.whole())
	case k != noKind && k != f.kind:
		return r.bad(f.name, errKind)
	case f.kind == bytesKind && n > 1:
		return errs.New(errs.Unsupported, "the feature %q has %d values; a feature of bytes must have one", f.name, n).At(r.where(f.name)).
			Try("write one feature per value, or take %q and read the Example yourself", r.d.whole())
	case f.kind == bytesKind && n == 0, f.kind == noKind:
		return r.d.missing(r, wanted)
	case f.kind == bytesKind:
		return r.bytes(f, values, s)
	case r.d.fixed(f) && int64(n) != f.most:
		return errs.New(errs.Damaged, "the feature %q has %d values, but had %d when it was indexed", f.name, n, f.most).At(r.where(f.name)).
			Try("fetch or write the file again")
	}
	return r.numbers(f, values, n, s)
}

// mayLack returns the first alternative of a field that every sample has because a
// missing list of numbers counts as an empty one, or nil if there is none.
func (d *Dataset) mayLack(wanted string) (f *feature, rank int) {
	for more := true; more; rank++ {
		var name string
		name, wanted, more = d.cut(wanted)
		if f := d.findString(name); f != nil && (f.kind == intKind || f.kind == floatKind) && !d.fixed(f) {
			return f, rank
		}
	}
	return nil, 0
}

func (r *record) bytes(f *feature, values []byte, s *format.Sample) error {
	for len(values) > 0 {
		p, n, rest, err := run(values, bytesKind)
		if err != nil {
			return r.bad(f.name, err)
		}
		if values = rest; n == 1 {
			s.Fields = append(s.Fields, r.view(f.name, p))
		}
	}
	return nil
}

// numbers gives a view of the numbers if they are stored in the form that is wanted.
func (r *record) numbers(f *feature, values []byte, n int, s *format.Sample) error {
	off := r.off(values)
	if f.kind == floatKind {
		p, k, _, err := run(values, floatKind)
		if n > 0 && err == nil && k == n {
			s.Fields = append(s.Fields, r.view(f.name, p))
			return nil
		}
		room := s.Room(4 * n)
		for at := 0; len(values) > 0; {
			p, _, rest, err := run(values, floatKind)
			if err != nil {
				return r.bad(f.name, err)
			}
			at, values = at+copy(room[at:], p), rest
		}
		s.Fields = append(s.Fields, r.made(f.name, room, off))
		return nil
	}
	room := s.Room(8 * n)
	ints(values, room)
	s.Fields = append(s.Fields, r.made(f.name, room, off))
	return nil
}

// off is the offset of a part of the payload in it.
func (r *record) off(part []byte) int64 { return int64(cap(r.p) - cap(part)) }

func (r *record) view(name string, p []byte) format.Field {
	f := r.made(name, p[:len(p):len(p)], r.off(p))
	f.Unpacked = r.apart
	return f
}

func (r *record) made(name string, data []byte, off int64) format.Field {
	f := format.Field{Name: name, Data: data, File: r.file, Member: member(name), Off: r.base, Unpacked: true}
	if !r.apart {
		f.Off += off
	}
	return f
}

// missing says what there is instead.
func (d *Dataset) missing(r *record, field string) error {
	at := r.where(field)
	var have []string
	for w := (walk{example: r.p}); len(d.fields) > 0 && len(have) < 100; {
		name, _, more, err := w.next()
		if err != nil || !more {
			break
		}
		have = append(have, string(name))
	}
	slices.Sort(have)
	have = append(have, Data)
	if r.p == nil {
		have = d.names
	}
	return errs.New(errs.MissingField, "sample %d has no field %q, or nothing in it; it has %s", r.id, field, strings.Join(have, ", ")).At(at).
		Try("%s", advice(field, have))
}

func advice(field string, have []string) string {
	for _, alt := range strings.Split(field, ";") {
		if near := errs.Nearest(alt, have); near != "" && near != alt {
			return "did you mean \"" + near + "\"?"
		}
	}
	return "ask for one of these fields; a;b takes the first that is there"
}

// Check says, before the first sample is read, whether each of these fields is
// in any sample at all.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		known := false
		for rest, more := f, true; more; {
			var alt string
			alt, rest, more = d.cut(rest)
			known = known || d.known(alt)
		}
		if known {
			continue
		}
		shown := d.names[:min(len(d.names), 256)]
		return errs.New(errs.Config, "no sample has a field %q; there are %s", f, strings.Join(shown, ", ")).
			At(errs.Where{Shard: string(d.x.AppendPath(0, nil)), Field: f}).Try("%s", advice(f, append(slices.Clone(d.names), Data)))
	}
	return nil
}
