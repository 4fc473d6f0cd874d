package loader

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// limitTo is as if the machine had little memory left.
func (s *Shared) limitTo(bytes int64) {
	s.mu.Lock()
	s.auto = bytes
	s.mu.Unlock()
}

// Loaders without a limit of their own share one: however many there are, however
// far ahead they would read, and whichever is walked.
func TestLoadersShareTheirMemory(t *testing.T) {
	s := ground(t)
	spec := photoSpec(t, photos(t, 40))
	spec.Deliver.Prefetch = 64
	own := spec
	own.Deliver.Memory = 1 << 20
	var loaders []*Loader
	for range 3 {
		loaders = append(loaders, open(t, s, spec))
	}
	alone := open(t, s, own)
	limit := 12 * loaders[0].slotBytes
	s.limitTo(limit)
	want := digest(walk(t, alone, 0, 0, 0))

	passes := make([]*Pass, len(loaders))
	for i, l := range loaders {
		passes[i], _ = l.Pass(0, 0, 0)
		defer passes[i].Cancel()
	}
	got := make([][]seen, len(loaders))
	// In turn, then each by itself, while the others rest with what they have ahead.
	for step := range 60 {
		i := step % len(loaders)
		if step >= 12 {
			i = (step - 12) / 16
		}
		x := next(t, loaders[i], passes[i])
		if x != nil {
			got[i] = append(got[i], *x)
		}
		var sum int64
		for _, l := range loaders {
			sum += l.Stats().Memory
		}
		if sum > limit {
			t.Fatalf("step %d: %d bytes of slots, %d are allowed", step, sum, limit)
		}
	}
	for i := range loaders {
		if digest(got[i]) != want {
			t.Errorf("loader %d gave another stream", i)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum int64
	for _, l := range loaders {
		sum += l.slots.bytes
	}
	if s.taken != sum {
		t.Errorf("%d bytes are taken by the books, %d by the slots", s.taken, sum)
	}
}

// A limit that is too small for all loaders leaves two batches to each, and a loop
// that holds both is told of the others.
func TestASharedLimitLeavesTwoBatchesToEach(t *testing.T) {
	s := ground(t)
	spec := photoSpec(t, photos(t, 40))
	first, second := open(t, s, spec), open(t, s, spec)
	s.limitTo(2 * first.slotBytes)
	held := [][]*Batch{nil, nil}
	for i, l := range []*Loader{first, second} {
		p, _ := l.Pass(0, 0, 0)
		defer p.Cancel()
		for range 2 {
			b, err := p.Next(context.Background(), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			held[i] = append(held[i], b)
		}
		if i == 0 {
			continue
		}
		if _, err := p.Next(context.Background(), 20*time.Second); errs.CodeOf(err) != errs.Held {
			t.Errorf("a third batch: %v", err)
		}
	}
	for _, batches := range held {
		for _, b := range batches {
			b.Release()
		}
	}
}

// What a finished loader keeps goes to the one that is walked.
func TestAnIdleLoaderGivesItsMemory(t *testing.T) {
	s := ground(t)
	spec := photoSpec(t, photos(t, 40))
	spec.Deliver.Prefetch = 64
	idle, busy := open(t, s, spec), open(t, s, spec)
	s.limitTo(6 * idle.slotBytes)
	p, _ := idle.Pass(0, 0, 0)
	var held []*Batch
	for range 4 {
		b, err := p.Next(context.Background(), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	p.Cancel()
	for _, b := range held {
		b.Release()
	}
	q, _ := busy.Pass(0, 0, 0)
	defer q.Cancel()
	held = nil
	for range 4 { // two more than it has in any case; two stay the idle one's
		b, err := q.Next(context.Background(), 20*time.Second)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d batches: %v", len(held), err)
		}
		held = append(held, b)
	}
	if now := idle.Stats().Memory + busy.Stats().Memory; now > 6*idle.slotBytes {
		t.Errorf("%d bytes of slots", now)
	}
	for _, b := range held {
		b.Release()
	}
}
