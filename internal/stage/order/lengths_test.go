package order

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// lengthsCase is a plan with lengths, and the one without: what it rearranges.
type lengthsCase struct {
	plan, plain Plan
	l           Lengths
	epoch       int64
	again       bool // a sample may come more than once
}

// drawLengths makes a case. Windows are small and large, lengths few and many, with
// zeros, and where the mode allows it far beyond the budget.
func drawLengths(t *rapid.T, mode string) lengthsCase {
	n := rapid.Int64Range(1, 250).Draw(t, "n")
	l := Lengths{Window: rapid.SampledFrom([]int64{0, 1, 2, 7, 32, 100, n, n + 1}).Draw(t, "window")}
	longest := rapid.SampledFrom([]int32{0, 1, 3, 20, 64, 300}).Draw(t, "longest")
	switch mode {
	case "bucket":
		l.Bucket = rapid.Int64Range(1, max(1, min(20, l.Window))).Draw(t, "bucket")
	case "tokens":
		l.Tokens = int64(max(1, longest)) * rapid.Int64Range(1, 9).Draw(t, "tokens")
		l.Rows = rapid.Int64Range(0, 6).Draw(t, "rows")
	case "pack":
		l.Pack = rapid.SampledFrom([]int64{1, 2, 16, 50, 63, 64, 65, 300, 5000, math.MaxInt32}).Draw(t, "pack")
		l.Long = rapid.SampledFrom([]Long{"", Split, Truncate}).Draw(t, "long")
	}
	l.Of = rapid.SliceOfN(rapid.Int32Range(0, longest), int(n), int(n)).Draw(t, "lengths")
	policy := Policy{Shuffle: rapid.SampledFrom([]Shuffle{None, Full}).Draw(t, "shuffle"), Seed: rapid.Uint64().Draw(t, "seed")}
	if rapid.Bool().Draw(t, "block") {
		policy.Shuffle, policy.Block = BlockWise, Block{Streams: 3, Window: 5}
	}
	c := lengthsCase{l: l, epoch: rapid.Int64Range(0, 5).Draw(t, "epoch")}
	switch base := rapid.SampledFrom([]string{"shuffle", "some", "again", "mix"}).Draw(t, "base"); {
	case base == "some":
		policy.Draw.Num = rapid.Int64Range(1, n).Draw(t, "num")
	case base == "again":
		policy = Policy{Seed: policy.Seed}
		policy.Draw = Draw{Replacement: true, Num: rapid.Int64Range(1, 2*n).Draw(t, "num")}
	case base == "mix" && n > 1:
		first := rapid.Int64Range(1, n-1).Draw(t, "first")
		members := []Member{{Samples: first, Policy: policy}, {Samples: n - first}}
		policy = Policy{Seed: 3, Mix: &Mix{Members: members, Points: []Point{{Weights: []float64{1, 2}}}, Stop: Repeat, Run: 3}}
	}
	c.again = policy.Draw.Replacement || policy.Mix != nil
	var err error
	if c.plain, err = New(n, policy); err != nil {
		t.Fatal(err)
	}
	policy.Lengths = l
	if c.plan, err = New(n, policy); err != nil {
		t.Fatal(err)
	}
	return c
}

// naivePlace is the sample at a place.
type naivePlace struct {
	place, sample int64
	length        int64
}

// windows is the places of the plain order in windows, as they come or by
// length.
func (c lengthsCase) windows(sorted bool) [][]naivePlace {
	window := c.l.Window
	if window == 0 {
		window = 10_000
	}
	if c.l.Bucket > 0 {
		window = window / c.l.Bucket * c.l.Bucket
	}
	var out [][]naivePlace
	e := c.plain.Epoch(c.epoch)
	for p := range c.plain.Places() {
		if p%window == 0 {
			out = append(out, nil)
		}
		w := &out[len(out)-1]
		*w = append(*w, naivePlace{p, e.At(p), int64(c.l.Of[e.At(p)])})
	}
	for _, w := range out {
		if sorted {
			sort.SliceStable(w, func(i, j int) bool { return w[i].length < w[j].length })
		}
	}
	return out
}

// text is an item as a person reads it: place=sample[from:end].
func text(pieces []Piece) string {
	var s []string
	for _, p := range pieces {
		one := fmt.Sprintf("%d=%d", p.Place, p.Sample)
		if p.Len > 0 || p.From > 0 {
			one += fmt.Sprintf("[%d:%d]", p.From, p.From+p.Len)
		}
		s = append(s, one)
	}
	return strings.Join(s, " ")
}

// sameItems compares the items that begin at `first` with what a window must
// give, in any order, and says how many there are.
func sameItems(t *rapid.T, e Epoch, first int64, want []string) int64 {
	var got []string
	for i := range int64(len(want)) {
		got = append(got, text(e.Item(first+i, nil)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("items from %d on:\n got %q\nwant %q", first, got, want)
	}
	return int64(len(want))
}

func TestBucketsAgainstSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawLengths(t, "bucket")
		e, b := c.plan.Epoch(c.epoch), c.l.Bucket
		if e.Len() != c.plain.Places() || e.Batches() || e.Rows() {
			t.Fatalf("%d items of %d places: %+v", e.Len(), c.plain.Places(), e)
		}
		first := int64(0)
		for _, w := range c.windows(true) {
			size := int64(len(w))
			var held []int64 // samples of the window as they come
			for p := range size {
				held = append(held, e.At(first+p))
			}
			// Wherever the short run is in the sorted order, the others are its
			// neighbours' runs: one position must explain the window.
			explained := false
			for gap := int64(0); gap <= size/b && !explained; gap++ {
				var runs, got []string
				short := size % b
				for r := range size / b {
					from := r * b
					if r >= gap {
						from += short
					}
					runs = append(runs, fmt.Sprint(inPlaces(w[from:from+b])))
					got = append(got, fmt.Sprint(held[r*b:(r+1)*b]))
				}
				slices.Sort(runs)
				slices.Sort(got)
				explained = slices.Equal(runs, got) && slices.Equal(held[size-short:], inPlaces(w[gap*b:gap*b+short]))
			}
			if !explained {
				t.Fatalf("places from %d on hold %v, and sorted they are %v in runs of %d", first, held, w, b)
			}
			first += size
		}
	})
}

func inPlaces(places []naivePlace) []int64 {
	out := []int64{}
	for _, p := range places {
		out = append(out, p.sample)
	}
	return out
}

func TestTokensAgainstALoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawLengths(t, "tokens")
		e := c.plan.Epoch(c.epoch)
		var items, most int64
		for _, w := range c.windows(true) {
			var want []string
			for len(w) > 0 {
				var batch []Piece
				for len(w) > 0 && int64(len(batch)+1)*max(1, w[0].length) <= c.l.Tokens && (c.l.Rows == 0 || int64(len(batch)) < c.l.Rows) {
					batch = append(batch, Piece{Place: w[0].place, Sample: w[0].sample})
					w = w[1:]
				}
				most = max(most, int64(len(batch)))
				want = append(want, text(batch))
			}
			items += sameItems(t, e, items, want)
		}
		if items != e.Len() || !e.Batches() || e.Rows() {
			t.Fatalf("%d batches, want %d; batches %v, rows %v", e.Len(), items, e.Batches(), e.Rows())
		}
		if bound := c.plan.MaxRows(); most > bound || (c.l.Window >= c.plain.Places() && c.plain.Places() == c.plain.Samples() && !c.again && most != bound) {
			t.Fatalf("a batch has %d rows, and at most %d were promised", most, bound)
		}
	})
}

// naiveRow is an open row: its pieces, its room, and since when it has that.
type naiveRow struct {
	pieces      []Piece
	room, since int64
}

func naivePack(w []naivePlace, l Lengths) []string {
	var out []string
	var rest []Piece
	for _, p := range w {
		length, from := p.length, int64(0)
		if l.Long == Truncate {
			length = min(length, l.Pack)
		}
		for ; length-from >= l.Pack; from += l.Pack {
			out = append(out, text([]Piece{{p.place, p.sample, from, l.Pack}}))
		}
		if length > from || length == 0 {
			rest = append(rest, Piece{p.place, p.sample, from, length - from})
		}
	}
	sort.SliceStable(rest, func(i, j int) bool { return rest[i].Len > rest[j].Len })
	var rows []*naiveRow
	for now, p := range rest {
		var best *naiveRow
		for _, r := range rows {
			if r.room >= p.Len && (best == nil || r.room < best.room || r.room == best.room && r.since < best.since) {
				best = r
			}
		}
		if best == nil {
			best = &naiveRow{room: l.Pack}
			rows = append(rows, best)
		}
		best.pieces = append(best.pieces, p)
		best.room -= p.Len
		best.since = int64(now)
	}
	for _, r := range rows {
		out = append(out, text(r.pieces))
	}
	return out
}

func TestPackAgainstANaiveBestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawLengths(t, "pack")
		e := c.plan.Epoch(c.epoch)
		var items int64
		for _, w := range c.windows(false) {
			items += sameItems(t, e, items, naivePack(w, c.l))
		}
		if items != e.Len() || e.Batches() || !e.Rows() || c.plan.MaxRows() != 1 {
			t.Fatalf("%d rows, want %d; batches %v, rows %v", e.Len(), items, e.Batches(), e.Rows())
		}
	})
}

// Whatever the mode: all places of an epoch, each once, and of each sample all
// tokens, each once (as many as Truncate leaves); padding goes on at places of
// its own; the receipt counts the same.
func TestLengthsDeliverEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]string{"bucket", "tokens", "pack"}).Draw(t, "mode")
		c := drawLengths(t, mode)
		e, n := c.plan.Epoch(c.epoch), c.plain.Places()
		pieces, sum := make([][]Piece, n), Sum{}
		for i := range e.Len() {
			var row int64
			for _, p := range e.Item(i, nil) {
				if !e.Real(p.Place) || p.Sample != e.At(p.Place) {
					t.Fatalf("item %d: %+v, and the place holds %d", i, p, e.At(p.Place))
				}
				pieces[p.Place] = append(pieces[p.Place], p)
				row += p.Len
			}
			if row > c.l.Pack {
				t.Fatalf("row %d has %d tokens", i, row)
			}
			for _, p := range e.Item(i+2*e.Len(), nil) {
				if e.Real(p.Place) || p.Sample != e.At(p.Place) {
					t.Fatalf("padding item: %+v", p)
				}
			}
		}
		samples := map[int64]bool{}
		for place, parts := range pieces {
			sample := e.At(int64(place))
			samples[sample] = true
			sum.Add(int64(place), sample)
			want := []string{text([]Piece{{Place: int64(place), Sample: sample}})}
			if length := int64(c.l.Of[sample]); mode == "pack" && length > 0 {
				want = nil
				if c.l.Long == Truncate {
					length = min(length, c.l.Pack)
				}
				for from := int64(0); from < length; from += c.l.Pack {
					want = append(want, text([]Piece{{int64(place), sample, from, min(c.l.Pack, length-from)}}))
				}
			}
			slices.SortFunc(parts, func(a, b Piece) int { return int(a.From - b.From) })
			var got []string
			for _, p := range parts {
				got = append(got, text([]Piece{p}))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("place %d came as %q, want %q", place, got, want)
			}
		}
		if int64(len(samples)) != n && !c.again {
			t.Fatalf("%d different samples at %d places", len(samples), n)
		}
		if got, count := e.Sum(0, e.Len()); got != sum || count != n {
			t.Fatalf("the receipt has %v over %d, want %v over %d", got, count, sum, n)
		}
	})
}

// Items in any order, of any of the epoch's values, are what a walk gives.
func TestLengthsAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawLengths(t, rapid.SampledFrom([]string{"bucket", "tokens", "pack"}).Draw(t, "mode"))
		walk := c.plan.Epoch(c.epoch)
		var want []string
		for i := range walk.Len() {
			want = append(want, text(walk.Item(i, nil)))
		}
		jump := c.plan.Epoch(c.epoch)
		for range 40 {
			i := rapid.Int64Range(0, walk.Len()-1).Draw(t, "i")
			if got := text(jump.Item(i, nil)); got != want[i] {
				t.Fatalf("item %d: %s, and the walk had %s", i, got, want[i])
			}
		}
	})
}

// Ranks take turns along batches and rows as along places: the same number of
// steps, and all items once.
func TestLengthsKeepRanksInStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawLengths(t, rapid.SampledFrom([]string{"tokens", "pack"}).Draw(t, "mode"))
		e := c.plan.Epoch(c.epoch)
		s := Slice{N: e.Len(), Batch: 1, World: rapid.Int64Range(1, 8).Draw(t, "world"), Tail: rapid.SampledFrom([]Tail{Pad, Fill, Drop}).Draw(t, "tail")}
		if e.Rows() {
			s.Batch = 3
		}
		items := map[int64]int{}
		steps := s.Steps()
		for s.Rank = range s.World {
			if s.Steps() != steps {
				t.Fatalf("rank %d has %d steps, rank 0 has %d", s.Rank, s.Steps(), steps)
			}
			for step := range steps {
				for i := range s.Rows(step) {
					item := s.Place(step, i)
					items[item]++
					if len(e.Item(item, nil)) == 0 {
						t.Fatalf("item %d is empty", item)
					}
				}
			}
		}
		for i := range e.Len() {
			if items[i] != 1 && (s.Tail != Drop || items[i] != 0) {
				t.Fatalf("item %d came %d times", i, items[i])
			}
		}
	})
}

// counting counts how often places are looked up, on all cores.
type counting struct{ looks atomic.Int64 }

func (c *counting) at(place int64) int64 { c.looks.Add(1); return place }

// Four passes side by side, each with its prefetching a seam ahead, compute
// every window that they come through once.
func TestWalksComputeEachWindowOnce(t *testing.T) {
	const n, window = 4_000, 100
	of := make([]int32, n)
	for i := range of {
		of[i] = int32(rng.New(3).Intn(uint64(i), 50))
	}
	look := &counting{}
	w := windows{lengths: &Lengths{Of: of, Window: window, Bucket: 10}, seq: look, places: n}
	b := newBuckets(w)
	for p := range int64(1000 - window) {
		for pass := range int64(4) {
			b.at(pass*1000 + p)
			b.at(pass*1000 + p + window)
		}
	}
	if got := look.looks.Load(); got != n {
		t.Errorf("buckets: %d looks at %d places", got, n)
	}
	for _, l := range []Lengths{{Of: of, Window: window, Tokens: 200}, {Of: of, Window: window, Pack: 70, Long: Split}} {
		look.looks.Store(0)
		c := newCuts(windows{lengths: &l, seq: look, places: n})
		c.first = c.count(0)
		if got := look.looks.Load(); got != n {
			t.Errorf("%+v: %d looks at %d places to count", l, got, n)
		}
		var pieces []Piece
		for i := range c.len() {
			pieces = c.item(i, pieces[:0])
		}
		if got := look.looks.Load(); got != 2*n {
			t.Errorf("%+v: %d looks at %d places to walk", l, got-n, n)
		}
	}
}

// One epoch, many goroutines, more windows than are kept.
func TestLengthsSideBySide(t *testing.T) {
	of := make([]int32, 3000)
	for i := range of {
		of[i] = int32(rng.New(4).Intn(uint64(i), 200))
	}
	for _, l := range []Lengths{{Of: of, Window: 100, Bucket: 10}, {Of: of, Window: 100, Tokens: 1000}, {Of: of, Window: 100, Pack: 150}} {
		plan, err := New(int64(len(of)), Policy{Shuffle: Full, Lengths: l})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		alone := plan.Epoch(1)
		for i := range alone.Len() {
			want = append(want, text(alone.Item(i, nil)))
		}
		shared := plan.Epoch(1)
		var all sync.WaitGroup
		for g := range int64(8) {
			all.Go(func() {
				other := plan.Epoch(g)
				for i := range shared.Len() {
					at := (i*(2*g+1) + g*77) % shared.Len()
					if got := text(shared.Item(at, nil)); got != want[at] {
						t.Errorf("item %d: %s, want %s", at, got, want[at])
						return
					}
					other.Item(at, nil)
				}
			})
		}
		all.Wait()
	}
}

// Texts have lengths like these: many short ones, a long tail.
func TestPackingIsTight(t *testing.T) {
	const n, row = 50_000, 2048
	of := make([]int32, n)
	var tokens, first, room int64
	for i := range of {
		u := rng.New(5).Float64(uint64(i))
		of[i] = int32(20 + 2500*u*u*u)
	}
	plan, err := New(n, Policy{Shuffle: Full, Lengths: Lengths{Of: of, Pack: row}})
	if err != nil {
		t.Fatal(err)
	}
	e := plan.Epoch(0)
	for p := range e.Places() { // first come, first placed: the open row is closed by what does not fit
		left := int64(of[e.At(p)])
		tokens += left
		for ; left >= row; left -= row {
			first++
		}
		if left > room {
			first++
			room = row
		}
		room -= left
	}
	best := float64(tokens) / float64(e.Len()*row)
	t.Logf("best fit fills %.2f%% of its rows, first come %.2f%%", 100*best, 100*float64(tokens)/float64(first*row))
	if e.Len() >= first || best < 0.99 {
		t.Errorf("%d rows, and first come gives %d; full to %.3f", e.Len(), first, best)
	}
}

// The batches of a window come in an order of their own every epoch, and any of
// them may come first.
func TestBatchesAreShuffled(t *testing.T) {
	of := make([]int32, 40)
	for i := range of {
		of[i] = int32(i)
	}
	for _, l := range []Lengths{{Of: of, Bucket: 4}, {Of: of, Tokens: 400, Rows: 4}, {Of: of, Pack: 50}} {
		plan, err := New(40, Policy{Lengths: l})
		if err != nil {
			t.Fatal(err)
		}
		const epochs = 3000
		firsts := map[string]int{}
		for epoch := range int64(epochs) {
			firsts[text(plan.Epoch(epoch).Item(0, nil))]++
		}
		items := plan.Epoch(0).Len()
		if l.Bucket > 0 {
			items /= l.Bucket
		}
		var counts []int
		for _, c := range firsts {
			counts = append(counts, c)
		}
		if int64(len(counts)) != items {
			t.Fatalf("%+v: %d of %d come first", l, len(counts), items)
		}
		if z := chi2(counts, epochs/float64(items)); z > 5.2 {
			t.Errorf("%+v: what comes first is not uniform: %.1f sigma, %v", l, z, firsts)
		}
	}
}

// Locked for ever: states that people saved depend on these orders.
func TestLengthsGolden(t *testing.T) {
	of := []int32{5, 12, 0, 7, 25, 3, 10, 9, 1, 4, 8, 6, 2}
	for _, c := range []struct {
		l    Lengths
		want string
	}{
		{
			Lengths{Of: of, Bucket: 3, Window: 7},
			"0=2 | 1=8 | 2=12 | 3=3 | 4=10 | 5=4 | 6=5 | 7=9 | 8=11 | 9=7 | 10=6 | 11=1 | 12=0",
		},
		{
			Lengths{Of: of, Tokens: 25, Rows: 4, Window: 7},
			"5=4 | 3=3 1=10 | 4=2 0=8 2=12 | 6=6 | 8=5 7=9 12=0 9=11 | 10=7 11=1",
		},
		{
			Lengths{Of: of, Pack: 10, Window: 7},
			"1=10[0:8] 2=12[0:2] 4=2 | 5=4[20:25] | 5=4[0:10] | 6=6[0:10] | 3=3[0:7] 0=8[0:1] | 5=4[10:20] | 12=0[0:5] 8=5[0:3] 11=1[10:12] | 10=7[0:9] | 9=11[0:6] 7=9[0:4] | 11=1[0:10]",
		},
		{
			Lengths{Of: of, Pack: 10, Long: Truncate},
			"10=7[0:9] 0=8[0:1] | 3=3[0:7] 8=5[0:3] | 9=11[0:6] 7=9[0:4] 4=2 | 11=1[0:10] | 12=0[0:5] | 6=6[0:10] | 5=4[0:10] | 1=10[0:8] 2=12[0:2]",
		},
	} {
		plan, err := New(int64(len(of)), Policy{Shuffle: Full, Seed: 11, Lengths: c.l})
		if err != nil {
			t.Fatal(err)
		}
		e := plan.Epoch(2)
		var items []string
		for i := range e.Len() {
			items = append(items, text(e.Item(i, nil)))
		}
		if got := strings.Join(items, " | "); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.l, got, c.want)
		}
	}
}

func TestLengthsThatCanNotBe(t *testing.T) {
	of := []int32{3, 40, 0, 7}
	for _, c := range []struct {
		l    Lengths
		want string
	}{
		{Lengths{Of: of[:3], Bucket: 2}, "3 lengths for 4 samples"},
		{Lengths{Of: []int32{}, Bucket: 2}, "0 lengths"},
		{Lengths{Of: []int32{1, 2, -1, 3}, Pack: 2}, "sample 2 has length -1"},
		{Lengths{Of: of, Bucket: 2, Pack: 5}, "bucket 2, tokens 0, pack 5: set only one"},
		{Lengths{Of: of}, "lengths need bucket, tokens or pack"},
		{Lengths{Window: 5}, "lengths need bucket, tokens or pack"},
		{Lengths{Tokens: 5}, "need the lengths of samples, which are missing"},
		{Lengths{Of: of, Bucket: -2}, "bucket -2"},
		{Lengths{Of: of, Pack: 5, Window: -1}, "window -1"},
		{Lengths{Of: of, Tokens: 50, Rows: -1}, "rows -1"},
		{Lengths{Of: of, Bucket: 6, Window: 5}, "bucket is 6 and window 5"},
		{Lengths{Of: of, Bucket: 10_001}, "bucket is 10001 and window 10000"},
		{Lengths{Of: of, Tokens: 39}, "sample 1 is 40 tokens long, and a batch holds 39"},
		{Lengths{Of: of, Pack: 39, Long: Refuse}, "sample 1 is 40 tokens long, and a row holds 39"},
		{Lengths{Of: of, Pack: 39, Long: "wrap"}, `unknown rule "wrap"`},
		{Lengths{Of: of, Tokens: 50, Long: Split}, `"split", but without pack`},
		{Lengths{Of: of, Pack: 39, Rows: 2}, "at most 2 rows per batch without tokens"},
		{Lengths{Of: of, Pack: math.MaxInt32 + 1}, "32-bit offsets"},
		{Lengths{Of: of, Pack: 5, Window: math.MaxInt32 + 1}, "sorted in memory"},
	} {
		if _, err := New(4, Policy{Lengths: c.l}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want ... %s ...", c.l, err, c.want)
		}
	}
}

// What would take for ever to count is refused, not begun.
func TestLengthsThatCanNotBeCounted(t *testing.T) {
	of := []int32{3, math.MaxInt32, 0, 7}
	for _, c := range []struct {
		num  int64
		l    Lengths
		want string
	}{
		{1<<40 + 1, Lengths{Of: of, Pack: 5}, "at most 1099511627776 places"},
		{1 << 27, Lengths{Of: of, Tokens: math.MaxInt32, Window: 1}, "make num smaller or the window larger"},
		{1 << 40, Lengths{Of: of, Pack: 5, Window: 1 << 20}, "too many rows to count"},
	} {
		_, err := New(4, Policy{Draw: Draw{Replacement: true, Num: c.num}, Lengths: c.l})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d places, %+v: %v, want ... %s ...", c.num, c.l, err, c.want)
		}
	}
	plan, err := New(4, Policy{Draw: Draw{Replacement: true, Num: 1 << 60}, Lengths: Lengths{Of: of, Bucket: 5}})
	if err != nil {
		t.Fatal(err)
	}
	if id := plan.Epoch(0).At(1<<60 - 1); id < 0 || id > 3 { // buckets count nothing
		t.Errorf("the last place holds %d", id)
	}
}

// A sample a billion times as long as a row is arithmetic, too.
func TestPackAnythingLong(t *testing.T) {
	plan, err := New(3, Policy{Lengths: Lengths{Of: []int32{math.MaxInt32, 2, math.MaxInt32}, Pack: 3}})
	if err != nil {
		t.Fatal(err)
	}
	e := plan.Epoch(0)
	if want := int64(2*(math.MaxInt32/3) + 2); e.Len() != want { // the rests of 1, 2 and 1 tokens share two rows
		t.Fatalf("%d rows, want %d", e.Len(), want)
	}
	for i := int64(0); i < e.Len(); i += 1e7 {
		for _, p := range e.Item(i, nil) {
			if p.From%3 != 0 || p.From+p.Len > math.MaxInt32 || p.Len < 1 || p.Len > 3 {
				t.Fatalf("row %d: %+v", i, p)
			}
		}
	}
}

func BenchmarkLengths(b *testing.B) {
	const n = 1_000_000
	of := make([]int32, n)
	for i := range of {
		u := rng.New(5).Float64(uint64(i))
		of[i] = int32(20 + 2500*u*u*u)
	}
	for name, l := range map[string]Lengths{"bucket": {Of: of, Bucket: 256}, "tokens": {Of: of, Tokens: 16384}, "pack": {Of: of, Pack: 2048}} {
		b.Run("open/"+name, func(b *testing.B) {
			plan, err := New(n, Policy{Shuffle: Full, Lengths: l})
			if err != nil {
				b.Fatal(err)
			}
			for i := range b.N {
				plan.Epoch(int64(i))
			}
		})
		b.Run("walk/"+name, func(b *testing.B) {
			plan, _ := New(n, Policy{Shuffle: Full, Lengths: l})
			e := plan.Epoch(0)
			b.ReportAllocs()
			b.ResetTimer()
			var pieces []Piece
			for i := range b.N {
				pieces = e.Item(int64(i)%e.Len(), pieces[:0])
			}
		})
	}
}
