package pack

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

const (
	// inWork is about the most bytes of samples that are in memory between their
	// source and a shard; a single larger sample passes alone.
	inWork = 64 << 20
	// maxShards is the most shards that are written at once. With several, hashing
	// and compression do not delay each other; more would only scatter reads.
	maxShards = 8
)

// workshop is what the shards in progress share.
type workshop struct {
	*packer
	dst   *dst
	lanes chan *prepare.Lane // as many as samples may be worked on at once
	spare sync.Pool          // *item

	weights weights
	samples atomic.Int64 // written, or left out
	bytes   atomic.Int64 // written, before compression
	total   int64
	mu      sync.Mutex // serialises Progress
}

// item is one sample in progress.
type item struct {
	place     int64
	held      int64 // bytes of the budget
	seen      seen
	parts     [][]byte
	key       uint64 // hash of the sample's key
	converted int64  // see prepare.Lane
	err       error
	bad       *packing.Bad  // it is left out
	done      chan struct{} // has one place
}

// make makes the shards of todo, which are not finished yet.
func (p *packer) make(ctx context.Context, d *dst, todo []int) error {
	jobs := p.Jobs
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	w := &workshop{packer: p, dst: d, lanes: make(chan *prepare.Lane, jobs), weights: p.weigh()}
	w.spare.New = func() any {
		return &item{parts: make([][]byte, len(p.output.Files())), done: make(chan struct{}, 1)}
	}
	for range jobs {
		w.lanes <- prepare.NewLane()
	}
	defer func() {
		for range jobs {
			(<-w.lanes).Close()
		}
	}()
	for _, s := range todo {
		first, end := p.plan.span(s)
		w.total += end - first
	}
	w.tell(0)
	side := min(jobs, len(todo), maxShards)
	return inTurn(ctx, side, todo, func(ctx context.Context, s int) error { return w.shard(ctx, s, side) })
}

// inTurn calls f for all of todo, side at a time. After a failure no more are
// begun, and later ones are cancelled. Of several failures that of the first shard
// is returned, whichever happened first.
func inTurn(ctx context.Context, side int, todo []int, f func(ctx context.Context, s int) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		lowest = -1
		first  error
		next   atomic.Int64
	)
	for range side {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(todo) {
					return
				}
				if err := f(ctx, todo[i]); err != nil {
					mu.Lock()
					if called := errors.Is(err, context.Canceled); first == nil || !called && (i < lowest || errors.Is(first, context.Canceled)) {
						lowest, first = i, err
					}
					mu.Unlock()
					stop()
				}
			}
		})
	}
	wg.Wait()
	if first != nil {
		return first
	}
	return ctx.Err()
}

// shard makes one shard, with side shards at a time.
func (w *workshop) shard(ctx context.Context, s, side int) error {
	unlock, done, err := w.dst.claim(s)
	if err != nil || done {
		return err
	}
	defer unlock()
	first, end := w.plan.span(s)
	made, sums, err := w.write(ctx, s, side, end-first)
	if err != nil {
		return err
	}
	return w.dst.finished(s, made, sums)
}

// write writes the files of a shard of so many samples. How many can be read is
// known at the end, and some formats begin with it: these are written again.
func (w *workshop) write(ctx context.Context, s, side int, count int64) (made Shard, sums []byte, err error) {
	first, end := w.plan.span(s)
	kinds := w.output.Files()
	out, err := shard.NewWriter(w.dst.target, w.names(s), kinds, count, w.comp)
	if err != nil {
		return made, nil, err
	}
	defer out.Abort()
	sums = make([]byte, 0, 8*(end-first))
	made.First = first
	var keys []uint64
	var places []int64
	err = w.line(ctx, first, end, side, func(it *item) error {
		if it.bad != nil {
			made.Bad = append(made.Bad, *it.bad)
			w.tell(1)
			return nil
		}
		sum, err := out.Append(it.parts)
		if err != nil {
			return err
		}
		sums = binary.LittleEndian.AppendUint64(sums, sum)
		keys, places = append(keys, it.key), append(places, it.place)
		made.Converted += it.converted
		n := int64(0)
		for _, p := range it.parts {
			n += int64(len(p))
		}
		w.bytes.Add(n)
		w.tell(1)
		return nil
	})
	if err != nil {
		return made, nil, err
	}
	made.Samples = int64(len(keys))
	if made.Samples == 0 {
		return made, nil, errs.New(errs.Damaged, "no sample of %s can be read, of %d; the first: %s", w.dst.name(s), len(made.Bad), made.Bad[0].Error).
			At(errs.Where{Sample: errs.Known(made.Bad[0].Sample)}).Try("a larger --shard-size puts other samples beside them; `stoker verify` names all that are damaged")
	}
	if made.Samples != count && slices.ContainsFunc(kinds, func(f shard.File) bool { return f.Head != nil }) {
		out.Abort()
		w.samples.Add(first - end)
		return w.write(ctx, s, side, made.Samples)
	}
	if err := w.distinct(places, keys); err != nil {
		return made, nil, err
	}
	made.Files, err = out.Finish()
	return made, sums, err
}

// distinct checks that no two samples of a tar shard have the same key: readers
// would treat them as one sample, or reject the shard. keys are hashes, in order, of the
// samples at places.
func (w *workshop) distinct(places []int64, keys []uint64) error {
	if w.Options.Output != OutputTar {
		return nil
	}
	by := make([]int32, len(keys))
	for i := range by {
		by[i] = int32(i)
	}
	slices.SortFunc(by, func(a, b int32) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	for i := 1; i < len(by); i++ {
		if keys[by[i]] == keys[by[i-1]] {
			a, _ := w.at(places[by[i-1]])
			b, _ := w.at(places[by[i]])
			return w.read.locate(errs.New(errs.Config, "samples %d and %d have the same name, and would be one sample in a shard", a, b).
				Try("name them by number with --keys number"), b)
		}
	}
	return nil
}

// line reads and prepares the samples of [first, end), several at once, and passes
// them to put in order.
//
// The budget is taken in order, before a sample is passed to a worker: the sample
// that put waits for always has its share, so later ones cannot starve it.
func (w *workshop) line(ctx context.Context, first, end int64, side int, put func(*item) error) error {
	ctx, cancel := context.WithCancel(ctx)
	budget := mem.NewBudget(inWork / int64(side))
	workers := max(2, (2*cap(w.lanes)+side-1)/side) // half of them read
	queue, work := make(chan *item, 4*workers), make(chan *item, 4*workers)
	var wg sync.WaitGroup
	defer func() { // whatever happens, all workers end
		cancel()
		budget.Wake()
		for it := range queue {
			<-it.done
		}
		wg.Wait()
	}()
	wg.Go(func() {
		defer close(queue)
		defer close(work)
		for place := first; place < end; place++ {
			id, _ := w.at(place)
			it := w.spare.Get().(*item)
			it.place, it.err, it.bad = place, nil, nil
			it.held = w.cost(id)
			if !budget.Acquire(it.held, 0, func() bool { return ctx.Err() != nil }) || ctx.Err() != nil {
				return
			}
			work <- it
			queue <- it
		}
	})
	for range workers {
		wg.Go(func() {
			for it := range work {
				if it.err = ctx.Err(); it.err == nil {
					it.err = w.prepare(ctx, it)
				}
				if w.passesOver(it.err) {
					it.bad, it.err = w.unreadable(it.place, it.err), nil
				}
				it.done <- struct{}{}
			}
		})
	}
	for it := range queue {
		<-it.done
		err := it.err
		if err == nil {
			err = put(it)
		}
		budget.Release(it.held)
		if err != nil {
			return err
		}
		it.seen.rest()
		for i, p := range it.parts {
			if cap(p) > keepBytes {
				it.parts[i] = nil
			}
		}
		w.spare.Put(it)
	}
	return ctx.Err()
}

// passesOver says that an error is of one sample, and --on-bad skip goes on without
// it: what is stored cannot be read. A source that fails is not of one sample.
func (p *packer) passesOver(err error) bool {
	return err != nil && p.Options.OnBad == spec.Skip && errs.Classes[errs.From(err).Code].Python == "DataError"
}

// unreadable is a sample that is left out, as the manifest names it: without the
// places of this machine.
func (w *workshop) unreadable(place int64, err error) *packing.Bad {
	id, _ := w.at(place)
	e := errs.From(err)
	bad := &packing.Bad{Sample: id, Error: errs.Plain(e.What)}
	if e.Cause != nil {
		bad.Error += ": " + errs.Plain(e.Cause.Error())
	}
	if extents := w.ds.Extents(id, nil, nil); len(extents) > 0 {
		bad.File = jsontext.Name(w.ds.Index().Name(extents[0].File))
	}
	return bad
}

// cost is about the memory of a sample in progress.
func (w *workshop) cost(id int64) int64 {
	n := int64(16 << 10)
	var room [8]format.Extent
	for _, e := range w.ds.Extents(id, w.read.wants, room[:0]) {
		n += 2 * e.Len
	}
	return n
}

// prepare reads one sample and makes its bytes.
func (w *workshop) prepare(ctx context.Context, it *item) error {
	id, copied := w.at(it.place)
	if err := w.read.bytes(ctx, id, &it.seen); err != nil {
		return err
	}
	lane := <-w.lanes
	defer func() { w.lanes <- lane }()
	if err := w.read.parse(id, &it.seen); err != nil {
		return err
	}
	made, err := w.program.Run(lane, &it.seen.sample, copied)
	if err != nil {
		return w.read.locate(err, id)
	}
	it.key, it.converted = xxhash.Sum64(made.Key), lane.Converted
	for i := range it.parts {
		it.parts[i] = it.parts[i][:0]
	}
	if err := w.output.Encode(made, it.parts); err != nil {
		return w.read.locate(err, id)
	}
	return nil
}

// tell counts samples and reports progress.
func (w *workshop) tell(n int64) {
	done := w.samples.Add(n)
	if w.Progress == nil || done%16 != 0 && done != w.total {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Progress(done, w.total, w.bytes.Load())
}

// missing is the shards of this process that are not finished, in order.
func (p *packer) missing(d *dst) (todo []int, err error) {
	first, end := 0, p.plan.shards()
	if p.Tasks > 0 {
		first, end = p.Task*end/p.Tasks, (p.Task+1)*end/p.Tasks
	}
	for s := first; s < end; s++ {
		done, err := d.done(s)
		if err != nil {
			return nil, err
		}
		if done == nil {
			todo = append(todo, s)
			if d.broken(s) {
				d.again++
			}
		}
	}
	return slices.Clip(todo), nil
}
