package order

import "testing"

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
