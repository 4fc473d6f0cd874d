package order

import (
	"errors"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Lengths is batches made by the lengths of samples. The zero value knows
// nothing of lengths. At most one of Bucket, Tokens and Pack is set. All of
// them work within windows of Window places of the shuffled order, so that
// what a place holds never depends on ranks, and memory never on the epoch.
type Lengths struct {
	Of     []int32 // the length of every sample, not negative: tokens, bytes, frames
	Window int64   // places; 0: 10,000

	// Bucket sorts each window by length and puts its runs of Bucket places, of
	// nearly equal length, in a random order. Places stay places.
	Bucket int64

	// Tokens cuts each window, sorted by length, into batches that pad to at
	// most so many tokens (rows times the longest), and of at most Rows rows,
	// and puts the batches in a random order. An item is a batch.
	Tokens int64
	Rows   int64 // 0: no limit

	// Pack fills rows of Pack tokens with whole samples, the longest first, each
	// where it leaves least room, and puts the rows in a random order. An item is a row.
	Pack int64
	// Long is what becomes of a sample longer than Pack.
	Long Long
}

// Long is what becomes of a sample that no row holds.
type Long string

// The rules for long samples.
const (
	Split    Long = "split"    // into pieces of Pack tokens, each a row's (the default)
	Truncate Long = "truncate" // its first Pack tokens
	Refuse   Long = "refuse"   // New fails
)

func (p *Plan) newLengths() error {
	if p.policy.Lengths.Of != nil {
		return errors.New("order: lengths are not built")
	}
	return nil
}

// group puts an epoch's places together as Lengths, or a Mix of whole batches,
// says.
func (p *Plan) group(*Epoch, rng.Key) {}
