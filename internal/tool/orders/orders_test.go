package orders

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/stream"
)

func synthetic(samples int64, size int) spec.Spec {
	return spec.Spec{
		Dataset: spec.Dataset{Format: "synthetic", Samples: samples, Shape: []int{1}},
		Order:   spec.Order{Shuffle: order.Full, Seed: 4}, Batch: spec.Batch{Size: size},
	}
}

func open(t interface{ Fatal(...any) }, spec spec.Spec) *Orders {
	o, err := Open(context.Background(), spec, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// byTokens is an order whose items are batches.
func byTokens(samples int64) spec.Spec {
	s := synthetic(samples, 0)
	var lengths []float64
	for i := range samples {
		lengths = append(lengths, float64(1+i*i%13))
	}
	s.Batch = spec.Batch{Tokens: 30, Window: 20, Lengths: spec.Lengths{Numbers: spec.Numbers{List: lengths}}}
	return s
}

// What the ranks are given adds up to the epoch: every sample once, padding
// apart, in the order of places where an item is a place.
func TestRanksAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.Int64Range(1, 200).Draw(t, "samples")
		world := rapid.IntRange(1, 7).Draw(t, "world")
		epoch := rapid.Int64Range(0, 5).Draw(t, "epoch")
		spec := synthetic(samples, rapid.IntRange(1, 9).Draw(t, "batch"))
		spec.Order.Tail = rapid.SampledFrom([]order.Tail{order.Pad, order.Fill}).Draw(t, "tail")
		grouped := rapid.Bool().Draw(t, "grouped")
		if grouped {
			spec = byTokens(samples)
		}
		spec.World = world
		var each [][]int64 // real ids of each rank
		steps := -1
		for rank := range world {
			spec.Rank = rank
			o := open(t, spec)
			var mine []int64
			n, last := 0, int64(0)
			if err := o.Walk(context.Background(), epoch, 0, 0, func(s *Step) error {
				if s.Step != int64(n) || s.Position < last || s.Rank != int64(rank) || s.World != int64(world) {
					t.Fatalf("%+v after step %d, place %d", s, n-1, last)
				}
				n, last = n+1, s.Position
				for i, id := range s.IDs {
					if s.Valid == nil || s.Valid[i] {
						mine = append(mine, id)
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if last != o.Epoch(epoch).Len() || steps >= 0 && steps != n {
				t.Fatalf("rank %d: %d steps to place %d, rank 0: %d", rank, n, last, steps)
			}
			steps = n
			each = append(each, mine)
			o.Close()
		}
		if !grouped {
			o := open(t, spec)
			for place := range samples {
				if got, want := each[place%int64(world)][place/int64(world)], o.Epoch(epoch).At(place); got != want {
					t.Fatalf("place %d holds %d, not %d", place, got, want)
				}
			}
			o.Close()
		}
		all := slices.Concat(each...)
		slices.Sort(all)
		if int64(len(all)) != samples || int64(len(slices.Compact(all))) != samples {
			t.Fatalf("%d samples of %d came, and some twice", len(all), samples)
		}
	})
}

func TestDigestIsTheSum(t *testing.T) {
	for name, spec := range map[string]spec.Spec{"places": synthetic(3*summed+17, 4), "batches": byTokens(500)} {
		o := open(t, spec)
		told := int64(0)
		d, err := o.Digest(t.Context(), 2, func(done, total int64) {
			if done <= told || done > total {
				t.Errorf("%s: told %d after %d of %d", name, done, told, total)
			}
			told = done
		})
		if err != nil {
			t.Fatal(err)
		}
		e := o.Epoch(2)
		sum, samples := e.Sum(0, e.Len())
		if d.Sum != sum || d.Samples != samples || d.Samples != o.Len() || d.Items != e.Len() || told != e.Len() {
			t.Errorf("%s: %+v, not %s of %d; told %d", name, d, sum, samples, told)
		}
		o.Close()
	}
}

func TestStops(t *testing.T) {
	o := open(t, synthetic(1000, 1))
	defer o.Close()
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := o.Walk(ctx, 0, 0, 0, func(*Step) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n != 3 {
		t.Errorf("%v after %d steps", err, n)
	}
	if _, err := o.Digest(ctx, 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	full := errors.New("the disk is full")
	if err := o.Walk(t.Context(), 0, 0, 0, func(*Step) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	for _, err := range []error{
		o.Walk(t.Context(), 0, 1000, 1, nil), o.Walk(t.Context(), -1, 0, 1, nil),
		func() error { _, err := o.Explain(0, -1); return err }(),
		func() error { _, err := o.Quality(-1); return err }(),
		func() error { _, err := o.Digest(t.Context(), -1, nil); return err }(),
	} {
		if errs.CodeOf(err) != errs.Config {
			t.Errorf("%v", err)
		}
	}
}

// Runs of samples that were split, and padding, are marked.
func TestStepText(t *testing.T) {
	pieces := []order.Piece{{Place: 0, Sample: 7}, {Place: 1, Sample: 8, From: 120, Len: 4}, {Place: 10, Sample: 7}, {Place: 11, Sample: 8, From: 120, Len: 4}}
	plan, err := order.New(10, order.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	s := &Step{Step: 3, World: 1}
	s.set(plan.Epoch(0), pieces)
	if got := string(s.AppendText(nil)); got != "7 8@120 (7) (8@120)\n" {
		t.Errorf("%q", got)
	}
	raw, err := json.Marshal(s)
	want := `{"epoch":0,"step":3,"position":0,"rank":0,"world_size":1,"ids":[7,8,7,8],"valid":[true,true,false,false],"from":[0,120,0,120]}`
	if err != nil || string(raw) != want {
		t.Errorf("%v: %s", err, raw)
	}
}

// The block shuffle that others are compared with is the one that a Spec has
// which says only that.
func TestUsualBlock(t *testing.T) {
	spec := synthetic(100, 4)
	spec.Order.Shuffle = order.BlockWise
	o := open(t, spec)
	defer o.Close()
	if got := o.Spec().Order; got.Streams != usualStreams || got.Window != usualWindow {
		t.Errorf("%+v", got)
	}
}

// What is said of an order fits what it is.
func TestAdvice(t *testing.T) {
	shards := make([]int64, 50)
	for i := range shards {
		shards[i] = 400
	}
	judge := func(p order.Policy) *Quality {
		q := &Quality{Samples: 20_000, Shards: len(shards), Batch: 64, Ahead: 320}
		name := string(p.Shuffle)
		for _, p := range []order.Policy{p, {Shuffle: order.Full}, {Shuffle: order.BlockWise, Block: order.Block{Sizes: shards, Streams: 8, Window: 200}}} {
			plan, err := order.New(20_000, p)
			if err != nil {
				t.Fatal(err)
			}
			q.Orders = append(q.Orders, q.judge(string(p.Shuffle), plan, shards))
		}
		q.Orders[0].Mine, q.Orders[0].Order = true, name
		q.advise()
		return q
	}
	for _, c := range []struct {
		policy order.Policy
		want   []string
		not    []string
	}{
		{order.Policy{Shuffle: order.None}, []string{"tells where", "samples of few shards"}, []string{"scattered"}},
		{order.Policy{Shuffle: order.Full}, []string{"does not tell", "a cluster of 8 nodes that fetches whole shards reads the data 8.0 times", "reads are scattered"}, []string{"few shards"}},
		{order.Policy{Shuffle: order.BlockWise, Block: order.Block{Sizes: shards, Streams: 1}}, []string{"tells where", "samples of few shards"}, []string{"scattered"}},
	} {
		q := judge(c.policy)
		all := strings.Join(q.Advice, "\n")
		for _, want := range c.want {
			if !strings.Contains(all, want) {
				t.Errorf("%s: nothing says %q:\n%s\n%+v", c.policy.Shuffle, want, all, q.Orders)
			}
		}
		for _, not := range c.not {
			if strings.Contains(all, not) {
				t.Errorf("%s: %q:\n%s", c.policy.Shuffle, not, all)
			}
		}
		var text bytes.Buffer
		if err := q.WriteText(&text); err != nil || !strings.Contains(text.String(), "- "+q.Advice[0]+"\n") {
			t.Errorf("%v: %s", err, text.String())
		}
	}
}

func TestVerdictText(t *testing.T) {
	o := open(t, synthetic(10, 2))
	defer o.Close()
	st := o.State(0, 0)
	part := func(epoch, from, to int64) stream.ReceiptPart {
		p := stream.ReceiptPart{Epoch: epoch, From: from, To: to, World: 1}
		p.Sum, p.Samples = o.Epoch(epoch).Sum(from, to)
		return p
	}
	for want, parts := range map[string][]stream.ReceiptPart{
		"nothing was received\n": nil,
		"epoch 0: items 0 to 10 of 10; 10 samples were received, and the plan has 10\nall that was received":            {part(0, 0, 6), part(0, 6, 10)},
		"epoch 0: items 0 to 4, 6 to 10 of 10; 8 samples were received, and the plan has 8\n":                           {part(0, 0, 4), part(0, 6, 10)},
		"an epoch before the last is not covered completely\n":                                                          {part(0, 0, 4), part(1, 0, 2)},
		"wrong: epoch 0: items 2 to 4 were delivered twice, to 1 and to 1 ranks\nthese receipts differ from the plan\n": {part(0, 0, 4), part(0, 2, 6)},
	} {
		v := o.Verify([]stream.Receipt{{Version: stream.ReceiptVersion, Dataset: st.Dataset, Seed: st.Seed, Order: st.Order, Parts: parts}})
		var text bytes.Buffer
		if err := WriteVerdict(&text, v); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%v: no %q in\n%s", err, want, text.String())
		}
	}
}

// To show an order takes no lanes, no readers and no memory for batches: nothing runs
// after Open, and a Spec is shown whose batches would not fit here.
func TestOpenStartsNothing(t *testing.T) {
	root := t.TempDir()
	for i := range 20 {
		dir := filepath.Join(root, "class"+strconv.Itoa(i%2))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)+".ppm"), []byte("P6 1 1 255\nrgb"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := spec.Spec{
		Dataset: spec.Dataset{Path: spec.Paths{root}}, Batch: spec.Batch{Size: 4}, Deliver: spec.Deliver{Memory: 1},
		Fields: []spec.Field{{Name: "image", Decode: "rgb", Transform: []transform.Op{{Name: "ToTensor"}}}, {Name: "label", Decode: "int"}},
	}
	before := runtime.NumGoroutine()
	o := open(t, s)
	defer o.Close()
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines more", now-before)
	}
	if e, err := o.Explain(0, 1); err != nil || len(e.Rows) != 4 || e.Rows[0].File == "" {
		t.Errorf("%+v, %v", e, err)
	}
}
