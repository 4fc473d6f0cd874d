package order_test

import (
	"cmp"
	"slices"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
)

const (
	wordLengths = 1<<64 - 10
	wordShort   = 1<<64 - 11
)

// naiveLengths rearranges the places of an epoch window by window.
func naiveLengths(e naiveEpoch, l order.Lengths, key rng.Key) naiveEpoch {
	if l.Of == nil {
		return e
	}
	key = key.With(wordLengths)
	size := l.Window
	if size == 0 {
		size = 10_000
	}
	if l.Bucket > 0 {
		size = size / l.Bucket * l.Bucket
	}
	var all []lengthy
	for place, id := range e.ids {
		all = append(all, lengthy{order.Piece{Place: int64(place), Sample: id}, int64(l.Of[id])})
	}
	out := naiveEpoch{}
	if l.Bucket == 0 {
		out.ids = e.ids
		out.items = [][]order.Piece{}
	}
	for number := uint64(0); len(all) > 0; number++ {
		window := slices.Clone(all[:min(size, int64(len(all)))])
		all = all[len(window):]
		key := key.With(number)
		switch {
		case l.Bucket > 0:
			out.ids = append(out.ids, bucketed(window, l.Bucket, key)...)
		case l.Tokens > 0:
			out.items = append(out.items, mixed(budgeted(window, l), key)...)
		default:
			out.items = append(out.items, mixed(filled(window, l), key)...)
		}
	}
	return out
}

// lengthy is a place with the length of what it holds.
type lengthy struct {
	order.Piece
	length int64
}

func byLength(a, b lengthy) int { return cmp.Compare(a.length, b.length) }

// mixed puts the items of a window in a random order.
func mixed(items [][]order.Piece, key rng.Key) [][]order.Piece {
	var out [][]order.Piece
	for _, i := range naivePermutation(int64(len(items)), 4096, key) {
		out = append(out, items[i])
	}
	return out
}

// bucketed is the window by length, in runs in a random order. A short run comes
// last, and is anywhere between the others in the sorted order.
func bucketed(window []lengthy, run int64, key rng.Key) []int64 {
	slices.SortStableFunc(window, byLength)
	whole, short := int64(len(window))/run, int64(len(window))%run
	before := key.With(wordShort).Intn(0, whole+1)
	var runs [][]lengthy
	for r := range whole {
		if r == before {
			window = append(slices.Clone(window[short:]), window[:short]...)
		}
		runs = append(runs, window[:run])
		window = window[run:]
	}
	var out []int64
	add := func(run []lengthy) {
		for _, p := range run {
			out = append(out, p.Sample)
		}
	}
	for _, r := range naivePermutation(whole, 4096, key) {
		add(runs[r])
	}
	add(window)
	return out
}

// budgeted is the window by length, in batches that are begun anew when one
// more row would be too much.
func budgeted(window []lengthy, l order.Lengths) [][]order.Piece {
	slices.SortStableFunc(window, byLength)
	var out [][]order.Piece
	for _, p := range window {
		last := len(out) - 1
		if last < 0 || int64(len(out[last])+1)*max(1, p.length) > l.Tokens || int64(len(out[last])) == l.Rows && l.Rows > 0 {
			out = append(out, nil)
			last++
		}
		out[last] = append(out[last], p.Piece)
	}
	return out
}

// filled is the rows that samples fill by themselves, and then those that they
// share: longest first, each in the row with the least room, of several the one
// that has had it for longest.
func filled(window []lengthy, l order.Lengths) [][]order.Piece {
	var rows [][]order.Piece
	var rests []lengthy
	for _, p := range window {
		if l.Long == order.Truncate {
			p.length = min(p.length, l.Pack)
		}
		for p.Len = l.Pack; p.length >= l.Pack; p.length -= l.Pack {
			rows = append(rows, []order.Piece{p.Piece})
			p.From += l.Pack
		}
		if p.Len = p.length; p.length > 0 || p.From == 0 {
			rests = append(rests, p)
		}
	}
	slices.SortStableFunc(rests, func(a, b lengthy) int { return byLength(b, a) })
	var open []*shared
	for now, p := range rests {
		var best *shared
		for _, s := range open {
			if s.room >= p.length && (best == nil || s.room < best.room || s.room == best.room && s.since < best.since) {
				best = s
			}
		}
		if best == nil {
			best = &shared{room: l.Pack}
			open = append(open, best)
		}
		best.row = append(best.row, p.Piece)
		best.room -= p.length
		best.since = now
	}
	for _, s := range open {
		rows = append(rows, s.row)
	}
	return rows
}

// shared is a row that is not full.
type shared struct {
	row   []order.Piece
	room  int64
	since int // when it last became fuller
}

// drawnLengths puts lengths on top of another policy over n samples.
func drawnLengths(t *rapid.T, n int64) order.Lengths {
	longest := rapid.SampledFrom([]int32{0, 1, 5, 40, 300}).Draw(t, "longest")
	l := order.Lengths{
		Of:     rapid.SliceOfN(rapid.Int32Range(0, longest), int(n), int(n)).Draw(t, "lengths"),
		Window: rapid.SampledFrom([]int64{0, 1, 9, 50, n, n + 1}).Draw(t, "lengths' window"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "made into") {
	case 0:
		l.Bucket = rapid.Int64Range(1, 12).Draw(t, "bucket")
		l.Window = max(l.Window, l.Bucket)
	case 1:
		l.Tokens = int64(max(1, longest)) + rapid.Int64Range(0, 400).Draw(t, "tokens")
		l.Rows = rapid.Int64Range(0, 9).Draw(t, "rows")
	default:
		l.Pack = rapid.SampledFrom([]int64{1, 7, 64, 150, 5000}).Draw(t, "pack")
		l.Long = rapid.SampledFrom([]order.Long{"", order.Split, order.Truncate}).Draw(t, "long")
	}
	return l
}
