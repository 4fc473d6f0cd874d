package loader

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/stream"
)

// saved is a state as it comes back from a file.
func saved(t testing.TB, l *Loader, epoch, position int64) stream.State {
	t.Helper()
	raw := jsonOf(t, l.State(epoch, position))
	if len(raw) >= 1024 {
		t.Fatalf("a state of %d bytes: %s", len(raw), raw)
	}
	var st stream.State
	if err := json.Unmarshal(raw, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// A state saved at every step and restored in another loader gives all that
// followed, to the byte, whatever the order and however samples are put
// together.
func TestGoOnFromEveryStepOfEveryOrder(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for name, spec := range g.all(t) {
		t.Run(name, func(t *testing.T) {
			l, other := open(t, s, spec), open(t, s, spec)
			const epoch = 2
			whole := walkAll(t, l, epoch, 0, 0)
			if len(whole) < 4 {
				t.Fatalf("%d batches test nothing", len(whole))
			}
			want := texts(whole)
			for i, b := range whole {
				if testing.Short() && i%3 > 0 {
					continue // under the race detector
				}
				st := saved(t, l, epoch, b.Position)
				if err := other.Check(st); err != nil {
					t.Fatal(err)
				}
				rest := texts(walkAll(t, other, st.Epoch, st.Position, other.StepOf(st.Position)))
				if !slices.Equal(rest, want[i+1:]) {
					t.Fatalf("after step %d of %d: another stream\ngot  %.2000s\nwant %.2000s", i, len(whole), rest, want[i+1:])
				}
				if n := other.Steps(epoch, st.Position); int(n) != len(rest) {
					t.Fatalf("after step %d: %d steps are told, %d came", i, n, len(rest))
				}
			}
			if last := whole[len(whole)-1].Position; last != l.Epoch(epoch).Len() {
				t.Errorf("the epoch of %d items ends at %d", l.Epoch(epoch).Len(), last)
			}
		})
	}
}

// What one world left, another carries on with: over the real items the ranks
// put together are the undisturbed sequence, to the byte.
func TestGoOnInAnotherWorld(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for name, spec := range g.all(t) {
		t.Run(name, func(t *testing.T) {
			const epoch = 1
			one := open(t, s, inWorld(spec, 0, 1))
			n := one.Epoch(epoch).Len()
			want := dealt(one, [][]full{walkAll(t, one, epoch, 0, 0)})
			if int64(len(want)) != n {
				t.Fatalf("%d items of %d", len(want), n)
			}
			for _, world := range []int{2, 3} {
				if testing.Short() && world == 2 {
					continue
				}
				ranks := openRanks(t, s, spec, world)
				begin := []int64{0}
				for cut := one.Stride(); cut < n; cut += one.Stride() * 5 {
					begin = append(begin, cut)
				}
				begin = append(begin, n)
				for _, at := range begin {
					st := saved(t, one, epoch, at)
					var got [][]full
					for _, l := range ranks {
						if err := l.Check(st); err != nil {
							t.Fatal(err)
						}
						got = append(got, walkAll(t, l, st.Epoch, st.Position, 0))
						if len(got[0]) != len(got[len(got)-1]) {
							t.Fatalf("ranks have %d and %d steps", len(got[0]), len(got[len(got)-1]))
						}
					}
					if at == n {
						if len(got[0]) > 0 {
							t.Errorf("at the very end: %d steps", len(got[0]))
						}
						continue
					}
					all := dealt(ranks[0], got)
					if int64(len(all)) < n-at || !slices.Equal(all[:n-at], want[at:]) {
						t.Fatalf("world %d from item %d: another sequence", world, at)
					}
				}
			}
		})
	}
}
