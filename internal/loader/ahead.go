package loader

import (
	"slices"

	"github.com/stoker-data/stoker/internal/stage/fetch"
)

// A pass opens a few batches ahead of its consumer, because each needs a slot. Storage that
// takes long to answer needs more: its reads should begin seconds before, and neighbours in
// a shard should be read together although they are in different batches. So a pass has a
// planner besides its prefetcher. It knows the samples of later steps, since an order is
// computed, and tells fetch what they need (fetch.Plan). Nobody waits for it: a batch whose
// samples are not planned is read as it is.
//
// Not planned, and read batch by batch, are
//
//   - files in the page cache, which gain nothing from early reads;
//   - what Python workers are fed with (feed): the crew says what it needs next, and that is
//     a few samples of several batches;
//   - samples that are made anew for a place, for a bad one: nobody knows them before;
//   - small samples of local files, which readers fill in themselves (fill.Readers).
//
// Samples in the cache need no reads. If one is cached after it was planned, the bytes are
// dropped with its step.

// newPlan returns the plan of a pass; nil: there is none.
func (l *Loader) newPlan(p *Pass) *fetch.Plan {
	if l.fetch == nil || l.readers == 0 || l.ownCrew || l.near || p.turns != nil {
		return nil
	}
	return l.fetch.NewPlan(p.ctx, l.small)
}

// mostLater is how many extents of later groups are looked at: memory that no limit counts.
const mostLater = 1 << 16

// lookFar plans all of a pass, group by group, as fetch has room for them. Then it begins the
// next epoch, whose plan goes on. With each group, fetch learns what later ones will need; what
// is stored between samples of the group is read with them.
func (p *Pass) lookFar() {
	l := p.l
	var drawn []fetch.Need // not added yet, all of steps before next
	for next := int64(0); ; {
		bytes, later, from := p.plan.Wait()
		if bytes == 0 || !l.hold() { // the order and the index are part of the dataset
			return
		}
		drawn = slices.DeleteFunc(drawn, func(n fetch.Need) bool { return n.Step < from })
		next = max(next, from)
		have, extents := int64(0), 0
		for i := range drawn { // samples may have been cached since
			n := &drawn[i]
			n.Extents = l.filler.Extents(n.Sample, n.Extents[:0])
			have, extents = have+n.Bytes(), extents+len(n.Extents)
		}
		for ; next < p.walk.Slice.Steps() && (have < bytes || have < bytes+later && extents < mostLater); next++ {
			at := len(drawn)
			drawn = l.maker.Needs(&p.walk, next, drawn)
			for i := range drawn[at:] {
				n := &drawn[at+i]
				have, extents = have+n.Bytes(), extents+len(n.Extents)
			}
		}
		group := 0
		for n := int64(0); group < len(drawn) && (n < bytes || drawn[group].Step == drawn[group-1].Step); group++ {
			n += drawn[group].Bytes()
		}
		last := group == len(drawn) && next >= p.walk.Slice.Steps()
		p.plan.Add(drawn[:group], drawn[group:], last)
		drawn = slices.Clone(drawn[group:])
		l.letGo()
		if last {
			l.shared.mu.Lock()
			l.lookAhead(p)
			l.shared.mu.Unlock()
			return
		}
	}
}
