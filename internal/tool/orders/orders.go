// Package orders shows which sample is in which place, before anything is read: the
// ids of a rank's steps, the sum of an epoch, how well it is mixed, and the
// comparison with receipts. Only Explain reads samples, and only their headers. It
// starts no lanes and no readers.
package orders

import (
	"context"
	"encoding/json"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stream"
)

// Orders is the order of a Spec, in the world and for the rank that it names.
// Close it.
type Orders struct{ *stream.Stream }

// Open indexes the dataset if necessary, and reads nothing else. The Spec needs no fields.
func Open(ctx context.Context, spec spec.Spec, opt dataset.Options) (*Orders, error) {
	opt.Order = true
	s, err := stream.Open(ctx, spec, opt)
	if err != nil {
		return nil, err
	}
	return &Orders{s}, nil
}

// Step is the samples of one step of one rank, in the order of the batch.
type Step struct {
	Epoch    int64   `json:"epoch"`
	Step     int64   `json:"step"`
	Position int64   `json:"position"` // what a State says that is saved after the step
	Rank     int64   `json:"rank"`
	World    int64   `json:"world_size"`
	IDs      []int64 `json:"ids"`
	// Valid is false for padding; nil if there is none.
	Valid []bool `json:"valid,omitempty"`
	// From is the first token of each run, in rows of runs if a sample was split;
	// otherwise nil.
	From []int64 `json:"from,omitempty"`
}

// Walk calls fn with count steps of an epoch from the given one on; count 0: all
// remaining ones. fn may use the Step until it returns.
func (o *Orders) Walk(ctx context.Context, epoch, first, count int64, fn func(*Step) error) error {
	if err := o.hasStep(epoch, first); err != nil {
		return err
	}
	e, slice := o.slice(epoch)
	last := slice.Steps()
	if count > 0 {
		last = min(last, first+count)
	}
	var pieces []order.Piece
	for t := first; t < last; t++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := &Step{Epoch: epoch, Step: t, Position: slice.After(t), Rank: slice.Rank, World: slice.World}
		pieces = pieces[:0]
		for i := range slice.Rows(t) {
			pieces = e.Item(slice.Place(t, i), pieces)
		}
		s.set(e, pieces)
		if err := fn(s); err != nil {
			return err
		}
	}
	return nil
}

func (s *Step) set(e order.Epoch, pieces []order.Piece) {
	s.IDs = make([]int64, len(pieces))
	for i, p := range pieces {
		s.IDs[i] = p.Sample
		if !e.Real(p.Place) && s.Valid == nil {
			s.Valid = make([]bool, len(pieces))
			for j := range i {
				s.Valid[j] = true
			}
		}
		if s.Valid != nil {
			s.Valid[i] = e.Real(p.Place)
		}
		if p.From > 0 && s.From == nil {
			s.From = make([]int64, len(pieces))
		}
		if s.From != nil {
			s.From[i] = p.From
		}
	}
}

// slice is this rank's share of a whole epoch.
func (o *Orders) slice(epoch int64) (order.Epoch, order.Slice) {
	e, spec := o.Epoch(epoch), o.Spec()
	world := int64(spec.World)
	return e, order.Slice{N: e.Len(), Batch: o.Stride() / world, World: world, Rank: int64(spec.Rank), Tail: spec.Order.Tail}
}

// hasStep is the error of an epoch or a step that does not exist.
func (o *Orders) hasStep(epoch, step int64) error {
	if epoch < 0 || step < 0 {
		return errs.New(errs.Config, "epoch %d, step %d: both count from 0", epoch, step)
	}
	steps := o.Steps(epoch, 0)
	switch {
	case steps == 0:
		spec := o.Spec()
		return errs.New(errs.Config, "epoch %d has no step: %d samples fill no batch of %d on %d ranks, and tail is %q", epoch, o.Len(), spec.Batch.Size, spec.World, spec.Order.Tail).
			Try("lower batch_size, or set tail to pad")
	case step >= steps:
		return errs.New(errs.Config, "epoch %d has no step %d", epoch, step).Try("its last one is %d", steps-1)
	}
	return nil
}

// Explain says what a step contains, and why: files, boxes, flips.
func (o *Orders) Explain(epoch, step int64) (*stream.Explanation, error) {
	if err := o.hasStep(epoch, step); err != nil {
		return nil, err
	}
	return o.Stream.Explain(epoch, step*o.Stride())
}

// Digest is what two machines compare to find out whether they have the same order.
type Digest struct {
	Dataset string          `json:"dataset"`
	Seed    uint64          `json:"seed"`
	Order   json.RawMessage `json:"order"`
	Epoch   int64           `json:"epoch"`
	Items   int64           `json:"items"`   // places, or batches where the order makes them
	Samples int64           `json:"samples"` // padding apart
	Sum     order.Sum       `json:"sum"`
}

// summed is the number of items that one core adds up at a time: enough that a batch by
// length opens its window once, few enough to stop soon.
const summed = 1 << 16

// Digest adds up an epoch, on all cores.
func (o *Orders) Digest(ctx context.Context, epoch int64, tell func(done, total int64)) (*Digest, error) {
	if epoch < 0 {
		return nil, errs.New(errs.Config, "there is no epoch %d", epoch)
	}
	e, st := o.Epoch(epoch), o.State(epoch, 0)
	d := &Digest{Dataset: st.Dataset, Seed: st.Seed, Order: st.Order, Epoch: epoch, Items: e.Len()}
	var mu sync.Mutex
	var next, done atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for ctx.Err() == nil {
				to := next.Add(summed)
				from := to - summed
				if from >= d.Items {
					return
				}
				to = min(to, d.Items)
				sum, samples := e.Sum(from, to)
				mu.Lock()
				d.Sum.Plus(sum)
				d.Samples += samples
				if tell != nil {
					tell(done.Add(to-from), d.Items)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return d, ctx.Err()
}
