package pack

import (
	"context"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// reader reads samples of a dataset, in two steps, because waiting for a disk and
// parsing are limited separately. Safe for concurrent use.
type reader struct {
	ds    format.Stored
	src   source.Source
	wants []string
}

// seen is one sample and its memory, which is reused.
type seen struct {
	from   *format.Reader
	sample format.Sample
}

// keepBytes is the most memory that is kept from one sample for the next.
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

// rest frees memory that only a large sample needed.
func (s *seen) rest() {
	if s.from.Trim(keepBytes) {
		s.sample = format.Sample{}
	}
}

// locate adds the location of the sample to an error.
func (r *reader) locate(err error, id int64) error { return format.Locate(r.ds, err, id, nil) }
