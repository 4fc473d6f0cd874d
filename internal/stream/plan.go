package stream

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// orderState is what a State says about the order: everything that decides which
// sample is in which place, lists by their digests. Zero values are left out, so
// that states of simple orders stay as they are.
type orderState struct {
	Shuffle     order.Shuffle `json:"shuffle"`
	Block       int64         `json:"block,omitempty"`
	Window      int64         `json:"window,omitempty"`
	Streams     int64         `json:"streams,omitempty"`
	Weights     string        `json:"weights,omitempty"` // digest
	Balanced    bool          `json:"balanced,omitempty"`
	Replacement bool          `json:"replacement,omitempty"`
	NumSamples  int64         `json:"num_samples,omitempty"`
	Subset      string        `json:"subset,omitempty"`  // digest
	Mix         string        `json:"mix,omitempty"`     // digest
	Lengths     string        `json:"lengths,omitempty"` // digest
	Bucket      int64         `json:"bucket,omitempty"`
	Tokens      int64         `json:"tokens,omitempty"`
	Rows        int64         `json:"rows,omitempty"`
	Pack        int64         `json:"pack,omitempty"`
	Long        order.Long    `json:"long,omitempty"`
	Sorted      int64         `json:"sorted,omitempty"` // batch.window
}

// newPlan makes the plan of the Spec over the collection, and what states say about
// it.
func (l *Stream) newPlan() error {
	o, b := l.spec.Order, l.spec.Batch
	state := orderState{
		Shuffle: o.Shuffle, Block: o.Block, Window: o.Window, Streams: o.Streams,
		Balanced: o.Balanced, NumSamples: o.NumSamples,
		Bucket: b.Bucket, Tokens: b.Tokens, Pack: b.Pack, Long: b.Long, Sorted: b.Window,
	}
	policy := order.Policy{Shuffle: o.Shuffle, Seed: o.Seed}
	policy.Block = l.block(o.Shuffle, l.data.Blocks)
	policy.Draw = order.Draw{Num: o.NumSamples, Replacement: o.Replacement != nil && *o.Replacement}
	state.Replacement = policy.Draw.Replacement
	var err error
	if !o.Subset.IsZero() {
		numbers, err := o.Subset.Read()
		if err != nil {
			return err
		}
		if policy.Subset, err = ids(numbers, l.data.Len()); err != nil {
			return err
		}
		state.Subset = numbersDigest(numbers)
	}
	if policy.Draw.Weights, err = l.weights(policy.Subset); err != nil {
		return err
	}
	if o.Weights.Len() > 0 {
		state.Weights = numbersDigest(policy.Draw.Weights)
	}
	if l.spec.Dataset.Mixed != nil {
		policy.Draw = order.Draw{}
		policy.Mix = l.mix()
		text, _ := json.Marshal(policy.Mix)
		state.Mix = fmt.Sprintf("%016x", xxhash.Sum64(text))
		if policy.Subset != nil {
			if err := choose(policy.Mix, policy.Subset); err != nil {
				return err
			}
			policy.Subset = nil
		}
	}
	if b.ByLength() {
		of, err := l.lengths()
		if err != nil {
			return err
		}
		l.lens = of
		policy.Lengths = order.Lengths{Of: of, Window: b.Window, Bucket: b.Bucket, Tokens: b.Tokens, Rows: int64(b.Size), Pack: b.Pack, Long: b.Long}
		if b.Tokens == 0 {
			policy.Lengths.Rows = 0
		}
		state.Rows = policy.Lengths.Rows
		wide := make([]float64, len(of))
		for i, n := range of {
			wide[i] = float64(n)
		}
		state.Lengths = numbersDigest(wide)
	}
	if l.plan, err = order.New(l.data.Len(), policy); err != nil {
		return errs.New(errs.Config, "%s", inSpec(err, b.ByLength()))
	}
	l.orderState, _ = json.Marshal(state)
	if sizes := policy.Block.Sizes; sizes != nil {
		wide := make([]float64, len(sizes))
		for i, n := range sizes {
			wide[i] = float64(n)
		}
		l.blocks = numbersDigest(wide)
	}
	return nil
}

// block is the settings of a block or window shuffle.
func (l *Stream) block(s order.Shuffle, sizes func(int64) []int64) order.Block {
	o := l.spec.Order
	switch s {
	case order.BlockWise:
		return order.Block{Sizes: sizes(o.Block), Streams: o.Streams, Window: o.Window}
	case order.WindowAlone:
		return order.Block{Window: o.Window}
	}
	return order.Block{}
}

// weights returns those of the Spec, or those that make all classes equally likely;
// one for every sample of the subset, if there is one.
func (l *Stream) weights(subset []int64) ([]float64, error) {
	if !l.spec.Order.Balanced {
		return l.spec.Order.Weights.Read()
	}
	labels := l.data.Labels()
	if labels == nil {
		return nil, errs.New(errs.Config, "balanced needs the class of every sample, which a %s dataset does not keep in its index", l.Format()).
			Try("pass weights= instead: one number per sample")
	}
	if subset != nil {
		all := labels
		labels = make([]int32, len(subset))
		for i, id := range subset {
			labels[i] = all[id]
		}
	}
	count := map[int32]float64{}
	for _, class := range labels {
		count[class]++
	}
	out := make([]float64, len(labels))
	for i, class := range labels {
		out[i] = 1 / count[class]
	}
	return out, nil
}

func (l *Stream) lengths() ([]int32, error) {
	from := l.spec.Batch.Lengths
	if from.Field != "" {
		return l.data.Lengths(from.Field)
	}
	numbers, err := from.Read()
	if err != nil {
		return nil, err
	}
	return int32s(numbers)
}

// Length is the length of a sample, in tokens or bytes, if batches are made by length.
func (l *Stream) Length(sample int64) int64 { return int64(l.lens[sample]) }

// mix returns the mixture of the Spec.
func (l *Stream) mix() *order.Mix {
	s := l.spec
	m := &order.Mix{Linear: s.Mix.Linear, Stop: s.Mix.Stop, Num: s.Order.NumSamples}
	weights := make([]float64, len(s.Dataset.Mixed))
	for i, d := range s.Dataset.Mixed {
		part := l.data.Parts[i]
		shuffle := d.Shuffle
		if shuffle == "" {
			shuffle = s.Order.Shuffle
		}
		m.Members = append(m.Members, order.Member{
			Samples: part.N, Policy: order.Policy{Shuffle: shuffle, Block: l.block(shuffle, part.Blocks)},
		})
		weights[i] = 1
		if d.Weight != 0 {
			weights[i] = d.Weight
		}
	}
	m.Points = []order.Point{{Weights: weights}}
	if s.Mix.Schedule != nil {
		m.Points = nil
		for _, at := range s.Mix.Schedule {
			m.Points = append(m.Points, order.Point(at))
		}
	}
	if s.Mix.Batches == spec.BatchesSingle {
		m.Run, m.Batches = int64(s.Batch.Size), true
		if s.Batch.GlobalSize > 0 {
			m.Run, m.Batches = int64(s.Batch.GlobalSize), false
		}
	}
	return m
}

// choose gives each member of a mixture its part of a subset of all samples.
func choose(m *order.Mix, subset []int64) error {
	first := make([]int64, len(m.Members))
	for i, member := range m.Members[:len(m.Members)-1] {
		first[i+1] = first[i] + member.Samples
	}
	for _, id := range subset {
		i := sort.Search(len(first), func(i int) bool { return first[i] > id }) - 1
		m.Members[i].Policy.Subset = append(m.Members[i].Policy.Subset, id-first[i])
	}
	for i, member := range m.Members {
		if member.Policy.Subset == nil {
			return errs.New(errs.Config, "the subset has none of the %d samples of dataset %d of the mixture", member.Samples, i).
				Try("leave the dataset out of the mixture, or choose some of its samples")
		}
	}
	return nil
}

// Slice is this rank's share of an epoch that it enters at position.
func (l *Stream) Slice(e order.Epoch, position int64) order.Slice {
	s := order.Slice{
		N: e.Len(), Start: position, Batch: int64(l.spec.Batch.Size),
		World: int64(l.spec.World), Rank: int64(l.spec.Rank), Tail: l.spec.Order.Tail,
	}
	if e.Batches() {
		s.Batch = 1
	}
	return s
}

// Epoch is the order of one epoch. The last one of each parity is kept, because
// some cost a pass over the lengths of all samples.
func (l *Stream) Epoch(e int64) order.Epoch {
	l.epochMu.Lock()
	defer l.epochMu.Unlock()
	if l.epochs[e&1].known && l.epochs[e&1].number == e {
		return l.epochs[e&1].Epoch
	}
	at := &l.epochs[e&1]
	at.Epoch, at.number, at.known = l.plan.Epoch(e), e, true
	return at.Epoch
}

// knownEpoch is an epoch that was computed already.
type knownEpoch struct {
	order.Epoch
	number int64
	known  bool
}

// Steps is the number of batches of an epoch from a position on, the same on every
// rank.
func (l *Stream) Steps(epoch, position int64) int64 {
	return l.Slice(l.Epoch(epoch), position).Steps()
}

// Stride is the number of items that one step takes over all ranks. Items are
// places, or batches if the order makes them.
func (l *Stream) Stride() int64 { return l.strideIn(int64(l.spec.World)) }

// strideIn is the stride with another number of ranks and the batches of this Spec.
func (l *Stream) strideIn(world int64) int64 {
	switch b := l.spec.Batch; {
	case b.GlobalSize > 0:
		return int64(b.GlobalSize)
	case b.Tokens > 0 || l.spec.Mix.Batches == spec.BatchesSingle:
		return world
	default:
		return int64(b.Size) * world
	}
}

// StepOf is the number of the step that begins at a position of an epoch, or of the
// first step after it.
func (l *Stream) StepOf(position int64) int64 {
	return (position + l.Stride() - 1) / l.Stride()
}

// inSpec is the text of an error of package order, with Spec keys for order's own
// names. byLength says that windows are those of lengths.
func inSpec(err error, byLength bool) string {
	text := strings.TrimPrefix(err.Error(), "order: ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "draw: "), "mix: ")
	text = strings.NewReplacer(
		"set num to", "set num_samples to", "num is", "num_samples is", "num needs", "num_samples needs", "make num smaller", "lower num_samples",
		"raise Tokens", "raise tokens", "raise Pack", "raise pack", "draw with replacement", "set replacement",
	).Replace(text)
	if byLength {
		text = strings.NewReplacer("window is", "batch.window is", "and window ", "and batch.window ", "the window larger", "batch.window larger").Replace(text)
	}
	return text
}
