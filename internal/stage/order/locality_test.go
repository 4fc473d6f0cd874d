package order_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Four nodes train on 400 shards of unequal sizes, in 8 streams. Whatever the
// world, a node that reads whole shards, each once, reads little more than its
// share: only shards at the cuts between streams are read by two.
func TestNodesReadTheirOwnShards(t *testing.T) {
	const nodes = 4
	var sizes, shardOf []int64
	for i := range int64(400) {
		sizes = append(sizes, (20+rng.New(6).Intn(uint64(i), 400))/slow+1)
		for range sizes[i] {
			shardOf = append(shardOf, i)
		}
	}
	n := int64(len(shardOf))
	plan := open(t, n, order.Policy{Shuffle: order.BlockWise, Seed: 12, Block: order.Block{Sizes: sizes, Streams: 8, Window: 128}})
	// Ranks are numbered node by node, as torchrun does, or node after node in turn.
	deals := map[string]func(rank, world int64) int64{
		"node by node": func(rank, world int64) int64 { return rank * min(nodes, world) / world },
		"in turn":      func(rank, _ int64) int64 { return rank % nodes },
	}
	for name, node := range deals {
		for _, world := range []int64{1, 2, 4, 8} {
			for e := range int64(3) {
				epoch := plan.Epoch(e)
				var touched [nodes]map[int64]bool
				for rank := range world {
					s := order.Slice{N: n, Batch: 32, World: world, Rank: rank, Tail: order.Drop}
					k := node(rank, world)
					if touched[k] == nil {
						touched[k] = map[int64]bool{}
					}
					for step := range s.Steps() {
						for i := range s.Rows(step) {
							touched[k][shardOf[epoch.At(s.Place(step, i))]] = true
						}
					}
				}
				var read int64
				for _, shards := range touched {
					for shard := range shards {
						read += sizes[shard]
					}
				}
				if times := float64(read) / float64(n); times > 1.05 || times < 0.98 {
					t.Errorf("%s, world %d, epoch %d: %.3f times the data is read", name, world, e, times)
				} else {
					t.Logf("%s, world %d, epoch %d: %.3f times the data", name, world, e, times)
				}
			}
		}
	}
}
