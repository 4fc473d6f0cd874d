package order

import "sort"

// Shares is the number of samples of each member of a Mix in the items [from, to)
// of an epoch, without padding; nil if there is no Mix. Pieces of one sample count
// once, with the first. It costs O(members log points), and at most two windows of
// Lengths and two cycles.
func (e Epoch) Shares(from, to int64) []int64 {
	o, _ := e.seq.(*mixOrder)
	if b, ok := e.seq.(*buckets); ok {
		o, _ = b.seq.(*mixOrder)
	}
	if o == nil {
		return nil
	}
	shares := make([]int64, len(o.mix.members))
	if from, to = max(from, 0), min(to, e.Len()); from < to {
		e.count(o, to, 1, shares)
		e.count(o, from, -1, shares)
	}
	return shares
}

// count adds sign times the number of samples of each member in the first items
// items.
func (e Epoch) count(o *mixOrder, items, sign int64, shares []int64) {
	item, place := e.seam(items)
	o.count(place, sign, shares)
	var pieces []Piece
	for ; item < items; item++ {
		pieces = e.Item(item, pieces[:0])
		for _, p := range pieces {
			if p.From == 0 {
				shares[o.mix.whose(p.Sample)] += sign
			}
		}
	}
}

// seam returns the last item, not after the given one, before which there are
// exactly the samples of the mixture's places before place.
func (e Epoch) seam(item int64) (before, place int64) {
	switch g := e.groups.(type) {
	case runBatches:
		return item, min(item*g.mix.run, e.places)
	case *cuts:
		w := sort.Search(len(g.first), func(w int) bool { return g.first[w] > item }) - 1
		return g.first[w], min(int64(w)*g.lengths.Window, e.places)
	}
	if b, ok := e.seq.(*buckets); ok && item < e.places {
		item -= item % b.lengths.Window
	}
	return item, item
}

// count adds sign times the number of samples of each member in the first places
// places.
func (o *mixOrder) count(places, sign int64, shares []int64) {
	m := o.mix
	run, offset := places/m.run, places%m.run
	number := run / cycleRuns
	for d := range shares {
		shares[d] += sign * m.run * m.schedule.before(d, number)
	}
	if number*cycleRuns*m.run == places {
		return
	}
	owner := o.cycle(number).owner
	for _, d := range owner[:run%cycleRuns] {
		shares[d] += sign * m.run
	}
	if offset > 0 {
		shares[owner[run%cycleRuns]] += sign * offset
	}
}

// whose is the member that a sample belongs to.
func (m *mix) whose(sample int64) int {
	return sort.Search(len(m.members), func(d int) bool { return m.members[d].first > sample }) - 1
}
