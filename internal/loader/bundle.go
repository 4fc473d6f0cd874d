package loader

import (
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/stage/batch"
)

// What a batch costs besides its samples (a wake of the planner, of a lane and of
// the consumer, a message, a slot's way there and back) is some tens of
// microseconds; a batch of 16 windows of tokens takes no more to fill. So where the
// consumer can take bundles, steps of small batches of ready-made arrays are made
// together: as the rows of one large batch, which its message cuts into steps.
//
// Nothing but cost may depend on that. A bundle holds whole and perfect batches: as
// soon as one sample of a pass is bad, open bundles are given up and the pass goes
// on step by step, so that what is delivered before an error, and which step has
// it, is the same. Nor does a bundle make anybody wait: a pass begins with single
// steps, and goes back to them when the consumer has to wait for a bundle.

const (
	bundleBytes = 9 << 19 // of the slot of a bundle: with more, caches lose what messages save
	bundleMost  = 16      // steps
	bundlesOpen = 2       // one is filled while the other waits
	bundleWait  = 200 * time.Millisecond
)

// bundles says how many steps of a pass are made together. Shared.mu guards it.
type bundles struct {
	most  int   // that the consumer takes and memory allows; 0, 1: one
	since int64 // step of the slice from which on bundles grow
}

// Bundle lets Next give up to most steps at once, where that pays.
func (p *Pass) Bundle(most int) {
	l := p.l
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	if !l.bundled() {
		return
	}
	one := batch.NewLayout(l.fields, int(p.slice.Batch)).Bytes()
	limit := min(bundleBytes, l.slots.limit/8)
	most = int(min(int64(most), bundleMost, limit/max(one, 1), p.slice.Steps()))
	if most < 2 || l.reserve(most*int(p.slice.Batch)) != nil {
		return
	}
	p.bundles = bundles{most: most, since: p.nextStep}
}

// bundled says whether all that is done for a batch is moving numbers: its fields
// are arrays of one shape that are stored as such.
func (l *Loader) bundled() bool {
	if l.spec.Batch.Pack > 0 || l.spec.Batch.ByLength() || l.loose() {
		return false
	}
	for _, part := range l.data.Parts {
		for i, prog := range part.Programs {
			if prog == nil || prog.Kind() != "array" || part.Fields[i].Decode == "npy" {
				return false
			}
		}
	}
	return true
}

// together is how many steps the next batch may hold: one at first, then a third of
// what was made so far. Shared.mu is held.
func (p *Pass) together() int {
	if p.bundles.most < 2 {
		return 1
	}
	return int(max(1, min(int64(p.bundles.most), 1+(p.nextStep-p.bundles.since)/3)))
}

// single gives up open bundles: the pass goes on step by step. Shared.mu is held.
func (p *Pass) single() {
	p.bundles.most = 0
	p.split()
}

func (p *Pass) split() {
	if i := slices.IndexFunc(p.open, func(ob *openBatch) bool { return ob.steps > 1 }); i >= 0 {
		p.giveUp(i)
		p.l.shared.changed.Broadcast()
	}
}

// patience is how long a consumer that has waited for some time waits on before a
// bundle that it waits for is split. Shared.mu is held.
func (p *Pass) patience(waited time.Duration) time.Duration {
	if len(p.open) == 0 || p.open[0].steps == 1 || p.open[0].done {
		return time.Hour
	}
	left := bundleWait - waited
	if left > 0 {
		return left
	}
	p.split()
	p.bundles.since = p.nextStep
	return time.Hour
}
