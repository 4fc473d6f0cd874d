package stream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// State is a position in a stream: plain JSON, equal on every rank.
type State struct {
	Version  int             `json:"version"`
	Dataset  string          `json:"dataset"`
	Pipeline string          `json:"pipeline"`
	Seed     uint64          `json:"seed"`
	Epoch    int64           `json:"epoch"`
	Position int64           `json:"position"`
	Order    json.RawMessage `json:"order"`
	// Processing is Pipeline without the names of fields, and Blocks the block
	// sizes of a block shuffle. With them the state can be used with a packing of
	// its dataset, which has other names and shards. States of earlier releases
	// have neither.
	Processing string `json:"processing,omitempty"`
	Blocks     string `json:"blocks,omitempty"`
	// Skipped are the runs of an epoch that Skip passed over, the newest last; only
	// the last maxSkipped are kept.
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Skipped is a run of items of an epoch: [epoch, from, to).
type Skipped [3]int64

// maxSkipped keeps a state below 1 KiB.
const maxSkipped = 12

// Skip returns the state after passing over the next items up to position.
func (s State) Skip(position int64) State {
	last := len(s.Skipped) - 1
	if last >= 0 && s.Skipped[last][0] == s.Epoch && s.Skipped[last][2] == s.Position {
		s.Skipped = slices.Clone(s.Skipped)
		s.Skipped[last][2] = position
	} else {
		s.Skipped = append(slices.Clone(s.Skipped), Skipped{s.Epoch, s.Position, position})
	}
	s.Skipped = s.Skipped[max(0, len(s.Skipped)-maxSkipped):]
	s.Position = position
	return s
}

// differences says in what a state does not belong to this stream. sources are the
// digests of the datasets that this one was packed from as the same sequence of
// samples; unlike has those that it was packed from as another sequence, and how it
// differs.
func (s State) differences(other State, sources []string, unlike map[string]string) (why []string) {
	differ := func(what string, theirs, mine any) {
		if fmt.Sprint(theirs) != fmt.Sprint(mine) {
			why = append(why, fmt.Sprintf("%s is %v in the state and %v here", what, theirs, mine))
		}
	}
	differ("version", other.Version, s.Version)
	switch {
	case unlike[other.Dataset] != "":
		why = append(why, fmt.Sprintf("it belongs to the dataset that this one was packed from, and does not fit here: %s", unlike[other.Dataset]))
	case other.Dataset == s.Dataset || !slices.Contains(sources, other.Dataset):
		differ("dataset", other.Dataset, s.Dataset)
		differ("pipeline", other.Pipeline, s.Pipeline)
		if other.Blocks != "" {
			differ("the digest of the block sizes", other.Blocks, s.Blocks)
		}
	case other.Processing == "":
		why = append(why, "the state belongs to the dataset that this one was packed from, and an earlier release saved it without the digests needed to resume here")
	default:
		differ("what is done to the fields, whatever their names,", other.Processing, s.Processing)
		differ("the digest of the block sizes", other.Blocks, s.Blocks)
	}
	differ("seed", other.Seed, s.Seed)
	var theirs, ours map[string]any
	if json.Unmarshal(other.Order, &theirs) != nil || json.Unmarshal(s.Order, &ours) != nil || !maps.Equal(theirs, ours) {
		why = append(why, fmt.Sprintf("order is %s in the state and %s here", other.Order, s.Order))
	}
	return why
}

// StateVersion is the version of State.
const StateVersion = 1

// State is the state after the batch that ends at position of an epoch.
func (l *Stream) State(epoch, position int64) State {
	return State{
		Version: StateVersion, Dataset: l.data.Digest(), Pipeline: l.data.Pipeline(), Seed: l.spec.Order.Seed,
		Epoch: epoch, Position: position, Order: l.orderState, Processing: l.data.Processing(), Blocks: l.blocks,
	}
}

// Sources are the digests of the datasets that this one was packed from; their
// states can be resumed here, sample by sample.
func (l *Stream) Sources() []string { return l.data.Sources() }

// Unlike are the datasets that this one was packed from as another sequence of
// samples, by digest, with the difference: their states do not fit.
func (l *Stream) Unlike() map[string]string { return l.data.Unlike() }

// Altered says how packing changed what is delivered, such as "resize 256". It is
// empty if nothing was changed or nothing was packed.
func (l *Stream) Altered() string { return l.data.Altered() }

// Check returns an error unless a state belongs to this loader's stream.
func (l *Stream) Check(st State) error {
	why := l.State(0, 0).differences(st, l.Sources(), l.Unlike())
	if st.Epoch < 0 || st.Position < 0 {
		why = append(why, fmt.Sprintf("its place is %d and its epoch is %d, and neither can be negative", st.Position, st.Epoch))
	} else if len(why) == 0 {
		if n := l.Epoch(st.Epoch).Len(); st.Position > n {
			why = append(why, fmt.Sprintf("its place is %d in epoch %d, which has %d places", st.Position, st.Epoch, n))
		}
	}
	if len(why) == 0 {
		return nil
	}
	return errs.New(errs.State, "the state does not fit: %s", strings.Join(why, "; ")).
		Try("open the loader with the dataset, transforms, seed and order that the state was saved with")
}
