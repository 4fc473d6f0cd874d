// Package loader joins the stages into one stream of batches: a Spec goes in,
// batches come out, in order, with back-pressure from the consumer to the disk.
//
//	order -> fetch -> lanes: parse, decode, transform -> batch -> consumer
//	  prefetch readers           (Shared)                 Next
//
// It knows no format: Options.Formats has them all. It knows no transport: it
// returns a Batch, and the sender of the batch describes its columns in messages of
// its own.
package loader

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stream"
)

const (
	// atOnce is the number of concurrent reads of local files that a loader begins with:
	// enough to keep a disk busy with small files, few enough to cost nothing. Fetch finds
	// out whether the storage rewards more.
	atOnce = 16
	// readAheadBytes bounds what is read but not yet decoded, unless Options do.
	readAheadBytes = 32 << 20
)

// Loader is an open stream of batches over one dataset. Passes walk through its
// epochs. Safe for concurrent use.
type Loader struct {
	*stream.Stream
	shared *Shared
	data   *dataset.Collection // of the Stream
	spec   spec.Spec           // likewise, with all defaults filled in
	id     int64
	first  int64 // id of its first sample, in what others are told

	fields     []batch.Field // as users see them
	layout     *batch.Layout // of the largest batch so far; guarded by Shared.mu
	slotBytes  int64
	filler     *fill.Filler
	fetch      *fetch.Fetcher
	budget     *mem.Budget
	slots      slots
	most       int64 // bytes, the initial slots.limit
	lanes      int
	prefetch   int
	stats      *stats.Stream
	completing stats.Seldom // chooses completions whose CPU is measured
	sending    stats.Seldom
	planning   stats.Seldom
	maker      *compose.Maker
	crew       fill.Crew  // fills rows
	workers    *crew.Crew // the same, if Python workers do it
	inner      []*feed    // make samples for them; without any, their code makes all of it
	feeds      *feed      // that this loader is the inner one of
	small      bool       // the crew is readers
	readers    int        // of local files, to begin with; 0: fetch reads nothing
	ownCrew    bool       // the crew is neither lanes nor readers
	near       bool       // nothing is read beyond the batches that are open
	begun      int64      // passes; guarded by Shared.mu
	structure  []byte     // what the columns of samples are that only the user's code knows; guarded by Shared.mu
	patient    bool       // no sample is made before its pass is asked for
	iterates   int        // workers that iterate the dataset; 0: they do not
	samples    atomic.Int64

	// Guarded by Shared.mu.
	passes   []*Pass
	current  *Pass   // begun last
	ahead    *Pass   // the next epoch, begun before it was asked for
	running  int     // lanes working for this loader
	inflight int     // open batches
	fetching int     // samples submitted but not yet fetched
	batches  int64   // delivered
	again    again   // given back by the consumer, and not delivered again yet
	moved    int64   // stats.Monotonic of the last finished sample
	network  Network // nil: unknown
	spare    []*openBatch
	closed   bool
}

// again is what was counted as delivered and will be delivered again.
type again struct {
	tally
	passes int64
}

// Network is what all loaders of a process share for the network; remote.Net is one.
type Network interface {
	// Waits reports whether a server is being tried again, which ends by itself: a sample
	// that is being read meanwhile does not stall.
	Waits() bool
	Counts() map[string]stats.Source // what was asked of each host since the process began
}

// Options are what Open needs in addition to the Spec.
type Options struct {
	Formats  []dataset.Format                     // nil: dataset.Formats()
	Sources  []source.Scheme                      // nil: dataset.Sources
	Network  Network                              // that Sources share; nil: nothing is known of it
	Progress func(done, total int64, what string) // of indexing; may be nil
	// Notice is given lines that turn up while samples are made, for the user; may be nil.
	Notice func(line string)
	// Wrap wraps the storage of the loader, for tests and measurements; may be nil.
	Wrap func(source.Source) source.Source
	// Deadly returns the samples of a dataset that the engine was working on when
	// it died, and how often; may be nil.
	Deadly func(digest string) map[int64]int
	// Stored means that only stored samples are read and no batch is made, so that all
	// fields may be left out.
	Stored bool
	// Bare and Mixes are those of dataset.Options.
	Bare, Mixes bool
	// Crew returns the crew that fills the rows; nil: lanes, or readers if samples are
	// small.
	Crew func(fill.Desk) fill.Crew
	// Workers, if set, makes a crew of Python workers: samples are what the user's code
	// returns, and none is made before its pass is asked for.
	Workers *crew.Options
	// Begins are datasets of a mixture whose samples the engine makes for the Workers.
	Begins []Begin
	// IDs means that batches have ids and nothing else: whoever gets them has the samples.
	IDs bool
	// ReadAhead bounds the bytes that are read but not yet decoded; 0 is 32 MiB. A
	// sample longer than this is still read, alone.
	ReadAhead int64
	// Near means that nothing is read beyond the batches that have memory.
	Near bool
}

// Open opens a loader. Its errors name every problem of the Spec at once.
func Open(ctx context.Context, shared *Shared, spec spec.Spec, opt Options) (*Loader, error) {
	if opt.Sources == nil {
		net := remote.NewNet(remote.Options{})
		opt.Sources = dataset.Sources(net)
		if opt.Network == nil {
			opt.Network = net
		}
	}
	data, err := dataset.Open(ctx, spec, dataset.Options{Formats: opt.Formats, Sources: opt.Sources, Progress: opt.Progress, Wrap: opt.Wrap, Stored: opt.Stored, Bare: opt.Bare, Mixes: opt.Mixes, Crew: opt.Workers != nil || opt.IDs})
	if err != nil {
		return nil, err
	}
	l := &Loader{shared: shared, network: opt.Network, moved: stats.Monotonic()}
	l.data, l.spec = data, data.Spec()
	if l.filler, err = fill.New(data); err == nil {
		l.Stream, err = stream.New(data)
	}
	if err == nil {
		l.maker = compose.New(l.Stream, data, l.filler)
		l.fields = l.maker.Fields()
		l.layout = batch.NewLayout(l.fields, max(l.spec.Batch.Size, 1))
		l.slotBytes = l.layout.Bytes()
		err = l.size()
	}
	if err != nil {
		l.data.Close()
		return nil, err
	}
	l.filler.Notice = opt.Notice
	l.filler.Room, l.filler.Length, l.filler.Fits = l, l.Length, func(n int64) error { return l.fits(n, l.most) }
	if opt.Deadly != nil && data.Stored() {
		l.filler.Deadly = opt.Deadly(data.Digest())
	}
	for _, b := range opt.Begins {
		f, err := l.openBegin(ctx, b, opt)
		if err != nil {
			l.closeData()
			return nil, err
		}
		l.inner = append(l.inner, f)
	}
	l.start(opt)
	return l, nil
}

// size decides how much memory batches may take, and rejects limits that cannot
// work.
func (l *Loader) size() error {
	available := mem.Available()
	limit := int64(l.spec.Deliver.Memory)
	asked := limit > 0
	if !asked {
		l.shared.mu.Lock()
		available += l.shared.taken
		l.shared.auto = available / 4
		limit = l.shared.auto
		l.shared.mu.Unlock()
	}
	if l.loose() {
		limit /= 2 // rows of unequal length are first collected, then laid out
	}
	if err := l.fits(l.slotBytes, limit); err != nil {
		e := errs.From(err)
		if !asked {
			e.Hint = fmt.Sprintf("that is a quarter of the %s that this machine or its cgroup has left; lower batch_size, or pass memory=", mem.Size(available))
		}
		return e
	}
	l.slots, l.most = slots{l: l, limit: limit, auto: !asked}, limit
	l.setPrefetch(limit)
	if l.loose() {
		l.prefetch = 1 // until the first batch shows how large they are
	}
	return nil
}

// loose reports whether the size of a batch is only known when its rows are
// decoded.
func (l *Loader) loose() bool {
	return slices.ContainsFunc(l.fields, func(f batch.Field) bool { return f.Loose })
}

// fits reports an error unless memory has room for two batches: one that the user
// has and one that is being filled.
func (l *Loader) fits(slot, limit int64) error {
	if 2*slot <= limit {
		return nil
	}
	whole := int64(1)
	if l.loose() {
		whole = 2
	}
	with := ""
	if l.spec.DecodeDevice != (spec.DecodeDevice{}) {
		with = " with the compressed pictures that decode_device gets,"
	}
	return errs.New(errs.Memory, "a batch takes %s%s and two must fit, but memory is %s", mem.Size(slot*whole), with, mem.Size(limit*whole)).
		Try("raise memory= to at least %s, or lower batch_size", mem.AtLeast(2*slot*whole))
}

// setPrefetch sets prefetch to as many batches as were asked for and fit.
func (l *Loader) setPrefetch(limit int64) {
	l.prefetch = int(max(1, min(int64(l.spec.Deliver.Prefetch), limit/l.slotBytes-1)))
}

// start makes the loader known to the lanes.
func (l *Loader) start(opt Options) {
	s := l.shared
	l.lanes = l.spec.Workers
	if l.choose(opt.Crew == nil && l.filler.Small()); opt.Crew != nil {
		l.crew = opt.Crew(desk{l})
	}
	s.mu.Lock()
	s.lastID++
	l.id = s.lastID
	l.filler.ID, l.filler.Stats = l.id, stats.Off()
	if !s.quiet {
		l.filler.Measure(func(transforms []string) *stats.Stream { return s.Page.Stream(l.id, l.lanes, transforms) })
	}
	l.stats = l.filler.Stats
	if opt.Workers != nil {
		l.hire(*opt.Workers)
	}
	if opt.IDs {
		l.patient, l.crew = true, numbers{l}
	}
	s.loaders = append(s.loaders, l)
	for _, f := range l.inner {
		f.l.id, f.l.stats = l.id, l.stats
		f.l.filler.ID, f.l.filler.Stats = l.id, l.stats
		s.loaders = append(s.loaders, f.l)
	}
	s.mu.Unlock()
	if l.workers == nil && !opt.IDs {
		s.grow(l.lanes)
	}
	for _, f := range l.inner {
		s.grow(f.l.lanes)
		f.l.openFetch(opt)
		go f.run()
	}
	l.openFetch(opt)
}

// openFetch makes what reads for the loader's lanes.
func (l *Loader) openFetch(opt Options) {
	s := l.shared
	l.budget = mem.NewBudget(cmp.Or(opt.ReadAhead, readAheadBytes))
	if l.readers = atOnce; !l.data.Stored() || l.workers != nil {
		l.readers = 0
	}
	l.near, l.ownCrew = opt.Near || l.feeds != nil, opt.Crew != nil || opt.Workers != nil && l.feeds == nil || opt.IDs
	l.fetch = fetch.New(l.data.Source(), l.data, func(r *fetch.Request) { s.fetched(r.Owner.(*fill.Task)) }, fetch.Options{
		Readers: l.readers, Connections: int(l.spec.Fetch.Connections), Budget: l.budget, Ahead: int64(l.spec.Fetch.Ahead), Pool: s.Pool,
		Board: s.Board, Page: s.Page, Stage: l.stats.Read, Loader: uint32(l.id), First: l.first, Hold: l.hold, LetGo: l.letGo,
	})
}

// Refuse is fill.Filler.Refuse.
func (l *Loader) Refuse(samples []int64) { l.filler.Refuse(samples) }

// Close cancels all passes. Batches that are leased stay valid until released.
func (l *Loader) Close() {
	s := l.shared
	s.mu.Lock()
	if l.closed {
		s.mu.Unlock()
		return
	}
	l.closed = true
	for _, p := range slices.Clone(l.passes) {
		p.cancel()
	}
	l.slots.drain()
	for _, f := range l.inner {
		f.l.closed = true
		f.l.slots.drain()
		s.changed.Broadcast()
	}
	s.mu.Unlock()
	if l.workers != nil {
		l.workers.Close()
	}
	l.fetch.Close()
	for _, f := range l.inner {
		f.l.fetch.Close()
	}
	s.mu.Lock()
	s.loaders = slices.DeleteFunc(s.loaders, func(o *Loader) bool { return o == l || o.feeds != nil && o.feeds.to == l })
	s.reconsider()
	quiet := l.quiet()
	s.closing.Add(1)
	s.mu.Unlock()
	closed := make(chan struct{})
	go l.closeWhenQuiet(closed) // a read may hang, so Close does not wait for it
	if quiet {
		select {
		case <-closed:
		case <-time.After(writing):
		}
	}
}

// writing is how long Close waits until entry points are written: the folder may hang.
const writing = time.Second

// entries are what is known and learned of entry points; nil: none are kept.
func (l *Loader) entries() (sum *stats.Entries) {
	for f := range l.fillers() {
		if of := f.Entries(); of != nil && sum == nil {
			sum = of
		} else if of != nil {
			sum.Add(*of)
		}
	}
	return sum
}

// Keep writes the entry points that lanes have found, for as long as ctx lasts; nothing is
// learned afterwards.
func (l *Loader) Keep(ctx context.Context) {
	for f := range l.fillers() {
		f.End(ctx)
	}
}

// fillers are the loader's own, and those of the datasets that it opened besides.
func (l *Loader) fillers() iter.Seq[*fill.Filler] {
	return func(yield func(*fill.Filler) bool) {
		if !yield(l.filler) {
			return
		}
		for _, f := range l.inner {
			if f.own && !yield(f.l.filler) {
				return
			}
		}
	}
}

func (l *Loader) closeWhenQuiet(closed chan<- struct{}) {
	s := l.shared
	defer s.closing.Done()
	defer close(closed)
	s.mu.Lock()
	for !l.quiet() {
		s.changed.Wait()
	}
	s.mu.Unlock()
	l.closeData()
}

// quiet reports whether no sample of the loader is in work. Shared.mu is held.
func (l *Loader) quiet() bool {
	return l.inflight == 0 && !slices.ContainsFunc(l.inner, func(f *feed) bool { return f.l.inflight > 0 })
}

// closeData closes the storage that samples are read from; no sample may be in
// work.
func (l *Loader) closeData() {
	for f := range l.fillers() { // first: their stores read the index
		f.Close()
	}
	l.data.Close()
	for _, f := range l.inner {
		if f.own {
			f.l.data.Close()
		}
	}
	if l.stats != nil { // nil: it was not started
		l.stats.Close()
	}
}

// Workers is the crew of Python workers; nil if the engine makes the samples.
func (l *Loader) Workers() *crew.Crew { return l.workers }

// ID is the loader's number in this process.
func (l *Loader) ID() int64 { return l.id }

// Dataset is the stored dataset; nil if it is synthetic or a mixture.
func (l *Loader) Dataset() format.Stored { return l.data.Dataset() }

// Notes are notices that the user should see once.
func (l *Loader) Notes() []string { return append(l.data.Notes(), l.filler.Notes()...) }

// Table returns columns of the dataset; see dataset.Collection.
func (l *Loader) Table(names []string) (map[string]any, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	return l.data.Table(names)
}

// Explain is Stream.Explain for a loader that is open.
func (l *Loader) Explain(epoch, position int64) (*stream.Explanation, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	found, err := l.Stream.Explain(epoch, position)
	if err == nil {
		l.explainBegun(found)
	}
	return found, err
}

// Answer returns Ask's answer as JSON, for a loader that is open.
func (l *Loader) Answer(q stream.Question) (json.RawMessage, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	found, err := l.Ask(q)
	if err != nil {
		return nil, err
	}
	if x, ok := found.(*stream.Explanation); ok {
		l.explainBegun(x)
	}
	return json.Marshal(found)
}

// Profile is fill.Filler.Profile of the first epoch, for a loader that is open.
func (l *Loader) Profile(ctx context.Context, n int64, most time.Duration) (fill.Profile, error) {
	if !l.hold() {
		return fill.Profile{}, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	return l.filler.Profile(ctx, l.Epoch(0), n, most)
}

// Changed says how dataset number part differs from the one that another loader,
// opened before, is over. Both must be open.
func (l *Loader) Changed(before *Loader, part int64) (json.RawMessage, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	if !before.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer before.letGo()
	if part < 0 || part >= int64(len(l.data.Parts)) {
		return nil, errs.New(errs.Config, "there is no dataset %d", part)
	}
	return json.Marshal(l.data.Parts[part].Changed(before.data.Parts[0]))
}

// hold keeps the dataset open until letGo. It returns false if the loader is
// closed.
func (l *Loader) hold() bool {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	if !l.closed {
		l.inflight++
	}
	return !l.closed
}

func (l *Loader) letGo() {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	l.inflight--
	l.shared.changed.Broadcast()
}

// Fields describes the columns of batches.
func (l *Loader) Fields() []dataset.Column { return l.data.Columns() }

// Stats returns the loader's statistics at this moment.
func (l *Loader) Stats() stats.Snapshot {
	s := l.shared
	out, ahead := l.stats.Snapshot(), l.fetch.Ahead()
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Ready = 0
	for _, p := range l.passes {
		for _, ob := range p.open {
			if ob.done {
				out.Ready++
			}
		}
	}
	out.Slots, out.Leased, out.Memory, out.Lanes = l.slots.count, l.slots.leased, l.slots.bytes, l.lanes
	out.Samples, out.Cache, out.Entries = l.samples.Load(), l.filler.Cache(), l.entries()
	if l.network != nil {
		out.Sources = l.network.Counts()
	}
	out.Loader, out.Open = l.id, !l.closed
	if ahead.Planned > 0 {
		out.Ahead = &ahead
	}
	return out
}
