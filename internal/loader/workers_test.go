package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// rowsMade is what a batch has: the number and the key of each row, and its text.
func rowsMade(t testing.TB, b *Batch, whole bool) (out []string) {
	t.Helper()
	mem := b.Slot.Mem
	if whole || b.Columns[0].Kind == "placed" {
		col := b.Columns[0]
		if col.Kind != "placed" || col.Shape[0]%24 != 0 {
			t.Fatalf("%+v", col)
		}
		for at := col.Data; at < col.Data+int64(col.Shape[0]); at += 24 {
			out = append(out, fmt.Sprintf("%d %x %s", le.Uint64(mem[at:]), mem[at+8:at+16], mem[at+16:at+24]))
		}
		return out
	}
	fixed, text := b.Columns[0], b.Columns[1]
	for r := range b.Rows {
		fixed := unpainted(mem, &fixed, r)
		begin, end := le.Uint64(mem[text.Off+8*int64(r):]), le.Uint64(mem[text.Off+8*int64(r)+8:])
		out = append(out, fmt.Sprintf("%d %x %8s", le.Uint64(fixed), fixed[8:16], mem[text.Data+int64(begin):text.Data+int64(end)]))
	}
	return out
}

func workersWalk(t testing.TB, l *Loader, epoch, position int64, whole bool) (out []string, err error) {
	t.Helper()
	p, err := l.Pass(epoch, position, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	for {
		b, err := p.Next(context.Background(), 60*time.Second)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if !whole && b.Columns[0].Kind != "placed" && string(b.Structure) != "structure" {
			t.Errorf("structure %q", b.Structure)
		}
		out = append(out, rowsMade(t, b, whole)...)
		b.Release()
	}
}

// expected is what a pass of the Spec delivers, by the definition of its order.
func expected(l *Loader, epoch, position int64) (out []string) {
	e := l.Epoch(epoch)
	for place := position; place < e.Len(); place++ {
		n := e.At(place)
		out = append(out, fmt.Sprintf("%d %x %8s", n, le.AppendUint64(nil, uint64(e.Key(place))), fmt.Sprintf("%*d", n%6+3, n)))
	}
	return out
}

// Workers deliver the order of the Spec, whoever makes which sample, from any position.
func TestWorkersDeliverTheOrder(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, workers := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("whole=%v/%d", whole, workers), func(t *testing.T) {
				l, s := openWorkers(t, workersSpec(96), whole)
				s.hire(workers)
				for epoch := range int64(3) {
					for _, position := range []int64{0, 8, 64} {
						got, err := workersWalk(t, l, epoch, position, whole)
						if err != nil || !slices.Equal(got, expected(l, epoch, position)) {
							t.Fatalf("epoch %d from %d: %v, %d rows", epoch, position, err, len(got))
						}
					}
				}
			})
		}
	}
}

// Nothing is made before a pass is asked for, and nothing of the next epoch.
func TestWorkersMakeNothingAhead(t *testing.T) {
	l, s := openWorkers(t, workersSpec(48), false)
	s.hire(2)
	time.Sleep(50 * time.Millisecond)
	if n := s.made.Load(); n != 0 {
		t.Fatalf("%d samples before the first pass", n)
	}
	if _, err := workersWalk(t, l, 0, 0, false); err != nil {
		t.Fatal(err)
	}
	if p := l.Stats().Python; p.Items != 48 || p.BusySeconds <= 0 || p.Name != "python" {
		t.Errorf("%+v", p)
	}
	time.Sleep(50 * time.Millisecond)
	if n := s.made.Load(); n > 48+8 { // the first sample tells the layout, and is made again here
		t.Errorf("%d samples for an epoch of 48", n)
	}
}

// A worker that has not started to work keeps no batch waiting while another one works; it
// gets its share once it has, and all of it if it is alone.
func TestWorkersThatStartLate(t *testing.T) {
	l, s := openWorkers(t, workersSpec(96), false)
	s.pause = 200 * time.Microsecond
	s.hire(1)
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s.pid, s.late = func() int { return cmd.Process.Pid }, true
	s.hire(1)
	tasks := func(h *hand) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(h.steps)
	}
	walk := func(epoch int64) {
		t.Helper()
		if got, err := workersWalk(t, l, epoch, 0, false); err != nil || !slices.Equal(got, expected(l, epoch, 0)) {
			t.Fatalf("%v, %d rows", err, len(got))
		}
	}
	late := s.hands[1]
	walk(0)
	if n := tasks(late); n != 0 {
		t.Errorf("%d tasks for a worker that has not started", n)
	}
	late.send(1, uint32(cmd.Process.Pid))
	for epoch := int64(1); tasks(late) == 0; epoch++ {
		if walk(epoch); epoch == 100 {
			t.Fatal("a worker that has started gets nothing")
		}
	}
	s.fire(0)
	walk(0)
}

// A worker that ends at any moment changes nothing: its rows are made by others.
func TestWorkersEndAtAnyMoment(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			l, s := openWorkers(t, workersSpec(1600), whole)
			defer s.replace()()
			draw := rand.New(rand.NewPCG(1, 2))
			kills := 60
			if testing.Short() {
				kills = 20
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range kills {
					time.Sleep(time.Duration(draw.IntN(20)) * time.Millisecond)
					s.fire(draw.IntN(4))
				}
			}()
			for epoch := int64(0); ; epoch++ {
				got, err := workersWalk(t, l, epoch, 0, whole)
				if err != nil || !slices.Equal(got, expected(l, epoch, 0)) {
					t.Fatalf("epoch %d: %v, %d rows", epoch, err, len(got))
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
}

// A sample at which two workers end is bad, and is named; the others are delivered.
func TestWorkersEndAtOneSample(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, policy := range []string{Fail, Skip, Replace} {
			t.Run(fmt.Sprintf("whole=%v/%s", whole, policy), func(t *testing.T) {
				spec := workersSpec(64)
				spec.OnBad.Policy = policy
				l, s := openWorkers(t, spec, whole)
				var ended atomic.Int64
				s.ends = func(n int64) bool {
					if n == 41 {
						ended.Add(1)
					}
					return n == 41
				}
				defer s.replace()()
				got, err := workersWalk(t, l, 0, 0, whole)
				if policy == Fail {
					e := errs.From(err)
					if e.Code != errs.Damaged || e.Where.Sample.Or(-1) != 41 {
						t.Fatalf("%v", err)
					}
				} else if err != nil || len(got) != 64 || slices.ContainsFunc(got, func(s string) bool { return s[:3] == "41 " }) {
					t.Fatalf("%v, %d rows", err, len(got))
				}
				// A replacement may be the same sample once more.
				if n := ended.Load(); n != 2 && (policy != Replace || n%2 != 0) {
					t.Errorf("%d workers ended", n)
				}
			})
		}
	}
}

// An exception is a bad sample under on_bad, and comes with what the user's code raised.
func TestWorkersAndBadSamples(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, policy := range []string{Fail, Skip, Replace} {
			t.Run(fmt.Sprintf("whole=%v/%s", whole, policy), func(t *testing.T) {
				spec := workersSpec(64)
				spec.OnBad.Policy = policy
				l, s := openWorkers(t, spec, whole)
				s.bad = func(n int64) bool { return n%20 == 3 }
				s.hire(2)
				got, err := workersWalk(t, l, 0, 0, whole)
				var code *errs.CodeError
				if policy == Fail {
					if e := errs.From(err); e.Code != errs.Damaged || e.Where.Sample.Or(-1)%20 != 3 || !errors.As(err, &code) || code.Kind != "ValueError" || code.Text != "Traceback" {
						t.Fatalf("%v", err)
					}
					return
				}
				want := expected(l, 0, 0)
				if err != nil || len(got) != len(want) {
					t.Fatalf("%v, %d rows", err, len(got))
				}
				for i := range got {
					var n int64
					_, _ = fmt.Sscan(want[i], &n)
					if n%20 == 3 {
						continue
					}
					if got[i] != want[i] {
						t.Errorf("row %d: %s, not %s", i, got[i], want[i])
					}
				}
				for _, row := range got {
					var n int64
					if _, _ = fmt.Sscan(row, &n); n%20 == 3 {
						t.Errorf("a bad sample was delivered: %s", row)
					}
				}
			})
		}
	}
}

// If all samples are bad, that is an error, and no wait.
func TestWorkersAndNothingButBadSamples(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, policy := range []string{Fail, Skip, Replace} {
			spec := workersSpec(64)
			spec.OnBad.Policy = policy
			l, s := openWorkers(t, spec, whole)
			s.bad = func(int64) bool { return true }
			s.hire(2)
			if _, err := workersWalk(t, l, 0, 0, whole); err == nil {
				t.Errorf("whole=%v, %s: no error", whole, policy)
			}
		}
	}
}

// Passes that are cancelled while workers are busy, and workers that are dismissed, leave
// nothing in use: open waits for the slots when the test ends.
func TestWorkersOfPassesGivenUp(t *testing.T) {
	for _, whole := range []bool{false, true} {
		l, s := openWorkers(t, workersSpec(96), whole)
		s.pause = 100 * time.Microsecond
		for i := range 10 {
			s.hire(2)
			p, err := l.Pass(int64(i), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				b, err := p.Next(context.Background(), time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
			if i%3 == 0 {
				l.Workers().Dismiss()
			}
			p.Cancel()
			l.Workers().Dismiss()
		}
		s.hire(2)
		if got, err := workersWalk(t, l, 3, 0, whole); err != nil || !slices.Equal(got, expected(l, 3, 0)) {
			t.Errorf("whole=%v: %v, %d rows", whole, err, len(got))
		}
	}
}

// Without workers nothing can be made: the client is asked for as many as there should be.
func TestWorkersAreAskedFor(t *testing.T) {
	l, s := openWorkers(t, workersSpec(16), false)
	if n, _ := l.Workers().Wanted(); n != 0 {
		t.Errorf("%d are missing before any pass", n)
	}
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	for range 200 {
		if n, _ := l.Workers().Wanted(); n == 2 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if n, died := l.Workers().Wanted(); n != 2 || died != nil {
		t.Errorf("%d are missing, %v have ended", n, died)
	}
	s.hire(2)
	if _, err := p.Next(context.Background(), time.Minute); err != nil {
		t.Error(err)
	}
}

// Workers that end while there is no work are named when there is some again.
func TestWorkersThatEndIdle(t *testing.T) {
	l, s := openWorkers(t, workersSpec(64), false)
	s.hire(2)
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	ahead := func() int {
		l.shared.mu.Lock()
		defer l.shared.mu.Unlock()
		return l.prefetch
	}
	for l.Stats().Ready < ahead() { // until all that is made ahead is there
		time.Sleep(time.Millisecond)
	}
	news := l.Workers().News()
	s.fire(-1)
	<-news
	if n, died := l.Workers().Wanted(); n != 0 || died != nil {
		t.Errorf("%d are missing, %v have ended", n, died)
	}
	b, err := p.Next(context.Background(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	for told := 0; told < 2; time.Sleep(time.Millisecond) {
		n, died := l.Workers().Wanted()
		if told += len(died); n == 0 && len(died) > 0 {
			t.Errorf("none is missing, %+v have ended", died)
		}
	}
}

// What a sampler gives in place of ids arrives with the task of its place, also where
// workers end, samples are replaced and batches are made as wholes.
func TestWorkersGetItems(t *testing.T) {
	const n, first = 90, 1 << 20 // many more places than samples
	list := order.List{Place: first, Item: first}
	for place := int64(first); place < first+n; place++ {
		list.IDs, list.Items = append(list.IDs, place), append(list.Items, fmt.Append(nil, "item ", place))
	}
	for _, whole := range []bool{false, true} {
		spec := workersSpec(7)
		spec.OnBad.Policy = Replace
		l, s := openWorkers(t, spec, whole)
		s.named, s.pause = true, 100*time.Microsecond
		s.bad = func(sample int64) bool { return sample%13 == 2 }
		var dead sync.Map
		s.ends = func(sample int64) bool {
			_, was := dead.LoadOrStore(sample, true)
			return sample%29 == 5 && !was
		}
		stop := s.replace()
		t.Cleanup(stop)
		p, err := l.PassOver(list, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := int64(first)
		for {
			b, err := p.Next(context.Background(), 10*time.Second)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rowsMade(t, b, whole) {
				var got int64
				if _, err := fmt.Sscan(row, &got); err != nil || got != at && at%13 != 2 {
					t.Errorf("place %d: %s, %v", at, row, err)
				}
				at++
			}
			b.Release()
		}
		if at != first+n {
			t.Errorf("%d rows", at-first)
		}
		stop()
		s.fire(-1)
	}
	l, _ := openWorkers(t, workersSpec(7), false)
	list.IDs[3]++
	if _, err := l.PassOver(list, 0, 0); errs.CodeOf(err) != errs.Config { // neither a place nor a sample
		t.Error(err)
	}
	if _, err := open(t, ground(t), newGrid(t).spec(t)).PassOver(order.List{IDs: []int64{0}, Items: [][]byte{{1}}}, 0, 0); errs.CodeOf(err) != errs.Bug {
		t.Error(err)
	}
}
