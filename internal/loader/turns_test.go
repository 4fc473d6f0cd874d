package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// turns is a worker that iterates a dataset: its batch i is "worker:i", repeated i times,
// and what it says of it is how many batches it has given.
func (h *hand) turns(kind byte, b []byte) bool {
	switch kind {
	case 15:
		pass, after, told := le.Uint64(b), le.Uint64(b[16:]), b[28:]
		if len(told) > 0 && string(told) != fmt.Sprintf("%d after %d", h.place, after) {
			h.t.Errorf("worker %d begins after %d batches with %q", h.place, after, told)
		}
		if len(told) == 0 {
			after = 0
		}
		h.walks[pass] = after
	case 16:
		id, pass, number := le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
		next, begun := h.walks[pass]
		if !begun || next > number {
			h.t.Errorf("batch %d of pass %d is asked of worker %d, which is at %d (%v)", number, pass, h.place, next, begun)
		}
		h.made.Add(int64(number - next))
		h.walks[pass] = number + 1
		copy(h.page, b[:8])
		le.PutUint32(h.page[8:], 1)
		time.Sleep(h.pause)
		if h.ends(int64(number)) {
			h.mu.Lock()
			h.hands = slices.DeleteFunc(h.hands, func(o *hand) bool { return o == h }) // another one gets its place
			h.mu.Unlock()
			return false
		}
		le.PutUint32(h.page[8:], 0)
		if h.bad(int64(number)) {
			h.send(3, id, uint64(1e5), uint32(1), uint32(1<<32-1), []byte{1}, uint32(len(wrong)), wrong)
			return true
		}
		if number >= h.batches(h.place) {
			h.send(8, id)
			return true
		}
		h.told[id] = fmt.Appendf(nil, "%d after %d", h.place, number+1)
		h.kept[fmt.Sprint(id)] = bytes.Repeat(fmt.Appendf(nil, "%d:%d ", h.place, number), int(number)+1)
		h.send(4, id, uint64(len(h.kept[fmt.Sprint(id)])))
	case 17:
		delete(h.walks, le.Uint64(b))
	}
	return true
}

func openTurns(t testing.TB, workers, prefetch int, batches func(place int) uint64) (*Loader, *staff) {
	t.Helper()
	spec := Spec{
		Dataset: Dataset{Format: "python", Samples: 1 << 53, Digest: "turns"},
		Batch:   BatchSpec{Size: 1}, Order: Order{Shuffle: order.None}, Deliver: Deliver{Prefetch: prefetch},
	}
	l, s := openCrew(t, spec, crew.Options{Workers: workers, Whole: true, Turns: true, Iterates: true})
	s.batches = batches
	return l, s
}

// turnsWalk takes batches until the pass ends, or so many of them; "" for a step out of
// order.
func turnsWalk(t testing.TB, p *Pass, step int64, most int) (out []string, at int64, err error) {
	t.Helper()
	for len(out) < most {
		b, err := p.Next(context.Background(), time.Minute)
		if errors.Is(err, io.EOF) {
			return out, at, nil
		}
		if err != nil {
			return out, at, err
		}
		col := b.Columns[0]
		word, _, _ := bytes.Cut(b.Slot.Mem[col.Data:col.Data+int64(col.Shape[0])], []byte(" "))
		if b.Step != step || b.Rows != 3 || b.Real != 3 || len(b.Structure) == 0 {
			t.Fatalf("%+v, want step %d", b, step)
		}
		out, at = append(out, string(word)), b.Position
		step++
		b.Release()
	}
	return out, at, nil
}

// turnsWanted is what comes from workers with so many batches each.
func turnsWanted(workers int, batches func(place int) uint64) (out []string) {
	for round, more := uint64(0), true; more; round++ {
		more = false
		for place := range workers {
			if round < batches(place) {
				out, more = append(out, fmt.Sprintf("%d:%d", place, round)), true
			}
		}
	}
	return out
}

// Batches come from the workers in turn, and workers that have ended are left out, whoever
// dies meanwhile, and wherever the pass begins.
func TestWorkersThatIterate(t *testing.T) {
	for workers := 1; workers <= 5; workers++ {
		for name, batches := range map[string]func(int) uint64{
			"equal":  func(int) uint64 { return 4 },
			"none":   func(int) uint64 { return 0 },
			"uneven": func(place int) uint64 { return uint64(place * place * 3) },
			"first":  func(place int) uint64 { return uint64(max(0, 9-4*place)) },
		} {
			t.Run(fmt.Sprintf("%d/%s", workers, name), func(t *testing.T) {
				l, s := openTurns(t, workers, 2*workers, batches)
				s.pause = 50 * time.Microsecond
				s.hire(workers)
				defer s.replace()()
				want := turnsWanted(workers, batches)
				for cut := 0; cut <= len(want); cut += max(1, len(want)/5) {
					p, err := l.Pass(1, 0, 0)
					if err != nil {
						t.Fatal(err)
					}
					first, at, err := turnsWalk(t, p, 0, cut)
					if err != nil {
						t.Fatal(err)
					}
					if cut%2 == 1 {
						s.fire(cut)
					}
					rest, _, err := turnsWalk(t, p, int64(cut), len(want)+1)
					if got := append(slices.Clone(first), rest...); err != nil || !slices.Equal(got, want) {
						t.Fatalf("%v: %v, want %v", err, got, want)
					}
					if p, err = l.Pass(1, at, int64(cut)); err != nil {
						t.Fatal(err)
					}
					if again, _, err := turnsWalk(t, p, int64(cut), len(want)+1); err != nil || !slices.Equal(again, rest) {
						t.Fatalf("from %d, %v: %v, want %v", at, err, again, rest)
					}
				}
			})
		}
	}
}

// A worker that replaces one begins where the last batch ended that was made.
func TestWorkersThatIterateBeginWhereTheyWere(t *testing.T) {
	l, s := openTurns(t, 1, 1, func(int) uint64 { return 50 })
	s.hire(1)
	p, err := l.Pass(0, 20, 20, crew.Point{After: 18, Told: []byte("0 after 18")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	if _, _, err := turnsWalk(t, p, 20, 10); err != nil || s.made.Load() != 2 {
		t.Fatalf("%v; %d batches were made again", err, s.made.Load())
	}
	s.fire(0)
	s.hire(1)
	if _, _, err := turnsWalk(t, p, 30, 10); err != nil || s.made.Load() > 3 {
		t.Fatalf("%v; %d batches were made again", err, s.made.Load())
	}
}

// What a worker's code raises, and two deaths at one batch, end the pass, and are not bad
// samples.
func TestWorkersThatIterateAndFail(t *testing.T) {
	for name, fails := range map[string]func(*staff){
		"raises": func(s *staff) { s.bad = func(n int64) bool { return n == 3 } },
		"dies":   func(s *staff) { s.ends = func(n int64) bool { return n == 3 } },
	} {
		t.Run(name, func(t *testing.T) {
			l, s := openTurns(t, 2, 4, func(int) uint64 { return 9 })
			fails(s)
			s.hire(2)
			defer s.replace()()
			p, err := l.Pass(0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := turnsWalk(t, p, 0, 99)
			e := errs.From(err)
			if len(got) != 6 || e.Code != errs.Damaged || e.Where.Moment == nil || e.Where.Step != 6 || e.Where.Sample.Or(-1) >= 0 {
				t.Errorf("%d batches, %+v", len(got), e)
			}
		})
	}
}

// Batches for which there is no room now are asked for again.
func TestWorkersThatIterateInLittleMemory(t *testing.T) {
	spec := Spec{
		Dataset: Dataset{Format: "python", Samples: 1 << 53, Digest: "turns"},
		Batch:   BatchSpec{Size: 1}, Order: Order{Shuffle: order.None}, Deliver: Deliver{Prefetch: 9, Memory: 48 << 10},
	}
	l, s := openCrew(t, spec, crew.Options{Workers: 3, Whole: true, Turns: true, Iterates: true})
	s.batches = func(int) uint64 { return 900 }
	s.hire(3)
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	want := turnsWanted(3, s.batches)
	if got, _, err := turnsWalk(t, p, 0, 1e6); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %d batches, want %d", err, len(got), len(want))
	}
}
