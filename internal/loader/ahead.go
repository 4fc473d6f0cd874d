package loader

import (
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
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
//   - small samples of local files, which readers fill in themselves (direct.go).
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

// lookFar plans all of a pass, group by group, as fetch has room for them. Then it begins the
// next epoch, whose plan goes on.
func (p *Pass) lookFar() {
	l := p.l
	var pieces []order.Piece
	for next := int64(0); ; {
		bytes, from := p.plan.Wait()
		if bytes == 0 || !l.hold() { // the order and the index are part of the dataset
			return
		}
		next = max(next, from)
		var needs []fetch.Need
		var extents []format.Extent
		for n := int64(0); n < bytes && next < p.slice.Steps(); next++ {
			pieces = l.Draw(p.order, p.slice, next, pieces[:0])
			for _, piece := range pieces {
				if piece.Sample < 0 {
					continue
				}
				at := len(extents)
				extents = l.filler.Extents(piece.Sample, extents)
				own := extents[at:len(extents):len(extents)]
				for _, e := range own {
					n += e.Len
				}
				needs = append(needs, fetch.Need{Step: next, Sample: piece.Sample, Extents: own})
				n += fetch.NeedBytes
			}
		}
		last := next >= p.slice.Steps()
		p.plan.Add(needs, last)
		l.letGo()
		if last {
			l.shared.mu.Lock()
			l.lookAhead(p)
			l.shared.mu.Unlock()
			return
		}
	}
}
