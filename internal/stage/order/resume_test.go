package order_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// The worlds that runs are cut and taken up in.
func worlds() []int64 { return []int64{1, 2, 3, 4, 6, 8, 12, 16, 24, 48} }

func tails() []order.Tail { return []order.Tail{order.Pad, order.Fill, order.Drop} }

// run is one epoch's order, and what an undisturbed pass delivers.
type run struct {
	name   string
	n      int64
	policy order.Policy
	epoch  int64
	places int64
	want   [][]order.Piece // of each item
}

// open is what a process does that starts: nothing is kept from before.
func (r run) open(t testing.TB) order.Epoch { return open(t, r.n, r.policy).Epoch(r.epoch) }

func newRun(t testing.TB, name string, n int64, p order.Policy, epoch int64) run {
	r := run{name: fmt.Sprintf("%s over %d, epoch %d", name, n, epoch), n: n, policy: p, epoch: epoch}
	e := r.open(t)
	r.places = e.Places()
	for i := range e.Len() {
		r.want = append(r.want, e.Item(i, nil))
	}
	return r
}

// delivery is what the ranks of a world deliver, put together in turns: item
// i*World+r of a step is the i-th of rank r.
type delivery struct {
	items  []span // of pieces, in the order of turns
	pieces []order.Piece
	steps  []int // where each step's items begin
}

type span struct{ from, to int }

func (d *delivery) item(i int) []order.Piece { return d.pieces[d.items[i].from:d.items[i].to] }

// run adds the steps [from, to) of a pass, each rank for itself.
func (d *delivery) run(e order.Epoch, s order.Slice, from, to int64) {
	for step := from; step < to; step++ {
		begin := len(d.items)
		d.steps = append(d.steps, begin)
		rows := s.Rows(step)
		d.items = slices.Grow(d.items, int(rows*s.World))[:begin+int(rows*s.World)]
		for rank := range s.World {
			s.Rank = rank
			for i := range rows {
				at := len(d.pieces)
				d.pieces = e.Item(s.Place(step, i), d.pieces)
				d.items[begin+int(i*s.World+rank)] = span{at, len(d.pieces)}
			}
		}
	}
}

// check compares what was delivered of an epoch from its beginning on with the
// undisturbed order: the same items, all of them under Pad and Fill, and then
// padding, in the last step only, which repeats the epoch's first.
func (d *delivery) check(t *testing.T, r run, tail order.Tail, what fmt.Stringer) {
	t.Helper()
	n := len(r.want)
	for i := range d.items {
		got := d.item(i)
		if i < n {
			if !slices.Equal(got, r.want[i]) {
				t.Fatalf("%v: item %d is %v, undisturbed %v", what, i, got, r.want[i])
			}
			continue
		}
		if tail == order.Drop || i < d.steps[len(d.steps)-1] {
			t.Fatalf("%v: item %d of %d", what, i, n)
		}
		for k, p := range r.want[i%n] {
			if got[k].Sample != p.Sample || got[k].Place < r.places {
				t.Fatalf("%v: padding %d is %v, and item %d is %v", what, i, got, i%n, r.want[i%n])
			}
		}
	}
	if tail != order.Drop && len(d.items) < n {
		t.Fatalf("%v: %d of %d items", what, len(d.items), n)
	}
}

// cut is a run that world A begins, and world B goes on with.
type cut struct {
	run        string
	tail       order.Tail
	worldA     int64
	batchA     int64
	steps      int64 // of A
	worldB     int64
	batchB     int64
	start      int64 // of B
	sameGlobal bool
}

func (c cut) String() string {
	return fmt.Sprintf("%s, %s: %d steps of %d x %d, then %d x %d from %d", c.run, c.tail, c.steps, c.worldA, c.batchA, c.worldB, c.batchB, c.start)
}

// 100,000 resume points: every ordered pair of worlds, 1,000 cuts each, over
// all policies, sizes, batches and tails in turn. What both worlds deliver,
// put together, is what an undisturbed run delivers.
func TestResumePoints(t *testing.T) {
	cuts := 1000 / slow
	if testing.Short() {
		cuts /= 10
	}
	runs := manyRuns(t)
	points := 0
	var d delivery
	for a, worldA := range worlds() {
		for b, worldB := range worlds() {
			for c := range cuts {
				key := rng.New(uint64(a)).With(uint64(b)).With(uint64(c))
				r := runs[key.Intn(0, int64(len(runs)))]
				cutAndGoOn(t, r, cut{
					run: r.name, tail: tails()[c%3], worldA: worldA, worldB: worldB, sameGlobal: c%2 == 0,
				}, &d, key)
				points++
			}
		}
	}
	t.Logf("%d resume points over %d orders", points, len(runs))
}

// cutAndGoOn chooses what c leaves open, and uses d's memory.
func cutAndGoOn(t *testing.T, r run, c cut, d *delivery, key rng.Key) {
	c.batchA, c.batchB = 1+key.Intn(1, 5), 1+key.Intn(2, 5)
	if c.sameGlobal {
		global := lcm(c.worldA, c.worldB) * (1 + key.Intn(1, 2))
		c.batchA, c.batchB = global/c.worldA, global/c.worldB
	}
	n := int64(len(r.want))
	one := order.Slice{N: n, Batch: c.batchA, World: c.worldA, Tail: c.tail}
	c.steps = key.Intn(3, one.Steps()+1)
	if c.steps > 0 {
		c.start = one.After(c.steps - 1)
	}
	two := order.Slice{N: n, Start: c.start, Batch: c.batchB, World: c.worldB, Tail: c.tail}
	d.items, d.pieces, d.steps = d.items[:0], d.pieces[:0], d.steps[:0]
	d.run(r.open(t), one, 0, c.steps)
	if c.start < n && int64(len(d.items)) != c.start {
		t.Fatalf("%v: A delivered %d items", c, len(d.items))
	}
	d.items = d.items[:c.start] // A's padding, if it came to the end
	second := len(d.steps)
	d.run(r.open(t), two, 0, two.Steps())
	d.check(t, r, c.tail, c)
	if left := n - c.start; c.tail == order.Drop && int64(len(d.items)) != n-left%(c.worldB*c.batchB) {
		t.Fatalf("%v: %d of %d items", c, len(d.items), n)
	}
	if c.sameGlobal {
		for k, begin := range d.steps[second:] {
			if undisturbed := (c.steps + int64(k)) * c.worldA * c.batchA; int64(begin) != undisturbed {
				t.Fatalf("%v: global batch %d begins at %d, undisturbed at %d", c, k, begin, undisturbed)
			}
		}
	}
}

func lcm(a, b int64) int64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// chain is the position of a chain of restarts.
type chain struct {
	run      string
	tail     order.Tail
	restarts int
	slice    order.Slice
}

func (c chain) String() string {
	return fmt.Sprintf("%s, %s, restart %d: %+v", c.run, c.tail, c.restarts, c.slice)
}

// 400 restarts in a row, each in another world with another batch, through as
// many epochs as that takes.
func TestChainsOfRestarts(t *testing.T) {
	const restarts = 400
	for i, p := range policies(700) {
		if i%slow != 0 {
			continue
		}
		for _, tail := range tails() {
			key := rng.New(uint64(i))
			c := chain{tail: tail}
			for epoch := int64(0); c.restarts < restarts; epoch++ {
				r := newRun(t, p.name, p.n, p.policy, epoch)
				c.run = r.name
				c.pass(t, r, key.With(uint64(epoch)))
			}
		}
	}
}

// pass is one epoch, cut into pieces of one to three steps.
func (c *chain) pass(t *testing.T, r run, key rng.Key) {
	var d delivery
	n := int64(len(r.want))
	for k := uint64(0); ; k += 3 {
		world := worlds()[key.Intn(k, int64(len(worlds())))]
		c.slice = order.Slice{N: n, Start: int64(len(d.items)), World: world, Batch: 1 + key.Intn(k+1, 3), Tail: c.tail}
		steps := c.slice.Steps()
		if steps == 0 {
			break
		}
		steps = min(steps, 1+key.Intn(k+2, 3))
		d.run(r.open(t), c.slice, 0, steps)
		c.restarts++
		if after := c.slice.After(steps - 1); after == n {
			break
		} else if after != int64(len(d.items)) {
			t.Fatalf("%v: after %d steps comes place %d, and %d were delivered", c, steps, after, len(d.items))
		}
	}
	d.check(t, r, c.tail, c)
}

// dealt deals places the slow way.
func dealt(s order.Slice) [][]int64 {
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
	case order.Pad:
		pad(s.World)
	case order.Fill:
		pad(s.World * s.Batch)
	case order.Drop:
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
		s := order.Slice{
			N:     rapid.Int64Range(1, 300).Draw(t, "n"),
			Batch: rapid.Int64Range(1, 17).Draw(t, "batch"),
			World: world,
			Rank:  rapid.Int64Range(0, world-1).Draw(t, "rank"),
			Tail:  rapid.SampledFrom(tails()).Draw(t, "tail"),
		}
		s.Start = rapid.Int64Range(0, s.N).Draw(t, "start")
		want := dealt(s)
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
