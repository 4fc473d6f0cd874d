package order

import (
	"errors"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Mix is several datasets in one stream. The samples of member d are numbered
// on from those of the members before it.
type Mix struct {
	Members []Member
	// Points are the members' weights from a place of the epoch on; the first
	// has Place 0. Every weight list is as long as Members.
	Points []Point
	// Linear moves the weights evenly from each point to the next, and not at
	// once when the next is reached.
	Linear bool
	Stop   Stop
	// Num is the number of places of an epoch under Repeat; 0: one for every
	// sample of every member.
	Num int64
	// Run is the number of places in a row that one member fills; 0: 1.
	Run int64
	// Batches makes every run an item: a batch of its own.
	Batches bool
}

// Member is one dataset of a Mix. Its Policy's Seed is not used: that of the
// mixture and the member's number take its place. It has no Mix and no Lengths.
type Member struct {
	Samples int64
	Policy  Policy
}

// Point is where weights of a Mix change.
type Point struct {
	Place   int64
	Weights []float64
}

// Stop is when an epoch of a Mix ends.
type Stop string

// The rules.
const (
	FirstExhausted Stop = "first_exhausted" // before any member would begin anew
	AllExhausted   Stop = "all_exhausted"   // when all have been seen whole; smaller ones begin anew meanwhile
	Repeat         Stop = "repeat"          // after Num places; what is left of a member comes in the next epoch
)

// mix is what the epochs of a Mix share.
type mix struct{}

func (p *Plan) newMix() error { return errors.New("order: mixtures are not built") }

func (m *mix) epoch(int64, rng.Key) sequence { return nil }

// Shares is the number of samples of each member in the places [from, to) of an
// epoch.
func (e Epoch) Shares(from, to int64) []int64 { return nil }
