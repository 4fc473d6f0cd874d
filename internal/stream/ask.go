package stream

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// PlanSum is what the plan says about a run of items of an epoch. The receipts that
// cover the run must add up to it.
type PlanSum struct {
	Sum     order.Sum `json:"sum"`
	Samples int64     `json:"samples"`
}

// Plan is the order of every epoch.
func (l *Stream) Plan() order.Plan { return l.plan }

// Shards is the number of samples in each stored shard, in the order of ids. It is
// nil if every file is one sample or nothing is stored.
func (l *Stream) Shards() []int64 {
	for _, p := range l.data.Parts {
		if p.Sharded() {
			return l.data.Blocks(0)
		}
	}
	return nil
}

// Question is a question about the order. What is one of: steps, items, sum or
// shares, about the items From to To of an epoch; explain, about the step that
// begins at From; where, about the sample From; verify, about Receipts, which is JSON.
type Question struct {
	What     string
	Epoch    int64
	From     int64
	To       int64
	Receipts json.RawMessage
}

// Ask answers a question about the order.
func (l *Stream) Ask(q Question) (any, error) {
	if q.Epoch < 0 || q.From < 0 || q.To < 0 {
		return nil, errs.New(errs.Config, "epoch %d, items %d to %d: none can be negative", q.Epoch, q.From, q.To)
	}
	if q.What == "verify" {
		var receipts []Receipt
		if err := json.Unmarshal(q.Receipts, &receipts); err != nil {
			var wrong *json.UnmarshalTypeError
			if errors.As(err, &wrong) { // its own text names a Go type
				err = fmt.Errorf("the %s at byte %d does not belong there", wrong.Value, wrong.Offset)
			}
			return nil, errs.New(errs.Config, "cannot read the receipts: %s", err).Try("pass what loader.receipt() of every rank returned")
		}
		return l.Verify(receipts), nil
	}
	if q.What == "where" {
		if q.From >= l.data.Len() {
			return nil, errs.New(errs.Config, "there is no sample %d: the dataset has %s", q.From, errs.Many(l.data.Len(), "sample"))
		}
		return l.data.Where(q.From), nil
	}
	e := l.Epoch(q.Epoch)
	if q.From > e.Len() || q.To > e.Len() {
		return nil, errs.New(errs.Config, "items %d to %d: epoch %d has %d", q.From, q.To, q.Epoch, e.Len())
	}
	switch q.What {
	case "steps":
		return l.Slice(e, q.From).Steps(), nil
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
	return nil, errs.New(errs.Incompatible, "unknown question %q", q.What)
}
