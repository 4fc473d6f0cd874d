package order

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
)

func drawMix(t *rapid.T) Mix {
	m := Mix{
		Stop:    rapid.SampledFrom([]Stop{FirstExhausted, AllExhausted, Repeat}).Draw(t, "stop"),
		Linear:  rapid.Bool().Draw(t, "linear"),
		Batches: rapid.Bool().Draw(t, "batches"),
		Run:     rapid.SampledFrom([]int64{0, 1, 1, 2, 3, 7}).Draw(t, "run"),
	}
	if m.Stop == Repeat {
		m.Num = rapid.Int64Range(0, 9000).Draw(t, "num")
	}
	for range rapid.IntRange(1, 5).Draw(t, "members") {
		m.Members = append(m.Members, Member{
			Samples: rapid.Int64Range(7, 3000).Draw(t, "samples"),
			Policy: rapid.SampledFrom([]Policy{
				{},
				{Shuffle: Full},
				{Shuffle: WindowAlone, Block: Block{Window: 5}},
				{Shuffle: BlockWise, Block: Block{Streams: 3, Window: 4}},
			}).Draw(t, "policy"),
		})
	}
	var place int64
	for i := range rapid.IntRange(1, 4).Draw(t, "points") {
		p := Point{Place: place}
		for range m.Members {
			w := rapid.IntRange(0, 9).Draw(t, "weight")
			if m.Stop == AllExhausted {
				w++
			}
			p.Weights = append(p.Weights, float64(w))
		}
		if slices.Max(p.Weights) == 0 {
			p.Weights[i%len(p.Weights)] = 1
		}
		m.Points = append(m.Points, p)
		place += rapid.Int64Range(1, 5000).Draw(t, "later")
	}
	return m
}

func TestMixAgainstTheStreamWrittenDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMix(t)
		seed := rapid.Uint64().Draw(t, "seed")
		plan, err := New(allSamples(m), Policy{Seed: seed, Mix: &m})
		if err != nil {
			t.Fatal(err)
		}
		slow := newSlowMix(m, seed)
		for e := range int64(3) {
			want, owners := slow.epoch(t, e)
			epoch := plan.Epoch(e)
			if epoch.Places() != int64(len(want)) {
				t.Fatalf("epoch %d has %d places, want %d", e, epoch.Places(), len(want))
			}
			for p, id := range want {
				if got := epoch.At(int64(p)); got != id {
					t.Fatalf("epoch %d: place %d holds %d, want %d", e, p, got, id)
				}
			}
			if e == 1 {
				// Another epoch value, asked in no order, knows the same.
				p := rapid.IntRange(0, len(want)-1).Draw(t, "place")
				if got := plan.Epoch(e).At(int64(p)); got != want[p] {
					t.Fatalf("place %d alone holds %d, want %d", p, got, want[p])
				}
			}
			if epoch.Batches() != m.Batches || epoch.Rows() {
				t.Fatalf("batches: %v, rows: %v", epoch.Batches(), epoch.Rows())
			}
			if m.Batches {
				checkRunBatches(t, epoch, max(m.Run, 1))
			}
			checkShares(t, epoch, m)
			shares := make([]int64, len(m.Members))
			for _, d := range owners {
				shares[d]++
			}
			if got := epoch.Shares(0, epoch.Len()); !slices.Equal(got, shares) {
				t.Fatalf("epoch %d has %v, want %v", e, got, shares)
			}
		}
	})
}

// checkRunBatches checks that items are the runs.
func checkRunBatches(t *rapid.T, epoch Epoch, run int64) {
	var place int64
	for i := range epoch.Len() {
		pieces := epoch.Item(i, nil)
		if int64(len(pieces)) != min(run, epoch.Places()-place) {
			t.Fatalf("batch %d has %d samples", i, len(pieces))
		}
		for _, p := range pieces {
			if p != (Piece{Place: place, Sample: epoch.At(place)}) {
				t.Fatalf("batch %d has %+v, want place %d", i, p, place)
			}
			place++
		}
	}
	if place != epoch.Places() {
		t.Fatalf("batches end at place %d of %d", place, epoch.Places())
	}
}

// checkShares checks the shares of some stretch of items by counting them.
func checkShares(t *rapid.T, epoch Epoch, m Mix) {
	from := rapid.Int64Range(0, epoch.Len()).Draw(t, "from")
	to := rapid.Int64Range(from, epoch.Len()).Draw(t, "to")
	want := make([]int64, len(m.Members))
	for i := from; i < to; i++ {
		for _, p := range epoch.Item(i, nil) {
			d := 0
			for id := p.Sample; id >= m.Members[d].Samples; d++ {
				id -= m.Members[d].Samples
			}
			if p.From == 0 {
				want[d]++
			}
		}
	}
	if got := epoch.Shares(from, to); !slices.Equal(got, want) {
		t.Fatalf("items %d to %d have %v, want %v", from, to, got, want)
	}
}

// Shares count the samples of items, whatever lengths make of places.
func TestSharesOfMixesByLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMix(t)
		m.Batches = false
		policy := Policy{Seed: rapid.Uint64().Draw(t, "seed"), Mix: &m}
		policy.Lengths = rapid.SampledFrom([]Lengths{{Bucket: 7, Window: 100}, {Tokens: 64, Window: 90}, {Pack: 50, Window: 101}}).Draw(t, "lengths")
		for id := range allSamples(m) {
			policy.Lengths.Of = append(policy.Lengths.Of, int32(rng.New(1).Intn(uint64(id), 64)))
		}
		plan, err := New(allSamples(m), policy)
		if err != nil {
			t.Fatal(err)
		}
		epoch := plan.Epoch(1)
		checkShares(t, epoch, m)
		var sum int64
		for _, n := range epoch.Shares(0, epoch.Len()) {
			sum += n
		}
		if sum != epoch.Places() {
			t.Fatalf("shares add up to %d of %d places", sum, epoch.Places())
		}
	})
}

// Every thousand has each member's share to the next whole sample, a turn has
// it to the unit, and so has what is far away.
func TestMixIsExact(t *testing.T) {
	weights := []float64{0.5, 0.3, 0.1234567, 0.07, 1e-5, 0, 1.0 / 3}
	var total float64
	m := Mix{Stop: Repeat, Num: 1_000_000_000_000, Points: []Point{{Weights: weights}}}
	for _, w := range weights {
		total += w
		m.Members = append(m.Members, Member{Samples: 1_000_000})
	}
	epoch := mustNew(t, allSamples(m), Policy{Mix: &m}).Epoch(0)
	for _, base := range []int64{0, 987_654_321_000} {
		for c := range int64(1100) {
			from := base + c*1000
			for d, n := range epoch.Shares(from, from+1000) {
				exact := 1000 * weights[d] / total
				if math.Abs(float64(n)-exact) >= 1.001 || weights[d] == 0 && n != 0 {
					t.Fatalf("places %d to %d have %d of member %d, want %v", from, from+1000, n, d, exact)
				}
			}
		}
	}
	for _, to := range []int64{1_024_000, 1_000_000_000_000} {
		for d, n := range epoch.Shares(0, to) {
			if diff := float64(n)/float64(to) - weights[d]/total; math.Abs(diff) > 1e-6 {
				t.Errorf("the first %d places are %v of member %d, off by %v", to, float64(n)/float64(to), d, diff)
			}
		}
	}
}

// However small a weight, some of it comes; however many, the sum is whole.
func TestMixOfTinyWeights(t *testing.T) {
	weights := []float64{1e-12, 1, 1e-300, 5e-324, 0, 1e300, 1e-9, 0}
	m := Mix{Stop: Repeat, Num: units, Points: []Point{{Weights: weights}}}
	for range weights {
		m.Members = append(m.Members, Member{Samples: 3})
	}
	got := mustNew(t, allSamples(m), Policy{Mix: &m}).Epoch(0).Shares(0, units)
	want := []int64{1, 1, 1, 1, 0, units - 5, 1, 0}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A linear change moves the shares as the line does, however many cycles it
// takes.
func TestMixMovesAlongTheLine(t *testing.T) {
	const end = 2_000_000_000
	m := Mix{
		Stop: Repeat, Num: end + 10_000_000, Linear: true,
		Members: []Member{{Samples: 1000}, {Samples: 1000}},
		Points:  []Point{{Weights: []float64{9, 1}}, {Place: end, Weights: []float64{1, 4}}},
	}
	epoch := mustNew(t, 2000, Policy{Mix: &m}).Epoch(0)
	for from := int64(0); from < m.Num; from += 9_999_000 {
		to := min(from+1_000_000, m.Num)
		middle := float64(from+to) / 2
		want := 0.9 + (0.2-0.9)*min(middle/end, 1)
		got := float64(epoch.Shares(from, to)[0]) / float64(to-from)
		if math.Abs(got-want) > 0.7/512+0.001 {
			t.Errorf("places from %d: %v of the first, want %v", from, got, want)
		}
	}
}

// The runs of a thousand come in random order: no place prefers a member.
func TestMixOrderIsUniform(t *testing.T) {
	m := Mix{Stop: Repeat, Num: 1000, Members: []Member{{Samples: 500}, {Samples: 500}}, Points: []Point{{Weights: []float64{1, 3}}}}
	plan := mustNew(t, 1000, Policy{Seed: 4, Mix: &m})
	const epochs = 400
	var counts [1000]float64
	for e := range int64(epochs) {
		epoch := plan.Epoch(e)
		for p := range int64(1000) {
			if epoch.At(p) < 500 {
				counts[p]++
			}
		}
	}
	x := 0.0
	for _, c := range counts {
		x += (c - epochs/4.0) * (c - epochs/4.0) / (epochs / 4.0 * 3 / 4)
	}
	if z := sigmas(x, 999); math.Abs(z) > 5.2 {
		t.Errorf("%.1f sigma from uniform", z)
	}
}

// Under Repeat a member is seen whole before any of it comes again, whatever
// epochs cut it; and every pass has an order of its own.
func TestRepeatGoesOnAcrossEpochs(t *testing.T) {
	m := Mix{
		Stop: Repeat, Num: 1501, Run: 2,
		Members: []Member{{Samples: 4000, Policy: Policy{Shuffle: Full}}, {Samples: 30, Policy: Policy{Shuffle: Full}}},
		Points:  []Point{{Weights: []float64{2, 1}}},
	}
	plan := mustNew(t, allSamples(m), Policy{Mix: &m})
	seen := [2][]int64{}
	for e := range int64(13) {
		for _, id := range ids(plan.Epoch(e)) {
			d := 0
			if id >= 4000 {
				d = 1
			}
			seen[d] = append(seen[d], id)
		}
	}
	for d, size := range []int{4000, 30} {
		var last []int64
		for len(seen[d]) >= size {
			pass := seen[d][:size]
			seen[d] = seen[d][size:]
			if slices.Equal(pass, last) {
				t.Errorf("member %d: two passes are alike", d)
			}
			last = slices.Clone(pass)
			slices.Sort(pass)
			if len(slices.Compact(pass)) != size {
				t.Fatalf("member %d: a sample came twice before all had come once", d)
			}
		}
	}
}

// No epoch shows a member in an order that another has shown.
func TestEpochsUsePassesOfTheirOwn(t *testing.T) {
	for _, stop := range []Stop{FirstExhausted, AllExhausted} {
		m := Mix{
			Stop:    stop,
			Members: []Member{{Samples: 300, Policy: Policy{Shuffle: Full}}, {Samples: 50, Policy: Policy{Shuffle: Full}}},
			Points:  []Point{{Weights: []float64{1, 1}}},
		}
		plan := mustNew(t, 350, Policy{Mix: &m})
		known := map[string]bool{}
		for e := range int64(20) {
			var small []int64
			for _, id := range ids(plan.Epoch(e)) {
				if id >= 300 {
					small = append(small, id)
				}
			}
			for len(small) >= 50 {
				text := fmt.Sprint(small[:50])
				if known[text] {
					t.Fatalf("%s: epoch %d has an order that was there before", stop, e)
				}
				known[text] = true
				small = small[50:]
			}
		}
	}
}

// Members that are drawn: their whole is what their draw makes it.
func TestMixOfDraws(t *testing.T) {
	m := Mix{
		Stop: FirstExhausted,
		Members: []Member{
			{Samples: 5, Policy: Policy{Draw: Draw{Weights: []float64{1, 0, 1, 1, 0}, Num: 3}}},
			{Samples: 4, Policy: Policy{Draw: Draw{Replacement: true, Num: 1000}}},
		},
		Points: []Point{{Weights: []float64{1, 99}}},
	}
	epoch := mustNew(t, 9, Policy{Mix: &m}).Epoch(0)
	if shares := epoch.Shares(0, epoch.Places()); shares[0] != 3 {
		t.Errorf("%v", shares)
	}
	var first []int64
	for _, id := range ids(epoch) {
		if id < 5 {
			first = append(first, id)
		}
	}
	slices.Sort(first)
	if !slices.Equal(first, []int64{0, 2, 3}) {
		t.Errorf("the drawn member gave %v", first)
	}
}

// This order may never change: users' runs rest on it.
func TestMixGolden(t *testing.T) {
	m := Mix{
		Stop:    AllExhausted,
		Members: []Member{{Samples: 10}, {Samples: 4, Policy: Policy{Shuffle: Full}}},
		Points:  []Point{{Weights: []float64{2, 1}}},
	}
	plan := mustNew(t, 14, Policy{Seed: 5, Mix: &m})
	for e, want := range []string{
		"[0 1 2 10 3 13 4 5 6 7 8 11 12 12 9]",
		"[0 12 1 13 2 3 4 5 11 10 6 7 8 11 9]",
	} {
		if got := fmt.Sprint(ids(plan.Epoch(int64(e)))); got != want {
			t.Errorf("epoch %d: got %s, want %s", e, got, want)
		}
	}
}

// Places asked for from many goroutines, far apart and close together.
func TestMixConcurrently(t *testing.T) {
	m := Mix{
		Stop:    Repeat,
		Num:     60_000,
		Members: []Member{{Samples: 10_000, Policy: Policy{Shuffle: Full}}, {Samples: 17, Policy: Policy{Shuffle: Full}}},
		Points:  []Point{{Weights: []float64{1, 1}}},
	}
	plan := mustNew(t, allSamples(m), Policy{Mix: &m})
	want := ids(plan.Epoch(2))
	epoch := plan.Epoch(2)
	var wait sync.WaitGroup
	for g := range int64(8) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := range int64(6000) {
				p := i*8 + g
				if g == 7 {
					p = 59_999 - i*10
				}
				if got := epoch.At(p); got != want[p] {
					t.Errorf("place %d holds %d, want %d", p, got, want[p])
					return
				}
			}
		}()
	}
	wait.Wait()
}

func TestMixesThatCanNotBe(t *testing.T) {
	two := []Member{{Samples: 10}, {Samples: 20}}
	even := []Point{{Weights: []float64{1, 1}}}
	for _, c := range []struct {
		policy Policy
		mix    Mix
		want   string
	}{
		{mix: Mix{Stop: Repeat, Points: even}, want: "a mixture needs members"},
		{mix: Mix{Stop: "never", Members: two, Points: even}, want: `unknown stop rule "never"`},
		{mix: Mix{Stop: Repeat, Members: two}, want: "no weights"},
		{mix: Mix{Stop: Repeat, Members: two, Points: even, Num: -3}, want: "num is -3"},
		{mix: Mix{Stop: AllExhausted, Members: two, Points: even, Num: 3}, want: `num needs "repeat"`},
		{mix: Mix{Stop: Repeat, Members: two, Points: even, Run: -3}, want: "runs of -3 places"},
		{mix: Mix{Stop: Repeat, Members: two, Points: []Point{{Place: 1, Weights: []float64{1, 1}}}}, want: "from place 1 on; they must apply from place 0"},
		{mix: Mix{Stop: Repeat, Members: two, Points: []Point{even[0], even[0]}}, want: "places must increase"},
		{mix: Mix{Stop: Repeat, Members: two, Points: []Point{even[0], {Place: 1 << 61, Weights: []float64{1, 1}}}}, want: "an epoch has at most"},
		{mix: Mix{Stop: Repeat, Members: two, Points: []Point{{Weights: []float64{1}}}}, want: "1 weights from place 0 on for 2 members"},
		{mix: Mix{Stop: Repeat, Members: two, Points: []Point{even[0], {Place: 7, Weights: []float64{1, -1}}}}, want: "from place 7 on: weight 1 is -1"},
		{mix: Mix{Stop: Repeat, Members: two[:1], Points: []Point{{Weights: []float64{1}}}}, want: "10 samples in all, but the dataset has 30"},
		{mix: Mix{Stop: Repeat, Members: []Member{{Samples: 30}, {}}, Points: even}, want: "member 1 has 0 samples"},
		{mix: Mix{Stop: Repeat, Members: []Member{{Samples: 1 << 62}, {Samples: 1 << 62}}, Points: even}, want: "member 0 has 4611686018427387904 samples"},
		{mix: Mix{Stop: Repeat, Members: []Member{two[0], {Samples: 20, Policy: Policy{Shuffle: "odd"}}}, Points: even}, want: `member 1: order: unknown shuffle "odd"`},
		{mix: Mix{Stop: Repeat, Members: []Member{two[0], {Samples: 20, Policy: Policy{Mix: &Mix{}}}}, Points: even}, want: "member 1 has a mixture"},
		{mix: Mix{Stop: Repeat, Members: []Member{two[0], {Samples: 20, Policy: Policy{Lengths: Lengths{Of: make([]int32, 20), Tokens: 9}}}}, Points: even}, want: "member 1 has a mixture or lengths"},
		{mix: Mix{Stop: Repeat, Members: []Member{two[0], {Samples: 20, Policy: Policy{Draw: Draw{Replacement: true, Num: 1 << 50}}}}, Points: even}, want: "member 1 has 1125899906842624 places"},
		{mix: Mix{Stop: FirstExhausted, Members: two, Points: even, Run: 11}, want: "member 0 has 10 places per epoch, less than one run of 11"},
		{mix: Mix{Stop: AllExhausted, Members: two, Points: []Point{{Weights: []float64{1e-9, 1}}, {Place: 5, Weights: []float64{0, 1}}}}, want: "member 0 has weight 0 from place 1000 to the end, and before that only 0 of its 10 places are used"},
		{policy: Policy{Draw: Draw{Num: 4}}, mix: Mix{Stop: Repeat, Members: two, Points: even}, want: "a draw belongs to a member"},
		{policy: Policy{Lengths: Lengths{Of: make([]int32, 30), Tokens: 9}}, mix: Mix{Stop: Repeat, Members: two, Points: even, Batches: true}, want: "cannot also be batched by length"},
	} {
		c.policy.Mix = &c.mix
		if _, err := New(30, c.policy); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error that says %q", c.mix, err, c.want)
		}
	}
}

// The largest mixtures there may be neither overflow nor take long.
func TestMixesAsLargeAsTheyMayBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		large := rapid.SampledFrom([]int64{1, 1000, 1 << 20, 1<<40 - 1}).Draw(t, "large")
		m := Mix{
			Members: []Member{{Samples: large}, {Samples: 1}},
			Stop:    rapid.SampledFrom([]Stop{AllExhausted, Repeat}).Draw(t, "stop"),
			Run:     rapid.SampledFrom([]int64{1, 7, 1 << 20, 1 << 40}).Draw(t, "run"),
			Linear:  rapid.Bool().Draw(t, "linear"),
			Points: []Point{
				{Weights: []float64{rapid.SampledFrom([]float64{1, 1e-9, 1e9}).Draw(t, "weight"), 1}},
				{Place: rapid.SampledFrom([]int64{1, 1 << 30, 1 << 60}).Draw(t, "point"), Weights: []float64{1, 1}},
			},
		}
		if m.Stop == Repeat {
			m.Num = rapid.SampledFrom([]int64{1, 1<<60 - 1, 1 << 60}).Draw(t, "num")
		}
		plan, err := New(large+1, Policy{Mix: &m})
		if err != nil {
			t.Fatal(err)
		}
		epoch := plan.Epoch(rapid.SampledFrom([]int64{0, 1, 1 << 50}).Draw(t, "epoch"))
		if epoch.Places() < 1 {
			t.Fatalf("%d places", epoch.Places())
		}
		var sum int64
		for _, n := range epoch.Shares(0, epoch.Places()) {
			if n < 0 {
				t.Fatalf("%d places of a member", n)
			}
			sum += n
		}
		if sum != epoch.Places() {
			t.Fatalf("shares add up to %d of %d", sum, epoch.Places())
		}
		for _, p := range []int64{0, epoch.Places() / 2, epoch.Places() - 1} {
			if id := epoch.At(p); id < 0 || id > large {
				t.Fatalf("place %d holds %d", p, id)
			}
		}
	})
}

func benchMix(n int64) Mix {
	m := Mix{Stop: FirstExhausted, Points: []Point{{}}}
	for d := range 10 {
		m.Members = append(m.Members, Member{Samples: n / 10, Policy: Policy{Shuffle: Full}})
		m.Points[0].Weights = append(m.Points[0].Weights, float64(d+10))
	}
	return m
}

func BenchmarkMixOpen(b *testing.B) {
	m := benchMix(1_000_000_000)
	m.Linear = true
	for i := range 10 {
		w := slices.Clone(m.Points[0].Weights)
		w[i] += 20
		m.Points = append(m.Points, Point{Place: int64(i+1) * 30_000_000, Weights: w})
	}
	b.ReportAllocs()
	for range b.N {
		if _, err := New(1_000_000_000, Policy{Mix: &m}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMixAt(b *testing.B) {
	m := benchMix(1_000_000_000)
	plan := mustNew(b, 1_000_000_000, Policy{Mix: &m})
	for name, at := range map[string]func(i int64) int64{
		"sequential": func(i int64) int64 { return i % plan.Places() },
		"one of 48":  func(i int64) int64 { return i * 48 % plan.Places() },
		"random":     func(i int64) int64 { return rng.New(1).Intn(uint64(i), plan.Places()) },
	} {
		epoch := plan.Epoch(0)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				epoch.At(at(int64(i)))
			}
		})
	}
}
