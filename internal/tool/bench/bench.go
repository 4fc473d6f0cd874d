// Package bench measures how fast this machine loads a dataset: throughput,
// processor time (all of this process's, in the kernel too), the wait for
// batches, memory, and which stage the time went to.
//
// Processor time is divided by the samples that were decoded, not by those that
// were delivered: what was read ahead when the run ended has been paid for.
// Everything else counts what was delivered.
package bench

import (
	"context"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Config is one measurement. The first limit that is reached ends it; without a limit it
// runs for DefaultTime.
type Config struct {
	// Spec is what is loaded. If it has no fields, Chain decides.
	Spec    spec.Spec
	Formats []dataset.Format // nil: dataset.Formats()
	Sources []source.Scheme  // nil: dataset.Sources
	Network loader.Network   // that Sources share; nil: nothing is reported of it
	Chain   Chain

	Epochs  int64
	Samples int64
	Time    time.Duration
	// StepTime is the length of the simulated training step per batch; 0: batches are
	// released at once.
	StepTime time.Duration
	// Files asks for files of the dataset, which are found by reading some samples once
	// the measurement is over.
	Files bool

	Indexing func(done, total int64, what string) // may be nil
	// Progress is called after every batch with a share in [0, 1]. May be nil.
	Progress func(samples int64, share float64)
}

// DefaultTime is the length of a measurement without a limit.
const DefaultTime = 10 * time.Second

// Stage is what one stage did.
type Stage struct {
	BusySeconds float64 `json:"busy_s"` // summed over all workers of the stage
	PerSampleUS float64 `json:"us_per_sample"`
	Bytes       int64   `json:"bytes,omitempty"`
}

// Report is what was measured.
type Report struct {
	Path    []string `json:"path"`
	Format  string   `json:"format"`
	Dataset int64    `json:"dataset_samples"`
	Classes int      `json:"classes"`

	Batch    int    `json:"batch_size"`
	Lanes    int    `json:"lanes"`
	Kernel   string `json:"kernel"`
	Shuffle  string `json:"shuffle"`
	Seed     uint64 `json:"seed"`
	Prefetch int    `json:"prefetch"`

	Samples    int64   `json:"samples"` // delivered
	Batches    int64   `json:"batches"`
	Bad        int64   `json:"bad"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"samples_per_second"`
	CPUSeconds float64 `json:"cpu_s"`
	CPUPer1000 float64 `json:"cpu_s_per_1000_samples"`
	FirstBatch float64 `json:"first_batch_s"` // from Open, index present
	StepTime   float64 `json:"step_time_s"`   // pretended

	Wait   Wait             `json:"wait"`
	Stages map[string]Stage `json:"stages"`
	Memory Memory           `json:"memory"`
	Notes  []string         `json:"notes,omitempty"`
	// Sources is what was asked of each server, by its host.
	Sources map[string]stats.Source `json:"sources,omitempty"`
	Entries *stats.Entries          `json:"entries,omitempty"` // entry points of JPEGs; nil: none are kept

	// What only this process needs. Stats are the loader's at the end; Fields are the
	// columns of a batch; PerFile says that every sample is a file; Files are some that
	// samples were read from, if asked for.
	Stats   stats.Snapshot   `json:"-"`
	Fields  []dataset.Column `json:"-"`
	PerFile bool             `json:"-"`
	Files   []string         `json:"-"`
}

// Wait is how long the consumer waited for batches after the first.
type Wait struct {
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	Share float64 `json:"share"` // of the time after the first batch
}

// Memory is bytes.
type Memory struct {
	PeakRSS int64 `json:"peak_rss_bytes"`
	PeakPSS int64 `json:"peak_pss_bytes"`
	Batches int64 `json:"batches_bytes"`
}

// Run measures. It indexes the dataset first, which does not count.
func Run(ctx context.Context, c Config) (*Report, error) {
	spec, err := Complete(ctx, c)
	if err != nil {
		return nil, err
	}
	m := startMeter()
	defer m.end()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 320))
	defer shared.Close()
	begin := time.Now()
	var late notices
	l, err := loader.Open(ctx, shared, spec, loader.Options{Formats: c.Formats, Sources: c.Sources, Network: c.Network, Notice: late.add})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	r, before := describe(l, c), stats.Snapshot{Sources: l.Stats().Sources}
	w, err := c.consume(ctx, l, r, begin)
	if err != nil {
		return nil, err
	}
	cpu, s := m.used(), l.Stats()
	r.Seconds = w.last.Sub(begin).Seconds()
	r.PerSecond = float64(r.Samples) / r.Seconds
	r.CPUSeconds = cpu.Seconds()
	if s.Decode.Items > 0 {
		r.CPUPer1000 = r.CPUSeconds / float64(s.Decode.Items) * 1000
	}
	r.Bad, r.Stats, r.Fields, r.Entries = s.Bad, s, l.Fields(), s.Entries
	r.PerFile = l.Every(func(f format.Format) bool { return f.Files })
	r.Wait, r.Sources = w.wait(), s.Since(before).Sources
	r.Stages = map[string]Stage{
		"read":   stage(s.Read, s.Decode.Items),
		"decode": stage(s.Decode, s.Decode.Items),
		"batch":  stage(s.Batch, s.Decode.Items),
	}
	r.Memory.Batches = s.Memory
	r.Memory.PeakRSS, r.Memory.PeakPSS = m.end()
	if c.Files {
		r.Files = filesOf(ctx, l)
	}
	r.Notes = append(r.Notes, late.all()...)
	return r, nil
}

// notices are those that turn up while samples are made, from any goroutine.
type notices struct {
	mu    sync.Mutex
	lines []string
}

func (n *notices) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notices) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// filesOf are the files of some samples, each once; none if samples are made.
func filesOf(ctx context.Context, l *loader.Loader) (files []string) {
	p, err := l.Profile(ctx, 64, 300*time.Millisecond)
	if err != nil { // every one is damaged: the run has said so
		return nil
	}
	for _, t := range p.Each {
		if t.File != "" && !slices.Contains(files, t.File) {
			files = append(files, t.File)
		}
	}
	return files
}

func stage(s stats.StageSnapshot, samples int64) Stage {
	return Stage{BusySeconds: s.BusySeconds, PerSampleUS: s.BusySeconds / float64(max(samples, 1)) * 1e6, Bytes: s.Bytes}
}

// Complete indexes the dataset, and completes the Spec's fields by the Chain.
func Complete(ctx context.Context, c Config) (spec.Spec, error) {
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 320))
	defer shared.Close()
	stored := c.Spec
	if len(stored.Fields) == 0 {
		stored.BatchTransform = nil // it mixes what the Chain makes
	}
	l, err := loader.Open(ctx, shared, stored, loader.Options{Formats: c.Formats, Sources: c.Sources, Progress: c.Indexing})
	if err != nil {
		return spec.Spec{}, err
	}
	defer l.Close()
	spec := c.Spec
	if len(spec.Fields) == 0 && !l.Every(func(f format.Format) bool { return f.Made }) {
		spec.Fields = c.Chain.Fields(l.Spec().Fields)
	}
	return spec, nil
}

func describe(l *loader.Loader, c Config) *Report {
	s := l.Spec()
	return &Report{
		Path: s.Dataset.Path, Format: l.Format(), Dataset: l.Len(), Classes: len(l.Classes()), Notes: l.Notes(),
		Batch: s.Batch.Size, Lanes: l.Stats().Lanes, Kernel: kernel.Target(),
		Shuffle: string(s.Order.Shuffle), Seed: s.Order.Seed, Prefetch: s.Deliver.Prefetch, StepTime: c.StepTime.Seconds(),
	}
}

// waits is the consumer's time.
type waits struct {
	first, last time.Time // when the first and the last batch were there
	each        []time.Duration
	sum         time.Duration
}

func (w *waits) wait() Wait {
	if len(w.each) == 0 {
		return Wait{}
	}
	slices.Sort(w.each)
	at := func(q float64) float64 {
		return w.each[min(len(w.each)-1, int(q*float64(len(w.each))))].Seconds() * 1000
	}
	return Wait{P50MS: at(0.5), P99MS: at(0.99), Share: w.sum.Seconds() / w.last.Sub(w.first).Seconds()}
}

// consume takes batches until a limit is reached.
func (c *Config) consume(ctx context.Context, l *loader.Loader, r *Report, begin time.Time) (*waits, error) {
	limit := c.limits()
	w := &waits{}
	for epoch := int64(0); ; epoch++ {
		p, err := l.Pass(epoch, 0, 0)
		if err != nil {
			return nil, err
		}
		for {
			asked := time.Now()
			b, err := p.Next(ctx, time.Minute)
			if err == io.EOF { //nolint:errorlint // the end of the pass
				break
			}
			if err != nil {
				return nil, err
			}
			w.last = time.Now()
			if r.Batches == 0 {
				w.first = w.last
				r.FirstBatch = w.last.Sub(begin).Seconds()
			} else {
				w.each = append(w.each, w.last.Sub(asked))
				w.sum += w.last.Sub(asked)
			}
			r.Batches++
			r.Samples += int64(b.Rows)
			share := limit.share(r.Samples, l.Len(), w.last.Sub(begin))
			if c.Progress != nil {
				c.Progress(r.Samples, share)
			}
			if share < 1 {
				pretend(ctx, c.StepTime)
			}
			b.Release()
			if share >= 1 {
				p.Cancel()
				return w, nil
			}
		}
		if r.Batches == 0 {
			return nil, errNoBatch(l)
		}
		if limit.epochs > 0 && epoch+1 >= limit.epochs { // a tail that drops samples
			return w, nil
		}
	}
}

// pretend simulates a training step: the accelerator works and the processor does not.
func pretend(ctx context.Context, d time.Duration) {
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

type limits struct {
	epochs, samples int64
	time            time.Duration
}

func (c *Config) limits() limits {
	l := limits{c.Epochs, c.Samples, c.Time}
	if l == (limits{}) {
		l.time = DefaultTime
	}
	return l
}

// share is how much of the run is done, by the limit that is nearest.
func (l limits) share(samples, dataset int64, spent time.Duration) float64 {
	done := 0.0
	if l.epochs > 0 {
		done = math.Max(done, float64(samples)/float64(l.epochs*dataset))
	}
	if l.samples > 0 {
		done = math.Max(done, float64(samples)/float64(l.samples))
	}
	if l.time > 0 {
		done = math.Max(done, spent.Seconds()/l.time.Seconds())
	}
	return math.Min(done, 1)
}
