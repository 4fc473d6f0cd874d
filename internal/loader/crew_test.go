package loader

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// hired is a crew that knows only what package fill exports: it reads samples by itself,
// one goroutine for each task, and fills their rows in whatever order that gives.
type hired struct {
	t      testing.TB
	desk   fill.Desk
	data   *dataset.Collection
	filler *fill.Filler
	begun  chan struct{} // one per batch; nil: not counted
}

func hire(t testing.TB, spec Spec, begun chan struct{}) Options {
	t.Helper()
	data, err := dataset.Open(context.Background(), spec, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	filler, err := fill.New(data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { filler.Close(); data.Close() })
	filler.Stats, filler.Fits = stats.Off(), func(int64) error { return nil }
	return Options{Crew: func(desk fill.Desk) fill.Crew { return &hired{t, desk, data, filler, begun} }}
}

func (h *hired) Begin(b *fill.Batch) time.Duration {
	var tasks []*fill.Task // all of them, before the first is worked on: the last one ends the batch
	for i := range b.Tasks {
		if t := &b.Tasks[i]; t.Sample >= 0 {
			tasks = append(tasks, t)
		}
	}
	if h.begun != nil {
		h.begun <- struct{}{}
	}
	for _, t := range tasks {
		h.Again(t)
	}
	return 0
}

func (h *hired) Again(t *fill.Task) {
	go func() {
		lane := transform.NewLane()
		defer lane.Close()
		if !t.Batch.Gone.Load() {
			t.Req.Raw, t.Req.Err = h.data.Read(t.Batch.Ctx, t.Req.Sample)
		}
		err := h.filler.Fill(&fill.State{Lane: lane}, t)
		h.desk.Finish(t, err, stats.Monotonic())
	}()
}

// A crew of another package delivers what lanes deliver: pictures in random crops, and
// text of any length.
func TestAnotherCrewGivesTheSameStream(t *testing.T) {
	images := imageSpec(pictures(t, 30))
	images.Fields[0].Transform = ops(t, `[{"op":"RandomResizedCrop","size":[6,8]},{"op":"RandomHorizontalFlip"}]`)
	images.Order.Shuffle = "full"
	specs := map[string]Spec{"pictures": images, "shards": newGrid(t).spec(t)}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			s := ground(t)
			want := texts(walkAll(t, open(t, s, spec), 1, 0, 0))
			l := open(t, s, spec, hire(t, spec, nil))
			for range 3 {
				if got := texts(walkAll(t, l, 1, 0, 0)); !slices.Equal(got, want) {
					t.Fatal("another stream")
				}
			}
		})
	}
}

// Damage in the hands of another crew is named, skipped or replaced by the same policy.
func TestAnotherCrewAndDamage(t *testing.T) {
	const n, broken = 30, 17
	for _, policy := range []string{Fail, Skip, Replace} {
		t.Run(policy, func(t *testing.T) {
			root := pictures(t, n)
			path := filepath.Join(root, "class1", fmt.Sprintf("%06d.ppm", broken))
			if err := os.WriteFile(path, []byte(strings.Repeat("no picture ", 50)), 0o644); err != nil {
				t.Fatal(err)
			}
			spec := imageSpec(root)
			spec.Fields[0].Transform = ops(t, `[{"op":"Resize","size":[6,8]}]`)
			spec.OnBad.Policy = policy
			checkDamage(t, open(t, ground(t), spec, hire(t, spec, nil)), policy, path, broken, n)
		})
	}
}

// A pass that is cancelled while another crew works gets its tasks and its slots back:
// open waits for that when the test ends.
func TestAnotherCrewGivenUp(t *testing.T) {
	spec := imageSpec(pictures(t, 60))
	begun := make(chan struct{}, 100)
	l := open(t, ground(t), spec, hire(t, spec, begun))
	want := texts(walkAll(t, l, 0, 0, 0))
	for range 5 {
		p, err := l.Pass(1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		p.Cancel()
	}
	if got := texts(walkAll(t, l, 0, 0, 0)); !slices.Equal(got, want) {
		t.Error("another stream after passes that were cancelled")
	}
}
