package orders

import (
	"fmt"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Judgement is how well one order mixes, and how sequentially it reads.
type Judgement struct {
	Order string `json:"order"` // in words
	Mine  bool   `json:"spec"`  // the Spec's own; else one to compare it with

	// Mixing of the samples of one global batch.
	Displacement float64 `json:"displacement"`
	Entropy      float64 `json:"shard_entropy"`
	ChiSquared   float64 `json:"chi_squared_deviations"`
	Neighbours   float64 `json:"neighbours"`

	// Reading of all batches that are in work at once.
	Open  float64   `json:"open_shards"`
	Run   float64   `json:"run_samples"`
	Reads []Reading `json:"reads"`
}

// Reading is what a cluster of that many nodes reads in an epoch, as a multiple of the
// data, if a node reads each shard that it touches completely.
type Reading struct {
	World int64   `json:"world_size"`
	Times float64 `json:"times"`
}

// Quality compares the Spec's order with others over the same samples.
type Quality struct {
	Samples int64       `json:"samples"`
	Shards  int         `json:"shards"` // 0: every file is a sample
	Epoch   int64       `json:"epoch"`
	Batch   int64       `json:"global_batch"` // samples that are looked at together to judge mixing
	Ahead   int64       `json:"under_way"`    // likewise to judge reading
	Orders  []Judgement `json:"orders"`
	Advice  []string    `json:"advice"`
}

// The defaults of shuffle block.
const (
	usualStreams = 8
	usualWindow  = 10_000
)

// Quality measures an epoch of the Spec and, for comparison, full, block (if there are
// shards) and none.
func (o *Orders) Quality(epoch int64) (*Quality, error) {
	if epoch < 0 {
		return nil, errs.New(errs.Config, "there is no epoch %d", epoch)
	}
	own, shards := o.Spec(), o.Shards()
	q := &Quality{Samples: o.Len(), Shards: len(shards), Epoch: epoch, Batch: o.Stride()}
	if e := o.Epoch(epoch); e.Batches() || e.Rows() { // an item is several samples
		q.Batch = (q.Batch*e.Places() + e.Len() - 1) / e.Len()
	}
	q.Ahead = q.Batch * int64(own.Deliver.Prefetch+1)
	q.Orders = append(q.Orders, q.judge(describe(own), o.Plan(), shards))
	q.Orders[0].Mine = true
	others := []order.Policy{{Shuffle: order.Full}}
	if shards != nil {
		others = append(others, order.Policy{Shuffle: order.BlockWise, Block: order.Block{Sizes: shards, Streams: usualStreams, Window: usualWindow}})
	}
	for _, policy := range append(others, order.Policy{Shuffle: order.None}) {
		policy.Seed = own.Order.Seed
		plan, err := order.New(o.Len(), policy)
		if err != nil {
			return nil, errs.New(errs.Bug, "cannot make an order to compare with").Because(err)
		}
		what := spec.Spec{Order: spec.Order{Shuffle: policy.Shuffle, Streams: policy.Block.Streams, Window: policy.Block.Window}}
		if name := describe(what); name != q.Orders[0].Order {
			q.Orders = append(q.Orders, q.judge(name, plan, shards))
		}
	}
	q.advise()
	return q, nil
}

func (q *Quality) judge(name string, p order.Plan, shards []int64) Judgement {
	near := order.Measure(p, q.Epoch, shards, q.Batch)
	far := order.Measure(p, q.Epoch, shards, q.Ahead)
	j := Judgement{
		Order: name, Displacement: near.Displacement, Entropy: near.Entropy, ChiSquared: near.Independence,
		Neighbours: near.Neighbours, Open: far.Open, Run: far.Run,
	}
	for _, r := range far.Reads {
		j.Reads = append(j.Reads, Reading(r))
	}
	return j
}

// describe describes an order in a few words.
func describe(s spec.Spec) string {
	o := s.Order
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	add("%s", o.Shuffle)
	if o.Block > 0 {
		add("blocks of %d", o.Block)
	}
	if o.Streams > 0 {
		add("%s", errs.Many(o.Streams, "stream"))
	}
	if o.Window > 0 {
		add("window %d", o.Window)
	}
	switch {
	case o.Balanced:
		add("balanced")
	case o.Weights.Len() > 0:
		add("weighted")
	case o.Replacement != nil && *o.Replacement:
		add("with replacement")
	}
	if o.NumSamples > 0 {
		add("%s", errs.Many(o.NumSamples, "sample"))
	}
	if s.Dataset.Mixed != nil {
		add("%s", errs.Many(len(s.Dataset.Mixed), "dataset"))
	}
	return strings.Join(parts, ", ")
}

// Limits beyond which advise comments.
const (
	telling   = 3.0 // standard deviations of chi-squared: one epoch in 700 by chance
	tooFew    = 0.9 // as a share of full's entropy
	scattered = 3.0 // as a multiple of block's open shards
	wasteful  = 1.5 // times the data
	clustered = 8   // nodes of the cluster in the text
)

// advise adds what the table means for choosing an order.
func (q *Quality) advise() {
	mine := q.Orders[0]
	say := func(format string, a ...any) { q.Advice = append(q.Advice, fmt.Sprintf(format, a...)) }
	other := map[order.Shuffle]Judgement{}
	for _, j := range q.Orders {
		word, _, _ := strings.Cut(j.Order, ",")
		other[order.Shuffle(word)] = j
	}
	full, block := other[order.Full], other[order.BlockWise]
	if mine.ChiSquared > telling {
		say("the place in the epoch tells where a sample is stored: if neighbours in storage are alike (sorted by class or by time), early and late batches differ; raise streams or window, or use full")
	} else {
		say("the place in the epoch does not tell where a sample is stored")
	}
	if q.Shards > 1 && mine.Entropy < tooFew*full.Entropy {
		say("a global batch of %d holds samples of few shards, %.2f of an even distribution (full: %.2f): raise streams or window if the samples of a shard are alike", q.Batch, mine.Entropy, full.Entropy)
	}
	if q.Shards > 1 && block.Open > 0 && mine.Open > scattered*block.Open {
		say("reads are scattered: the batches in flight are in %.0f shards (block: %.0f): use block if the data is on a hard disk or in an object store", mine.Open, block.Open)
	}
	if reads := mine.times(clustered); q.Shards > 1 && reads > wasteful {
		say("a cluster of %d nodes that fetches whole shards reads the data %.1f times per epoch (block: %.2f times)", clustered, reads, block.times(clustered))
	}
}

func (j Judgement) times(world int64) float64 {
	for _, r := range j.Reads {
		if r.World == world {
			return r.Times
		}
	}
	return 0
}
