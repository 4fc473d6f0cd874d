package loader

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// refused returns the error of an invalid Spec.
func refused(t *testing.T, s *Shared, spec Spec) *errs.Error {
	t.Helper()
	l, err := Open(context.Background(), s, spec, Options{})
	if err == nil {
		l.Close()
		t.Fatal("it opens")
	}
	return errs.From(err)
}

// Every problem of order, mix and batch is told in words, before anything is
// read.
func TestOrdersThatCanNotBe(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	type change = func(*Spec)
	for name, c := range map[string]struct {
		change change
		says   []string
	}{
		"shuffle":           {func(s *Spec) { s.Order.Shuffle = "ful" }, []string{`shuffle is "ful"`, "none, full, block, window"}},
		"tail":              {func(s *Spec) { s.Order.Tail = "cut" }, []string{`tail is "cut"`}},
		"negative window":   {func(s *Spec) { s.Order.Window = -1 }, []string{"window -1", "none can be negative"}},
		"negative num":      {func(s *Spec) { s.Order.NumSamples = -4 }, []string{"num_samples -4"}},
		"streams alone":     {func(s *Spec) { s.Order.Streams = 4 }, []string{"streams need shuffle block"}},
		"window alone":      {func(s *Spec) { s.Order.Window = 100 }, []string{"window"}},
		"window and full":   {func(s *Spec) { s.Order.Shuffle, s.Order.Window = order.Full, 100 }, []string{"window"}},
		"window of one":     {func(s *Spec) { s.Order.Shuffle, s.Order.Window = order.WindowAlone, 1 }, []string{"window"}},
		"two weights":       {func(s *Spec) { s.Order.Weights, s.Order.Balanced = weightsOf(gridTars), true }, []string{"keep one"}},
		"too few weights":   {func(s *Spec) { s.Order.Weights = weightsOf(7) }, []string{"7 weights", "41"}},
		"no weights":        {func(s *Spec) { s.Order.Weights = Numbers{List: []float64{}} }, []string{"0 weights", "41"}},
		"negative weight":   {func(s *Spec) { s.Order.Weights = weightsOf(41); s.Order.Weights.List[9] = -1 }, []string{"9", "-1"}},
		"weight is NaN":     {func(s *Spec) { s.Order.Weights = weightsOf(41); s.Order.Weights.List[9] = math.NaN() }, []string{"9", "NaN"}},
		"all weights zero":  {func(s *Spec) { s.Order.Weights = Numbers{List: make([]float64, 41)} }, []string{"0"}},
		"num without again": {func(s *Spec) { s.Order.NumSamples = 42 }, []string{"42", "41"}},
		"weighted num": {func(s *Spec) {
			s.Order.Weights, s.Order.Replacement, s.Order.NumSamples = weightsOf(41), new(false), 40
		}, []string{"40"}},
		"balanced shards":   {func(s *Spec) { s.Order.Balanced = true }, []string{"balanced needs the class"}},
		"negative batch":    {func(s *Spec) { s.Batch.Size = -2 }, []string{"batch.size is -2"}},
		"large batch":       {func(s *Spec) { s.Batch.Size = 1<<20 + 1 }, []string{"batch.size is 1048577"}},
		"negative global":   {func(s *Spec) { s.Batch = BatchSpec{GlobalSize: -6} }, []string{"batch.global_size is -6"}},
		"global in 4":       {func(s *Spec) { s.Batch, s.World = BatchSpec{GlobalSize: 6}, 4 }, []string{"6 cannot be divided over 4 ranks", "1, 2, 3, 6"}},
		"global in many":    {func(s *Spec) { s.Batch, s.World = BatchSpec{GlobalSize: math.MaxInt}, 4 }, []string{"batch.global_size is 9223372036854775807"}},
		"both sizes":        {func(s *Spec) { s.Batch = BatchSpec{Size: 4, GlobalSize: 6} }, []string{"keep one"}},
		"global and tokens": {func(s *Spec) { s.Batch = BatchSpec{GlobalSize: 6, Tokens: 60, Lengths: lengthsOf(upTo(41)...)} }, []string{"keep one"}},
		"negative tokens":   {func(s *Spec) { s.Batch.Tokens = -1 }, []string{"tokens -1"}},
		"bucket and pack":   {func(s *Spec) { s.Batch.Bucket, s.Batch.Pack, s.Batch.Lengths = 4, 9, lengthsOf(upTo(41)...) }, []string{"exclude each other"}},
		"lengths alone":     {func(s *Spec) { s.Batch.Lengths = lengthsOf(upTo(41)...) }, []string{"lengths are used by bucket, tokens and pack"}},
		"bucket alone":      {func(s *Spec) { s.Batch.Bucket = 4 }, []string{"need lengths"}},
		"long alone":        {func(s *Spec) { s.Batch.Bucket, s.Batch.Lengths, s.Batch.Long = 4, lengthsOf(upTo(41)...), order.Split }, []string{"only pack uses it"}},
		"no rule for long":  {func(s *Spec) { s.Batch.Pack, s.Batch.Lengths, s.Batch.Long = 4, Lengths{Field: "bin"}, "cut" }, []string{"cut", "split", "truncate"}},
		"half a length": {func(s *Spec) {
			s.Batch.Bucket, s.Batch.Lengths = 4, lengthsOf(upTo(41)...)
			s.Batch.Lengths.List[3] = 1.5
		}, []string{"length 3 is 1.5"}},
		"negative length": {func(s *Spec) {
			s.Batch.Bucket, s.Batch.Lengths = 4, lengthsOf(upTo(41)...)
			s.Batch.Lengths.List[3] = -1
		}, []string{"length 3 is -1"}},
		"beyond the budget":  {func(s *Spec) { s.Batch.Tokens, s.Batch.Lengths = 4, lengthsOf(upTo(41)...) }, []string{"4 tokens"}},
		"batch window alone": {func(s *Spec) { s.Batch.Window = 50 }, []string{"window"}},
		"mix of one":         {func(s *Spec) { s.Mix.Stop = order.Repeat }, []string{"mix needs a list of datasets"}},
		"weight of one":      {func(s *Spec) { s.Dataset.Weight = 2 }, []string{"members of a mixture"}},
		"an empty list":      {func(s *Spec) { s.Dataset = Dataset{Mixed: []Dataset{}} }, []string{"empty list"}},
		"no such format":     {func(s *Spec) { s.Dataset.Format = "zip" }, []string{`format is "zip"`}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := g.spec(t)
			c.change(&spec)
			e := refused(t, s, spec)
			if errs.Classes[e.Code].Python != "ConfigError" {
				t.Errorf("code %s: %v", e.Code, e)
			}
			for _, word := range c.says {
				if !strings.Contains(e.Error(), word) {
					t.Errorf("%q is not said in: %v", word, e)
				}
			}
		})
	}
}

func TestMixturesThatCanNotBe(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for name, c := range map[string]struct {
		change func(*Spec)
		says   []string
	}{
		"stop":               {func(s *Spec) { s.Mix.Stop = "never" }, []string{`mix.stop is "never"`}},
		"batches":            {func(s *Spec) { s.Mix.Batches = "pure" }, []string{`mix.batches is "pure"`}},
		"num without repeat": {func(s *Spec) { s.Order.NumSamples = 9 }, []string{"num_samples needs mix.stop repeat"}},
		"block over all":     {func(s *Spec) { s.Order.Shuffle = order.BlockWise }, []string{"give every member of the mixture its own shuffle"}},
		"weights twice":      {func(s *Spec) { s.Mix.Schedule = []Stage{{Place: 0, Weights: []float64{1, 1, 1}}} }, []string{"keep one"}},
		"negative weight":    {func(s *Spec) { s.Dataset.Mixed[1].Weight = -1 }, []string{"-1"}},
		"weight is NaN":      {func(s *Spec) { s.Dataset.Mixed[1].Weight = math.NaN() }, []string{"NaN"}},
		"schedule too short": {func(s *Spec) { unweighted(s); s.Mix.Schedule = []Stage{{Place: 0, Weights: []float64{1, 1}}} }, []string{"2", "3"}},
		"schedule begins":    {func(s *Spec) { unweighted(s); s.Mix.Schedule = []Stage{{Place: 5, Weights: []float64{1, 1, 1}}} }, []string{"5"}},
		"empty schedule":     {func(s *Spec) { unweighted(s); s.Mix.Schedule = []Stage{} }, []string{"weights"}},
		"linear alone":       {func(s *Spec) { s.Mix.Linear = true }, []string{"linear"}},
		"sample weights":     {func(s *Spec) { s.Order.Weights = weightsOf(84) }, []string{"a mixture has the weights of its members"}},
		"member's shuffle":   {func(s *Spec) { s.Dataset.Mixed[0].Shuffle = "ful" }, []string{"ful"}},
		"member's format":    {func(s *Spec) { s.Dataset.Mixed[0].Format = "zip" }, []string{`format is "zip"`}},
		"no path":            {func(s *Spec) { s.Dataset.Mixed[2].Path = nil }, []string{"dataset.path is missing"}},
		"nested":             {func(s *Spec) { s.Dataset.Mixed[2] = Dataset{Mixed: s.Dataset.Mixed[:1]} }, []string{"mixtures do not nest"}},
		"not there":          {func(s *Spec) { s.Dataset.Mixed[2].Path = Paths{"/nowhere/at/all"} }, []string{"dataset 2 of the mixture", "/nowhere"}},
		"a missing field":    {func(s *Spec) { s.Dataset.Mixed[1].Fields[0].From = "png" }, []string{"png"}},
		"other columns":      {func(s *Spec) { s.Dataset.Mixed[1].Fields = s.Dataset.Mixed[1].Fields[:1] }, []string{"dataset 1 of the mixture gives", "same columns"}},
		"another size": {func(s *Spec) {
			s.Dataset.Mixed[1].Fields = slices.Clone(s.Dataset.Mixed[1].Fields)
			s.Dataset.Mixed[1].Fields[0].Transform = ops(t, `[{"op":"Resize","size":[8,8]}]`)
		}, []string{"[8 8 3]", "[4 5 3]"}},
		"another kind": {func(s *Spec) {
			s.Dataset.Mixed = s.Dataset.Mixed[1:]
			s.Dataset.Mixed[0].Fields, s.Dataset.Mixed[1].Fields = []Field{{Name: "bin"}}, []Field{{Name: "bin", Decode: "text"}}
		}, []string{"bytes", "text", "same columns"}},
		"another layout": {func(s *Spec) {
			float := ops(t, `[{"op":"ToTensor"}]`)
			s.Dataset.Mixed = s.Dataset.Mixed[1:]
			s.Dataset.Mixed[0].Fields = []Field{{Name: "image", From: "ppm", Decode: "rgb", Transform: float}}
			s.Dataset.Mixed[1].Fields = []Field{{Name: "image", From: "ppm", Decode: "rgb", Transform: float, Layout: "nhwc"}}
		}, []string{"hwc", "same columns"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := g.mixture(t)
			c.change(&spec)
			e := refused(t, s, spec)
			for _, word := range c.says {
				if !strings.Contains(e.Error(), word) {
					t.Errorf("%q is not said in: %v", word, e)
				}
			}
		})
	}
}

func unweighted(s *Spec) {
	for i := range s.Dataset.Mixed {
		s.Dataset.Mixed[i].Weight = 0
	}
}

// All that is wrong comes in one error.
func TestOrderProblemsComeAtOnce(t *testing.T) {
	s := ground(t)
	spec := newGrid(t).mixture(t)
	spec.Order.Shuffle, spec.Order.Tail, spec.Order.Block = "ful", "cut", -1
	spec.Batch = BatchSpec{GlobalSize: 7, Bucket: 2, Tokens: 3}
	spec.Mix = Mix{Stop: "never", Batches: "pure"}
	spec.World = 4
	spec.Dataset.Mixed[0].Path = Paths{"/nowhere/at/all"}
	e := refused(t, s, spec)
	for _, word := range []string{`"ful"`, `"cut"`, "block is -1", "7 cannot be divided over 4", "exclude each other", `"never"`, `"pure"`, "/nowhere"} {
		if !strings.Contains(e.Error(), word) {
			t.Errorf("%q is not said in: %v", word, e)
		}
	}
}

// A Spec goes through JSON unchanged, lists of datasets and numbers too.
func TestSpecsAsJSON(t *testing.T) {
	g := newGrid(t)
	for name, spec := range g.all(t) {
		var back Spec
		raw := jsonOf(t, spec)
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if again := jsonOf(t, back); string(again) != string(raw) {
			t.Errorf("%s: %s became %s", name, raw, again)
		}
	}
	if text := string(jsonOf(t, Spec{Dataset: Dataset{Path: Paths{"x"}}, Order: Order{Seed: 1}})); strings.Contains(text, "null") {
		t.Errorf("what is not set is written: %s", text)
	}
}

// One global batch is the same samples whatever the world, and worlds that do
// not divide it are told those that do.
func TestGlobalBatches(t *testing.T) {
	s := ground(t)
	spec := newGrid(t).spec(t)
	spec.Batch, spec.Order.Shuffle = BatchSpec{GlobalSize: 6}, order.Full
	batches := func(world int) (out [][]int64) {
		for rank, l := range openRanks(t, s, spec, world) {
			for step, b := range walkAll(t, l, 0, 0, 0) {
				if len(out) <= step {
					out = append(out, make([]int64, b.Rows*world))
				}
				for r, id := range b.ids() {
					out[step][r*world+rank] = id
				}
			}
		}
		return out
	}
	want := batches(1)
	for _, world := range []int{2, 3, 6} {
		got := batches(world)
		for step := range len(want) - 1 { // the last has the world's own padding
			if !slices.Equal(got[step], want[step]) {
				t.Errorf("world %d, step %d: %v, want %v", world, step, got[step], want[step])
			}
		}
		if len(got) != len(want) {
			t.Errorf("world %d: %d steps, want %d", world, len(got), len(want))
		}
	}
	for world, says := range map[int]string{4: "are 1, 2, 3, 6", 5: "are 1, 2, 3, 6", 7: "are 1, 2, 3, 6"} {
		if e := refused(t, s, inWorld(spec, 0, world)); !strings.Contains(e.Error(), says) {
			t.Errorf("world %d: %v", world, e)
		}
	}
	spec.Batch.GlobalSize = 55440 // 120 divisors: the nearest are told
	if e := refused(t, s, inWorld(spec, 0, 97)); !strings.Contains(e.Error(), ", 90, 99, ") || len(e.Error()) > 300 {
		t.Errorf("%v", e)
	}
}
