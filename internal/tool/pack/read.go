package pack

import (
	"context"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// reader reads samples of a dataset: in two steps, other than format.Reader, since
// waiting for a disk and unpacking what it gave are limited apart. Safe for
// concurrent use.
type reader struct {
	ds    format.Dataset
	src   source.Source
	wants []string
}

// seen is one sample and the memory that it lies in, which is used again.
type seen struct {
	extents []format.Extent
	raw     [][]byte
	buf     []byte
	path    []byte
	sample  format.Sample
}

// keepBytes is the most memory that a sample leaves behind for the next one.
const keepBytes = 4 << 20

// bytes fetches the bytes of a sample.
func (r *reader) bytes(ctx context.Context, id int64, s *seen) error {
	s.extents = r.ds.Extents(id, r.wants, s.extents[:0])
	total := int64(0)
	for _, e := range s.extents {
		total += e.Len
	}
	if int64(cap(s.buf)) < total {
		s.buf = make([]byte, total)
	}
	s.raw = s.raw[:0]
	at := int64(0)
	for _, e := range s.extents {
		s.path = r.ds.Index().AppendPath(e.File, s.path[:0])
		size, mtime := r.ds.Index().Stamp(e.File)
		p := s.buf[:cap(s.buf)][at : at+e.Len : at+e.Len]
		if err := r.src.ReadAt(ctx, source.Info{Name: string(s.path), Size: size, MTime: mtime}, p, e.Off); err != nil {
			return r.place(err, id)
		}
		s.raw = append(s.raw, p)
		at += e.Len
	}
	return nil
}

// sample fetches and parses.
func (r *reader) sample(ctx context.Context, id int64, s *seen) error {
	if err := r.bytes(ctx, id, s); err != nil {
		return err
	}
	return r.parse(id, s)
}

func (r *reader) parse(id int64, s *seen) error {
	if err := r.ds.Parse(id, r.wants, s.raw, &s.sample); err != nil {
		return r.place(err, id)
	}
	return nil
}

// rest lets go of memory that only a large sample needed.
func (s *seen) rest() {
	if cap(s.buf) > keepBytes {
		s.buf, s.sample = nil, format.Sample{}
	}
}

// place completes an error with where the sample lies.
func (r *reader) place(err error, id int64) error { return format.Place(r.ds, err, id, nil) }
