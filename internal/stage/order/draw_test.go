package order

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// chi2Of is chi2 for places that are not alike: want are probabilities. Cells
// that are expected never must be empty.
func chi2Of(t *testing.T, counts []int, want []float64) float64 {
	t.Helper()
	x, n, k := 0.0, 0.0, -1.0
	for _, c := range counts {
		n += float64(c)
	}
	for i, c := range counts {
		if want[i] == 0 {
			if c != 0 {
				t.Errorf("cell %d came %d times and cannot", i, c)
			}
			continue
		}
		d := float64(c) - n*want[i]
		x += d * d / (n * want[i])
		k++
	}
	return sigmas(x, k)
}

// sigmas is how far a chi-squared statistic of k degrees is from its mean, as in chi2.
func sigmas(x, k float64) float64 {
	return (math.Cbrt(x/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
}

func mustNew(t testing.TB, n int64, p Policy) Plan {
	t.Helper()
	plan, err := New(n, p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// ids is a whole epoch.
func ids(e Epoch) []int64 {
	all := make([]int64, e.Places())
	for p := range all {
		all[p] = e.At(int64(p))
	}
	return all
}

func TestDrawsThatCanNotBe(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		policy Policy
		want   string
	}{
		{Policy{Draw: Draw{Num: -1}}, "num is -1"},
		{Policy{Draw: Draw{Num: 4}}, "an epoch has 4 places, but there are 3 samples"},
		{Policy{Draw: Draw{Weights: []float64{}}}, "0 weights for 3 samples"},
		{Policy{Draw: Draw{Weights: []float64{1, 1}}}, "2 weights for 3 samples"},
		{Policy{Draw: Draw{Weights: []float64{1, -2, 1}}}, "weight 1 is -2"},
		{Policy{Draw: Draw{Weights: []float64{1, 1, nan}}}, "weight 2 is NaN"},
		{Policy{Draw: Draw{Weights: []float64{inf, 1, 1}}}, "weight 0 is +Inf"},
		{Policy{Draw: Draw{Weights: []float64{0, 0, 0}}}, "all 3 weights are 0"},
		{Policy{Draw: Draw{Weights: []float64{1e308, 1e308, 0}}}, "weights 0 to 1 add up"},
		{Policy{Draw: Draw{Weights: []float64{1, 0, 1}}}, "only 2 of the 3 samples have a weight above 0"},
		{Policy{Draw: Draw{Weights: []float64{1, 0, 1}, Num: 3}}, "set num to at most 2"},
		{Policy{Draw: Draw{Weights: []float64{1, 1, 1e-200}}}, "weight 2 is 1e-200"},
		{Policy{Shuffle: WindowAlone, Block: Block{Window: 2}, Draw: Draw{Replacement: true}}, `shuffle "window"`},
		{Policy{Shuffle: BlockWise, Draw: Draw{Weights: []float64{1, 1, 1}}}, `shuffle "block"`},
	} {
		if _, err := New(3, c.policy); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error that says %q", c.policy, err, c.want)
		}
	}
}

func TestNumAloneIsTheFirstPlacesOfTheShuffle(t *testing.T) {
	for _, p := range []Policy{{}, {Shuffle: Full}, {Shuffle: WindowAlone, Block: Block{Window: 8}}} {
		all := ids(mustNew(t, 100, p).Epoch(3))
		p.Draw.Num = 37
		some := ids(mustNew(t, 100, p).Epoch(3))
		if fmt.Sprint(some) != fmt.Sprint(all[:37]) {
			t.Errorf("%q: got %v, want the first 37 of %v", p.Shuffle, some, all)
		}
	}
}

// These orders may never change: users' runs rest on them.
func TestDrawGolden(t *testing.T) {
	weights := []float64{1, 2, 0, 4, 0.5, 0, 8, 3}
	for _, c := range []struct {
		name string
		draw Draw
		want string
	}{
		{"uniform", Draw{Replacement: true, Num: 12}, "[1 5 3 7 2 3 1 6 7 2 5 7]"},
		{"weighted", Draw{Replacement: true, Num: 12, Weights: weights}, "[1 6 4 7 3 6 1 6 7 3 6 7]"},
		{"without", Draw{Weights: weights, Num: 6}, "[3 7 1 6 0 4]"},
		{"three of them", Draw{Weights: weights, Num: 3}, "[3 7 1]"},
	} {
		if got := fmt.Sprint(ids(mustNew(t, 8, Policy{Seed: 5, Draw: c.draw}).Epoch(2))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestDrawsWithReplacementFollowTheWeights(t *testing.T) {
	const n, places, epochs = 50, 4000, 20
	weights := make([]float64, n)
	want, alike := make([]float64, n), make([]float64, n)
	total := 0.0
	for i := range weights {
		weights[i] = float64(i % 7 * i)
		total += weights[i]
	}
	for i := range want {
		want[i], alike[i] = weights[i]/total, 1.0/n
	}
	for name, c := range map[string]struct {
		draw Draw
		want []float64
	}{
		"weights": {Draw{Weights: weights, Replacement: true, Num: places}, want},
		"alike":   {Draw{Replacement: true, Num: places}, alike},
	} {
		plan := mustNew(t, n, Policy{Seed: 11, Draw: c.draw})
		counts, pairs := make([]int, n), make([]int, n*n)
		both := make([]float64, n*n)
		for i := range n * n {
			both[i] = c.want[i/n] * c.want[i%n]
		}
		for e := range int64(epochs) {
			all := ids(plan.Epoch(e))
			for p, id := range all {
				counts[id]++
				if p%2 == 1 {
					pairs[all[p-1]*n+id]++
				}
			}
		}
		if z := chi2Of(t, counts, c.want); z > 5.2 {
			t.Errorf("%s: %.1f sigma from what they should be", name, z)
		}
		if z := chi2Of(t, pairs, both); z > 5.2 {
			t.Errorf("%s: neighbours are not independent: %.1f sigma", name, z)
		}
	}
}

// Weights whose sum rounds, or that are as small as a float64 can be: nothing
// is out of range, and nothing of weight 0 comes.
func TestDrawsAtTheEndsOfAFloat(t *testing.T) {
	for _, w := range [][]float64{{0, 5e-324, 0}, {5e-324, 0, 5e-324}, {0, 1e308, 1e-308}, {1, 1e-300, 0}} {
		plan := mustNew(t, 3, Policy{Draw: Draw{Weights: w, Replacement: true, Num: 1000}})
		for p, id := range ids(plan.Epoch(0)) {
			if w[id] == 0 {
				t.Fatalf("%v: place %d holds %d, of weight 0", w, p, id)
			}
		}
	}
}

// The first place of a draw without replacement is as one with; the second is
// as one with from what is left.
func TestDrawsWithoutReplacementFollowTheWeights(t *testing.T) {
	weights := []float64{1, 4, 0, 2.5, 0.5, 8}
	const total, epochs = 16.0, 40000
	n := len(weights)
	plan := mustNew(t, int64(n), Policy{Seed: 3, Draw: Draw{Weights: weights, Num: 5}})
	first, second := make([]int, n), make([]int, n*n)
	wantFirst, wantSecond := make([]float64, n), make([]float64, n*n)
	for i, w := range weights {
		wantFirst[i] = w / total
		for j, v := range weights {
			if i != j && w > 0 {
				wantSecond[i*n+j] = w / total * v / (total - w)
			}
		}
	}
	for e := range int64(epochs) {
		epoch := plan.Epoch(e)
		a, b := epoch.At(0), epoch.At(1)
		first[a]++
		second[a*int64(n)+b]++
	}
	if z := chi2Of(t, first, wantFirst); z > 5.2 {
		t.Errorf("the first place is %.1f sigma from its weights", z)
	}
	if z := chi2Of(t, second, wantSecond); z > 5.2 {
		t.Errorf("the first two are %.1f sigma from their weights", z)
	}
}

// Nothing comes twice, nothing of weight 0 comes, and fewer places are the
// first of more: what was left out on the way had no chance.
func TestDrawsWithoutReplacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.SampledFrom([]float64{0, 0.001, 1, 1, 2, 1e6}), 1, 300).Draw(t, "weights")
		weights[rapid.IntRange(0, len(weights)-1).Draw(t, "one")] = 3
		there := 0
		for _, w := range weights {
			if w > 0 {
				there++
			}
		}
		policy := Policy{Seed: rapid.Uint64().Draw(t, "seed"), Shuffle: Full, Draw: Draw{Weights: weights, Num: int64(there)}}
		whole, err := New(int64(len(weights)), policy)
		if err != nil {
			t.Fatal(err)
		}
		policy.Draw.Num = rapid.Int64Range(1, int64(there)).Draw(t, "num")
		part, err := New(int64(len(weights)), policy)
		if err != nil {
			t.Fatal(err)
		}
		e := rapid.Int64Range(0, 100).Draw(t, "epoch")
		all, some := ids(whole.Epoch(e)), ids(part.Epoch(e))
		seen := map[int64]bool{}
		for p, id := range all {
			if seen[id] || weights[id] == 0 {
				t.Fatalf("place %d holds %d, again or of weight 0", p, id)
			}
			seen[id] = true
		}
		if fmt.Sprint(some) != fmt.Sprint(all[:len(some)]) {
			t.Fatalf("%d places are %v, and all begin with %v", len(some), some, all[:len(some)])
		}
	})
}

// Ranks take turns along one plan, so that together they have drawn what one
// alone would, in the same places.
func TestRanksShareOneDraw(t *testing.T) {
	weights := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, d := range []Draw{{Replacement: true, Num: 95}, {Weights: weights, Replacement: true, Num: 95}, {Weights: weights}} {
		epoch := mustNew(t, 10, Policy{Draw: d}).Epoch(1)
		got := make([]int64, epoch.Places())
		for rank := range int64(4) {
			s := Slice{N: epoch.Places(), Batch: 3, World: 4, Rank: rank, Tail: Pad}
			for step := range s.Steps() {
				for i := range s.Rows(step) {
					if p := s.Place(step, i); epoch.Real(p) {
						got[p] = epoch.At(p)
					}
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(ids(epoch)) {
			t.Errorf("%+v: the ranks have %v, the plan %v", d, got, ids(epoch))
		}
	}
}

func TestLogarithm(t *testing.T) {
	check := func(x float64) {
		got, want := logarithm(x), math.Log(x)
		if math.Abs(got-want) > 4e-16*math.Abs(want) {
			t.Fatalf("ln(%v) is %v, not %v", x, got, want)
		}
	}
	key := rng.New(8)
	for i := range uint64(200000) {
		u := key.Float64(i)
		check(u + 0x1p-60)
		check(1 - u*0x1p-20 - 0x1p-53)
		check(math.Ldexp(1+u, int(i%2000)-1000))
	}
	if logarithm(1) != 0 {
		t.Errorf("ln(1) is %v", logarithm(1))
	}
	check(0x1p-53)
	check(1 - 0x1p-53)
}

func BenchmarkDraw(b *testing.B) {
	const n = 1_000_000
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = float64(i%100 + 1)
	}
	for name, d := range map[string]Draw{
		"with":    {Weights: weights, Replacement: true},
		"uniform": {Replacement: true},
	} {
		epoch := mustNew(b, n, Policy{Draw: d}).Epoch(0)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				epoch.At(int64(i))
			}
		})
	}
	for _, num := range []int64{n, n / 100} {
		plan := mustNew(b, n, Policy{Draw: Draw{Weights: weights, Num: num}})
		b.Run(fmt.Sprintf("without/%d", num), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				plan.Epoch(int64(i))
			}
		})
	}
}
