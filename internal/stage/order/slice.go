package order

// Tail is what happens at the end of an epoch that does not divide evenly.
type Tail string

// The tails. All give every rank the same number of steps.
const (
	Pad  Tail = "pad"  // up to a multiple of the world: last batches equally short
	Fill Tail = "fill" // up to full batches
	Drop Tail = "drop" // ends before the first step that is not full
)

// Slice is one rank's share of a pass over the n places of an epoch that begins at
// place Start: step t has the places that are Rank modulo World, counted from
// Start, in [Start + t*World*Batch, Start + (t+1)*World*Batch).
type Slice struct {
	N     int64 // places of the epoch
	Start int64 // place where the pass began
	Batch int64 // per rank
	World int64
	Rank  int64
	Tail  Tail
}

// places is the number of places all ranks deliver, padding included.
func (s Slice) places() int64 {
	left := s.N - s.Start
	if left <= 0 {
		return 0
	}
	step := s.World * s.Batch
	switch s.Tail {
	case Drop:
		return left / step * step
	case Fill:
		return (left + step - 1) / step * step
	default:
		return (left + s.World - 1) / s.World * s.World
	}
}

// Steps is the number of batches of the pass, equal on every rank.
func (s Slice) Steps() int64 {
	step := s.World * s.Batch
	return (s.places() + step - 1) / step
}

// Rows is the number of samples in the batch of step t, equal on every rank.
func (s Slice) Rows(t int64) int64 {
	return min(s.Batch, (s.places()-t*s.World*s.Batch)/s.World)
}

// Place is the place of row i of step t. A place >= N is padding.
func (s Slice) Place(t, i int64) int64 {
	return s.Start + (t*s.Batch+i)*s.World + s.Rank
}

// After is the number of places of the epoch that all ranks have received after
// step t: where a pass that continues begins.
func (s Slice) After(t int64) int64 {
	return min(s.N, s.Start+min(s.places(), (t+1)*s.World*s.Batch))
}
