package order_test

import (
	"math"
	"runtime"
	"testing"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
)

const (
	billion  = 1_000_000_000
	trillion = 1_000_000_000_000
)

// shards are an even number of blocks of unequal sizes, n in all, which they divide.
func shards(n, blocks int64) []int64 {
	mean := n / blocks
	var sizes []int64
	for i := range uint64(blocks / 2) {
		size := mean/2 + rng.New(1).Intn(i, mean)
		sizes = append(sizes, size, 2*mean-size)
	}
	return sizes
}

// large are the orders whose cost users were promised.
func large() []largeOrder {
	full := order.Policy{Shuffle: order.Full, Seed: 3}
	blocks := shards(billion, 100_000)
	return []largeOrder{
		{"full-4096", 4096, full},
		{"full-1e9", billion, full},
		{"full-1e12", trillion, full},
		{"block-1e9", billion, order.Policy{Shuffle: order.BlockWise, Block: order.Block{Sizes: blocks, Streams: 8, Window: 8192}}},
		{"block-small-windows", billion, order.Policy{Shuffle: order.BlockWise, Block: order.Block{Sizes: blocks, Streams: 8, Window: 64}}},
		{"window-1e9", billion, order.Policy{Shuffle: order.WindowAlone, Block: order.Block{Window: 10_000}}},
	}
}

type largeOrder struct {
	name   string
	n      int64
	policy order.Policy
}

// Sizes at the end of what an int64 holds neither overflow nor hang.
func TestBlocksAsLargeAsTheyMayBe(t *testing.T) {
	for _, sizes := range [][]int64{
		{math.MaxInt64}, {1 << 62, 1<<62 - 1}, {0, math.MaxInt64 - 1, 0, 1}, {1 << 61, 1 << 61, 1 << 61, 1<<61 - 1},
	} {
		for _, streams := range []int64{1, 2, 3, 1 << 62} {
			epoch := open(t, math.MaxInt64, order.Policy{
				Shuffle: order.BlockWise, Seed: 1, Block: order.Block{Sizes: sizes, Streams: streams, Window: 1 << 40},
			}).Epoch(0)
			seen := map[int64]bool{}
			for _, place := range []int64{0, 1, 1 << 40, 1 << 61, 1 << 62, math.MaxInt64 - 2, math.MaxInt64 - 1} {
				id := epoch.At(place)
				if id < 0 || id == math.MaxInt64 || seen[id] {
					t.Errorf("blocks of %v, %d streams: place %d holds %d", sizes, streams, place, id)
				}
				seen[id] = true
			}
		}
	}
	if _, err := order.New(1, order.Policy{Shuffle: order.BlockWise, Block: order.Block{
		Sizes: []int64{1 << 62, 1 << 62, 1 << 62, 1 << 62, 1},
	}}); err == nil {
		t.Error("blocks whose sizes overflow to the right sum are taken")
	}
}

// Lanes ask for places all the time: they leave nothing for the collector.
func TestAtAllocatesNothing(t *testing.T) {
	for _, l := range large() {
		epoch := open(t, l.n, l.policy).Epoch(0)
		var place, sink int64
		if allocs := testing.AllocsPerRun(1000, func() {
			sink += epoch.At(place % l.n)
			place += 7_654_321
		}); allocs != 0 {
			t.Errorf("%s: %v allocations a place", l.name, allocs)
		}
		_ = sink
	}
}

// Opening an order over 10^9 samples takes below 16 MiB, the epoch included.
func TestOpeningIsSmall(t *testing.T) {
	for _, l := range large() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		epoch := open(t, l.n, l.policy).Epoch(1)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("%s: opening allocates %d bytes", l.name, used)
		}
		runtime.KeepAlive(epoch)
	}
}

// Places in turn, as a pass asks for them, and anywhere, as nobody does: the
// worst case.
func BenchmarkAt(b *testing.B) {
	for _, l := range large() {
		epoch := open(b, l.n, l.policy).Epoch(0)
		b.Run(l.name+"/in-turn", func(b *testing.B) {
			b.ReportAllocs()
			var sink int64
			for i := range int64(b.N) {
				sink += epoch.At(i % l.n)
			}
			_ = sink
		})
		b.Run(l.name+"/anywhere", func(b *testing.B) {
			b.ReportAllocs()
			var sink, place int64
			for range b.N {
				place = (place + 618_033_988_749) % l.n
				sink += epoch.At(place)
			}
			_ = sink
		})
	}
}

// A plan and one epoch of it.
func BenchmarkOpen(b *testing.B) {
	for _, l := range large() {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range int64(b.N) {
				open(b, l.n, l.policy).Epoch(i)
			}
		})
	}
}
