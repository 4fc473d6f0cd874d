package loader

import (
	"encoding/json"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// PlanSum is what the plan says of a run of items of an epoch: what receipts that
// cover it must add up to.
type PlanSum struct {
	Sum     order.Sum `json:"sum"`
	Samples int64     `json:"samples"`
}

// Plan is the order of every epoch.
func (l *Stream) Plan() order.Plan { return l.plan }

// Shards is the number of samples in each stored shard, in the order of ids; nil
// where every file is a sample, or nothing is stored.
func (l *Stream) Shards() []int64 {
	for _, p := range l.data.Parts {
		if p.Sharded() {
			return l.data.Blocks(0)
		}
	}
	return nil
}

// Question is one about the order: What is steps, items, sum or shares of the items
// From to To of an epoch, explain for the step that begins at From, verify, for
// Receipts, which is JSON, or changed, for how dataset From differs from Before's.
type Question struct {
	What     string
	Epoch    int64
	From     int64
	To       int64
	Receipts json.RawMessage
	Before   *Loader
}

// Ask answers a question about the order.
func (l *Stream) Ask(q Question) (any, error) {
	if q.Epoch < 0 || q.From < 0 || q.To < 0 {
		return nil, errs.New(errs.Config, "epoch %d, items %d to %d: none is negative", q.Epoch, q.From, q.To)
	}
	if q.What == "verify" {
		var receipts []Receipt
		if err := json.Unmarshal(q.Receipts, &receipts); err != nil {
			return nil, errs.New(errs.Config, "the receipts can not be read: %s", err).Try("pass what loader.receipt() of every rank returned")
		}
		return l.Verify(receipts), nil
	}
	e := l.Epoch(q.Epoch)
	if q.From > e.Len() || q.To > e.Len() {
		return nil, errs.New(errs.Config, "items %d to %d: epoch %d has %d", q.From, q.To, q.Epoch, e.Len())
	}
	switch q.What {
	case "steps":
		return l.slice(e, q.From).Steps(), nil
	case "items":
		return e.Len(), nil
	case "sum":
		sum, samples := e.Sum(q.From, q.To)
		return PlanSum{sum, samples}, nil
	case "shares":
		return e.Shares(q.From, q.To), nil
	case "explain":
		return l.Explain(q.Epoch, q.From)
	}
	return nil, errs.New(errs.Incompatible, "no question %q", q.What)
}
