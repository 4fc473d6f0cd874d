package order_test

import (
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// What follows is the orders once more, from their definitions and without the
// code under test: lists that are filled, sorted and taken from, and no
// arithmetic with places. Only the keyed generator is shared.

// Words that keep the parts of an order apart. They are part of its definition.
const (
	wordShuffle = 1<<64 - 1
	wordBlocks  = 1<<64 - 2
	wordWindows = 1<<64 - 3
)

// naiveEpoch is one epoch written down.
type naiveEpoch struct {
	ids   []int64         // of each place
	items [][]order.Piece // nil: every place is an item
}

// naive writes an epoch down.
func naive(n int64, p order.Policy, epoch int64) naiveEpoch {
	key := rng.New(p.Seed).With(uint64(epoch))
	there := n
	if p.Subset != nil {
		there = int64(len(p.Subset))
	}
	var e naiveEpoch
	switch {
	case p.Mix != nil:
		e = naiveMix(*p.Mix, n, p.Seed, epoch)
	case p.Draw.Weights != nil || p.Draw.Replacement:
		e.ids = naiveDraw(there, p.Draw, key.With(wordDraw))
	default:
		e.ids = naiveShuffle(there, p, key.With(wordShuffle))
		if p.Draw.Num > 0 {
			e.ids = e.ids[:p.Draw.Num]
		}
	}
	if p.Subset != nil {
		for place, i := range e.ids {
			e.ids[place] = p.Subset[i]
		}
	}
	return naiveLengths(e, p.Lengths, key)
}

func naiveShuffle(n int64, p order.Policy, key rng.Key) []int64 {
	switch p.Shuffle {
	case order.Full:
		return naivePermutation(n, 4096, key)
	case order.BlockWise, order.WindowAlone:
		return naiveBlocks(n, p.Block, key)
	default:
		return numbers(n)
	}
}

// numbers is 0 to n-1.
func numbers(n int64) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(i)
	}
	return list
}

// naivePermutation is a shuffled list, up to a largest size; above, what
// a Feistel network makes of each number.
func naivePermutation(n, largest int64, key rng.Key) []int64 {
	list := numbers(n)
	if n <= largest {
		for i := n - 1; i > 0; i-- {
			j := key.Intn(uint64(i), i+1)
			list[i], list[j] = list[j], list[i]
		}
		return list
	}
	bits := 0
	for int64(1)<<bits < n {
		bits++
	}
	for i := range list {
		for list[i] = feistel(list[i], bits, key); list[i] >= n; {
			list[i] = feistel(list[i], bits, key)
		}
	}
	return list
}

// feistel is eight rounds over a number of so many bits: the left half, which
// is the shorter one, and the right half are changed by each other in turn.
func feistel(x int64, bits int, key rng.Key) int64 {
	rightSize := int64(1) << (bits - bits/2)
	leftSize := int64(1) << (bits / 2)
	left, right := x/rightSize, x%rightSize
	for round := range uint64(8) {
		if round%2 == 0 {
			left ^= fold(right, key.Uint64(round), leftSize)
		} else {
			right ^= fold(left, key.Uint64(round), rightSize)
		}
	}
	return left*rightSize + right
}

// fold multiplies into 128 bits and puts their halves together, twice.
func fold(x int64, key uint64, below int64) int64 {
	word := new(big.Int).Lsh(big.NewInt(1), 64)
	number := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
	halves := func(v *big.Int) *big.Int {
		high, low := new(big.Int).DivMod(v, word, new(big.Int))
		return high.Xor(high, low)
	}
	v := new(big.Int).Xor(big.NewInt(x), number(key))
	v = halves(v.Mul(v, number(0x9E3779B97F4A7C15)))
	v.Xor(v, number(key>>32))
	v = halves(v.Mul(v, number(0xD6E8FEB86659FD93)))
	return v.Mod(v, big.NewInt(below)).Int64()
}

// naiveBlocks lays the permuted blocks in a row, deals the row to streams,
// shuffles each stream's windows, and takes from the streams in turns.
func naiveBlocks(n int64, b order.Block, key rng.Key) []int64 {
	sizes := b.Sizes
	if len(sizes) == 0 {
		sizes = []int64{n}
	}
	samples := numbers(n)
	var blocks [][]int64
	for _, size := range sizes {
		blocks = append(blocks, samples[:size])
		samples = samples[size:]
	}
	var row []int64
	for _, which := range naivePermutation(int64(len(blocks)), 4096, key.With(wordBlocks)) {
		row = append(row, blocks[which]...)
	}
	count := max(b.Streams, 1)
	streams := make([][]int64, count)
	for s := range count {
		share := n / count
		if s < n%count {
			share++
		}
		streams[s] = windowed(row[:share], b.Window, key.With(wordWindows).With(uint64(s)))
		row = row[share:]
	}
	var out []int64
	for s := 0; int64(len(out)) < n; s = (s + 1) % len(streams) {
		out = append(out, streams[s][0])
		streams[s] = streams[s][1:]
	}
	return out
}

// windowed shuffles each window by itself; its key is named by its first place.
// Windows above 64 samples are permuted by the network.
func windowed(stream []int64, window int64, key rng.Key) []int64 {
	if window < 2 {
		return slices.Clone(stream)
	}
	var out []int64
	for first := int64(0); first < int64(len(stream)); first += window {
		samples := stream[first:min(first+window, int64(len(stream)))]
		for _, i := range naivePermutation(int64(len(samples)), 64, key.With(uint64(first))) {
			out = append(out, samples[i])
		}
	}
	return out
}

// Random policies, place by place and item by item.
func TestAgainstTheNaiveOrder(t *testing.T) {
	for name, draw := range map[string]func(*rapid.T) (int64, order.Policy){
		"none":   func(t *rapid.T) (int64, order.Policy) { return drawSize(t), order.Policy{} },
		"full":   drawFull,
		"block":  drawBlock,
		"window": drawWindow,
		"draw":   drawnDraw,
		"mix":    drawnMix,
		"subset": drawSubset,
		"lengths": func(t *rapid.T) (int64, order.Policy) {
			draw := rapid.SampledFrom([]func(*rapid.T) (int64, order.Policy){drawFull, drawBlock, drawnDraw, drawnMix, drawSubset}).Draw(t, "of")
			n, p := draw(t)
			if p.Mix != nil {
				p.Mix.Batches = false
			}
			p.Lengths = drawnLengths(t, n)
			return n, p
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n, p := draw(t)
				p.Seed = rapid.Uint64().Draw(t, "seed")
				epoch := rapid.Int64Range(0, 4).Draw(t, "epoch")
				plan, err := order.New(n, p)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, plan.Epoch(epoch), naive(n, p, epoch), p.Seed, epoch)
			})
		})
	}
}

// compare asks an epoch everything that it can be asked.
func compare(t *rapid.T, e order.Epoch, want naiveEpoch, seed uint64, epoch int64) {
	places := int64(len(want.ids))
	if want.items == nil {
		for p, id := range want.ids {
			want.items = append(want.items, []order.Piece{{Place: int64(p), Sample: id}})
		}
	}
	items := int64(len(want.items))
	if e.Places() != places || e.Len() != items {
		t.Fatalf("%d places and %d items, want %d and %d", e.Places(), e.Len(), places, items)
	}
	for p := range 2*places + 3 {
		if e.At(p) != want.ids[p%places] || e.Real(p) != (p < places) {
			t.Fatalf("place %d of %d holds %d, real %v; want %d", p, places, e.At(p), e.Real(p), want.ids[p%places])
		}
		if e.Key(p) != rng.New(seed).With(uint64(epoch)).With(uint64(p)) {
			t.Fatalf("place %d has the key %x", p, e.Key(p))
		}
	}
	before := []order.Piece{{Place: -7}}
	for i := range 2*items + 3 {
		got := e.Item(i, before)
		if got[0] != before[0] || len(got)-1 != len(want.items[i%items]) {
			t.Fatalf("item %d of %d is %v, want %v", i, items, got[1:], want.items[i%items])
		}
		for k, p := range want.items[i%items] {
			p.Place += i / items * places
			if got[1+k] != p {
				t.Fatalf("item %d of %d is %v, want %v", i, items, got[1:], want.items[i%items])
			}
		}
	}
	compareSums(t, e, want)
}

// compareSums adds up what any two parts of an epoch deliver, in any order.
func compareSums(t *rapid.T, e order.Epoch, want naiveEpoch) {
	var sum order.Sum
	samples := map[[2]int64]bool{}
	for _, item := range want.items {
		for _, p := range item {
			if p.From == 0 {
				sum.Add(p.Place, p.Sample)
				samples[[2]int64{p.Place, p.Sample}] = true
			}
		}
	}
	items := int64(len(want.items))
	half := rapid.Int64Range(0, items).Draw(t, "half")
	second, b := e.Sum(half, 2*items) // padding does not count
	first, a := e.Sum(0, half)
	second.Plus(first)
	if second != sum || a+b != int64(len(samples)) {
		t.Fatalf("%d samples add up to %v, want %d and %v", a+b, second, len(samples), sum)
	}
}

// drawSize prefers sizes at which something changes.
func drawSize(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.Int64Range(1, 300),
		rapid.SampledFrom([]int64{1, 2, 63, 64, 65, 127, 128, 129}),
	).Draw(t, "n")
}

func drawFull(t *rapid.T) (int64, order.Policy) {
	n := drawSize(t)
	if slow == 1 && rapid.IntRange(0, 9).Draw(t, "large") == 0 {
		n = rapid.SampledFrom([]int64{4095, 4096, 4097, 4098, 5003}).Draw(t, "n")
	}
	return n, order.Policy{Shuffle: order.Full}
}

func drawBlock(t *rapid.T) (int64, order.Policy) {
	b := order.Block{
		Sizes:   rapid.SliceOfN(rapid.Int64Range(0, 40), 0, 12).Draw(t, "sizes"),
		Streams: rapid.Int64Range(0, 12).Draw(t, "streams"),
		Window: rapid.OneOf(
			rapid.Int64Range(0, 80), rapid.SampledFrom([]int64{0, 1, 64, 65, 1000, 1 << 62}),
		).Draw(t, "window"),
	}
	var n int64
	for _, size := range b.Sizes {
		n += size
	}
	if n == 0 {
		b.Sizes = nil
		n = drawSize(t)
	}
	if rapid.Bool().Draw(t, "many streams") {
		b.Streams = n + rapid.Int64Range(-1, 3).Draw(t, "more")
	}
	return n, order.Policy{Shuffle: order.BlockWise, Block: b}
}

func drawWindow(t *rapid.T) (int64, order.Policy) {
	return drawSize(t), order.Policy{Shuffle: order.WindowAlone, Block: order.Block{
		Window:  rapid.Int64Range(2, 200).Draw(t, "window"),
		Streams: rapid.Int64Range(0, 1).Draw(t, "streams"),
	}}
}

// drawSubset gives some samples of more, in any order and more than once, to a
// policy over as many.
func drawSubset(t *rapid.T) (int64, order.Policy) {
	draw := rapid.SampledFrom([]func(*rapid.T) (int64, order.Policy){drawFull, drawWindow, drawnDraw}).Draw(t, "within")
	size, p := draw(t)
	n := rapid.Int64Range(1, 500).Draw(t, "all")
	p.Subset = rapid.SliceOfN(rapid.Int64Range(0, n-1), int(size), int(size)).Draw(t, "subset")
	return n, p
}

// A List is what it was made of, and its parts are the whole.
func TestListsAgainstTheirIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int64Range(0, 99), 1, 200).Draw(t, "ids")
		seed, epoch := rapid.Uint64().Draw(t, "seed"), rapid.Int64Range(0, 9).Draw(t, "epoch")
		var cuts []int64
		var want naiveEpoch
		want.ids = ids
		if rapid.Bool().Draw(t, "batches") {
			for at := int64(0); at < int64(len(ids)); {
				size := min(rapid.Int64Range(0, 9).Draw(t, "batch"), int64(len(ids))-at)
				cuts = append(cuts, size)
				var item []order.Piece
				for range size {
					item = append(item, order.Piece{Place: at, Sample: ids[at]})
					at++
				}
				want.items = append(want.items, item)
			}
		}
		whole := order.List{IDs: ids, Cuts: cuts}.Epoch(seed, epoch)
		if whole.Batches() != (cuts != nil) || whole.Rows() {
			t.Fatalf("batches %v, rows %v", whole.Batches(), whole.Rows())
		}
		compare(t, whole, want, seed, epoch)
		compareParts(t, whole, ids, cuts)
	})
}

// compareParts cuts a List in two, as one that comes piece by piece does.
func compareParts(t *rapid.T, whole order.Epoch, ids, cuts []int64) {
	item := rapid.Int64Range(0, whole.Len()).Draw(t, "part")
	place := item
	var before, after []int64
	if cuts != nil { // of which some are empty: there may be more of them than ids
		before, after, place = cuts[:item], cuts[item:], 0
		for _, size := range before {
			place += size
		}
	}
	first := order.List{IDs: ids[:place], Cuts: before}
	second := order.List{IDs: ids[place:], Cuts: after, Place: place, Item: item}
	a, b := first.Epoch(1, 2), second.Epoch(1, 2)
	if a.Len() != item || b.Len() != whole.Len() || a.Places() != place || b.Places() != whole.Places() {
		t.Fatalf("parts have %d and %d items, %d and %d places", a.Len(), b.Len(), a.Places(), b.Places())
	}
	for i := range whole.Len() {
		part := a
		if i >= item {
			part = b
		}
		if got, want := part.Item(i, nil), whole.Item(i, nil); !slices.Equal(got, want) {
			t.Fatalf("item %d of a part is %v, want %v", i, got, want)
		}
	}
	if place == whole.Places() || item == whole.Len() {
		return // nothing is left to repeat
	}
	for i := range whole.Len() + 3 {
		got, want := b.Item(b.Len()+i, nil), b.Item(item+i%(b.Len()-item), nil)
		if len(got) != len(want) {
			t.Fatalf("padding %d of a part is %v, want %v", i, got, want)
		}
		for k, p := range got {
			if p.Sample != want[k].Sample || b.Real(p.Place) || cuts == nil && p.Place != b.Len()+i {
				t.Fatalf("padding %d of a part is %v, want %v", i, got, want)
			}
		}
	}
	for p := range whole.Places() {
		if got, want := b.At(b.Places()+p), ids[place+p%(whole.Places()-place)]; got != want {
			t.Fatalf("padding place %d of a part holds %d, want %d", p, got, want)
		}
	}
}
