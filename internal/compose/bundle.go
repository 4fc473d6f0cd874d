package compose

import (
	"slices"

	"github.com/stoker-data/stoker/internal/stage/batch"
)

// A batch has a fixed cost besides its samples (waking the prefetcher, a lane and the
// consumer, a message, the round trip of a slot) of some tens of microseconds.
// Filling a batch of 16 windows of tokens takes no longer. So if the consumer
// accepts bundles, steps of small batches of ready-made arrays are made together,
// as the rows of one large batch, which its message divides into steps. Nothing but the cost
// may depend on this.

const (
	bundleBytes = 9 << 19 // limit of a bundle's slot; larger ones lose in CPU caches what they save in messages
	bundleMost  = 16      // steps
)

// Together is how many steps with these columns may be made together, of most that the
// consumer accepts, in limit bytes; less than 2: it does not pay.
func (m *Maker) Together(w *Walk, fields []batch.Field, most int, limit int64) int {
	if !m.bundled(fields) {
		return 0
	}
	one := batch.NewLayout(fields, int(w.Slice.Batch)).Bytes()
	return int(min(int64(most), bundleMost, min(bundleBytes, limit)/max(one, 1), w.Slice.Steps()))
}

// bundled reports whether making a batch only copies numbers: all fields are arrays
// of one shape that are stored as such.
func (m *Maker) bundled(fields []batch.Field) bool {
	if m.spec.Batch.Pack > 0 || m.spec.Batch.ByLength() || slices.ContainsFunc(fields, func(f batch.Field) bool { return f.Loose }) || m.mix != nil {
		return false
	}
	for _, part := range m.data.Parts {
		for i, prog := range part.Programs {
			if prog == nil || prog.Kind() != "array" || part.Fields[i].Decode == "npy" {
				return false
			}
		}
	}
	return true
}
