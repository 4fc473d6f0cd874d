package doctor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/tool/bench"
)

// Load is a dataset to look at by loading it, beside a training step that is only
// pretended.
type Load struct {
	Spec    loader.Spec
	Name    string        // how the user calls it
	Step    time.Duration // 0: as fast as the loader gives
	Time    time.Duration // 0: eight seconds
	Version string

	Indexing func(done, total int64, what string) // may be nil
	Progress func(samples int64, share float64)   // may be nil
}

// loading is how long a dataset is loaded.
const loading = 8 * time.Second

// LoadIt loads a dataset and says what limits that.
func LoadIt(ctx context.Context, c Load) (Report, error) {
	ev := Evidence{
		Schema: Schema, Stoker: c.Version, When: time.Now().UTC().Truncate(time.Second),
		Subject: Subject{Kind: OfSpec, Command: []string{c.Name}}, Machine: Look(ctx),
	}
	spec, err := bench.Complete(ctx, bench.Config{Spec: c.Spec, Chain: bench.Chain{Size: 224}, Indexing: c.Indexing})
	if err != nil {
		return Report{}, err
	}
	if c.Time == 0 {
		c.Time = loading
	}
	w, began := newWatched("/"), now()
	l, files, err := c.run(ctx, spec, w)
	if err != nil {
		return Report{}, err
	}
	w.look(os.Getpid(), now())
	l.Settings.Where = c.Name
	ev.Loops, ev.Run = []Loop{l}, runOf(newFolder(""), w, began)
	if c.Step == 0 {
		ev.Notes = append(ev.Notes, "No step was pretended: the loader ran as fast as it can, and --step-ms says how long a batch may take.")
	}
	if v := newView(ev, l); v.beyond() && v.costliest().kind == Read && len(files) > 0 {
		p := prober{root: "/"}
		p.probe(files, nil)
		ev.Storage = p.found()
		ev.Storage.Quiet = true
	}
	return Judge(ev), nil
}

// run loads, and returns the loop and some files of the dataset.
func (c Load) run(ctx context.Context, spec loader.Spec, w *watched) (Loop, []string, error) {
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 320))
	defer shared.Close()
	l, err := loader.Open(ctx, shared, spec, loader.Options{})
	if err != nil {
		return Loop{}, nil, err
	}
	defer l.Close()
	var base stats.Snapshot
	began := time.Now()
	end := began.Add(c.Time)
	filled := int64(l.Stats().Lanes + 2)
	var batches, bytes int64
	var looked time.Time
	var wait, step float64 // after base
	for epoch := int64(0); time.Now().Before(end); epoch++ {
		p, err := l.Pass(epoch, 0, 0)
		if err != nil {
			return Loop{}, nil, err
		}
		for first := true; ; first = false {
			asked := time.Now()
			b, err := p.Next(ctx, time.Minute)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return Loop{}, nil, err
			}
			got := time.Now()
			bytes += int64(len(b.Slot.Mem))
			batches++
			sleep(ctx, c.Step)
			b.Release()
			if base.Batches > 0 && !first {
				wait += got.Sub(asked).Seconds()
			}
			if base.Batches > 0 {
				step += time.Since(got).Seconds()
			}
			if base.Batches == 0 && batches >= filled {
				base = l.Stats()
			}
			if time.Since(looked) > seldom {
				looked = time.Now()
				w.look(os.Getpid(), now())
			}
			if c.Progress != nil {
				c.Progress(batches*int64(b.Rows), min(1, time.Since(began).Seconds()/c.Time.Seconds()))
			}
			if !time.Now().Before(end) {
				p.Cancel()
				break
			}
		}
		if batches == 0 {
			break
		}
	}
	out := loopOfPage(base, l.Stats())
	out.PID, out.Settings.Length, out.Settings.Prefetch = os.Getpid(), ptrTo(l.Len()), 0
	out.Trainer = figure(0, "pretended step")
	if n := out.Batches.Value; n > 0 && base.Batches > 0 {
		out.Wait, out.Step, out.Seconds = figure(wait/n, "loop"), figure(step/n, "loop"), figure(wait+step, "loop")
	}
	if excess := out.Step.Value - c.Step.Seconds(); c.Step > 0 && out.Step.Known() && excess > 0 {
		// What a pretended step takes longer than it was told to is this process, which
		// did not get a core: a trainer on a device would have asked by then.
		out.Step, out.Wait = figure(c.Step.Seconds(), "--step-ms"), figure(out.Wait.Value+excess, "loop")
	}
	out.BatchBytes = ratio(float64(bytes), float64(batches), "loop")
	if size := float64(spec.Batch.Size); size > 0 {
		out.PerEpoch = figure(max(1, float64(l.Len())/size), "length of the dataset")
	}
	if f := l.Format(); f == "folder" || f == "files" || f == "table" {
		out.Cost.Opens = figure(1, "format "+f)
	}
	return out, filesOf(spec.Dataset.Path), nil
}

func ptrTo[T any](v T) *T { return &v }

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// filesOf are some regular files of a dataset, for a probe.
func filesOf(paths []string) (out []string) {
	for _, path := range paths {
		_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && ofData(p) {
				out = append(out, p)
			}
			if len(out) >= 2*streams {
				return filepath.SkipAll
			}
			return nil
		})
	}
	return out
}
