package order

import (
	"errors"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Draw takes samples at random, or fewer than there are. The zero value takes
// each once.
type Draw struct {
	// Weights are not negative, one a sample; nil: all alike. They need not add
	// up to anything.
	Weights []float64
	// Replacement draws every place by itself: a sample may come again.
	// Without, weighted samples come in the order of a weighted draw without
	// replacement.
	Replacement bool
	// Num is the number of places of an epoch; 0: one a sample. Without
	// replacement it is at most the number of samples with a weight above 0.
	Num int64
}

// any says that a Draw decides the order, and not a shuffle.
func (d Draw) any() bool { return d.Weights != nil || d.Replacement }

// newDraw checks the policy and sets up what all epochs share.
func (p *Plan) newDraw() error {
	if p.policy.Draw.any() || p.policy.Draw.Num != 0 {
		return errors.New("order: draws are not built")
	}
	return nil
}

// draw is the sequence of one epoch.
func (p *Plan) draw(rng.Key) sequence { return nil }
