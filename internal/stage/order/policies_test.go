package order_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// named is a policy over about as many samples as were asked for.
type named struct {
	name   string
	n      int64
	policy order.Policy
}

// policies is one of every kind over about n samples, n >= 1: what all proofs
// about resuming go through.
func policies(n int64) []named {
	seed := uint64(n)
	all := []named{
		{"none", n, order.Policy{}},
		{"full", n, order.Policy{Shuffle: order.Full, Seed: seed}},
		{"one block", n, order.Policy{Shuffle: order.BlockWise, Seed: seed}},
		{"blocks", n, order.Policy{Shuffle: order.BlockWise, Seed: seed, Block: order.Block{Sizes: unequal(n, 9)}}},
		{"blocks and windows", n, order.Policy{Shuffle: order.BlockWise, Seed: seed, Block: order.Block{Sizes: unequal(n, 20), Window: 16}}},
		{"streams", n, order.Policy{Shuffle: order.BlockWise, Seed: seed, Block: order.Block{Sizes: unequal(n, 30), Streams: 8, Window: 10}}},
		{"streams and large windows", n, order.Policy{Shuffle: order.BlockWise, Seed: seed, Block: order.Block{Sizes: unequal(n, 5), Streams: 5, Window: 100}}},
		{"small windows", n, order.Policy{Shuffle: order.WindowAlone, Seed: seed, Block: order.Block{Window: 7}}},
		{"large windows", n, order.Policy{Shuffle: order.WindowAlone, Seed: seed, Block: order.Block{Window: 77}}},
	}
	return all
}

// unequal is blocks of unequal sizes, some of them empty, n in all.
func unequal(n, blocks int64) []int64 {
	sizes := make([]int64, blocks)
	for i := range n {
		draw := rng.New(uint64(n)).With(uint64(blocks))
		sizes[min(draw.Intn(uint64(2*i), blocks), draw.Intn(uint64(2*i+1), blocks))]++
	}
	return sizes
}

// manyRuns is all policies over sizes that worlds divide, that they do not, and
// that are smaller than worlds; and a few that are too large for tables.
func manyRuns(t testing.TB) []run {
	var runs []run
	for i, n := range []int64{1, 2, 5, 47, 48, 97, 192, 251, 333, 480, 576, 811} {
		for _, p := range policies(n) {
			runs = append(runs, newRun(t, p.name, p.n, p.policy, int64(i)))
		}
	}
	return append(runs,
		newRun(t, "full", 4099, order.Policy{Shuffle: order.Full, Seed: 9}, 1),
		newRun(t, "blocks above tables", 5000, order.Policy{
			Shuffle: order.BlockWise, Block: order.Block{Sizes: unequal(5000, 4500), Streams: 4, Window: 65},
		}, 2))
}
