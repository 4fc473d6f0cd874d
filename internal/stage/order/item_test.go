package order

import (
	"testing"

	"github.com/stoker-data/stoker/internal/base/rng"
)

func TestItemOf(t *testing.T) {
	l := List{IDs: []int64{7, 3, 7}, Items: [][]byte{[]byte("a"), []byte("b"), []byte("c")}, Place: 10, Item: 10}
	for _, c := range []struct {
		place, sample int64
		want          string
	}{{10, 7, "a"}, {11, 3, "b"}, {12, 7, "c"}, {12, 3, "b"}, {11, 7, "a"}, {99, 3, "b"}, {10, 4, ""}} {
		if got := string(l.ItemOf(c.place, c.sample)); got != c.want {
			t.Errorf("place %d, sample %d: %q, want %q", c.place, c.sample, got, c.want)
		}
	}
}

// Keys of ranks are promises to users: they may never change.
func TestListsOfRanksHaveTheirOwnKeys(t *testing.T) {
	l := List{IDs: []int64{4, 4}}
	for rank, want := range []rng.Key{rng.Sample(7, 2, 1), 0x852bd5e3f6d1180d, 0xf2282d7a135086af} {
		l.Rank = int64(rank)
		if got := l.Epoch(7, 2).Key(1); got != want {
			t.Errorf("rank %d: place 1 has the key %#x, not %#x", rank, got, want)
		}
	}
}
