package format

import (
	"context"
	"runtime"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Each calls f for 0 to n-1 from as many goroutines as compute at once, as source.Each
// does.
func Each(ctx context.Context, n int, f func(i int) error) error {
	return source.Each(ctx, max(4, runtime.GOMAXPROCS(0)), n, f)
}

// EachOf is Each for what waits for a source: for every object, of which name is one,
// there are as many goroutines as the link to it is worth.
func EachOf(ctx context.Context, src source.Source, name string, n int, f func(i int) error) error {
	return source.Each(ctx, source.Width(src, name), n, f)
}
