package tune

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/bench"
)

// OwnLoader measures stoker's own loader over a Spec, in this process.
type OwnLoader struct {
	Spec     spec.Spec
	Sources  []source.Scheme // nil: dataset.Sources
	Chain    bench.Chain     // if the Spec has no fields
	Step     time.Duration
	Indexing func(done, total int64, what string) // may be nil
}

// warm is the share of a measurement that is left out at its beginning: caches and
// read-ahead fill up, and batches that were prefetched do not count as throughput.
const warm = 0.25

// Measure implements Meter.
func (o OwnLoader) Measure(ctx context.Context, s Settings, about time.Duration) (Figures, error) {
	spec := o.Spec
	spec.Workers, spec.Deliver.Prefetch, spec.Batch = s.Workers, s.Prefetch, o.Spec.Batch
	if s.Batch > 0 && spec.Batch.GlobalSize == 0 {
		spec.Batch.Size = s.Batch
	}
	var w windows
	r, err := bench.Run(ctx, bench.Config{
		Spec: spec, Sources: o.Sources, Chain: o.Chain, Time: about, StepTime: o.Step, Indexing: o.Indexing,
		Progress: func(samples int64, _ float64) { w.add(time.Now(), samples) },
	})
	if err != nil {
		return Figures{}, err
	}
	f := w.figures()
	if r.Samples > 0 {
		f.Batches = f.Samples * float64(r.Batches) / float64(r.Samples)
	}
	f.Cores, f.First = r.CPUSeconds/r.Seconds, r.FirstBatch
	return f, nil
}

// windows are the times at which batches came.
type windows struct {
	at      []time.Time
	samples []int64 // samples until then
}

func (w *windows) add(t time.Time, samples int64) {
	w.at, w.samples = append(w.at, t), append(w.samples, samples)
}

// parts is the number of windows of a measurement, to estimate its noise.
const parts = 5

// figures are the throughput after the warm-up, and how much windows of it differ.
func (w *windows) figures() (f Figures) {
	n := len(w.at)
	if n < 2 {
		return f
	}
	begin := w.at[0].Add(time.Duration(warm * float64(w.at[n-1].Sub(w.at[0]))))
	first := slices.IndexFunc(w.at, func(t time.Time) bool { return !t.Before(begin) })
	first = min(first, n-2)
	rate := func(from, to int) float64 {
		return float64(w.samples[to]-w.samples[from]) / max(w.at[to].Sub(w.at[from]).Seconds(), 1e-9)
	}
	f.Samples = rate(first, n-1)
	if n-1-first < 2*parts { // too few batches
		return f
	}
	var rates []float64
	for i := range parts {
		from, to := first+(n-1-first)*i/parts, first+(n-1-first)*(i+1)/parts
		rates = append(rates, rate(from, to))
	}
	slices.Sort(rates)
	f.Spread = (rates[parts-1] - rates[0]) / rates[parts/2]
	return f
}

// Subject opens the loader, which indexes its dataset, and describes it.
func (o OwnLoader) Subject(ctx context.Context) (Subject, error) {
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 320))
	defer shared.Close()
	l, err := loader.Open(ctx, shared, o.Spec, loader.Options{Sources: o.Sources, Progress: o.Indexing})
	if err != nil {
		return Subject{}, err
	}
	defer l.Close()
	name := strings.Join(o.Spec.Dataset.Path, " ")
	return Subject{Loader: Own, Dataset: l.Digest(), Name: cmp.Or(name, o.Spec.Dataset.Manifest, l.Format()), Samples: l.Len(), Step: o.Step.Seconds()}, nil
}
