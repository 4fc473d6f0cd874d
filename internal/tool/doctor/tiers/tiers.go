package tiers

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// How long tiers may take, all together and each. Lanes leave a quarter of it to the
// storage; a tier that has nothing after a quarter is cut.
const (
	allTiers   = 20 * time.Second
	forGain    = 1500 * time.Millisecond
	forSamples = 2 * time.Second
	forLanes   = 1200 * time.Millisecond
	forStorage = time.Second // each of its tiers
)

// mostSamples are enough for a p99 that one sample does not decide.
const mostSamples = 2000

// measuring is what the tiers of one dataset are measured with.
type measuring struct {
	Load
	spec  spec.Spec
	main  *run // that the verdict is of
	ends  time.Time
	files []string // of the dataset, those that timed samples are in
	out   []evidence.Tier
}

// tiers measures what the verdict does not need, in the order in which one asks:
// what is there to gain, what a sample costs, what lanes bring, what the storage
// gives, what memory it takes. It keeps to a time; what does not fit is cut, and
// says so.
func (c Load) tiers(ctx context.Context, spec spec.Spec, main *run, ev evidence.Evidence) ([]evidence.Tier, error) {
	if c.Tiers == 0 {
		c.Tiers = allTiers
	}
	m := &measuring{Load: c, spec: spec, main: main, ends: time.Now().Add(c.Tiers)}
	groups := [...]struct {
		what    string
		measure func(context.Context)
	}{
		{"possible gain", m.gain},
		{"cost of a sample", m.samples},
		{"effect of lanes", func(ctx context.Context) { m.lanes(ctx, ev.Machine.Cores.Value) }},
		{"speed of the storage", m.storage},
		{"memory in use", func(context.Context) { m.memory(ev.Machine) }},
	}
	for i, g := range groups {
		if c.Measuring != nil {
			c.Measuring(int64(i), int64(len(groups)), g.what)
		}
		g.measure(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return m.out, nil
}

// left is the time for a tier of which some is kept for later ones; false: there is
// none.
func (m *measuring) left(want, keep time.Duration) (time.Duration, bool) {
	d := min(time.Duration(float64(want)/max(1, m.hurry)), m.patience(), time.Until(m.ends)-keep)
	return d, d > 0
}

// patience is how long a tier that measures nothing is waited for.
func (m *measuring) patience() time.Duration { return m.Tiers / 4 }

// noTime is why a tier was cut that came too late.
func (m *measuring) noTime() string {
	return "the " + show.Took(m.Tiers.Seconds()) + " for all tiers were over"
}

// loop is a loader that is run for a while, or why that was cut. Opening it counts as
// long as opening the dataset took before.
func (m *measuring) loop(ctx context.Context, spec spec.Spec, step, want, keep time.Duration) (*run, string) {
	opening := time.Duration(0)
	if !dataset.Made(spec.Dataset.Format) {
		opening = m.main.opening
	}
	d, ok := m.left(want, keep+opening)
	if !ok {
		return nil, m.noTime()
	}
	patience := max(d, min(d+m.patience(), time.Until(m.ends)))
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := &run{Load: m.Load}
	r.Step, r.Time = step, d
	err := r.whole(within, spec)
	switch late := errors.Is(err, context.DeadlineExceeded); {
	case err != nil && !late:
		return nil, err.Error()
	case r.samples > 0: // late, too: a rate of fewer batches
		return r, ""
	case late:
		return nil, "no batch came within " + show.Took(patience.Seconds())
	}
	return nil, "an epoch has no batch"
}

// gain is what is there to gain at all: the same loop over batches of the same size
// that cost nothing.
func (m *measuring) gain(ctx context.Context) {
	none := evidence.Tier{Of: evidence.OfGain, Name: evidence.OutOfNothing}
	r, cut := m.loop(ctx, m.nothing(), m.Step, forGain, 0)
	if none.Cut = cut; cut == "" {
		paced(&none, r)
	}
	real := evidence.Tier{Of: evidence.OfGain, Name: evidence.TheDataset}
	paced(&real, m.main)
	m.out = append(m.out, none, real)
}

func paced(t *evidence.Tier, r *run) {
	t.Rate = r.rate()
	t.Batch = evidence.Ratio(float64(r.samples)/float64(max(1, r.batches)), t.Rate.Value, "loop")
}

// nothing is a Spec of batches as large as the dataset's.
func (m *measuring) nothing() spec.Spec {
	batches := max(1, m.main.batches)
	rows := max(1, int(math.Round(float64(m.main.samples)/float64(batches))))
	room := m.spec.Batch.Size // rows that a slot has room for
	if world := max(1, m.spec.World); room == 0 {
		room = m.spec.Batch.GlobalSize / world
	}
	each := max(1, int(m.main.bytes/batches)/max(rows, room))
	s := spec.Spec{Workers: m.spec.Workers, Deliver: m.spec.Deliver}
	s.Batch.Size = rows
	s.Dataset = dataset.Synthetic(int64(rows)<<16, each)
	return s
}

// samples is what one sample costs, each part by itself: read as it comes, most of
// it from the page cache by now.
func (m *measuring) samples(ctx context.Context) {
	d, ok := m.left(forSamples, m.main.opening)
	if !ok {
		m.out = append(m.out, evidence.Tier{Of: evidence.OfSample, Name: "a sample", Cut: m.noTime()})
		return
	}
	p, err := m.profileOf(ctx, d)
	switch {
	case err != nil:
		m.out = append(m.out, evidence.Tier{Of: evidence.OfSample, Name: "a sample", Cut: err.Error()})
	case len(p.Each) == 0:
		m.out = append(m.out, evidence.Tier{Of: evidence.OfSample, Name: "a sample", Cut: "nothing is read or decoded for it"})
	default:
		m.out = append(m.out, ofSample(p)...)
		m.out = append(m.out, ofJPEG(p)...)
		m.files = filesOfProfile(p)
	}
}

func (m *measuring) profileOf(ctx context.Context, d time.Duration) (fill.Profile, error) {
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 320))
	defer shared.Close()
	l, err := loader.Open(ctx, shared, m.spec, loader.Options{Formats: m.Formats, Sources: m.Sources})
	if err != nil {
		return fill.Profile{}, err
	}
	defer l.Close()
	return l.Profile(ctx, mostSamples, d)
}

// fromOne is where a sample's costs come from.
const fromOne = "one thread, sample after sample"

func ofSample(p fill.Profile) (out []evidence.Tier) {
	add := func(name string, of func(fill.Timing) time.Duration) {
		took := make([]float64, len(p.Each))
		for i, t := range p.Each {
			took[i] = of(t).Seconds()
		}
		out = append(out, spread(evidence.Tier{Of: evidence.OfSample, Name: name}, took, fromOne))
	}
	add("read", func(t fill.Timing) time.Duration { return t.Read })
	add("decode", func(t fill.Timing) time.Duration { return t.Decode })
	for i, name := range p.Names {
		add(name, func(t fill.Timing) time.Duration { return t.Transforms[i] })
	}
	add("all of it", func(t fill.Timing) time.Duration {
		all := t.Read + t.Decode
		for _, d := range t.Transforms {
			all += d
		}
		return all
	})
	return out
}

// fewJPEGs is the share of JPEGs by other decoders that is nothing to speak of.
const fewJPEGs = 0.05

// ofJPEG is how many JPEGs which decoder took, those of other decoders by kind.
func ofJPEG(p fill.Profile) (out []evidence.Tier) {
	others := 0
	for _, kind := range [...]string{fill.Progressive, fill.FourInks, fill.Unusual} {
		if n := p.Others[kind]; n > 0 {
			others += n
			out = append(out, evidence.Tier{Of: evidence.OfJPEG, Name: kind, Count: evidence.Measured(float64(n), fromOne)})
		}
	}
	if float64(others) <= fewJPEGs*float64(p.JPEGs) {
		return nil
	}
	return slices.Insert(out, 0, evidence.Tier{Of: evidence.OfJPEG, Name: evidence.OwnDecoder, Count: evidence.Measured(float64(p.JPEGs-others), fromOne)})
}

// spread is the tier with the mean and the p99 of times in seconds, at least one: the
// smallest that 99 % do not exceed.
func spread(t evidence.Tier, took []float64, source string) evidence.Tier {
	sum := 0.0
	for _, s := range took {
		sum += s
	}
	slices.Sort(took)
	n := len(took)
	t.Mean, t.Count = evidence.Measured(sum/float64(n), source), evidence.Measured(float64(n), source)
	t.P99 = evidence.Measured(took[max(0, int(math.Ceil(0.99*float64(n)))-1)], source)
	return t
}

// filesOfProfile are the files that samples are in, each once.
func filesOfProfile(p fill.Profile) (files []string) {
	seen := map[string]bool{}
	for _, t := range p.Each {
		if t.File != "" && !seen[t.File] {
			seen[t.File] = true
			files = append(files, t.File)
		}
	}
	return files
}

// lanes is what more lanes bring: one, all the cores, and those between by
// doubling, the ends first since they say the most.
func (m *measuring) lanes(ctx context.Context, cores float64) {
	var out []evidence.Tier
	for _, n := range laneCounts(cores) {
		t := evidence.Tier{Of: evidence.OfLanes, Name: show.Things(n, "lane"), Count: evidence.Measured(float64(n), "as set")}
		spec := m.spec
		spec.Workers = n
		r, cut := m.loop(ctx, spec, 0, forLanes, m.patience())
		if t.Cut = cut; cut == "" {
			paced(&t, r)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b evidence.Tier) int { return cmp.Compare(a.Count.Value, b.Count.Value) })
	m.out = append(m.out, out...)
}

func laneCounts(cores float64) []int {
	most := max(1, int(math.Ceil(cores-0.1)))
	if most == 1 {
		return []int{1}
	}
	counts := []int{1, most}
	for n := 2; n < most; n *= 2 {
		counts = append(counts, n)
	}
	return counts
}

// memory is what was held in the run that the verdict is of.
func (m *measuring) memory(machine evidence.Machine) {
	s := m.main.last
	m.out = append(m.out, evidence.Tier{Of: evidence.OfMemory, Name: "batches", Size: evidence.Measured(float64(s.Memory), evidence.FromPage), Count: evidence.Measured(float64(s.Slots), evidence.FromPage)})
	if c := s.Cache; c != nil {
		m.out = append(m.out, evidence.Tier{
			Of: evidence.OfMemory, Name: "cache of samples", Size: evidence.Measured(float64(c.Bytes), evidence.FromPage), Limit: evidence.Measured(float64(c.Limit), evidence.FromPage), Count: evidence.Measured(float64(c.Samples), evidence.FromPage),
		})
	}
	peak := evidence.Tier{Of: evidence.OfMemory, Name: "this process, at most"}
	if m.main.peak == 0 {
		peak.Cut = "/proc does not say"
	} else {
		peak.Size, peak.Limit = evidence.Measured(float64(m.main.peak), "/proc/self/status"), machine.Memory
		if l := machine.Limit; l.Known() && (!peak.Limit.Known() || l.Value < peak.Limit.Value) {
			peak.Limit = l
		}
	}
	m.out = append(m.out, peak)
}
