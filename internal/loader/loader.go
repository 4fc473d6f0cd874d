// Package loader joins the stages into one stream of batches: Spec in, batches
// out, in order, with back-pressure from the consumer to the disk.
//
//	order -> fetch -> lanes: parse, decode, transform -> batch -> consumer
//	  plan     readers           (Shared)                 Next
//
// It knows no format and no transport.
package loader

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

const (
	// readers is the reads at once of one loader: enough to keep a disk busy
	// with small files, few enough to cost nothing.
	readers = 16
	// readAheadBytes bounds what is read and not decoded yet.
	readAheadBytes = 32 << 20
)

// Loader is an open stream over one dataset. Passes walk it. Safe for
// concurrent use.
type Loader struct {
	shared *Shared
	spec   Spec // defaults written out
	id     int64

	ds        format.Dataset // nil: synthetic
	src       source.Source
	closeSrc  func() error
	synthetic []byte
	n         int64
	digest    string
	classes   []string
	format    string
	pipeline  string
	plan      order.Plan
	programs  []*transform.Program
	wanted    []string // stored names, one a field
	layout    *batch.Layout
	slotBytes int64
	fetch     *fetch.Fetcher
	budget    *mem.Budget
	slots     slots
	lanes     int
	prefetch  int
	deadly    map[int64]int // samples in work when an engine died -> times
	stats     stats.Stream
	samples   atomic.Int64

	// Guarded by Shared.mu.
	passes   []*Pass
	current  *Pass     // begun last
	ahead    *Pass     // the next epoch, begun before it was asked for
	running  int       // lanes at work here
	inflight int       // open batches
	moved    time.Time // when a sample was last finished
	spare    []*openBatch
	closed   bool
}

// Options are what an Open needs besides the Spec.
type Options struct {
	Progress func(done, total int64, what string) // of indexing; may be nil
	// Wrap puts something between the loader and its storage; may be nil.
	Wrap func(source.Source) source.Source
	// Deadly are the samples of a dataset that were in work when an engine died,
	// and how often; may be nil.
	Deadly func(digest string) map[int64]int
}

// Open opens a loader. Errors name every problem of the Spec at once.
func Open(ctx context.Context, shared *Shared, spec Spec, opt Options) (*Loader, error) {
	spec = spec.defaults()
	p := spec.check()
	l := &Loader{shared: shared, moved: time.Now()}
	if len(p) == 0 || spec.Dataset.Format == "synthetic" || len(spec.Dataset.Path) > 0 {
		if err := l.openDataset(ctx, spec, opt); err != nil {
			if len(p) > 0 {
				p.addf("%s", withHint(err))
				return nil, p.err()
			}
			return nil, err
		}
	}
	if opt.Deadly != nil {
		l.deadly = opt.Deadly(l.digest)
	}
	if len(spec.Fields) == 0 && l.ds != nil {
		spec.Fields = defaultFields(l.ds)
	}
	l.spec = spec
	if err := l.compile(&p); err != nil {
		l.closeDataset()
		return nil, err
	}
	if err := l.size(); err != nil {
		l.closeDataset()
		return nil, err
	}
	l.start()
	return l, nil
}

// compile turns the fields into programs and a layout.
func (l *Loader) compile(p *problems) error {
	var fields []batch.Field
	if l.ds == nil && l.synthetic != nil {
		l.spec.Fields = []Field{{Name: "image"}}
		fields = []batch.Field{{Name: "image", DType: mem.Uint8, Shape: l.spec.Dataset.Shape}}
	} else {
		for i := range l.spec.Fields {
			f := &l.spec.Fields[i]
			if f.From == "" {
				f.From = f.Name
			}
			if f.Decode == "" {
				f.Decode = "bytes"
			}
			if c, ok := l.ds.(checker); ok {
				if err := c.Check([]string{f.From}); err != nil {
					p.addf("%s", withHint(err))
					continue // what it would be decoded to does not matter
				}
			}
			prog, err := transform.Compile(f.Decode, f.Transform, f.Layout)
			if err != nil {
				p.addf("field %q: %s", f.Name, withHint(err))
				continue
			}
			shape, fixed := prog.Shape()
			l.programs = append(l.programs, prog)
			l.wanted = append(l.wanted, f.From)
			fields = append(fields, batch.Field{Name: f.Name, DType: prog.DType(), Shape: shape, Loose: !fixed})
		}
	}
	if err := p.err(); err != nil {
		return err
	}
	plan, err := order.New(l.n, order.Policy{Shuffle: l.spec.Order.Shuffle, Seed: l.spec.Order.Seed})
	if err != nil {
		return errs.New(errs.Config, "%s", err)
	}
	l.plan = plan
	l.layout = batch.NewLayout(fields, l.spec.Batch.Size)
	l.slotBytes = l.layout.Bytes()
	l.pipeline = pipelineDigest(l.spec.Fields, l.programs)
	return nil
}

func withHint(err error) string {
	e := errs.From(err)
	if e.Hint == "" {
		return e.Error()
	}
	return e.Error() + " (" + e.Hint + ")"
}

// pipelineDigest names what is done to a sample: fields and transforms.
func pipelineDigest(fields []Field, programs []*transform.Program) string {
	h := xxhash.New()
	for i, f := range fields {
		fmt.Fprintf(h, "%q %q\n", f.Name, f.From)
		if i < len(programs) {
			fmt.Fprintln(h, programs[i].Digest())
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// size decides how much memory batches may take, and refuses what can not work.
func (l *Loader) size() error {
	available := mem.Available()
	limit := int64(l.spec.Deliver.Memory)
	asked := limit > 0
	if !asked {
		limit = available / 4
	}
	if l.loose() {
		limit /= 2 // rows of unequal length are collected before they are packed
	}
	if err := l.fits(l.slotBytes, limit); err != nil {
		e := errs.From(err)
		if !asked {
			e.Hint = fmt.Sprintf("that is a quarter of the %.0f MiB that this machine or its cgroup has left; lower batch_size, or pass memory=", mib(available))
		}
		return e
	}
	l.slots = slots{l: l, limit: limit}
	l.setPrefetch(limit)
	if l.loose() {
		l.prefetch = 1 // until the first batch tells how large they are
	}
	return nil
}

// loose says whether the length of a batch is known only when it is there.
func (l *Loader) loose() bool {
	return slices.ContainsFunc(l.layout.Fields, func(f batch.Field) bool { return f.Loose })
}

// fits says that memory holds two batches: one that the user has, one that is
// being filled.
func (l *Loader) fits(slot, limit int64) error {
	if 2*slot <= limit {
		return nil
	}
	whole := 1
	if l.loose() {
		whole = 2
	}
	return errs.New(errs.Memory, "a batch takes %.2f MiB, and two must fit: memory is %.2f MiB", mib(slot*int64(whole)), mib(limit*int64(whole))).
		Try("raise memory= to at least %.0f MiB, or lower batch_size", math.Ceil(mib(2*slot*int64(whole))))
}

// setPrefetch is as many batches ahead as were asked for and fit.
func (l *Loader) setPrefetch(limit int64) {
	l.prefetch = int(max(1, min(int64(l.spec.Deliver.Prefetch), limit/l.slotBytes-1)))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// start makes the loader known to the lanes.
func (l *Loader) start() {
	s := l.shared
	l.lanes = l.spec.Workers
	s.mu.Lock()
	s.lastID++
	l.id = s.lastID
	s.loaders = append(s.loaders, l)
	s.mu.Unlock()
	s.grow(l.lanes)
	l.budget = mem.NewBudget(readAheadBytes)
	src, files := l.storage()
	n := readers
	if l.ds == nil {
		n = 0
	}
	l.fetch = fetch.New(src, files, func(r *fetch.Request) { s.fetched(r.Owner.(*task)) }, fetch.Options{
		Readers: n, Budget: l.budget, Pool: s.Pool, Board: s.Board, Stage: &l.stats.Read, Loader: uint32(l.id),
	})
}

// Pass begins a walk through an epoch at a position (places of the epoch that
// all ranks were given before), counting steps on from step.
func (l *Loader) Pass(epoch, position, step int64) (*Pass, error) {
	if epoch < 0 || position < 0 || position > l.n {
		return nil, errs.New(errs.State, "epoch %d, position %d: a dataset of %d samples has no such place", epoch, position, l.n)
	}
	s := l.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.closed {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	p := l.ahead
	l.ahead = nil
	if p != nil && (p.cancelled || p.failed != nil || p.epoch != epoch || position != 0 || step != 0) {
		p.cancel()
		p = nil
	}
	if p == nil {
		p = l.newPass(epoch, position, step)
	}
	p.ahead, p.resting = false, false
	l.current = p
	s.changed.Broadcast()
	return p, nil
}

func (l *Loader) newPass(epoch, position, step int64) *Pass {
	p := &Pass{
		l: l, epoch: epoch, from: step,
		order: l.plan.Epoch(epoch),
		slice: order.Slice{
			N: l.n, Start: position, Batch: int64(l.spec.Batch.Size),
			World: int64(l.spec.World), Rank: int64(l.spec.Rank), Tail: l.spec.Order.Tail,
		},
	}
	l.passes = append(l.passes, p)
	go p.plan()
	return p
}

// lookAhead begins the epoch after p's, once all of p is on its way.
func (l *Loader) lookAhead(p *Pass) {
	if p != l.current || l.ahead != nil || l.closed {
		return
	}
	l.ahead = l.newPass(p.epoch+1, 0, 0)
	l.ahead.ahead = true
}

// drop forgets a pass that has ended. Shared.mu is held.
func (l *Loader) drop(p *Pass) {
	l.passes = slices.DeleteFunc(l.passes, func(q *Pass) bool { return q == p })
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
	for _, slot := range l.slots.free {
		l.slots.discard(slot)
	}
	l.slots.free = nil
	s.mu.Unlock()
	l.fetch.Close()
	s.mu.Lock()
	s.loaders = slices.DeleteFunc(s.loaders, func(o *Loader) bool { return o == l })
	quiet := l.inflight == 0
	s.mu.Unlock()
	if quiet {
		l.closeDataset()
		return
	}
	go l.closeWhenQuiet() // a read may hang: nobody waits for it
}

func (l *Loader) closeWhenQuiet() {
	s := l.shared
	s.mu.Lock()
	for l.inflight > 0 {
		s.changed.Wait()
	}
	s.mu.Unlock()
	l.closeDataset()
}

// Len is the number of samples.
func (l *Loader) Len() int64 { return l.n }

// ID is the loader's number in this process.
func (l *Loader) ID() int64 { return l.id }

// Digest names the contents of the dataset.
func (l *Loader) Digest() string { return l.digest }

// Pipeline names what is done to a sample.
func (l *Loader) Pipeline() string { return l.pipeline }

// Spec is the Spec with every default written out.
func (l *Loader) Spec() Spec { return l.spec }

// Dataset is what is read; nil if it is synthetic.
func (l *Loader) Dataset() format.Dataset { return l.ds }

// Fields says what batches hold.
func (l *Loader) Fields() []wire.Field {
	var out []wire.Field
	for i, f := range l.spec.Fields {
		w := wire.Field{Name: f.Name, Kind: "image", DType: "uint8", Shape: l.layout.Fields[i].Shape, Axes: "hwc", View: "hwc"}
		if l.ds != nil {
			p := l.programs[i]
			w.Kind, w.DType = p.Kind(), p.DType().String()
			w.Axes, w.View = p.Axes()
		}
		out = append(out, w)
	}
	return out
}

// Stats is the loader's numbers at this moment.
func (l *Loader) Stats() stats.Snapshot {
	s := l.shared
	out := l.stats.Snapshot()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range l.passes {
		for _, ob := range p.open {
			if ob.done {
				out.Ready++
			}
		}
	}
	out.Slots, out.Leased, out.Memory, out.Lanes = l.slots.count, l.slots.leased, l.slots.bytes, l.lanes
	out.Samples = l.samples.Load()
	return out
}

// State is where a stream stands: plain JSON, equal on every rank.
type State struct {
	Version  int             `json:"version"`
	Dataset  string          `json:"dataset"`
	Pipeline string          `json:"pipeline"`
	Seed     uint64          `json:"seed"`
	Epoch    int64           `json:"epoch"`
	Position int64           `json:"position"`
	Order    json.RawMessage `json:"order"`
}

// StateVersion is the version of State.
const StateVersion = 1

// State is the state after a batch at position of an epoch.
func (l *Loader) State(epoch, position int64) State {
	how, _ := json.Marshal(map[string]any{"shuffle": l.spec.Order.Shuffle})
	return State{StateVersion, l.digest, l.pipeline, l.spec.Order.Seed, epoch, position, how}
}

// Check says why a state is not one of this loader's stream.
func (l *Loader) Check(st State) error {
	var why []string
	differ := func(what string, a, b any) {
		if fmt.Sprint(a) != fmt.Sprint(b) {
			why = append(why, fmt.Sprintf("%s is %v in the state and %v here", what, a, b))
		}
	}
	mine := l.State(st.Epoch, st.Position)
	differ("version", st.Version, mine.Version)
	differ("dataset", st.Dataset, mine.Dataset)
	differ("pipeline", st.Pipeline, mine.Pipeline)
	differ("seed", st.Seed, mine.Seed)
	var theirs, ours map[string]any
	if json.Unmarshal(st.Order, &theirs) != nil || json.Unmarshal(mine.Order, &ours) != nil || !maps.Equal(theirs, ours) {
		why = append(why, fmt.Sprintf("order is %s in the state and %s here", st.Order, mine.Order))
	}
	if st.Epoch < 0 || st.Position < 0 || st.Position > l.n {
		why = append(why, fmt.Sprintf("it stands at place %d of epoch %d, and there are %d places", st.Position, st.Epoch, l.n))
	}
	if len(why) == 0 {
		return nil
	}
	return errs.New(errs.State, "the state does not fit: %s", strings.Join(why, "; ")).
		Try("open the loader with the dataset, transforms, seed and shuffle that the state was saved with")
}
