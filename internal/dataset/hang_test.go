package dataset

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// dead is a source whose calls hang, as those of a mount whose server is gone: they do
// not look at their context.
type dead struct {
	source.Source
	began, free chan struct{}
}

func (d dead) wait() {
	select {
	case d.began <- struct{}{}:
	default:
	}
	<-d.free
}

func (d dead) Stat(ctx context.Context, name string) (source.Info, error) {
	d.wait()
	return d.Source.Stat(ctx, name)
}

func (d dead) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	d.wait()
	return d.Source.ReadAt(ctx, obj, p, off)
}

func (d dead) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	d.wait()
	return d.Source.List(ctx, prefix)
}

// Whoever opens a dataset on storage that hangs gets away from it, and what the
// abandoned call opens in the end is closed again.
func TestOpenIsNotHeldByAHungSource(t *testing.T) {
	dir := t.TempDir()
	stagetest.Put(t, filepath.Join(dir, "a.txt"), []byte("one\ntwo\n"))
	t.Setenv("STOKER_CACHE", t.TempDir())
	before := runtime.NumGoroutine()
	hang := dead{began: make(chan struct{}, 1), free: make(chan struct{})}
	opt := Options{Wrap: func(src source.Source) source.Source {
		hang.Source = src
		return hang
	}}
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := Open(ctx, spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{dir}, Format: "lines"}}, opt)
		failed <- err
	}()
	<-hang.began
	cancel()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Open waits for a source that hangs")
	}
	close(hang.free)
	for begin := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d goroutines were left, %d before", runtime.NumGoroutine(), before)
		}
	}
}
