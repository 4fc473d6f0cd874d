package loader

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// far is a source of which the first reads of files do not end before their context.
type far struct {
	source.Source
	left *atomic.Int64 // reads that hang
	hung chan struct{}
}

func (f far) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if strings.HasSuffix(obj.Name, ".ppm") && f.left.Add(-1) >= 0 {
		f.hung <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	return f.Source.ReadAt(ctx, obj, p, off)
}

// A pass that is cancelled takes its hung reads with it: all readers hang, and the next
// pass has them all the same.
func TestHungReadsEndWithTheirPass(t *testing.T) {
	s := ground(t)
	left := &atomic.Int64{}
	hung := make(chan struct{}, atOnce)
	spec := imageSpec(pictures(t, 4*atOnce))
	spec.Batch.Size = 2 * atOnce
	spec.Order.Shuffle = order.None
	l := open(t, s, spec, Options{Wrap: func(src source.Source) source.Source { return far{src, left, hung} }})
	left.Store(atOnce)
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan error, 1)
	go func() {
		_, err := p.Next(ctx, 0)
		got <- err
	}()
	limit := time.After(time.Minute)
	for range atOnce {
		select {
		case <-hung:
		case <-limit:
			t.Fatal("the readers do not begin")
		}
	}
	cancel()
	select {
	case err := <-got:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("who waited got %v", err)
		}
	case <-limit:
		t.Fatal("who waits is held by a read that hangs")
	}
	p.Cancel()
	if p, err = l.Pass(0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	steps := int64(0)
	for {
		b, err := p.Next(context.Background(), time.Minute)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		steps++
		b.Release()
	}
	if steps != p.Steps() {
		t.Errorf("%d steps of %d", steps, p.Steps())
	}
}
