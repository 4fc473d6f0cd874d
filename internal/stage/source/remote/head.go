package remote

import (
	"context"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Header is a Store that reads the beginning of an object without being told its size.
type Header interface {
	// Head reads the first bytes of an object into p, len(p) > 0, and returns how many
	// there are: fewer than len(p) where the object has no more.
	Head(ctx context.Context, name string, p []byte) (int, error)
}

var _ source.Header = (*Source)(nil)

// Head is source.Header's: one request of a Store that is a Header.
func (s *Source) Head(ctx context.Context, name string, p []byte) (n int, err error) {
	h, ok := s.store.(Header)
	if !ok || len(p) == 0 {
		return source.Head(ctx, struct{ source.Source }{s}, name, p) // Stat, ReadAt
	}
	err = s.try(ctx, request{name: name, bytes: len(p)}, func(ctx context.Context, _ *way, _ *request) (int, error) {
		if n, err = h.Head(ctx, name, p); err != nil {
			return 0, err // it is begun anew
		}
		return n, nil
	})
	return n, err
}
