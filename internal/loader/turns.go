package loader

import (
	"github.com/stoker-data/stoker/internal/base/errs"
)

// turns is what a pass knows whose workers iterate the dataset. Each of its places is a turn
// of a worker, one task that stands for a whole batch. Nobody knows how many there are: a
// turn whose worker has no batch left is left out, and the pass is over when every worker
// has had such a turn. What users know as steps are the turns that had a batch.
type turns struct {
	workers int
	ended   map[int64]bool // workers
	given   int64          // batches delivered
}

// turn is the number of the turn that a batch is, from the beginning of the epoch.
func (ob *openBatch) turn() int64 { return ob.pass.walk.Slice.Place(ob.Step, 0) }

// samples is the number of samples in a batch.
func (ob *openBatch) samples() int {
	if ob.Placed.Rows > 0 {
		return ob.Placed.Rows
	}
	return ob.Rows
}

// over reports whether every worker has ended. Shared.mu is held.
func (p *Pass) over() bool { return p.turns != nil && len(p.turns.ended) == p.turns.workers }

// leaveOut drops the oldest turns if their workers had no batch left. Shared.mu is held.
func (p *Pass) leaveOut() {
	for !p.over() && len(p.open) > 0 && p.open[0].done && p.open[0].Ended {
		ob := p.open[0]
		p.open[0] = nil
		p.open = p.open[1:]
		p.l.inflight--
		p.delivered++
		p.turns.ended[ob.turn()%int64(p.turns.workers)] = true
		p.l.slots.put(ob.Slot) // wakes the prefetcher too
		p.l.spare = append(p.l.spare, ob)
		p.l.shared.reconsider()
		if p.over() {
			p.giveUp(0)
		}
	}
}

// at is the step as which a batch is delivered now. Shared.mu is held.
func (p *Pass) at(ob *openBatch) int64 {
	if p.turns == nil {
		return p.walk.From + ob.Step
	}
	p.turns.given++
	return p.walk.From + p.turns.given - 1
}

// located is the error of a batch, with the step at which the loop meets it. Shared.mu is
// held.
func (p *Pass) located(ob *openBatch) error {
	if p.turns == nil {
		return ob.Err
	}
	e := *errs.From(ob.Err)
	e.Where.Moment = &errs.Moment{Epoch: p.walk.Epoch, Step: p.walk.From + p.turns.given, Rank: p.l.spec.Rank}
	return &e
}
