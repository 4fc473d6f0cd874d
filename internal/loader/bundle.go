package loader

import (
	"slices"
	"time"
)

// Bundles of steps (compose.Maker.Together) make nobody wait: a pass begins with single
// steps, and returns to them when the consumer has to wait for a bundle. A bundle has only
// complete batches without bad samples: as soon as one sample of a pass is bad, open bundles
// are given up and the pass continues step by step, so that what is delivered before an
// error, and which step has the error, stay the same.

const (
	bundlesOpen = 2 // one is filled while the other waits
	bundleWait  = 200 * time.Millisecond
)

// bundles says how many steps of a pass are made together. Guarded by Shared.mu.
type bundles struct {
	most  int   // steps that the consumer accepts and memory allows; 0 and 1 both mean one
	since int64 // step of the slice where bundles began to grow
}

// Bundle lets Next return up to most steps at once, if that pays.
func (p *Pass) Bundle(most int) {
	l := p.l
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	most = l.maker.Together(&p.walk, l.fields, most, l.slots.limit/8)
	if most < 2 || l.reserve(most*int(p.walk.Slice.Batch)) != nil {
		return
	}
	p.bundles = bundles{most: most, since: p.nextStep}
}

// together is how many steps the next batch may have: one at first, then a third of
// what was made so far. Shared.mu is held.
func (p *Pass) together() int {
	if p.bundles.most < 2 {
		return 1
	}
	return int(max(1, min(int64(p.bundles.most), 1+(p.nextStep-p.bundles.since)/3)))
}

// single gives up open bundles; the pass continues step by step. Shared.mu is held.
func (p *Pass) single() {
	p.bundles.most = 0
	p.split()
}

func (p *Pass) split() {
	if i := slices.IndexFunc(p.open, func(ob *openBatch) bool { return ob.Steps > 1 }); i >= 0 {
		p.giveUp(i)
		p.l.shared.changed.Broadcast()
	}
}

// patience is how much longer a consumer, which has waited for waited already,
// waits for a bundle before the bundle is split. Shared.mu is held.
func (p *Pass) patience(waited time.Duration) time.Duration {
	if len(p.open) == 0 || p.open[0].Steps == 1 || p.open[0].done {
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
