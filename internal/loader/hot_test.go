package loader

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// moody is a source whose bytes are in memory as the mood says, by the number of the
// read.
type moody struct {
	source.Source
	mood         func(read int64) bool
	reads, alone *atomic.Int64
}

func (m moody) ReadHot(ctx context.Context, obj source.Info, p []byte, off int64, wait bool) (bool, error) {
	hot := m.mood(m.reads.Add(1))
	if !wait && !hot {
		return false, nil
	}
	err := m.ReadAt(ctx, obj, p, off)
	if !wait && err == nil {
		m.alone.Add(1)
	}
	return hot, err
}

// Samples that lanes read themselves come out as those that readers bring, whatever
// is in memory and when, and bad ones are told in the same way.
func TestSamplesThatLanesRead(t *testing.T) {
	s := ground(t)
	root := pictures(t, 700)
	for _, cut := range []string{"class0/000003.ppm", "class2/000655.ppm"} {
		if err := os.WriteFile(filepath.Join(root, cut), []byte("P6 40 30 255\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := imageSpec(root)
	spec.Batch.Size = 16
	spec.OnBad.Policy = Replace
	want := texts(walkAll(t, open(t, s, spec, Options{Wrap: func(src source.Source) source.Source {
		return struct{ source.Source }{src}
	}}), 0, 0, 0))
	for name, mood := range map[string]func(read int64) bool{
		"always":               func(int64) bool { return true },
		"never":                func(int64) bool { return false },
		"all but now and then": func(n int64) bool { return n < 400 || n%37 != 0 },
		"until it is cold":     func(n int64) bool { return n < 450 },
	} {
		t.Run(name, func(t *testing.T) {
			var alone atomic.Int64
			l := open(t, s, spec, Options{Wrap: func(src source.Source) source.Source {
				return moody{src, mood, new(atomic.Int64), &alone}
			}})
			if got := texts(walkAll(t, l, 0, 0, 0)); !slices.Equal(got, want) {
				t.Error("another stream")
			}
			if (name == "never") != (alone.Load() == 0) {
				t.Errorf("lanes have read %d samples themselves", alone.Load())
			}
		})
	}
}
