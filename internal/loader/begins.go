package loader

import (
	"context"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stream"
)

// Begin is a dataset of a mixture whose samples the engine begins and workers go on with.
// The mixture itself knows only how many samples it has: what its fields are is nobody
// else's business, so datasets of one mixture may have different ones.
type Begin struct {
	Member int       // number of the dataset
	Spec   spec.Spec // of its samples, in the order in which they are stored
}

// openBegin opens a dataset of a mixture.
func (l *Loader) openBegin(ctx context.Context, b Begin, opt Options) (*feed, error) {
	if b.Member < 0 || b.Member >= len(l.data.Parts) {
		return nil, errs.New(errs.Bug, "there is no dataset %d to begin samples of", b.Member)
	}
	data, err := dataset.Open(ctx, b.Spec, dataset.Options{Formats: opt.Formats, Sources: opt.Sources, Progress: opt.Progress, Wrap: opt.Wrap})
	if err != nil {
		return nil, err
	}
	in := &Loader{data: data, spec: data.Spec()}
	if in.filler, err = fill.New(data); err == nil {
		in.Stream, err = stream.New(data)
	}
	if part := l.data.Parts[b.Member]; err == nil && part.N != data.Len() {
		err = errs.New(errs.Changed, "dataset %d of the mixture has %d samples, and had %d when the loader was made", b.Member, data.Len(), part.N).
			Try("make the dataset and the loader again")
	}
	if err != nil {
		data.Close()
		return nil, err
	}
	f := newFeed(in, l)
	in.first, f.own = l.data.Parts[b.Member].First, true
	in.filler.Notice = opt.Notice
	in.filler.Room, in.filler.Length, in.filler.Fits = in, in.Length, func(n int64) error { return in.fits(n, in.most) }
	if opt.Deadly != nil { // what died is told by the mixture's numbers
		in.filler.Deadly = map[int64]int{}
		for sample, deaths := range opt.Deadly(l.data.Digest()) {
			in.filler.Deadly[sample-in.first] = deaths
		}
	}
	return f, nil
}

// feed chooses what makes samples for workers: nothing, a feed, or one for each of some
// datasets of a mixture.
func (l *Loader) feed(opt *crew.Options) {
	if l.data.Native() {
		in := &Loader{Stream: l.Stream, data: l.data, spec: l.spec, id: l.id, filler: l.filler}
		l.inner = []*feed{newFeed(in, l)}
		opt.Feeder = l.inner[0]
	} else if len(l.inner) > 0 {
		opt.Feeder = feeds{l}
	}
	for i, f := range l.inner {
		f.number = i
		opt.Fields = append(opt.Fields, f.l.maker.Begun())
	}
}

// feeds are the feeds of datasets of a mixture; workers make the samples of the others.
type feeds struct{ l *Loader }

// Feed implements crew.Feeder.
func (s feeds) Feed(tasks []*fill.Task, urgent bool) {
	groups := make([][]*fill.Task, len(s.l.inner)+1)
	for _, t := range tasks { // before the first is passed on: the batch may be another one then
		at := s.l.feedOf(t.Req.Sample)
		if at < 0 {
			at = len(s.l.inner)
		}
		groups[at] = append(groups[at], t)
	}
	for i, group := range groups {
		switch {
		case len(group) == 0:
		case i < len(s.l.inner):
			s.l.inner[i].Feed(group, urgent)
		default:
			go s.l.workers.Fed(group, nil, nil)
		}
	}
}

// feedOf is the number of the feed that begins a sample; -1: none does.
func (l *Loader) feedOf(sample int64) int {
	return slices.IndexFunc(l.inner, func(f *feed) bool { return sample >= f.l.first && sample < f.l.first+f.l.data.Len() })
}

// explainBegun adds to an explanation what is known of samples that the engine begins.
func (l *Loader) explainBegun(found *stream.Explanation) {
	e := l.Epoch(found.Epoch)
	for i := range found.Rows {
		row := &found.Rows[i]
		if at := l.feedOf(row.Sample); at >= 0 && l.inner[at].own {
			in := l.inner[at].l
			in.ExplainSample(row, row.Sample-in.first, drawn(e.Key(row.Place), row.Sample-in.first))
		}
	}
}

// drawnEpochs are the epochs that stand for keys.
const drawnEpochs = 1<<52 - 1

// key is that of everything random about a sample that the engine begins.
func (f *feed) key(t *fill.Task) rng.Key {
	switch {
	case !f.own:
		return t.Key
	case t.Attempt > 0:
		return drawn(t.Key.With(uint64(t.Attempt)), t.Req.Sample-f.l.first)
	}
	return drawn(t.Key, t.Req.Sample-f.l.first)
}

// drawn is the key of a sample of a mixture's dataset, from its key in the mixture. The
// sample is what that dataset's own loader gives at the sample's place, in an epoch that
// the key stands for: so it is the same if a worker makes it, as dataset[i].
func drawn(key rng.Key, sample int64) rng.Key {
	return rng.Sample(0, int64(uint64(key)&drawnEpochs), sample)
}
