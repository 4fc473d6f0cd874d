package order

import (
	"testing"

	"pgregory.net/rapid"
)

// TestMixOfSubsets checks that a mixture of parts of datasets is the mixture of datasets
// that have nothing else, with other ids.
func TestMixOfSubsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := drawMix(t)
		for i := range small.Members {
			if small.Members[i].Policy.Shuffle == BlockWise {
				small.Members[i].Policy = Policy{Shuffle: Full}
			}
		}
		large := small
		large.Members = nil
		var ids []int64 // in large, of each sample of small
		for _, member := range small.Members {
			first := allSamples(large)
			spread := rapid.Int64Range(1, 4).Draw(t, "spread")
			subset := make([]int64, member.Samples)
			for i := range subset {
				subset[i] = spread*int64(i) + 1
				ids = append(ids, first+subset[i])
			}
			member.Samples = spread*member.Samples + 2
			member.Policy.Subset = subset
			large.Members = append(large.Members, member)
		}
		want, err := New(allSamples(small), Policy{Seed: 7, Mix: &small})
		if err != nil {
			t.Fatal(err)
		}
		got, err := New(allSamples(large), Policy{Seed: 7, Mix: &large})
		if err != nil {
			t.Fatal(err)
		}
		for e := range int64(3) {
			theirs, ours := want.Epoch(e), got.Epoch(e)
			if theirs.Len() != ours.Len() || theirs.Places() != ours.Places() {
				t.Fatalf("epoch %d has %d places, want %d", e, ours.Places(), theirs.Places())
			}
			for p := range theirs.Places() {
				if id := ours.At(p); id != ids[theirs.At(p)] {
					t.Fatalf("epoch %d: place %d holds %d, want %d", e, p, id, ids[theirs.At(p)])
				}
			}
		}
	})
}
