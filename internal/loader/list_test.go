package loader

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
)

func walkList(t testing.TB, l *Loader, list order.List, step int64) []full {
	t.Helper()
	p, err := l.PassOver(list, 1, step)
	if err != nil {
		t.Fatal(err)
	}
	return drain(t, l, p)
}

// A list gives its ids in its order, in batches of the Spec's size or cut as it
// says; a part of it, the same batches as the whole.
func TestLists(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	spec := g.spec(t)
	spec.Rank, spec.World = 1, 3 // a sampler decides alone
	l := open(t, s, spec)
	ids := []int64{40, 3, 3, 17, 0, 22, 5, 40, 9, 11}

	whole := walkList(t, l, order.List{IDs: ids}, 0)
	var got []int64
	for i, b := range whole {
		got = append(got, b.ids()...)
		if b.Step != int64(i) || b.Position != min(int64(3*i+3), 10) || slices.Contains(b.valid(), 0) {
			t.Errorf("batch %d: step %d, position %d, valid %v", i, b.Step, b.Position, b.valid())
		}
		for r, id := range b.ids() {
			if label := int64s(b.Columns["label"])[r]; label != (100+id)%5 {
				t.Errorf("sample %d has label %d", id, label)
			}
		}
	}
	if !slices.Equal(got, ids) {
		t.Errorf("ids %v", got)
	}
	for at := int64(3); at < 10; at += 3 {
		rest := walkList(t, l, order.List{IDs: ids[at:], Place: at, Item: at}, at/3)
		if !slices.Equal(texts(rest), texts(whole[at/3:])) {
			t.Errorf("from place %d: other batches", at)
		}
	}

	cuts := []int64{1, 4, 2, 3}
	batches := walkList(t, l, order.List{IDs: ids, Cuts: cuts}, 0)
	if len(batches) != 4 || !slices.Equal(batches[1].ids(), ids[1:5]) || batches[3].Rows != 3 || batches[1].Position != 2 {
		t.Errorf("cut: %v", texts(batches))
	}
	rest := walkList(t, l, order.List{IDs: ids[5:], Cuts: cuts[2:], Place: 5, Item: 2}, 2)
	if !slices.Equal(texts(rest), texts(batches[2:])) {
		t.Error("from batch 2 on: other batches")
	}
	large := walkList(t, l, order.List{IDs: slices.Repeat(ids, 5), Cuts: []int64{2, 47, 1}}, 0)
	if len(large) != 3 || large[1].Rows != 47 || !slices.Equal(large[1].ids(), slices.Repeat(ids, 5)[2:49]) {
		t.Errorf("a batch of 47 between small ones: %d batches", len(large))
	}
}

// The sums of a list's batches are those of its order: receipts of samplers add
// up too.
func TestListsAddUp(t *testing.T) {
	s := ground(t)
	l := open(t, s, newGrid(t).spec(t))
	list := order.List{IDs: []int64{5, 6, 7, 8, 5}, Place: 20, Item: 20}
	var sum order.Sum
	var n int64
	for _, b := range walkList(t, l, list, 0) {
		sum.Plus(b.Sum)
		n += b.Real
	}
	want, samples := list.Epoch(11, 1).Sum(20, 25)
	if sum != want || n != samples || n != 5 {
		t.Errorf("%d samples of sum %s, planned %d of %s", n, sum, samples, want)
	}
}

// Tails of a list's part are those of a whole epoch: what fills a batch up is
// taken from the part.
func TestListTails(t *testing.T) {
	s := ground(t)
	ids := []int64{1, 2, 3, 4, 5}
	for _, place := range []int64{0, 6} {
		list := order.List{IDs: ids, Place: place, Item: place}
		for tail, want := range map[order.Tail][]int64{order.Pad: ids, order.Fill: {1, 2, 3, 4, 5, 1}, order.Drop: {1, 2, 3}} {
			spec := newGrid(t).spec(t)
			spec.Order.Tail = tail
			var got []int64
			var valid []byte
			for _, b := range walkList(t, open(t, s, spec), list, 0) {
				got, valid = append(got, b.ids()...), append(valid, b.valid()...)
			}
			if !slices.Equal(got, want) || slices.Index(append(valid, 0), 0) != min(len(want), len(ids)) {
				t.Errorf("from place %d, tail %s: %v, valid %v; want %v", place, tail, got, valid, want)
			}
		}
	}
	spec := newGrid(t).spec(t)
	spec.Batch.Size, spec.Order.Tail = 64, order.Fill // more than the list has, several times
	if b := walkList(t, open(t, s, spec), order.List{IDs: ids, Place: 4, Item: 4}, 0); len(b) != 1 || b[0].Rows != 64 || b[0].ids()[63] != 4 {
		t.Errorf("a batch of 64 from 5 ids: %v", texts(b))
	}
}

// Impossible lists are rejected, and the loader continues to work.
func TestListsThatCanNotBe(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	l := open(t, s, g.spec(t))
	ids := []int64{1, 2, 3}
	for name, c := range map[string]struct {
		list order.List
		says string
	}{
		"id too large":      {order.List{IDs: []int64{1, gridTars}}, "sample 41 at place 1"},
		"id negative":       {order.List{IDs: []int64{-1}, Place: 7, Item: 7}, "sample -1 at place 7"},
		"an empty batch":    {order.List{IDs: ids, Cuts: []int64{2, 0, 1}}, "batch 1"},
		"a negative batch":  {order.List{IDs: ids, Cuts: []int64{2, -1, 2}}, "batch 1"},
		"too many ids":      {order.List{IDs: ids, Cuts: []int64{1, 1}}, "3 ids"},
		"too few ids":       {order.List{IDs: ids, Cuts: []int64{1, 1, 2}}, "3 ids"},
		"no batch":          {order.List{IDs: ids, Cuts: []int64{}}, "3 ids"},
		"sums overflow":     {order.List{IDs: ids, Cuts: []int64{1 << 62, 1 << 62, 1 << 62, 1<<62 + 3}}, "batch 0"},
		"negative place":    {order.List{IDs: ids, Place: -3, Item: -3}, "place -3"},
		"place is not item": {order.List{IDs: ids, Place: 3, Item: 1}, "place 3"},
		"negative epoch":    {order.List{IDs: ids}, "epoch"},
	} {
		t.Run(name, func(t *testing.T) {
			epoch := int64(0)
			if strings.HasSuffix(name, "epoch") {
				epoch = -1
			}
			p, err := l.PassOver(c.list, epoch, 0)
			if err == nil {
				p.Cancel()
			}
			if class := errs.Classes[errs.CodeOf(err)].Python; class != "ConfigError" && class != "StateError" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	for _, list := range []order.List{{}, {IDs: []int64{}, Place: 5, Item: 5}, {Cuts: []int64{}}, {Cuts: []int64{}, Place: 9, Item: 2}} {
		p, err := l.PassOver(list, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Next(context.Background(), 10*time.Second); !errors.Is(err, io.EOF) {
			t.Errorf("an empty list: %v", err)
		}
	}
	if n := len(walkList(t, l, order.List{IDs: ids}, 0)); n != 1 {
		t.Errorf("afterwards: %d batches", n)
	}
}

// Where lengths make the batches a sampler's list is refused, or cut as it says:
// nothing is lost without a word.
func TestListsAndLengths(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	ids := []int64{4, 8, 15, 16, 23}
	for how, says := range map[string]string{"pack": "pack", "tokens": "tokens", "tokens, at most 3": "tokens", "bucket": "bucket"} {
		spec, _ := g.byLength(g.spec(t), how)
		l := open(t, s, spec)
		p, err := l.PassOver(order.List{IDs: ids}, 0, 0)
		if err == nil {
			p.Cancel()
		}
		if errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", how, err)
		}
		if n := len(walkAll(t, l, 0, 0, 0)); n < 4 {
			t.Errorf("%s: %d batches afterwards", how, n)
		}
	}
	mixed := open(t, s, g.mixture(t))
	var got []int64
	for _, b := range walkList(t, mixed, order.List{IDs: []int64{83, 0, 30, 26}}, 0) {
		got = append(got, b.ids()...)
	}
	if !slices.Equal(got, []int64{83, 0, 30, 26}) {
		t.Errorf("over a mixture: %v", got)
	}
}
