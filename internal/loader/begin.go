package loader

import (
	"context"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Pass begins a walk through an epoch at a position (the items of the epoch that
// all ranks were given before). Its first step has the number step. points are where the
// workers begin, if they iterate the dataset; without them, at the beginning.
func (l *Loader) Pass(epoch, position, step int64, points ...crew.Point) (*Pass, error) {
	if epoch < 0 || position < 0 {
		return nil, errs.New(errs.State, "epoch %d, position %d: neither can be negative", epoch, position)
	}
	l.shared.mu.Lock()
	if p := l.ahead; p != nil && !p.cancelled && p.failed == nil && p.walk.Epoch == epoch && position == 0 && step == 0 {
		defer l.shared.mu.Unlock()
		l.ahead = nil
		return l.begin(p)
	}
	l.shared.mu.Unlock()
	e := l.Epoch(epoch)
	if position > e.Len() {
		return nil, errs.New(errs.State, "epoch %d, position %d: the epoch has %d places", epoch, position, e.Len())
	}
	l.shared.mu.Lock()
	p := l.newPass(epoch, step, e, l.Slice(e, position))
	l.shared.mu.Unlock()
	if p.turns != nil {
		l.workers.Begins(p.number, points)
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	return l.begin(p)
}

// PassOver begins a walk over a List, which a user's sampler gave. All of it
// belongs to this rank.
func (l *Loader) PassOver(list order.List, epoch, step int64) (*Pass, error) {
	if err := l.checkList(list, epoch); err != nil {
		return nil, err
	}
	e := list.Epoch(l.spec.Order.Seed, epoch)
	slice := l.Slice(e, list.Item)
	slice.World, slice.Rank = 1, 0
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	p := l.newPass(epoch, step, e, slice)
	p.alone = true
	p.list = list
	return l.begin(p)
}

// checkList rejects lists that no pass of this loader can walk.
func (l *Loader) checkList(list order.List, epoch int64) error {
	most := int64(math.MaxInt64 - len(list.IDs))
	if epoch < 0 || list.Place < 0 || list.Place > most || list.Item < 0 || list.Item > most || list.Rank < 0 || list.Cuts == nil && list.Place != list.Item {
		return errs.New(errs.State, "epoch %d, place %d, item %d: a list cannot begin there", epoch, list.Place, list.Item)
	}
	if l.iterates > 0 && len(list.IDs) > 0 {
		return errs.New(errs.Config, "a sampler chooses samples by number, and a dataset that is iterated has no numbers")
	}
	if list.Items != nil && (len(list.Items) != len(list.IDs) || l.workers == nil) {
		return errs.New(errs.Bug, "%d items for %d places, in a loader that may have no workers", len(list.Items), len(list.IDs))
	}
	return l.Stream.CheckList(list)
}

// begin makes p the pass that the consumer reads. Shared.mu is held.
func (l *Loader) begin(p *Pass) (*Pass, error) {
	if l.closed {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	if l.ahead != nil {
		l.ahead.cancel()
		l.ahead = nil
	}
	if !p.started {
		l.startPass(p)
	}
	p.ahead, p.resting = false, false
	p.plan.Asked()
	l.current = p
	l.shared.reconsider()
	l.shared.changed.Broadcast()
	return p, nil
}

func (l *Loader) newPass(epoch, step int64, e order.Epoch, slice order.Slice) *Pass {
	l.begun++
	p := &Pass{l: l, number: l.begun, walk: compose.Walk{Epoch: epoch, From: step, Order: e, Slice: slice}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if l.iterates > 0 {
		p.turns = &turns{workers: l.iterates, ended: map[int64]bool{}}
	}
	return p
}

// startPass starts a pass's prefetcher and planner. Shared.mu is held.
func (l *Loader) startPass(p *Pass) {
	p.started = true
	l.passes = append(l.passes, p)
	if p.plan = l.newPlan(p); p.plan != nil {
		if p.ahead {
			p.plan.Unasked(l.current.walk.Slice.Steps() - l.current.nextStep)
		}
		go p.lookFar()
	}
	go p.prefetch()
}

// lookAhead begins the epoch after p's as soon as all batches of p are open or planned.
// Shared.mu is held, and released while the order of that epoch is made.
func (l *Loader) lookAhead(p *Pass) {
	if p != l.current || p.alone || p.looked || l.patient || l.ahead != nil || l.closed || p.walk.Epoch == math.MaxInt64 {
		return
	}
	p.looked = true
	l.shared.mu.Unlock()
	e := l.Epoch(p.walk.Epoch + 1)
	l.shared.mu.Lock()
	if p != l.current || p.cancelled || l.ahead != nil || l.closed {
		return
	}
	l.ahead = l.newPass(p.walk.Epoch+1, 0, e, l.Slice(e, 0))
	l.ahead.ahead = true
	l.startPass(l.ahead)
}

// drop removes a pass that has ended. Shared.mu is held.
func (l *Loader) drop(p *Pass) {
	l.passes = slices.DeleteFunc(l.passes, func(q *Pass) bool { return q == p })
	l.shared.reconsider()
	if l.ahead == p {
		l.ahead = nil
	}
	if p.turns != nil {
		go l.workers.Over(p.number)
	}
	for f := range l.fillers() {
		f.PassEnded()
	}
	for _, f := range l.inner {
		if len(l.passes) == 0 {
			f.l.slots.drain()
		}
	}
}
