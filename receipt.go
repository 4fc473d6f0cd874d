package stoker

import (
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/stream"
)

type (
	// Receipt is what one rank's training loop really received. The receipts of
	// all ranks, and of the pieces of a run that was resumed, add up: see Verify.
	Receipt = stream.Receipt
	// ReceiptPart is one run of steps of one pass.
	ReceiptPart = stream.ReceiptPart
	// Verdict is the result of comparing receipts with the plan.
	Verdict = stream.Verdict
	// Explanation is what one batch contains, and why: ids, files, boxes, flips.
	Explanation = stream.Explanation
)

// newPart begins a part of the receipt at a cursor. mu is held.
func (l *Loader) newPart(at *cursor) {
	spec := l.inner.Spec()
	at.part = &ReceiptPart{Epoch: at.epoch, From: at.position, To: at.position, Rank: int64(spec.Rank), World: int64(spec.World)}
	l.parts = append(l.parts, at.part)
}

// received moves a cursor past a batch.
func (l *Loader) received(at *cursor, in *loader.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at.position = in.Position
	at.part.To = in.Position
	at.part.Samples += in.Real
	at.part.Sum.Plus(in.Sum)
	for _, bad := range in.Bad {
		if bad.Put < 0 {
			at.part.Skipped = append(at.part.Skipped, [2]int64{bad.Place, bad.Sample})
		} else {
			at.part.Replaced = append(at.part.Replaced, [3]int64{bad.Place, bad.Sample, bad.Put})
		}
	}
}

// Receipt is what this rank received since Open, in all passes. Save it together
// with the State: what a run received after the State that it is resumed from is
// delivered again.
func (l *Loader) Receipt() Receipt {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.inner.State(0, 0)
	r := Receipt{Version: stream.ReceiptVersion, Dataset: st.Dataset, Seed: st.Seed, Order: st.Order}
	for _, p := range l.parts {
		if p.To > p.From {
			part := *p
			part.Skipped, part.Replaced = slices.Clone(p.Skipped), slices.Clone(p.Replaced)
			r.Parts = append(r.Parts, part)
		}
	}
	return r
}

// Verify adds up the receipts of all ranks and compares them with the plan: every
// sample must have come once, in its place, on one rank. It reads no data.
func (l *Loader) Verify(receipts ...Receipt) Verdict { return l.inner.Verify(receipts) }

// Skip passes over the next steps of the pass begun last, as if they had been
// delivered: those of all ranks, if every rank skips as many. In a loop body the
// pass continues after them, or ends if it has no more steps. Once it has ended,
// and before the first pass, the next pass begins after them. The State says what
// was skipped.
func (l *Loader) Skip(steps int) error {
	if steps < 0 {
		return errs.New(errs.Config, "cannot skip %d steps", steps)
	}
	if steps == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.current; c != nil && (c.ended || l.inner.Steps(c.epoch, c.position) == 0) {
		l.current = nil
	}
	at := &l.next
	if l.current != nil {
		at = &l.current.place
	}
	n := l.inner.Epoch(at.epoch).Len()
	end := n
	if most := (n - at.position) / l.inner.Stride(); int64(steps) <= most {
		end = at.position + int64(steps)*l.inner.Stride()
	}
	if end <= at.position {
		return nil
	}
	st := stream.State{Epoch: at.epoch, Position: at.position, Skipped: l.skipped}.Skip(end)
	at.position, l.skipped = end, st.Skipped
	if l.current != nil {
		l.current.jumped = true
	}
	return nil
}

// jump returns the pass that continues where Skip has moved a cursor, or pass
// itself if it has not.
func (l *Loader) jump(pass *loader.Pass, at *cursor) (*loader.Pass, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !at.jumped {
		return pass, nil
	}
	pass.Cancel()
	next, err := l.inner.Pass(at.epoch, at.position, l.inner.StepOf(at.position))
	if err != nil {
		return pass, err
	}
	at.jumped, at.start, at.step = false, at.place, l.inner.StepOf(at.position)
	l.newPart(at)
	return next, nil
}

// Explain says what this rank's batch contains in a step of the epoch that the pass
// begun last is in (or the next one will be), and why: ids, files, boxes, flips. It
// delivers nothing. Steps are counted as in Batch.Step.
func (l *Loader) Explain(step int64) (*Explanation, error) {
	l.mu.Lock()
	at, first := l.next, l.inner.StepOf(l.next.position)
	if l.current != nil {
		at, first = l.current.start, l.current.step
	}
	l.mu.Unlock()
	if step < 0 || step > l.inner.Epoch(at.epoch).Len() {
		return nil, errs.New(errs.Config, "there is no step %d in epoch %d", step, at.epoch)
	}
	position := step * l.inner.Stride()
	if step >= first {
		position = at.position + (step-first)*l.inner.Stride()
	}
	return l.inner.Explain(at.epoch, position)
}

// Shares is the number of samples of each dataset of a mixture in the epoch of the
// pass begun last, up to the last batch received, over all ranks; nil if there is
// no mixture.
func (l *Loader) Shares() []int64 {
	st := l.State()
	found, err := l.inner.Ask(stream.Question{What: "shares", Epoch: st.Epoch, To: st.Position})
	shares, _ := found.([]int64)
	if err != nil {
		return nil
	}
	return shares
}
