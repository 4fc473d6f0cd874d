package order

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Every size up to 4,096, and sizes around powers of two above: a bijection.
func TestFullIsABijection(t *testing.T) {
	sizes := []int64{smallN + 1, 5000, 8191, 8192, 8193, 65537, 100003}
	for n := int64(1); n <= smallN; n += 1 + n/64 {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		plan, err := New(n, Policy{Shuffle: Full, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]bool, n)
		epoch := plan.Epoch(n % 5)
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
		n := rapid.Int64Range(smallN+1, 1_000_000_000_000).Draw(t, "n")
		plan, _ := New(n, Policy{Shuffle: Full, Seed: rapid.Uint64().Draw(t, "seed")})
		epoch := plan.Epoch(rapid.Int64Range(0, 1000).Draw(t, "epoch"))
		p := rapid.Int64Range(0, n-1).Draw(t, "p")
		q := rapid.Int64Range(0, n-1).Draw(t, "q")
		a, b := epoch.At(p), epoch.At(q)
		if a < 0 || a >= n || (p != q && a == b) {
			t.Fatalf("places %d and %d of %d hold %d and %d", p, q, n, a, b)
		}
	})
}

// chi2 is the statistic's distance from its mean in standard deviations
// (Wilson, Hilferty 1931); 5.2 is one in ten million.
func chi2(counts []int, want float64) float64 {
	x := 0.0
	for _, c := range counts {
		d := float64(c) - want
		x += d * d / want
	}
	k := float64(len(counts) - 1)
	return (math.Cbrt(x/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
}

func TestFullIsUniform(t *testing.T) {
	for _, n := range []int64{2, 3, 257, 4096, 5003} {
		plan, _ := New(n, Policy{Shuffle: Full, Seed: 1})
		const epochs = 4000
		at, next := make([]int, n), make([]int, n)
		for e := range int64(epochs) {
			epoch := plan.Epoch(e)
			at[epoch.At(n/2)]++
			a, b := epoch.At(0), epoch.At(1)
			next[(b-a+n)%n]++
		}
		if z := chi2(at, epochs/float64(n)); z > 5.2 {
			t.Errorf("n=%d: the middle place is not uniform: %.1f sigma", n, z)
		}
		if n > 2 {
			if z := chi2(next[1:], epochs/float64(n-1)); z > 5.2 {
				t.Errorf("n=%d: neighbours are not independent: %.1f sigma", n, z)
			}
		}
	}
}

// naive deals places the slow way.
func naive(s Slice) [][]int64 {
	var places []int64
	for p := s.Start; p < s.N; p++ {
		places = append(places, p)
	}
	pad := func(unit int64) {
		for len(places) > 0 && int64(len(places))%unit != 0 {
			places = append(places, s.Start+int64(len(places)))
		}
	}
	switch s.Tail {
	case Pad:
		pad(s.World)
	case Fill:
		pad(s.World * s.Batch)
	case Drop:
		places = places[:int64(len(places))/(s.World*s.Batch)*(s.World*s.Batch)]
	}
	var steps [][]int64
	for len(places) > 0 {
		global := places[:min(int64(len(places)), s.World*s.Batch)]
		places = places[len(global):]
		var mine []int64
		for i, p := range global {
			if int64(i)%s.World == s.Rank {
				mine = append(mine, p)
			}
		}
		steps = append(steps, mine)
	}
	return steps
}

func TestSliceAgainstTheNaiveDeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.Int64Range(1, 9).Draw(t, "world")
		s := Slice{
			N:     rapid.Int64Range(1, 300).Draw(t, "n"),
			Batch: rapid.Int64Range(1, 17).Draw(t, "batch"),
			World: world,
			Rank:  rapid.Int64Range(0, world-1).Draw(t, "rank"),
			Tail:  rapid.SampledFrom([]Tail{Pad, Fill, Drop}).Draw(t, "tail"),
		}
		s.Start = rapid.Int64Range(0, s.N).Draw(t, "start")
		want := naive(s)
		if int64(len(want)) != s.Steps() {
			t.Fatalf("%+v: %d steps, want %d", s, s.Steps(), len(want))
		}
		for step, places := range want {
			if int64(len(places)) != s.Rows(int64(step)) {
				t.Fatalf("%+v: step %d has %d rows, want %d", s, step, s.Rows(int64(step)), len(places))
			}
			for i, p := range places {
				if got := s.Place(int64(step), int64(i)); got != p {
					t.Fatalf("%+v: step %d row %d is place %d, want %d", s, step, i, got, p)
				}
			}
		}
	})
}

// A pass cut after any step and begun again from After, in any other world,
// delivers the same real places.
func TestCutAndGoOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 400).Draw(t, "n")
		batch := rapid.Int64Range(1, 9).Draw(t, "batch")
		first := rapid.Int64Range(1, 8).Draw(t, "world")
		second := rapid.Int64Range(1, 8).Draw(t, "then")
		one := Slice{N: n, Batch: batch, World: first, Tail: Pad}
		cut := rapid.Int64Range(0, one.Steps()).Draw(t, "cut")
		seen := make([]int, n)
		count := func(s Slice, from, to int64) {
			for rank := range s.World {
				s.Rank = rank
				for step := from; step < to; step++ {
					for i := range s.Rows(step) {
						if p := s.Place(step, i); p < n {
							seen[p]++
						}
					}
				}
			}
		}
		count(one, 0, cut)
		two := Slice{N: n, Batch: batch, World: second, Tail: Pad}
		if cut > 0 {
			two.Start = one.After(cut - 1)
		}
		count(two, 0, two.Steps())
		for p, times := range seen {
			if times != 1 {
				t.Fatalf("place %d was delivered %d times", p, times)
			}
		}
	})
}

func BenchmarkAt(b *testing.B) {
	plan, _ := New(1_000_000_000, Policy{Shuffle: Full, Seed: 3})
	epoch := plan.Epoch(0)
	b.ReportAllocs()
	var sink int64
	for i := range b.N {
		sink += epoch.At(int64(i))
	}
	_ = sink
}
