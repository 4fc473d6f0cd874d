// Package loader joins the stages into one stream of batches: a Spec goes in,
// batches come out, in order, with back-pressure from the consumer to the disk.
//
//	order -> fetch -> lanes: parse, decode, transform -> batch -> consumer
//	  plan     readers           (Shared)                 Next
//
// It knows no format: Options.Formats has them all. It knows no transport: it
// returns a Batch, and the sender of the batch describes its columns in messages of
// its own.
// its columns are in messages of his own.
package loader

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

const (
	// atOnce is the number of concurrent reads of one loader: enough to keep a disk
	// busy with small files, few enough to cost nothing.
	atOnce = 16
	// readAheadBytes bounds what is read but not yet decoded, unless Options do.
	readAheadBytes = 32 << 20
)

// Loader is an open stream of batches over one dataset. Passes walk through its
// epochs. Safe for concurrent use.
type Loader struct {
	Stream
	shared *Shared
	id     int64

	fields    []batch.Field // as users see them
	layout    *batch.Layout // of the largest batch so far; guarded by Shared.mu
	slotBytes int64
	fetch     *fetch.Fetcher
	budget    *mem.Budget
	slots     slots
	most      int64 // bytes, the initial slots.limit
	lanes     int
	prefetch  int
	cache     *cache        // nil without a cache
	cuts      []cuts        // of each part; nil without a cache
	deadly    map[int64]int // sample -> how often the engine died working on it
	stats     *stats.Stream
	closing   seldom // chooses closings whose CPU is measured
	sending   seldom
	planning  seldom
	filling   seldom // the same for bunches
	costs     map[*transform.Program]*costs
	crew      crew // fills rows
	small     bool // the crew is readers
	pace      pace
	hands     sync.Pool // *hand
	samples   atomic.Int64

	// Guarded by Shared.mu.
	passes   []*Pass
	current  *Pass // begun last
	ahead    *Pass // the next epoch, begun before it was asked for
	running  int   // lanes working for this loader
	inflight int   // open batches
	fetching int   // samples submitted but not yet fetched
	batches  int64 // delivered
	moved    int64 // stats.Monotonic of the last finished sample
	spare    []*openBatch
	closed   bool
}

// Options are what an Open needs besides the Spec.
type Options struct {
	Formats  []dataset.Format                     // nil: dataset.Formats()
	Sources  []source.Scheme                      // nil: dataset.Sources()
	Progress func(done, total int64, what string) // of indexing; may be nil
	// Wrap wraps the storage of the loader, for tests and measurements; may be nil.
	Wrap func(source.Source) source.Source
	// Deadly returns the samples of a dataset that the engine was working on when
	// it died, and how often; may be nil.
	Deadly func(digest string) map[int64]int
	// Stored says that only stored samples are read and no batch is made: it is
	// then no error if no field is left to deliver.
	Stored bool
	// ReadAhead bounds the bytes that are read but not yet decoded; 0 is 32 MiB. A
	// sample longer than this is still read, alone.
	ReadAhead int64
}

// Open opens a loader. Its errors name every problem of the Spec at once.
func Open(ctx context.Context, shared *Shared, spec spec.Spec, opt Options) (*Loader, error) {
	data, err := dataset.Open(ctx, spec, dataset.Options{Formats: opt.Formats, Sources: opt.Sources, Progress: opt.Progress, Wrap: opt.Wrap, Stored: opt.Stored})
	if err != nil {
		return nil, err
	}
	l := &Loader{shared: shared, moved: stats.Monotonic(), fields: data.Layout()}
	l.data, l.spec = data, data.Spec()
	if opt.Deadly != nil && data.Stored() {
		l.deadly = opt.Deadly(data.Digest())
	}
	l.layout = batch.NewLayout(l.fields, max(l.spec.Batch.Size, 1))
	l.slotBytes = l.layout.Bytes()
	err = l.newCache()
	if err == nil {
		err = l.newPlan()
	}
	if err == nil {
		err = l.size()
	}
	if err != nil {
		l.data.Close()
		return nil, err
	}
	l.start(opt.ReadAhead)
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
	return errs.New(errs.Memory, "a batch takes %s and two must fit, but memory is %s", mem.Size(slot*whole), mem.Size(limit*whole)).
		Try("raise memory= to at least %s, or lower batch_size", mem.AtLeast(2*slot*whole))
}

// setPrefetch sets prefetch to as many batches as were asked for and fit.
func (l *Loader) setPrefetch(limit int64) {
	l.prefetch = int(max(1, min(int64(l.spec.Deliver.Prefetch), limit/l.slotBytes-1)))
}

// start makes the loader known to the lanes.
func (l *Loader) start(readAhead int64) {
	s := l.shared
	l.lanes = l.spec.Workers
	l.choose(l.direct())
	l.hands.New = func() any { return new(hand) }
	s.mu.Lock()
	s.lastID++
	l.id = s.lastID
	l.measure()
	s.loaders = append(s.loaders, l)
	s.mu.Unlock()
	s.grow(l.lanes)
	l.budget = mem.NewBudget(cmp.Or(readAhead, readAheadBytes))
	n := atOnce
	if !l.data.Stored() {
		n = 0
	}
	l.fetch = fetch.New(l.data.Source(), l.data, func(r *fetch.Request) { s.fetched(r.Owner.(*task)) }, fetch.Options{
		Readers: n, Budget: l.budget, Pool: s.Pool, Board: s.Board, Page: s.Page, Stage: l.stats.Read, Loader: uint32(l.id),
	})
}

// Pass begins a walk through an epoch at a position (the items of the epoch that
// all ranks were given before). Its first step has the number step.
func (l *Loader) Pass(epoch, position, step int64) (*Pass, error) {
	if epoch < 0 || position < 0 {
		return nil, errs.New(errs.State, "epoch %d, position %d: neither can be negative", epoch, position)
	}
	l.shared.mu.Lock()
	if p := l.ahead; p != nil && !p.cancelled && p.failed == nil && p.epoch == epoch && position == 0 && step == 0 {
		defer l.shared.mu.Unlock()
		l.ahead = nil
		return l.begin(p)
	}
	l.shared.mu.Unlock()
	e := l.Epoch(epoch)
	if position > e.Len() {
		return nil, errs.New(errs.State, "epoch %d, position %d: the epoch has %d places", epoch, position, e.Len())
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	return l.begin(l.newPass(epoch, step, e, l.slice(e, position)))
}

// PassOver begins a walk over a List, which a user's sampler gave. All of it
// belongs to this rank.
func (l *Loader) PassOver(list order.List, epoch, step int64) (*Pass, error) {
	if err := l.checkList(list, epoch); err != nil {
		return nil, err
	}
	e := list.Epoch(l.spec.Order.Seed, epoch)
	slice := l.slice(e, list.Item)
	slice.World, slice.Rank = 1, 0
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	p := l.newPass(epoch, step, e, slice)
	p.alone = true
	return l.begin(p)
}

// checkList rejects lists that no pass can walk.
func (l *Loader) checkList(list order.List, epoch int64) error {
	most := int64(math.MaxInt64 - len(list.IDs))
	if epoch < 0 || list.Place < 0 || list.Place > most || list.Item < 0 || list.Item > most || list.Cuts == nil && list.Place != list.Item {
		return errs.New(errs.State, "epoch %d, place %d, item %d: a list cannot begin there", epoch, list.Place, list.Item)
	}
	for i, id := range list.IDs {
		if id < 0 || id >= l.data.Len() {
			return errs.New(errs.Config, "the sampler gave sample %d at place %d, but there are %d samples", id, list.Place+int64(i), l.data.Len()).
				Try("a sampler gives numbers from 0 to len(dataset) - 1")
		}
	}
	left := int64(len(list.IDs))
	for i, n := range list.Cuts {
		if n < 1 || n > left {
			return errs.New(errs.Config, "the batch sampler announced %d samples for batch %d, but only %d of its %d ids are left", n, list.Item+int64(i), left, len(list.IDs)).
				Try("every batch of a batch sampler needs at least one sample")
		}
		left -= n
	}
	if list.Cuts != nil && left > 0 {
		return errs.New(errs.Config, "the batch sampler gave %d ids, of which %d are in no batch", len(list.IDs), left)
	}
	if b := l.spec.Batch; b.ByLength() {
		return errs.New(errs.Config, "a sampler decides the order, so bucket %d, tokens %d, pack %d cannot change it", b.Bucket, b.Tokens, b.Pack).
			Try("leave the sampler out, or make batches by length in a batch sampler")
	}
	return nil
}

// begin makes p the pass that the consumer reads. Shared.mu is held.
func (l *Loader) begin(p *Pass) (*Pass, error) {
	if l.closed {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	if l.ahead != nil {
		l.ahead.cancel()
		l.ahead = nil
	}
	if !p.started {
		l.startPass(p)
	}
	p.ahead, p.resting = false, false
	l.current = p
	l.shared.reconsider()
	l.shared.changed.Broadcast()
	return p, nil
}

func (l *Loader) newPass(epoch, step int64, e order.Epoch, slice order.Slice) *Pass {
	p := &Pass{l: l, epoch: epoch, from: step, order: e, slice: slice}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// startPass starts a pass's planner. Shared.mu is held.
func (l *Loader) startPass(p *Pass) {
	p.started = true
	l.passes = append(l.passes, p)
	go p.plan()
}

// lookAhead begins the epoch after p's as soon as all batches of p are open.
// Shared.mu is held, and released while the order of that epoch is made.
func (l *Loader) lookAhead(p *Pass) {
	if p != l.current || p.alone || p.looked || l.ahead != nil || l.closed || p.epoch == math.MaxInt64 {
		return
	}
	p.looked = true
	l.shared.mu.Unlock()
	e := l.Epoch(p.epoch + 1)
	l.shared.mu.Lock()
	if p != l.current || p.cancelled || l.ahead != nil || l.closed {
		return
	}
	l.ahead = l.newPass(p.epoch+1, 0, e, l.slice(e, 0))
	l.ahead.ahead = true
	l.startPass(l.ahead)
}

// drop removes a pass that has ended. Shared.mu is held.
func (l *Loader) drop(p *Pass) {
	l.passes = slices.DeleteFunc(l.passes, func(q *Pass) bool { return q == p })
	l.shared.reconsider()
	if l.ahead == p {
		l.ahead = nil
	}
}

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
	s.mu.Unlock()
	l.fetch.Close()
	s.mu.Lock()
	s.loaders = slices.DeleteFunc(s.loaders, func(o *Loader) bool { return o == l })
	s.reconsider()
	quiet := l.inflight == 0
	s.mu.Unlock()
	if quiet {
		l.closeData()
		return
	}
	go l.closeWhenQuiet() // a read may hang, so Close does not wait for it
}

func (l *Loader) closeWhenQuiet() {
	s := l.shared
	s.mu.Lock()
	for l.inflight > 0 {
		s.changed.Wait()
	}
	s.mu.Unlock()
	l.closeData()
}

// closeData closes the storage that samples are read from; no sample may be in
// work.
func (l *Loader) closeData() {
	l.data.Close()
	if l.cache != nil {
		l.cache.close()
	}
	l.stats.Close()
}

// ID is the loader's number in this process.
func (l *Loader) ID() int64 { return l.id }

// Dataset is the stored dataset; nil if it is synthetic or a mixture.
func (l *Loader) Dataset() format.Stored { return l.data.Dataset() }

// Notes are notices that the user should see once.
func (l *Loader) Notes() []string { return append(l.data.Notes(), l.cacheNotes()...) }

// Table returns columns of the dataset; see dataset.Collection.
func (l *Loader) Table(names []string) (map[string]any, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	return l.data.Table(names)
}

// Explain is Stream.Explain for a loader that is open.
func (l *Loader) Explain(epoch, position int64) (*Explanation, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	return l.Stream.Explain(epoch, position)
}

// Answer returns Ask's answer as JSON, for a loader that is open.
func (l *Loader) Answer(q Question) (json.RawMessage, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	if q.What == "changed" {
		return l.changed(q.Before, q.From)
	}
	found, err := l.Ask(q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(found)
}

// changed says how dataset number part differs from the one that another loader,
// opened before, is over.
func (l *Loader) changed(before *Loader, part int64) (json.RawMessage, error) {
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
	out := l.stats.Snapshot()
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
	out.Samples, out.Cache = l.samples.Load(), l.cache.snapshot()
	out.Loader, out.Open = l.id, !l.closed
	return out
}
