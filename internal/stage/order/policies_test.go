package order_test

import (
	"slices"
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
		{"subset", 2 * n, order.Policy{Shuffle: order.Full, Seed: seed, Subset: evens(n)}},
		{"large windows", n, order.Policy{Shuffle: order.WindowAlone, Seed: seed, Block: order.Block{Window: 77}}},
	}
	return slices.Concat(all, draws(n, seed), mixtures(n, seed), byLengths(n, seed))
}

func draws(n int64, seed uint64) []named {
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = rng.New(8).Uniform(uint64(i), 0.1, 3)
	}
	policy := func(d order.Draw) order.Policy { return order.Policy{Shuffle: order.Full, Seed: seed, Draw: d} }
	return []named{
		{"the first of a shuffle", n, policy(order.Draw{Num: 1 + n/2})},
		{"replacement", n, policy(order.Draw{Replacement: true})},
		{"weights and replacement", n, policy(order.Draw{Weights: weights, Replacement: true, Num: n + 50})},
		{"weights", n, policy(order.Draw{Weights: weights})},
		{"some by weights", n, policy(order.Draw{Weights: weights, Num: 1 + n/3})},
	}
}

func mixtures(n int64, seed uint64) []named {
	small := 1 + n/5
	total := 2*small + n
	members := []order.Member{
		{Samples: small, Policy: order.Policy{Shuffle: order.Full}},
		{Samples: n, Policy: order.Policy{Shuffle: order.BlockWise, Block: order.Block{Streams: 2, Window: 6}}},
		{Samples: small},
	}
	mix := func(m order.Mix) order.Policy {
		m.Members = members
		if m.Points == nil {
			m.Points = []order.Point{{Weights: []float64{2, 5, 1}}}
		}
		return order.Policy{Seed: seed, Mix: &m}
	}
	line := []order.Point{{Weights: []float64{1, 0, 0}}, {Place: 500, Weights: []float64{1, 1, 1}}}
	return []named{
		{"mixture to the first end", total, mix(order.Mix{Stop: order.FirstExhausted})},
		{"mixture to the last end", total, mix(order.Mix{Stop: order.AllExhausted, Linear: true, Points: line})},
		{"mixture without end", total, mix(order.Mix{Stop: order.Repeat, Run: 4})},
		{"mixture in batches", total, mix(order.Mix{Stop: order.Repeat, Run: 7, Batches: true})},
	}
}

func byLengths(n int64, seed uint64) []named {
	of := make([]int32, n)
	for i := range of {
		of[i] = int32(rng.New(4).Intn(uint64(i), 90))
	}
	streams := order.Policy{Shuffle: order.BlockWise, Seed: seed, Block: order.Block{Streams: 3, Window: 20}}
	policy := func(l order.Lengths) order.Policy {
		p := streams
		l.Of = of
		p.Lengths = l
		return p
	}
	return []named{
		{"buckets", n, policy(order.Lengths{Bucket: 8, Window: 100})},
		{"token budgets", n, policy(order.Lengths{Tokens: 300, Rows: 9, Window: 70})},
		{"packs", n, policy(order.Lengths{Pack: 128, Window: 150})},
		{"packs of split samples", n, policy(order.Lengths{Pack: 40})},
	}
}

// evens is the first n even numbers.
func evens(n int64) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(2 * i)
	}
	return ids
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
	for i, n := range []int64{1, 2, 5, 47, 48, 97, 192, 251, 384, 499} {
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
