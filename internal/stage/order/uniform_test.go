package order_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/order"
)

// Every size up to 4,096, where tables are used, and sizes on both sides of
// powers of two above: a bijection.
func TestFullIsABijection(t *testing.T) {
	sizes := []int64{4097, 5000, 8191, 8192, 8193, 65536, 65537, 100003, 1 << 20}
	for n := int64(1); n <= 4096; n += slow {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		epoch := open(t, n, order.Policy{Shuffle: order.Full, Seed: 7}).Epoch(n % 5)
		seen := make([]bool, n)
		for p := range n {
			id := epoch.At(p)
			if id < 0 || id >= n || seen[id] {
				t.Fatalf("n=%d: place %d holds %d, out of range or again", n, p, id)
			}
			seen[id] = true
		}
	}
}

func TestLargeEpochsStayInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(4097, math.MaxInt64).Draw(t, "n")
		plan, err := order.New(n, order.Policy{Shuffle: order.Full, Seed: rapid.Uint64().Draw(t, "seed")})
		if err != nil {
			t.Fatal(err)
		}
		epoch := plan.Epoch(rapid.Int64Range(0, 1000).Draw(t, "epoch"))
		p := rapid.Int64Range(0, n-1).Draw(t, "p")
		q := rapid.Int64Range(0, n-1).Draw(t, "q")
		a, b := epoch.At(p), epoch.At(q)
		if a < 0 || a >= n || (p != q && a == b) {
			t.Fatalf("places %d and %d of %d hold %d and %d", p, q, n, a, b)
		}
	})
}

// judge collects chi-squared tests. All of them together give a false alarm
// once in a million seeds: each may at 1e-6 over their number (Bonferroni).
// Seeds are fixed, so that what passes once passes always.
type judge struct {
	t     *testing.T
	tests []verdict
}

type verdict struct {
	name   string
	chance float64 // of a statistic at least as large, were all uniform
}

// multinomial tests counts of independent trials, all outcomes being alike.
func (j *judge) multinomial(name string, counts []int64) {
	if len(counts) < 2 {
		return
	}
	var sum int64
	for _, c := range counts {
		sum += c
	}
	want := float64(sum) / float64(len(counts))
	j.add(name, pearson(counts, want), float64(len(counts)-1))
}

// table tests a sum of permutation matrices of n rows. Its rows and its columns
// have fixed sums, so that (n-1)^2 dimensions are free, and the variance along
// each is n/(n-1) of the mean.
func (j *judge) table(name string, counts []int64, n, trials int64) {
	free := float64(n - 1)
	j.add(name, pearson(counts, float64(trials)/float64(n))*free/float64(n), free*free)
}

func pearson(counts []int64, want float64) float64 {
	x := 0.0
	for _, c := range counts {
		d := float64(c) - want
		x += d * d / want
	}
	return x
}

func (j *judge) add(name string, x, free float64) {
	j.tests = append(j.tests, verdict{name, chiSquaredTail(x, free)})
}

func (j *judge) close() {
	j.t.Helper()
	for _, v := range j.tests {
		if v.chance < 1e-6/float64(len(j.tests)) {
			j.t.Errorf("%s: not uniform: chance %.1e in %d tests", v.name, v.chance, len(j.tests))
		}
	}
}

// chiSquaredTail is the upper regularised incomplete gamma function
// Q(free/2, x/2): its series below the mean, Legendre's continued fraction
// above (Abramowitz, Stegun 1964: 6.5.29, 6.5.31).
func chiSquaredTail(x, free float64) float64 {
	a, x := free/2, x/2
	if x <= 0 {
		return 1
	}
	lgamma, _ := math.Lgamma(a)
	front := math.Exp(a*math.Log(x) - x - lgamma)
	if x < a+1 {
		term := 1 / a
		sum := term
		for n := a + 1; term > sum*1e-16; n++ {
			term *= x / n
			sum += term
		}
		return 1 - front*sum
	}
	const tiny = 1e-300
	b := x + 1 - a
	c, d := 1/tiny, 1/b
	h := d
	for i := 1.0; i < 1e6; i++ {
		an := i * (a - i)
		b += 2
		d = 1 / nonzero(an*d+b, tiny)
		c = nonzero(b+an/c, tiny)
		h *= c * d
		if math.Abs(c*d-1) < 1e-15 {
			break
		}
	}
	return front * h
}

func nonzero(x, tiny float64) float64 {
	if math.Abs(x) < tiny {
		return tiny
	}
	return x
}

// The judge itself, against printed tables and the closed form for 2 degrees
// of freedom.
func TestChiSquaredTail(t *testing.T) {
	for _, v := range []struct{ x, free, want float64 }{
		{3.841459, 1, 0.05},
		{10.827566, 1, 0.001},
		{18.307038, 10, 0.05},
		{124.342113, 100, 0.05},
		{149.449253, 100, 0.001},
		{70.064895, 100, 0.99},
		{1, 2, math.Exp(-0.5)},
		{40, 2, math.Exp(-20)},
	} {
		if got := chiSquaredTail(v.x, v.free); math.Abs(got-v.want) > 1e-5*v.want {
			t.Errorf("chi-squared of %v with %v degrees: %v, want %v", v.x, v.free, got, v.want)
		}
	}
}

// Over 10,000 epochs: every place holds every sample equally often, and so do
// neighbours, as far as there are enough epochs to count pairs.
func TestFullIsUniform(t *testing.T) {
	const epochs = 10_000 / slow
	j := judge{t: t}
	for _, n := range []int64{2, 3, 257} {
		plan := open(t, n, order.Policy{Shuffle: order.Full, Seed: 1})
		cells := make([]int64, n*n)
		steps := make([][]int64, n-1) // from each place to the next: by how many ids
		for p := range steps {
			steps[p] = make([]int64, n)
		}
		whole := make([]int64, 6) // for n = 3: which of all permutations
		for e := range int64(epochs) {
			epoch := plan.Epoch(e)
			last := int64(-1)
			for p := range n {
				id := epoch.At(p)
				cells[p*n+id]++
				if last >= 0 {
					steps[p-1][(id-last+n)%n]++
				}
				last = id
			}
			if n == 3 {
				a, b := epoch.At(0), epoch.At(1)
				whole[a*2+(b-a+2)%3]++
			}
		}
		j.table(fmt.Sprintf("n=%d: places and ids", n), cells, n, epochs)
		for p := range n {
			j.multinomial(fmt.Sprintf("n=%d: place %d", n, p), cells[p*n:][:n])
		}
		for p, counts := range steps {
			j.multinomial(fmt.Sprintf("n=%d: from place %d to the next", n, p), counts[1:])
		}
		if n == 3 {
			j.multinomial("n=3: all permutations", whole)
		}
	}
	// A table, a network just above the largest table, and one of equal halves.
	for _, n := range []int64{4096, 4097, 1 << 16} {
		fewPlaces(&j, n, epochs)
	}
	j.close()
}

// fewPlaces judges some places of large epochs, ids and distances put into
// 256 classes of equal size.
func fewPlaces(j *judge, n, epochs int64) {
	const classes = 256
	plan := open(j.t, n, order.Policy{Shuffle: order.Full, Seed: 2})
	width := (n - 1) / classes
	for _, p := range []int64{0, 1, n / 2, n - 2} {
		ids, steps := make([]int64, classes), make([]int64, classes)
		for e := range epochs {
			epoch := plan.Epoch(e)
			a, b := epoch.At(p), epoch.At(p+1)
			if class := a / width; class < classes {
				ids[class]++
			}
			if class := ((b-a+n)%n - 1) / width; class < classes {
				steps[class]++
			}
		}
		j.multinomial(fmt.Sprintf("n=%d: place %d", n, p), ids)
		j.multinomial(fmt.Sprintf("n=%d: from place %d to the next", n, p), steps)
	}
}

// Every window of 2 to 64 samples, and some larger ones that a network
// permutes: places and ids, and neighbours, over 10,000 windows of each size.
func TestWindowsAreUniform(t *testing.T) {
	const windows, epochs = 100, 100 / slow
	j := judge{t: t}
	sizes := []int64{65, 96, 100, 127, 128, 129, 200}
	for w := int64(2); w <= 64; w++ {
		sizes = append(sizes, w)
	}
	for _, w := range sizes {
		plan := open(t, w*windows, order.Policy{Shuffle: order.WindowAlone, Seed: 4, Block: order.Block{Window: w}})
		cells, steps := make([]int64, w*w), make([]int64, w)
		for e := range int64(epochs) {
			epoch := plan.Epoch(e)
			for first := int64(0); first < w*windows; first += w {
				for p := range w {
					id := epoch.At(first+p) - first
					if id < 0 || id >= w {
						t.Fatalf("windows of %d: place %d holds %d of another window", w, first+p, first+id)
					}
					cells[p*w+id]++
				}
				a, b := epoch.At(first), epoch.At(first+1)
				steps[(b-a+w)%w]++
			}
		}
		j.table(fmt.Sprintf("windows of %d: places and ids", w), cells, w, windows*epochs)
		j.multinomial(fmt.Sprintf("windows of %d: from the first place to the next", w), steps[1:])
		if w > 2 && w <= 8 {
			j.multinomial(fmt.Sprintf("windows of %d: first pairs", w), pairs(plan, w, windows, epochs))
		}
	}
	j.close()
}

// pairs counts what the first two places of windows hold: the network that once
// permuted small windows failed here.
func pairs(plan order.Plan, w, windows, epochs int64) []int64 {
	counts := make([]int64, w*(w-1))
	for e := range epochs {
		epoch := plan.Epoch(e)
		for first := int64(0); first < w*windows; first += w {
			a, b := epoch.At(first)-first, epoch.At(first+1)-first
			counts[a*(w-1)+(b-a+w)%w-1]++
		}
	}
	return counts
}

// Blocks come in every order, and every stream's windows are shuffled by
// themselves.
func TestBlocksAreUniform(t *testing.T) {
	const epochs = 10_000 / slow
	j := judge{t: t}
	plan := open(t, 7*5, order.Policy{Shuffle: order.BlockWise, Seed: 5, Block: order.Block{
		Sizes: []int64{5, 5, 5, 5, 5, 5, 5}, Streams: 7, Window: 5,
	}})
	blocks, inside, apart := make([]int64, 49), make([]int64, 25), make([]int64, 25)
	for e := range int64(epochs) {
		epoch := plan.Epoch(e)
		for s := range int64(7) { // a stream is one block here
			blocks[s*7+epoch.At(s)/5]++
		}
		for i := range int64(5) {
			inside[i*5+epoch.At(i*7)%5]++
		}
		apart[epoch.At(0)%5*5+epoch.At(1)%5]++
	}
	j.table("streams and blocks", blocks, 7, epochs)
	j.table("places and ids of stream 0", inside, 5, epochs)
	j.multinomial("first places of streams 0 and 1", apart)
	j.close()
}

// No two places of a run have one augmentation key: not over epochs, not among
// padding places, which are augmented anew, and not in runs of neighbouring
// seeds, whose sum with the epoch is the same.
func TestKeysNeverRepeat(t *testing.T) {
	const places, padding, epochs = 200_000 / slow, 50_000 / slow, 4
	var keys []uint64
	for _, seed := range []uint64{41, 42, 43, 0, math.MaxUint64} {
		plan := open(t, places, order.Policy{Shuffle: order.Full, Seed: seed})
		for e := range int64(epochs) {
			epoch := plan.Epoch(e)
			for p := range int64(places + padding) {
				keys = append(keys, uint64(epoch.Key(p)))
			}
		}
	}
	slices.Sort(keys)
	if distinct := len(slices.Compact(keys)); distinct != 5*epochs*(places+padding) {
		t.Errorf("%d keys of %d repeat", 5*epochs*(places+padding)-distinct, 5*epochs*(places+padding))
	}
}

// An epoch of one seed is not an epoch of its neighbours, whatever adds up.
func TestSeedsAndEpochsAreApart(t *testing.T) {
	const n, seeds, epochs = 1000, 12, 12
	seen := map[string]string{}
	for _, shuffle := range []order.Shuffle{order.Full, order.WindowAlone} {
		for seed := range uint64(seeds) {
			plan := open(t, n, order.Policy{Shuffle: shuffle, Seed: seed, Block: order.Block{Window: n}})
			for e := range int64(epochs) {
				sum, _ := plan.Epoch(e).Sum(0, n)
				name := fmt.Sprintf("%s, seed %d, epoch %d", shuffle, seed, e)
				if other, again := seen[sum.String()]; again {
					t.Errorf("the same order: %s and %s", other, name)
				}
				seen[sum.String()] = name
			}
		}
	}
}

// open is a plan that must be possible.
func open(t testing.TB, n int64, p order.Policy) order.Plan {
	t.Helper()
	plan, err := order.New(n, p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
