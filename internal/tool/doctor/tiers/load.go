// Package tiers looks at a dataset by loading it: what limits stoker over it, and tier by
// tier what a sample costs, what lanes bring and what the storage gives.
package tiers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/procfs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/bench"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/gather"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// Load is a dataset to look at by loading it, beside a training step that is only
// pretended.
type Load struct {
	Spec    spec.Spec
	Formats []dataset.Format // nil: dataset.Formats()
	Sources []source.Scheme  // nil: dataset.Sources()
	Name    string           // how the user calls it
	Step    time.Duration    // 0: as fast as the loader gives
	Time    time.Duration    // 0: eight seconds
	Quick   bool             // no tiers
	Tiers   time.Duration    // for all tiers together; 0: twenty seconds
	Version string

	Indexing func(done, total int64, what string) // may be nil
	// Verdict is told the report before the tiers are measured, on which it does not
	// rest; may be nil.
	Verdict func(judge.Report)
	// Measuring is told which tiers are measured now, and how many groups of them
	// were; may be nil.
	Measuring func(done, of int64, what string)

	hurry float64 // tiers run so many times shorter than they may; 0: 1
}

// loading is how long a dataset is loaded.
const loading = 8 * time.Second

// looking is how often /proc is looked at meanwhile.
const looking = 500 * time.Millisecond

// LoadIt loads a dataset and says what limits that.
func LoadIt(ctx context.Context, c Load) (judge.Report, error) {
	ev := evidence.Evidence{
		Schema: evidence.Schema, Stoker: c.Version, When: time.Now().UTC().Truncate(time.Second),
		Subject: evidence.Subject{Kind: evidence.OfSpec, Command: []string{c.Name}}, Machine: system.Look(ctx),
	}
	spec, err := bench.Complete(ctx, bench.Config{Spec: c.Spec, Formats: c.Formats, Sources: c.Sources, Chain: bench.Chain{Size: 224}, Indexing: c.Indexing})
	if err != nil {
		return judge.Report{}, err
	}
	if c.Time == 0 {
		c.Time = loading
	}
	r := &run{Load: c, watched: system.NewWatched("/")}
	began := system.Now()
	procfs.ResetPeak()
	if err := r.whole(ctx, spec); err != nil {
		return judge.Report{}, err
	}
	r.peak = procfs.Peak()
	ev.Notes = append(ev.Notes, passedOver(r.bad)...)
	ev.Run = gather.RunOf(gather.NewFolder(""), r.watched, began)
	ev.Loops = []evidence.Loop{r.loop(spec, ev.Run.Throttled.Value >= judge.Stopped)}
	if c.Step > 0 {
		ev.Subject.Step = evidence.Measured(c.Step.Seconds(), "--step-ms")
	} else {
		ev.Notes = append(ev.Notes, "No step was pretended: the loader ran as fast as it can, and --step-ms says how long a batch may take.")
	}
	if files := filesOf(spec.Dataset.Path); len(files) > 0 {
		if judge.Measure(ev).Reads {
			p := system.Prober{Root: "/"}
			p.Probe(files, nil)
			ev.Storage = p.Found()
			ev.Storage.Quiet = true
		}
	}
	early := judge.Judge(ev)
	if c.Verdict != nil {
		c.Verdict(early)
	}
	if c.Quick {
		return early, nil
	}
	if ev.Tiers, err = c.tiers(ctx, spec, r, ev); err != nil {
		return judge.Report{}, err
	}
	return judge.Judge(ev), nil
}

// run is one loader that is run for a time, and its loop's own clock.
type run struct {
	Load
	watched *system.Watched // may be nil

	format     string
	files      bool // each sample is a file of its own
	length     int64
	steps      int64 // of the first epoch; a last one that is smaller is one
	began, end time.Time
	opening    time.Duration
	over       time.Time       // when it ended
	bad        map[int64]error // by sample: those that on_bad has passed over
	looked     time.Time

	batches, bytes, samples int64
	filled                  int64          // batches after which the queue is used, not filled
	base, last              stats.Snapshot // base: at filled
	based                   time.Time
	before                  int64   // samples until then
	wait, step              float64 // seconds after it
	recent                  [][3]float64
	peak                    int64 // bytes of this process that were in memory at most
}

// whole opens the loader and takes batches until the time is over.
func (r *run) whole(ctx context.Context, spec spec.Spec) error {
	opened := time.Now()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 320))
	defer shared.Close()
	l, err := loader.Open(ctx, shared, spec, loader.Options{Formats: r.Formats, Sources: r.Sources})
	if err != nil {
		return err
	}
	defer l.Close()
	defer func() { r.last, r.over = l.Stats(), time.Now() }()
	r.opening = time.Since(opened)
	r.format, r.length, r.began = l.Format(), l.Len(), time.Now()
	r.files = l.Every(func(f format.Format) bool { return f.Files })
	r.steps = l.Steps(0, 0)
	r.end, r.filled = r.began.Add(r.Time), int64(l.Stats().Lanes+2)
	for e := int64(0); time.Now().Before(r.end); e++ {
		if e == 1 && r.base.Batches > 0 && time.Since(r.began) < r.Time/2 {
			r.rebase(l) // what was read for the first time is not read like this again
		}
		if err := r.epoch(ctx, l, e); err != nil {
			return err
		}
		if r.batches == 0 {
			break
		}
	}
	return nil
}

func (r *run) epoch(ctx context.Context, l *loader.Loader, epoch int64) error {
	p, err := l.Pass(epoch, 0, 0)
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		asked := time.Now()
		b, err := p.Next(ctx, time.Minute)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		got := time.Now()
		r.remember(asked, got)
		for _, bad := range b.Bad {
			if r.bad == nil {
				r.bad = map[int64]error{}
			}
			r.bad[bad.Sample] = bad.Err
		}
		r.batches, r.bytes, r.samples = r.batches+1, r.bytes+int64(len(b.Slot.Mem)), r.samples+int64(b.Rows)
		sleep(ctx, r.Step)
		b.Release()
		if r.base.Batches > 0 {
			r.step += time.Since(got).Seconds()
			if !first {
				r.wait += got.Sub(asked).Seconds()
			}
		} else if r.batches >= r.filled {
			r.rebase(l)
		}
		if r.watched != nil && time.Since(r.looked) > looking {
			r.looked = time.Now()
			r.watched.Look(os.Getpid(), system.Now())
		}
		if !time.Now().Before(r.end) {
			p.Cancel()
			return nil
		}
	}
}

// shownBad is how many bad samples the notes name.
const shownBad = 3

// passedOver are notes on the samples that the loader could not deliver.
func passedOver(bad map[int64]error) (notes []string) {
	if len(bad) == 0 {
		return nil
	}
	notes = append(notes, fmt.Sprintf("%s cannot be read, and others were loaded in their place; `stoker inspect --all` lists what is damaged.",
		show.Count(int64(len(bad)), "sample", "samples")))
	for i, id := range slices.Sorted(maps.Keys(bad)) {
		if i == shownBad {
			break
		}
		e := *errs.From(bad[id])
		e.Where.Moment = nil
		notes = append(notes, e.Error())
	}
	return notes
}

// rebase begins what is measured.
func (r *run) rebase(l *loader.Loader) {
	r.base, r.based, r.before, r.wait, r.step = l.Stats(), time.Now(), r.samples, 0, 0
}

// remember keeps a step for the timeline, which draws ten and the moment they end.
func (r *run) remember(asked, got time.Time) {
	if len(r.recent) == evidence.Recent {
		r.recent = append(r.recent[:0], r.recent[1:]...)
	}
	r.recent = append(r.recent, [3]float64{evidence.Micros(asked.Sub(r.began).Seconds()), evidence.Micros(got.Sub(r.began).Seconds()), -1})
}

// loop is what was seen of it; late says whether a quota stopped this process.
func (r *run) loop(spec spec.Spec, late bool) evidence.Loop {
	l := gather.LoopOfPage(r.base, r.last)
	l.PID, l.Settings.Where, l.Settings.Length = os.Getpid(), r.Name, &r.length
	l.Trainer = evidence.Measured(0, "pretended step")
	for _, s := range r.recent {
		l.Recent = append(l.Recent, [3]float64{evidence.Micros(s[0] - r.recent[0][0]), evidence.Micros(s[1] - r.recent[0][0]), s[2]})
	}
	if n := l.Batches.Value; n > 0 && r.base.Batches > 0 {
		l.Wait, l.Step, l.Seconds = evidence.Measured(r.wait/n, "loop"), evidence.Measured(r.step/n, "loop"), evidence.Measured(r.wait+r.step, "loop")
	}
	if excess := l.Step.Value - r.Step.Seconds(); late && r.Step > 0 && l.Step.Known() && excess > 0 {
		// What a pretended step takes longer than it was told to is this process, which
		// the quota stopped: a trainer on a device would have asked by then.
		l.Step, l.Wait = evidence.Measured(r.Step.Seconds(), "--step-ms"), evidence.Measured(l.Wait.Value+excess, "loop")
	}
	l.BatchBytes = evidence.Ratio(float64(r.bytes), float64(r.batches), "loop")
	if r.steps > 0 {
		l.PerEpoch = evidence.Measured(float64(r.steps), "length of the dataset")
	}
	if r.files {
		l.Cost.Opens = evidence.Measured(1, "format "+r.format)
	}
	return l
}

// rate is samples a second, after the queue was filled.
func (r *run) rate() evidence.Figure {
	if r.based.IsZero() || r.samples == r.before {
		return evidence.Ratio(float64(r.samples), r.over.Sub(r.began).Seconds(), "loop")
	}
	return evidence.Ratio(float64(r.samples-r.before), r.over.Sub(r.based).Seconds(), "loop")
}

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
			if err == nil && d.Type().IsRegular() && system.OfData(p) {
				out = append(out, p)
			}
			if len(out) >= 2*system.Streams {
				return filepath.SkipAll
			}
			return nil
		})
	}
	return out
}
