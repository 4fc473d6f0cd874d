package order

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// unequal is n samples in shards that differ in size by up to two thirds.
func unequal(shards int, about int64) (sizes []int64, n int64) {
	for i := range shards {
		size := about*2/3 + int64(i*7919)%(about*2/3+1)
		sizes = append(sizes, size)
		n += size
	}
	return sizes, n
}

func measured(t *testing.T, n int64, p Policy, blocks []int64, depth int64) Quality {
	t.Helper()
	plan, err := New(n, p)
	if err != nil {
		t.Fatal(err)
	}
	q := Measure(plan, 3, blocks, depth)
	t.Logf("%s, %d streams, windows of %d: %+v", p.Shuffle, p.Block.Streams, p.Block.Window, q)
	return q
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %g, want %g within %g", what, got, want, within)
	}
}

// The two ends of every scale have known values.
func TestQualityOfNone(t *testing.T) {
	q := measured(t, 1_000_000, Policy{}, repeat(1000, 1000), 1000)
	near(t, "displacement", q.Displacement, 0, 0)
	near(t, "entropy", q.Entropy, 0, 0)
	near(t, "neighbours", q.Neighbours, 1, 0)
	near(t, "open", q.Open, 1, 0)
	near(t, "run", q.Run, 1000, 0)
	if q.Independence < 100 {
		t.Errorf("the stored order is as independent as %.1f sigma", q.Independence)
	}
	for _, r := range q.Reads { // every rank has its share of every shard
		near(t, "reads", r.Times, float64(r.World), 0)
	}
	if q.Places != 1_000_000 || q.Depth != 1000 || q.Shards != 1000 {
		t.Errorf("of %+v", q)
	}
}

func TestQualityOfFull(t *testing.T) {
	const n, shards, depth = 3_000_000, 1000, 2000
	q := measured(t, n, Policy{Shuffle: Full}, repeat(shards, n/shards), depth)
	near(t, "displacement", q.Displacement, 1.0/3, 0.005)
	near(t, "neighbours", q.Neighbours, 2.0/n, 2e-5)
	near(t, "independence", q.Independence, 0, 4)
	near(t, "open", q.Open, shards*(1-math.Pow(1-1.0/shards, depth)), 3)
	near(t, "run", q.Run, 1+float64(depth)/n, 0.001)
	if q.Entropy < 0.95 || q.Entropy >= 1 { // dealt at random, not evenly
		t.Errorf("entropy %g", q.Entropy)
	}
	for _, r := range q.Reads {
		near(t, "reads", r.Times, float64(r.World), 1e-9)
	}
}

func TestQualityOfAWindow(t *testing.T) {
	const window = 10_000
	q := measured(t, 1_000_000, Policy{Shuffle: WindowAlone, Block: Block{Window: window}}, repeat(1000, 1000), window)
	near(t, "displacement", q.Displacement, window/3e6, 2e-5) // a third of a window
	near(t, "open", q.Open, 10, 0)
	near(t, "run", q.Run, 1000, 0) // windows sorted are whole shards
	near(t, "entropy", q.Entropy, math.Log(10)/math.Log(1000), 1e-9)
	near(t, "neighbours", q.Neighbours, 2.0/window, 5e-5)
	if q.Independence < 100 {
		t.Errorf("a window is as independent as %.1f sigma", q.Independence)
	}
}

// Streams of whole shards: 8 shards are open, each read from its start to its
// end, and by one node where the world divides the streams.
func TestQualityOfBlocks(t *testing.T) {
	blocks := repeat(400, 1000)
	q := measured(t, 400_000, Policy{Shuffle: BlockWise, Block: Block{Sizes: blocks, Streams: 8}}, blocks, 800)
	near(t, "displacement", q.Displacement, 1.0/3, 0.05)
	near(t, "open", q.Open, 8, 0)
	near(t, "run", q.Run, 100, 0)
	near(t, "entropy", q.Entropy, math.Log(8)/math.Log(400), 1e-9)
	for _, r := range q.Reads {
		near(t, "reads", r.Times, 1, 0) // the streams are cut where shards end
	}
}

// Reads against going through the epoch, place by place.
func TestReadsAgainstAWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.SliceOfN(rapid.Int64Range(0, 60), 1, 12).Draw(t, "blocks")
		stored := rapid.SliceOfN(rapid.Int64Range(0, 60), 1, 12).Draw(t, "stored")
		blocks[0]++
		var n, said int64
		for _, size := range blocks {
			n += size
		}
		for i := range stored { // the shards of storage end where the samples do
			stored[i] = min(stored[i], n-said)
			said += stored[i]
		}
		stored = append(stored, n-said)
		p := Policy{Shuffle: BlockWise, Block: Block{Sizes: blocks, Streams: rapid.Int64Range(1, 9).Draw(t, "streams")}}
		if rapid.Bool().Draw(t, "none") {
			p = Policy{}
		}
		p.Draw.Num = rapid.Int64Range(0, n).Draw(t, "num") // what nobody touches is not read
		plan, err := New(n, p)
		if err != nil {
			t.Fatal(err)
		}
		e := plan.Epoch(2)
		for _, r := range Measure(plan, 2, stored, 10).Reads {
			touched := map[[2]int64]bool{}
			for place := range plan.Places() {
				shard, left := int64(0), e.At(place)
				for ; left >= stored[shard]; shard++ {
					left -= stored[shard]
				}
				touched[[2]int64{place % r.World, shard}] = true
			}
			var read int64
			for at := range touched {
				read += stored[at[1]]
			}
			if want := float64(read) / float64(n); math.Abs(r.Times-want) > 1e-9 {
				t.Fatalf("%d nodes read the data %g times, want %g", r.World, r.Times, want)
			}
		}
	})
}

// Block is between the stored order and a full shuffle, whenever mixing and reading
// are in conflict.
func TestQualityLiesBetween(t *testing.T) {
	blocks, n := unequal(400, 1500)
	none := measured(t, n, Policy{}, blocks, 1024)
	full := measured(t, n, Policy{Shuffle: Full}, blocks, 1024)
	for _, b := range []Block{{Streams: 1}, {Streams: 8, Window: 100}, {Streams: 8, Window: 5000}, {Streams: 32, Window: 1000}} {
		b.Sizes = blocks
		q := measured(t, n, Policy{Shuffle: BlockWise, Block: b}, blocks, 1024)
		for _, s := range []struct {
			what             string
			none, block, all float64
			slack            float64
		}{
			{"displacement", none.Displacement, q.Displacement, full.Displacement, 0.05},
			{"entropy", none.Entropy, q.Entropy, full.Entropy, 0.01},
			{"independence", -none.Independence, -q.Independence, -full.Independence, 0},
			{"neighbours", -none.Neighbours, -q.Neighbours, -full.Neighbours, 1e-5}, // streams side by side have none at all
			{"open", none.Open, q.Open, full.Open, 0.5},
			{"run", -none.Run, -q.Run, -full.Run, 2},
		} {
			if s.block < s.none-s.slack || s.block > s.all+s.slack {
				t.Errorf("%d streams, windows of %d: %s is %g, and not between %g and %g", b.Streams, b.Window, s.what, s.block, s.none, s.all)
			}
		}
		for i, r := range q.Reads {
			if limit := full.Reads[i].Times; r.Times > limit || (b.Streams%r.World == 0 && r.Times > 1.1) {
				t.Errorf("%d streams: %d nodes read %g times the data, full reads %g", b.Streams, r.World, r.Times, limit)
			}
		}
	}
}

// Nothing that can be planned makes Measure fail.
func TestMeasureAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 3000)).Draw(t, "n")
		p := Policy{Shuffle: rapid.SampledFrom([]Shuffle{None, Full, BlockWise}).Draw(t, "shuffle")}
		if p.Shuffle == BlockWise {
			p.Block = Block{Streams: rapid.Int64Range(1, 2*n).Draw(t, "streams"), Window: rapid.Int64Range(0, 2*n).Draw(t, "window")}
		}
		if rapid.Bool().Draw(t, "lengths") {
			p.Lengths = Lengths{Of: make([]int32, n), Tokens: 5}
		}
		least := 1.0
		switch rapid.SampledFrom([]string{"shuffle", "draw", "mix"}).Draw(t, "base") {
		case "draw":
			p = Policy{Lengths: p.Lengths}
			p.Draw = Draw{Replacement: true, Num: rapid.Int64Range(1, 2*n).Draw(t, "num")}
			least = 0
		case "mix":
			members := []Member{{Samples: n, Policy: Policy{Shuffle: p.Shuffle, Block: p.Block}}, {Samples: 7}}
			p = Policy{Lengths: p.Lengths, Mix: &Mix{Members: members, Points: []Point{{Weights: []float64{1, 2}}}, Stop: Repeat}}
			n += 7
			if p.Lengths.Of != nil {
				p.Lengths.Of = make([]int32, n)
			}
			least = 0
		}
		plan, err := New(n, p)
		if err != nil {
			t.Fatal(err)
		}
		blocks := rapid.SliceOfN(rapid.Int64Range(-5, 500), 0, 5).Draw(t, "blocks")
		q := Measure(plan, 0, blocks, rapid.Int64Range(-1, 5000).Draw(t, "depth"))
		for _, v := range []float64{q.Displacement, q.Entropy, q.Neighbours, q.Independence, q.Open, q.Run, q.Reads[3].Times} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%+v", q)
			}
		}
		if q.Displacement < 0 || q.Displacement > 1 || q.Entropy < 0 || q.Entropy > 1 || q.Open < 1 || q.Run < 1 || q.Neighbours < 0 || q.Neighbours > 1 {
			t.Fatalf("%+v", q)
		}
		for _, r := range q.Reads {
			if r.Times < least-1e-9 || r.Times > float64(r.World)+1e-9 {
				t.Fatalf("%d nodes read %g times", r.World, r.Times)
			}
		}
	})
}

func repeat(times int, size int64) []int64 {
	out := make([]int64, times)
	for i := range out {
		out[i] = size
	}
	return out
}

func BenchmarkMeasure(b *testing.B) {
	blocks := repeat(100_000, 10_000)
	for name, p := range map[string]Policy{"full": {Shuffle: Full}, "block": {Shuffle: BlockWise, Block: Block{Sizes: blocks, Streams: 64, Window: 10_000}}} {
		plan, err := New(1_000_000_000, p)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				Measure(plan, int64(i), blocks, 4096)
			}
		})
	}
}
