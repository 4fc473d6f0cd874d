package stream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/stage/order"
)

// Receipt is what one rank's training loop really received: of which stream, and in
// which parts. The receipts of all ranks, and of the resumed pieces of a run, add
// up.
type Receipt struct {
	Version int             `json:"version"`
	Dataset string          `json:"dataset"`
	Seed    uint64          `json:"seed"`
	Order   json.RawMessage `json:"order"`
	Parts   []ReceiptPart   `json:"parts"`
}

// ReceiptPart is one run of steps of one pass: the items [From, To) of its epoch
// were dealt to World ranks, and this rank got its share.
type ReceiptPart struct {
	Epoch   int64     `json:"epoch"`
	From    int64     `json:"from"`
	To      int64     `json:"to"`
	Rank    int64     `json:"rank"`
	World   int64     `json:"world_size"`
	Samples int64     `json:"samples"` // in Sum: without padding and skipped samples
	Sum     order.Sum `json:"sum"`
	// Skipped are samples that were not delivered, as [place, sample]; Replaced
	// those that were replaced, as [place, sample, replacement].
	Skipped  [][2]int64 `json:"skipped,omitempty"`
	Replaced [][3]int64 `json:"replaced,omitempty"`
}

// ReceiptVersion is the version of Receipt.
const ReceiptVersion = 1

// Verdict is the result of comparing receipts with the plan.
type Verdict struct {
	OK       bool           `json:"ok"`       // no problem
	Complete bool           `json:"complete"` // and every epoch but the last is covered completely
	Problems []string       `json:"problems,omitempty"`
	Epochs   []EpochVerdict `json:"epochs"`
}

// EpochVerdict is the verdict on one epoch.
type EpochVerdict struct {
	Epoch    int64      `json:"epoch"`
	Items    int64      `json:"items"`   // of the epoch
	Covered  [][2]int64 `json:"covered"` // runs of items that were delivered
	Samples  int64      `json:"samples"` // received over all ranks, as receipts say
	Planned  int64      `json:"planned"` // that the plan has there, without skipped ones
	Skipped  int64      `json:"skipped,omitempty"`
	Replaced int64      `json:"replaced,omitempty"`
}

// Verify adds up receipts and compares them with the plan of this loader, whose own
// rank and world do not matter.
func (l *Stream) Verify(receipts []Receipt) Verdict {
	var v Verdict
	parts := map[int64][]ReceiptPart{}
	mine := l.State(0, 0)
	for i, r := range receipts {
		theirs := State{
			Version: mine.Version, Dataset: r.Dataset, Pipeline: mine.Pipeline, Seed: r.Seed, Order: r.Order,
			Processing: mine.Processing,
		}
		if r.Version != ReceiptVersion {
			v.problemf("receipt %d has version %d, but this release reads %d", i, r.Version, ReceiptVersion)
			continue
		}
		for _, why := range mine.differences(theirs, l.Sources(), l.Unlike()) {
			v.problemf("receipt %d is of another stream: %s", i, why)
		}
		for _, p := range r.Parts {
			if p.Epoch < 0 || p.From < 0 || p.To < p.From || p.World < 1 || p.Rank < 0 || p.Rank >= p.World {
				v.problemf("receipt %d is damaged: epoch %d, items %d to %d, rank %d of %d", i, p.Epoch, p.From, p.To, p.Rank, p.World)
				continue
			}
			if p.To > p.From {
				parts[p.Epoch] = append(parts[p.Epoch], p)
			}
		}
	}
	v.Complete = true
	if len(v.Problems) == 0 {
		epochs := slices.Sorted(maps.Keys(parts))
		for i, epoch := range epochs {
			left := v.epoch(l.Epoch(epoch), epoch, parts[epoch])
			if l.spec.Order.Tail == order.Drop && left.to-left.from < l.strideIn(left.world) {
				left.from = left.to
			}
			v.Complete = v.Complete && (left.from == left.to || i == len(epochs)-1)
		}
	}
	v.OK = len(v.Problems) == 0
	v.Complete = v.Complete && v.OK
	return v
}

func (v *Verdict) problemf(format string, a ...any) {
	v.Problems = append(v.Problems, fmt.Sprintf(format, a...))
}

// run is a run of items that was dealt to the ranks of one world.
type run struct{ from, to, world int64 }

// epoch judges the parts of one epoch. left is the run of items that they do not
// cover at its end, and the world of the run before it; all items, if the parts do
// not begin at its start.
func (v *Verdict) epoch(e order.Epoch, number int64, parts []ReceiptPart) (left run) {
	out := EpochVerdict{Epoch: number, Items: e.Len()}
	ranks := map[run]map[int64]int{}
	var sum, want order.Sum
	for _, p := range parts {
		if p.To > e.Len() {
			v.problemf("epoch %d: rank %d of %d received items up to %d, but there are %d", number, p.Rank, p.World, p.To, e.Len())
			return run{0, e.Len(), p.World}
		}
		r := run{p.From, p.To, p.World}
		if ranks[r] == nil {
			ranks[r] = map[int64]int{}
		}
		ranks[r][p.Rank]++
		sum.Plus(p.Sum)
		out.Samples += p.Samples
	}
	runs := slices.SortedFunc(maps.Keys(ranks), func(a, b run) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.world, b.world))
	})
	before := len(v.Problems)
	at := int64(0)
	for i, r := range runs {
		v.ranks(number, r, ranks[r])
		if i > 0 && r.from < at {
			v.problemf("epoch %d: items %d to %d were delivered twice, to %d and to %d ranks", number, r.from, min(at, r.to), runs[i-1].world, r.world)
		}
		if n := len(out.Covered); n > 0 && out.Covered[n-1][1] == r.from {
			out.Covered[n-1][1] = r.to
		} else {
			out.Covered = append(out.Covered, [2]int64{r.from, r.to})
		}
		at = max(at, r.to)
	}
	if len(v.Problems) == before {
		for _, r := range out.Covered {
			part, samples := e.Sum(r[0], r[1])
			want.Plus(part)
			out.Planned += samples
		}
		out.adjust(e, &want, parts)
		v.sums(&out, sum, want)
	}
	v.Epochs = append(v.Epochs, out)
	left = run{0, e.Len(), runs[len(runs)-1].world}
	if len(out.Covered) == 1 && out.Covered[0][0] == 0 {
		left.from = out.Covered[0][1]
	}
	return left
}

// ranks reports which ranks of a run are missing or came twice.
func (v *Verdict) ranks(epoch int64, r run, got map[int64]int) {
	for _, rank := range slices.Sorted(maps.Keys(got)) {
		if n := got[rank]; n > 1 {
			v.problemf("epoch %d, items %d to %d: rank %d of %d came %d times", epoch, r.from, r.to, rank, r.world, n)
		}
	}
	var missing []string
	for rank := int64(0); rank < r.world && len(missing) <= mostNamed; rank++ {
		if got[rank] == 0 {
			missing = append(missing, fmt.Sprint(rank))
		}
	}
	if len(missing) > mostNamed {
		missing[mostNamed] = "and more"
	}
	if len(missing) > 0 {
		v.problemf("epoch %d, items %d to %d: of %d ranks, there is no receipt of %s that ends there", epoch, r.from, r.to, r.world, strings.Join(missing, ", "))
	}
}

// mostNamed is how many ranks one sentence names.
const mostNamed = 16

// adjust removes skipped samples from the plan's sum, and adds replacements. A
// sample counts once, in however many rows it has runs.
func (v *EpochVerdict) adjust(e order.Epoch, want *order.Sum, parts []ReceiptPart) {
	seen := map[int64]bool{}
	first := func(place int64) bool {
		if !e.Real(place) || seen[place] {
			return false
		}
		seen[place] = true
		return true
	}
	for _, p := range parts {
		for _, s := range p.Skipped {
			if first(s[0]) {
				want.Less(s[0], s[1])
				v.Planned--
				v.Skipped++
			}
		}
		for _, r := range p.Replaced {
			if first(r[0]) {
				want.Less(r[0], r[1])
				want.Add(r[0], r[2])
				v.Replaced++
			}
		}
	}
}

func (v *Verdict) sums(e *EpochVerdict, got, want order.Sum) {
	switch {
	case got == want && e.Samples == e.Planned:
	case e.Samples != e.Planned:
		v.problemf("epoch %d: %d samples were delivered, but the plan has %d there", e.Epoch, e.Samples, e.Planned)
	default:
		v.problemf("epoch %d: as many samples were delivered as the plan has, %d, but not the same ones in the same places", e.Epoch, e.Samples)
	}
}
