package resume

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/order"
)

func step() *Step {
	return &Step{Epoch: 1, Step: 2, Position: 6, IDs: []int64{4, 5}, Valid: []bool{true, true}, Rows: []uint64{40, 50}, All: 9}
}

func TestCompareSteps(t *testing.T) {
	trace := NewTrace([]*Step{step()})
	if d := trace.Compare(step(), 0); d != nil {
		t.Errorf("%v", d)
	}
	for want, change := range map[string]func(*Step){
		"row 1: sample 7, but sample 5 in the undisturbed run":                           func(s *Step) { s.IDs[1] = 7 },
		"row 1: sample 5 has valid false, but true in the undisturbed run":               func(s *Step) { s.Valid[1] = false },
		"row 0: sample 4 has other pixels (or other values) than in the undisturbed run": func(s *Step) { s.Rows[0]++ },
		"the bytes between the rows differ":                                              func(s *Step) { s.All++ },
		"the step has number 2 in the undisturbed run":                                   func(s *Step) { s.Step++ },
		"1 sample, but 2 in the undisturbed run":                                         func(s *Step) { s.IDs, s.Valid, s.Rows = s.IDs[:1], s.Valid[:1], s.Rows[:1] },
		"the step ends at place 8, and":                                                  func(s *Step) { s.Position = 8 },
		"the next one ends at epoch 1, place 6":                                          func(s *Step) { s.Epoch = 2 },
	} {
		s := step()
		change(s)
		if d := trace.Compare(s, 0); d == nil || !strings.Contains(d.String(), want) {
			t.Errorf("%s: %v", want, d)
		}
	}
	if d := trace.Compare(step(), 1); d == nil || d.What != "the run continues, and the undisturbed one had ended" {
		t.Errorf("%v", d)
	}
}

// deliver is what ranks of a world get of an epoch from a place on, for at most
// so many steps, and the place that they come to.
func deliver(e order.Epoch, epoch, from, batch, world int64, steps int64) (ranks [][]*Step, to int64) {
	if e.Batches() {
		batch = 1
	}
	for rank := range world {
		s := order.Slice{N: e.Len(), Start: from, Batch: batch, World: world, Rank: rank, Tail: order.Pad}
		var got []*Step
		for t := range min(steps, s.Steps()) {
			one := &Step{Epoch: epoch, Step: t, Position: s.After(t)}
			for i := range s.Rows(t) {
				for _, p := range e.Item(s.Place(t, i), nil) {
					one.IDs = append(one.IDs, p.Sample)
					one.Valid = append(one.Valid, e.Real(p.Place))
					one.Rows = append(one.Rows, uint64(p.Place<<20+p.From))
				}
			}
			got = append(got, one)
			to = one.Position
		}
		ranks = append(ranks, got)
	}
	return ranks, to
}

// Worlds one after the other are one stream, and whatever is changed in them is
// found.
func TestUnion(t *testing.T) {
	lengths := make([]int32, 97)
	for i := range lengths {
		lengths[i] = int32(1 + i*i%13)
	}
	rapid.Check(t, func(t *rapid.T) {
		policy := order.Policy{Shuffle: order.Full, Seed: rapid.Uint64().Draw(t, "seed")}
		switch rapid.IntRange(0, 2).Draw(t, "lengths") {
		case 1:
			policy.Lengths = order.Lengths{Of: lengths, Window: 20, Tokens: 30}
		case 2:
			policy.Lengths = order.Lengths{Of: lengths, Window: 20, Pack: 10, Long: order.Split}
		}
		plan, err := order.New(97, policy)
		if err != nil {
			t.Fatal(err)
		}
		batch := rapid.Int64Range(1, 9).Draw(t, "batch")
		ref, all := NewUnion(plan.Epoch), NewUnion(plan.Epoch)
		whole, _ := deliver(plan.Epoch(3), 3, 0, batch, 1, 1000)
		if d := ref.Add(3, 0, whole); d != nil {
			t.Fatal(d)
		}
		type leg struct {
			from  int64
			ranks [][]*Step
		}
		var legs []leg
		for at := int64(0); at < plan.Epoch(3).Len(); {
			ranks, to := deliver(plan.Epoch(3), 3, at, batch, rapid.Int64Range(1, 5).Draw(t, "world"), rapid.Int64Range(1, 9).Draw(t, "steps"))
			legs = append(legs, leg{at, ranks})
			at = to
		}
		fault := rapid.IntRange(0, 4).Draw(t, "fault")
		l := rapid.SampledFrom(legs).Draw(t, "leg")
		r := rapid.IntRange(0, len(l.ranks)-1).Draw(t, "rank")
		s := rapid.SampledFrom(l.ranks[r]).Draw(t, "step")
		row := rapid.IntRange(0, len(s.IDs)-1).Draw(t, "row")
		if !s.Valid[row] {
			fault = 0 // padding is nobody's
		}
		switch fault {
		case 1:
			s.IDs[row]++
		case 2:
			s.Rows[row]++
		case 3:
			s.Position++
		case 4:
			s.IDs, s.Valid, s.Rows = s.IDs[:row], s.Valid[:row], s.Rows[:row]
		}
		var found *Difference
		for _, l := range legs {
			if found = all.Add(3, l.from, l.ranks); found != nil {
				break
			}
		}
		places := int64(0)
		if found == nil {
			places, found = all.Compare(ref)
		}
		if (found != nil) != (fault != 0) || fault == 0 && places != int64(len(ref.rows)) {
			t.Fatalf("fault %d: %v, %d places", fault, found, places)
		}
	})
}

func TestUnionTwice(t *testing.T) {
	plan, err := order.New(10, order.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	ranks, _ := deliver(plan.Epoch(0), 0, 0, 2, 2, 2)
	u := NewUnion(plan.Epoch)
	if d := u.Add(0, 0, ranks); d != nil {
		t.Fatal(d)
	}
	if d := u.Add(0, 0, ranks); d == nil || d.What != "place 0, sample 0, came twice" {
		t.Errorf("%v", d)
	}
	short := slices.Clone(ranks)
	short[1] = short[1][:1]
	if d := NewUnion(plan.Epoch).Add(0, 0, short); d == nil || d.What != "this rank and rank 0 are at different places" {
		t.Errorf("%v", d)
	}
}
