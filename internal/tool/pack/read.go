package pack

import (
	"context"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// reader reads samples of a dataset, in two steps where waiting for a disk and
// unpacking what it gave are limited apart. Safe for concurrent use.
type reader struct {
	ds    format.Stored
	src   source.Source
	wants []string
}

// seen is one sample and the memory that it lies in, which is used again.
type seen struct {
	from   *format.Reader
	sample format.Sample
}

// keepBytes is the most memory that a sample leaves behind for the next one.
const keepBytes = 4 << 20

// bytes fetches the bytes of a sample.
func (r *reader) bytes(ctx context.Context, id int64, s *seen) error {
	if s.from == nil {
		s.from = format.NewReader(r.ds, r.src)
	}
	return s.from.Fetch(ctx, id, r.wants)
}

func (r *reader) parse(id int64, s *seen) error { return s.from.Parse(id, r.wants, &s.sample) }

// sample fetches and parses.
func (r *reader) sample(ctx context.Context, id int64, s *seen) error {
	if err := r.bytes(ctx, id, s); err != nil {
		return err
	}
	return r.parse(id, s)
}

// rest lets go of memory that only a large sample needed.
func (s *seen) rest() {
	if s.from.Trim(keepBytes) {
		s.sample = format.Sample{}
	}
}

// place completes an error with where the sample lies.
func (r *reader) place(err error, id int64) error { return format.Place(r.ds, err, id, nil) }
