package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// gate is a source whose reads wait while it is shut.
type gate struct {
	source.Source
	mu   sync.Mutex
	open sync.Cond
	shut bool
}

func newGate(src source.Source) *gate {
	g := &gate{Source: src}
	g.open.L = &g.mu
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.open.Broadcast()
}

func (g *gate) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	g.mu.Lock()
	for g.shut {
		g.open.Wait()
	}
	g.mu.Unlock()
	return g.Source.ReadAt(ctx, obj, p, off)
}

// settled waits until so many batches are ready.
func settled(t *testing.T, l *Loader, ready int) {
	t.Helper()
	for range 4000 {
		if int(l.Stats().Ready) == ready {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%d batches are ready, want %d", l.Stats().Ready, ready)
}

// When an epoch ends the first batches of the next are there already: they come
// while nothing can be read any more. So they do where the order of an epoch is
// made by sorting.
func TestEpochsHaveNoSeam(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for name, spec := range g.all(t) {
		if strings.HasSuffix(name, "tokens, at most 3") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var gated *gate
			l := open(t, s, spec, Options{Wrap: func(src source.Source) source.Source { gated = newGate(src); return gated }})
			defer gated.set(false)
			want := [2][]string{texts(walkAll(t, l, 4, 0, 0)), texts(walkAll(t, l, 5, 0, 0))}
			first := texts(walkAll(t, l, 4, 0, 0))
			settled(t, l, spec.Deliver.Prefetch)
			gated.set(true)
			p, err := l.Pass(5, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Cancel()
			var got []string
			for range spec.Deliver.Prefetch {
				b, err := p.Next(context.Background(), 20*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, copyAll(l, b).text())
				b.Release()
			}
			gated.set(false)
			got = append(got, texts(drain(t, l, p))...)
			if !slices.Equal(first, want[0]) || !slices.Equal(got, want[1]) {
				t.Error("another stream")
			}
		})
	}
}

// What was made ready for the next epoch is let go when another pass is begun,
// and is there again when it is asked for.
func TestAnotherPassThanThatWhichIsReady(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for _, how := range []string{"", "tokens", "pack"} {
		spec, _ := g.byLength(g.spec(t), how)
		spec.Order.Shuffle = order.Full
		l := open(t, s, spec)
		var want [4][]string
		for e := range want {
			want[e] = texts(walkAll(t, l, int64(e), 0, 0))
		}
		walkAll(t, l, 0, 0, 0)
		settled(t, l, 3)
		for _, e := range []int64{3, 1, 0, 2} {
			if !slices.Equal(texts(walkAll(t, l, e, 0, 0)), want[e]) {
				t.Errorf("%q: epoch %d is another stream", how, e)
			}
		}
		settled(t, l, 3)
		position := l.Stride()
		if !slices.Equal(texts(walkAll(t, l, 3, position, 1)), want[3][1:]) {
			t.Errorf("%q: from step 1 of epoch 3: another stream", how)
		}
	}
}

// Two passes at once over every order, one given up in the middle, one over
// another epoch: none disturbs another.
func TestTwoPassesOfEveryOrder(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for name, spec := range g.all(t) {
		if strings.Contains(name, "tokens, at most 3") || strings.Contains(name, "bucket") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := open(t, s, spec)
			want := [2][]string{texts(walkAll(t, l, 0, 0, 0)), texts(walkAll(t, l, 1, 0, 0))}
			given, err := l.Pass(1, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if next, err := given.Next(context.Background(), 20*time.Second); err != nil {
				t.Fatal(err)
			} else {
				defer next.Release()
			}
			var wg sync.WaitGroup
			var got [2][]string
			for e := range got {
				p, err := l.Pass(int64(e), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					defer p.Cancel()
					for {
						b, err := p.Next(context.Background(), 20*time.Second)
						if err != nil {
							if !errors.Is(err, io.EOF) {
								t.Error(err)
							}
							return
						}
						got[e] = append(got[e], copyAll(l, b).text())
						b.Release()
						if len(got[e]) == 2 && e == 0 {
							given.Cancel()
						}
					}
				})
			}
			wg.Wait()
			if !slices.Equal(got[0], want[0]) || !slices.Equal(got[1], want[1]) {
				t.Error("passes side by side are not those one after the other")
			}
		})
	}
}

// Lanes, prefetch and little memory do not change a byte of any order.
func TestSettingsThatMustNotMatterToOrders(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for name, spec := range g.all(t) {
		if strings.HasSuffix(name, "bucket") || strings.HasSuffix(name, "tokens, at most 3") {
			continue
		}
		want := texts(walkAll(t, open(t, s, spec), 1, 0, 0))
		for _, change := range []func(*Spec){
			func(s *Spec) { s.Workers, s.Deliver.Prefetch = 1, 1 },
			func(s *Spec) { s.Workers, s.Deliver = 5, Deliver{Prefetch: 16, Memory: 96 << 10} },
		} {
			spec := spec
			change(&spec)
			if !slices.Equal(texts(walkAll(t, open(t, s, spec), 1, 0, 0)), want) {
				t.Errorf("%s, %d lanes, %+v: another stream", name, spec.Workers, spec.Deliver)
			}
		}
	}
}

// Loaders of every order, walked in part and closed, leave nothing.
func TestNothingLeaksOfAnyOrder(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := ground(t)
	i := 0
	for _, spec := range newGrid(t).all(t) {
		l, err := Open(context.Background(), s, spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.Pass(0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range i % 4 {
			b, err := p.Next(context.Background(), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		if i++; i%3 == 0 {
			p.Cancel()
		}
		l.Close()
		if _, err := l.Explain(0, 0); errs.CodeOf(err) != errs.Config {
			t.Errorf("a closed loader explains: %v", err)
		}
		waitQuiet(t, l)
	}
	s.Close()
}

// Epochs without a step, and without a whole one: no hang, equal steps on every
// rank, every tail.
func TestEpochsOfAlmostNothing(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for name, c := range map[string]struct {
		change func(*Spec)
		world  int
		steps  map[order.Tail]int64
		rows   map[order.Tail]int
	}{
		"fewer places than ranks": {func(s *Spec) { s.Order.NumSamples = 2 }, 3, map[order.Tail]int64{order.Pad: 1, order.Fill: 1, order.Drop: 0}, map[order.Tail]int{order.Pad: 1, order.Fill: 3}},
		"one place of seven":      {func(s *Spec) { s.Order.NumSamples, s.Order.Replacement = 1, new(true) }, 7, map[order.Tail]int64{order.Pad: 1, order.Fill: 1, order.Drop: 0}, map[order.Tail]int{order.Pad: 1, order.Fill: 3}},
		"two batches of three": {func(s *Spec) {
			s.Order.NumSamples, s.Order.Shuffle = 4, order.None
			s.Batch = BatchSpec{Lengths: Lengths{Field: "bin"}, Tokens: 44}
		}, 3, map[order.Tail]int64{order.Pad: 1, order.Fill: 1, order.Drop: 0}, nil},
		"one row of runs": {func(s *Spec) {
			s.Order.NumSamples, s.Order.Shuffle = 3, order.None
			s.Fields = s.Fields[1:]
			s.Batch = BatchSpec{Size: 2, Lengths: Lengths{Field: "bin"}, Pack: 100}
		}, 2, map[order.Tail]int64{order.Pad: 1, order.Fill: 1, order.Drop: 0}, nil},
		"a mixture of few": {func(s *Spec) {
			*s = g.mixture(t)
			s.Mix.Batches, s.Mix.Stop, s.Order.NumSamples = single, order.Repeat, 4
		}, 3, map[order.Tail]int64{order.Pad: 1, order.Fill: 1, order.Drop: 0}, nil},
	} {
		for tail, steps := range c.steps {
			t.Run(fmt.Sprintf("%s/%s", name, tail), func(t *testing.T) {
				spec := g.spec(t)
				c.change(&spec)
				spec.Order.Tail = tail
				var real, samples int64
				for _, l := range openRanks(t, s, spec, c.world) {
					n := l.Epoch(0).Len()
					for epoch := range int64(3) {
						batches := walkAll(t, l, epoch, 0, 0)
						if int64(len(batches)) != steps || l.Steps(epoch, 0) != steps {
							t.Errorf("epoch %d: %d steps, told %d, want %d", epoch, len(batches), l.Steps(epoch, 0), steps)
						}
						for _, b := range batches {
							if want := c.rows[tail]; want > 0 && b.Rows != want {
								t.Errorf("%d rows, want %d", b.Rows, want)
							}
							if epoch == 0 {
								real += b.Real
							}
						}
					}
					if rest := walkAll(t, l, 0, n, 0); len(rest) != 0 {
						t.Errorf("%d steps after the end", len(rest))
					}
					_, samples = l.Epoch(0).Sum(0, n)
				}
				if steps > 0 && real != samples {
					t.Errorf("%d samples that count, want %d", real, samples)
				}
			})
		}
	}
}

// If batches are cut by tokens, epochs differ in length: a state belongs to its own
// epoch.
func TestEpochsOfUnequalLength(t *testing.T) {
	s := ground(t)
	spec, _ := newGrid(t).byLength(newGrid(t).spec(t), "tokens")
	spec.Order.Shuffle = order.Full
	l := open(t, s, spec)
	short, long := int64(0), int64(0)
	for e := range int64(40) {
		if l.Epoch(e).Len() < l.Epoch(short).Len() {
			short = e
		}
		if l.Epoch(e).Len() > l.Epoch(long).Len() {
			long = e
		}
	}
	n, m := l.Epoch(short).Len(), l.Epoch(long).Len()
	if n == m {
		t.Fatalf("every epoch has %d batches", n)
	}
	if err := l.Check(saved(t, l, long, m)); err != nil {
		t.Error(err)
	}
	if err := l.Check(saved(t, l, short, m)); errs.CodeOf(err) != errs.State || !strings.Contains(err.Error(), fmt.Sprintf("which has %d places", n)) {
		t.Errorf("place %d of %d: %v", m, n, err)
	}
	if _, err := l.Pass(short, m, 0); errs.CodeOf(err) != errs.State {
		t.Errorf("a pass from there: %v", err)
	}
	for _, e := range []int64{short, long} {
		if got := int64(len(walkAll(t, l, e, 0, 0))); got != l.Epoch(e).Len() {
			t.Errorf("%d batches of %d", got, l.Epoch(e).Len())
		}
	}
}
