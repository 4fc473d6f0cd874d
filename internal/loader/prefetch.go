package loader

import (
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// prefetch opens the batches of one pass ahead of its consumer, until the pass ends.
func (p *Pass) prefetch() {
	l := p.l
	s := l.shared
	defer p.plan.Drop()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.planning = stats.NewShift(l.stats.Plan, &l.planning)
	for {
		switch {
		case p.cancelled || p.failed != nil:
			p.planning.Rests()
			return
		case p.over():
			l.drop(p)
			return
		case p.nextStep >= p.walk.Slice.Steps():
			l.lookAhead(p)
			if p.cancelled || p.nextStep < p.walk.Slice.Steps() {
				continue // the lock was released
			}
			if p.delivered >= p.walk.Slice.Steps() && !p.ahead {
				l.drop(p)
				return
			}
		case !p.resting && p.mayOpen():
			p.planning.Works()
			if !p.drawn() {
				step, most := p.nextStep, p.together()
				s.mu.Unlock()
				l.maker.Draw(&p.draft, &p.walk, step, most)
				s.mu.Lock()
				continue
			}
			slot, err := l.slots.take(p)
			if err == nil && slot != nil {
				err = l.grow(p.draft.Rows)
			}
			if err != nil {
				if slot != nil {
					l.slots.put(slot)
				}
				p.failed = err
				p.planning.Rests()
				s.changed.Broadcast()
				return
			}
			switch { // the lock was released while memory was allocated
			case slot == nil:
			case p.cancelled || p.over() || p.resting || p.failed != nil || !p.drawn() || int64(len(slot.Mem)) < l.layout.Bytes():
				l.slots.put(slot)
				continue
			default:
				p.begin(slot)
				continue
			}
		}
		p.planning.Rests()
		s.changed.Wait()
	}
}

// mayOpen reports whether prefetch has room for one more batch. There is always
// room for the batch that the consumer waits for.
func (p *Pass) mayOpen() bool {
	room := p.l.prefetch
	if p.together() > 1 {
		room = min(room, bundlesOpen)
	}
	if c := p.l.current; p.ahead && c != nil {
		if c.nextStep < c.walk.Slice.Steps() && !c.cancelled {
			return false // it was begun so early for its plan
		}
		room -= len(c.open)
	}
	return len(p.open) < room
}

// drawn reports whether the draft is of the next step, with not too many others.
func (p *Pass) drawn() bool {
	return p.draft.Steps > 0 && p.draft.Step == p.nextStep && p.draft.Steps <= p.together()
}

// begin opens the next step in slot and submits its samples. Shared.mu is held, and
// released while fetch waits.
func (p *Pass) begin(slot *batch.Slot) {
	l := p.l
	ob := l.newBatch(p, slot)
	p.nextStep += int64(ob.Steps)
	l.inflight++
	p.open = append(p.open, ob)
	steps := int64(ob.Steps)
	l.shared.mu.Unlock()
	waited := l.crew.Begin(&ob.Batch.Batch) // the batch may already be reused
	p.planning.Done(waited, steps)
	l.shared.mu.Lock()
}

// emptyBatch returns an open batch of so many rows, whose tasks are not filled in.
func (l *Loader) emptyBatch(p *Pass, slot *batch.Slot, rows int) *openBatch {
	var ob *openBatch
	if n := len(l.spare); n > 0 {
		ob, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		ob = &openBatch{}
	}
	l.maker.Open(p.ctx, &ob.Batch, &p.walk, l.layout, slot, rows, ob)
	ob.Structure = l.structure
	ob.work = work{pass: p, ready: ob.ready[:0], bunches: ob.bunches[:0]}
	return ob
}

// newBatch returns the open batch of the draft with its tasks filled in.
func (l *Loader) newBatch(p *Pass, slot *batch.Slot) *openBatch {
	ob := l.emptyBatch(p, slot, p.draft.Rows)
	ob.left, ob.begun = ob.Fill(&p.draft), p.planning.Since()
	return ob
}
