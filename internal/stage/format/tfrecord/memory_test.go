package tfrecord_test

import (
	"context"
	"iter"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// memory is a source of one object, whatever it is called.
type memory struct{ data []byte }

func (m memory) Stat(_ context.Context, name string) (source.Info, error) {
	return source.Info{Name: name, Size: int64(len(m.data)), MTime: 1}, nil
}

func (m memory) ReadAt(_ context.Context, _ source.Info, p []byte, off int64) error {
	copy(p, m.data[off:][:len(p)])
	return nil
}

func (m memory) List(context.Context, string) iter.Seq2[source.Info, error] {
	return func(func(source.Info, error) bool) {}
}
