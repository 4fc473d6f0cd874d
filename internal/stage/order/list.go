package order

import (
	"slices"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// List is an order that came from elsewhere: a user's sampler, or a part of what it
// gives.
type List struct {
	IDs []int64
	// Cuts are the lengths of the batches that the ids are cut into; nil: items are
	// places.
	Cuts []int64
	// Items are what a sampler gave if that is not plain ids, one for each; the ids are
	// places if it gave none. They mean nothing here; nil: there are no items.
	Items [][]byte
	// Place is the place of the first id, and Item the number of the first batch:
	// what came before, in other Lists, is not known here. Without Cuts they are
	// the same.
	Place, Item int64
	// Rank is the number of the process. Each has a List of its own, and places count
	// from 0 in all of them: without it, a sample that several ranks get at the same
	// place, as repeated augmentation has it, would be the same picture everywhere.
	Rank int64
}

// ofRank is the word below a seed that leads to the keys of one rank's List.
const ofRank = 0x72616e6b

// ItemOf is what the sampler gave for a sample, at its place or, if the sample replaces
// another one, elsewhere in the list.
func (l List) ItemOf(place, sample int64) []byte {
	at := int(place - l.Place)
	if at < 0 || at >= len(l.IDs) || l.IDs[at] != sample {
		at = slices.Index(l.IDs, sample)
	}
	if at < 0 {
		return nil
	}
	return l.Items[at]
}

// Epoch is the order of the List's part of an epoch: places from Place on, items
// from Item on.
func (l List) Epoch(seed uint64, epoch int64) Epoch {
	if l.Rank > 0 { // rank 0 has the keys of a world of one
		seed = uint64(rng.New(seed).With(ofRank).With(uint64(l.Rank)))
	}
	e := Epoch{seq: table(l.IDs), places: l.Place + int64(len(l.IDs)), first: l.Place, seed: seed, epoch: epoch}
	if l.Cuts != nil {
		g := &cutList{list: l, ends: make([]int64, len(l.Cuts))}
		var end int64
		for i, n := range l.Cuts {
			end += n
			g.ends[i] = end
		}
		e.groups, e.begin = g, l.Item
	}
	return e
}

// table is a sequence that is stored as a slice.
type table []int64

func (t table) at(place int64) int64 { return t[place] }

// cutList is the batches of a List.
type cutList struct {
	list List
	ends []int64 // of each batch, in ids
}

func (c *cutList) len() int64 { return c.list.Item + int64(len(c.ends)) }
func (c *cutList) rows() bool { return false }

func (c *cutList) item(i int64, dst []Piece) []Piece {
	i -= c.list.Item
	end := c.ends[i]
	for at := end - c.list.Cuts[i]; at < end; at++ {
		dst = append(dst, Piece{Place: c.list.Place + at, Sample: c.list.IDs[at]})
	}
	return dst
}
