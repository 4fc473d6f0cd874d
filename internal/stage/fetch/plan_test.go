package fetch

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const each = 100_000 // bytes of a sample of these tests: longer than any hole that is read

func need(step, sample int64) Need {
	return Need{Step: step, Sample: sample, Extents: []format.Extent{{File: 1, Off: sample * each, Len: each}}}
}

func of(needs []Need) (reqs []*Request) {
	for _, n := range needs {
		reqs = append(reqs, &Request{Sample: n.Sample, Extents: n.Extents})
	}
	return reqs
}

// linked is a rig over a link, with a plan.
func linked(t *testing.T, limit, ahead int64) (*rig, *Plan) {
	s := &disk{size: 1 << 30, link: &source.Link{Gap: 1 << 20, Part: 2 << 20, Conns: 4}}
	r := newAheadRig(s, limit, ahead)
	t.Cleanup(r.Close)
	r.fetch([]*Request{{}}) // a request of nothing: the link is not known before the first
	one := of([]Need{need(0, 9000)})
	r.fetch(one)
	one[0].Release()
	s.reads.Store(0)
	s.bytes.Store(0)
	p := r.NewPlan(context.Background(), false)
	t.Cleanup(p.Drop)
	return r, p
}

func (r *rig) submit(p *Plan, step int64, needs []Need) []*Request {
	reqs := of(needs)
	r.wg.Add(len(reqs))
	p.Submit(context.Background(), reqs, func() bool { return false }, step, 1)
	r.wg.Wait()
	return reqs
}

// Samples of a block that are in different steps are read together, once, and in parts of the
// length that the link suggests.
func TestNeighboursAreJoinedAcrossSteps(t *testing.T) {
	r, p := linked(t, 1<<30, 1<<30)
	if n, _, from := p.Wait(); n == 0 || from != 0 {
		t.Fatal(n, from)
	}
	const samples, steps = 400, 20
	var all []Need
	for step := range int64(steps) {
		for i := range int64(samples / steps) {
			all = append(all, need(step, (i*steps+step*7)%samples)) // far from one another within a step
		}
	}
	p.Add(all, nil, true)
	for step := range int64(steps) {
		for _, q := range r.submit(p, step, all[step*samples/steps:(step+1)*samples/steps]) {
			if q.Err != nil || q.Raw[0][0] != at(1, q.Sample*each) || q.Raw[0][each-1] != at(1, q.Sample*each+each-1) {
				t.Fatalf("sample %d: %v", q.Sample, q.Err)
			}
			q.Release()
		}
	}
	if n, want := r.disk.reads.Load(), int64(samples*each/(2<<20)+2); n > want {
		t.Errorf("%d reads for a block of %d bytes, want %d", n, samples*each, want)
	}
	if n := r.disk.bytes.Load(); n != samples*each {
		t.Errorf("%d bytes read of %d", n, samples*each)
	}
	if a := r.Ahead(); a.Planned != samples || a.Claimed != samples || a.Dropped != 0 {
		t.Errorf("%+v", a)
	}
	r.quiet(t)
}

// Samples far from one another stay single, and nothing between them is read.
func TestSamplesFarApartStaySingle(t *testing.T) {
	r, p := linked(t, 1<<30, 1<<30)
	var all []Need
	for i := range int64(50) {
		all = append(all, need(i, i*3)) // holes of two samples, which the link could afford
	}
	p.Add(all, nil, true)
	for i := range all {
		r.submit(p, int64(i), all[i:i+1])[0].Release()
	}
	if n, bytes := r.disk.reads.Load(), r.disk.bytes.Load(); n != 50 || bytes != 50*each {
		t.Errorf("%d reads of %d bytes for 50 samples of %d", n, bytes, each)
	}
}

// Reads of plans keep within their limit, and what a batch needs is read although the limit
// is used up by what nobody claims.
func TestTheLimitOfPlans(t *testing.T) {
	r, p := linked(t, 1, 3*each)
	var all []Need
	for i := range int64(20) {
		all = append(all, need(i, i*10))
	}
	p.Add(all, nil, true)
	if a := r.Ahead(); a.Bytes > 3*each || a.Reads != 3 {
		t.Errorf("%+v", a)
	}
	other := r.NewPlan(context.Background(), false)
	defer other.Drop()
	for i := range int64(5) { // of a pass that got nothing
		r.submit(other, i, []Need{need(i, 500+10*i)})[0].Release()
	}
	for i := range all {
		q := r.submit(p, int64(i), all[i:i+1])[0]
		if q.Err != nil {
			t.Fatal(q.Err)
		}
		q.Release()
	}
	r.quiet(t)
}

// A step that needs less than was planned, a plan that is dropped, and a fetcher that is closed
// give everything back.
func TestWhatNobodyClaims(t *testing.T) {
	r, p := linked(t, 1<<30, 1<<30)
	all := []Need{need(0, 0), need(0, 10), need(1, 20), need(2, 30), need(3, 40)}
	p.Add(all, nil, false)
	r.submit(p, 0, all[1:2])[0].Release()
	r.submit(p, 2, all[3:4])[0].Release() // step 1 was left out
	if a := r.Ahead(); a.Claimed != 2 || a.Dropped != 2 {
		t.Errorf("%+v", a)
	}
	p.Drop()
	if n, _, _ := p.Wait(); n != 0 {
		t.Errorf("a plan that was dropped waits for %d bytes", n)
	}
	r.quiet(t)
	late := r.NewPlan(context.Background(), false)
	late.Add([]Need{need(0, 1), need(1, 2)}, nil, true)
	r.Close()
	if q := r.submit(late, 0, []Need{need(0, 1)})[0]; q.Err != nil && !errors.Is(q.Err, ErrStopped) {
		t.Error(q.Err)
	} else {
		q.Release()
	}
	late.Drop()
	r.quiet(t)
}

// A read of several samples that fails, fails none of them that can be read alone, whether
// they were claimed before or are claimed after it. What a link has failed at is not tried
// again at once.
func TestAPlannedReadFails(t *testing.T) {
	for _, code := range []errs.Code{errs.Unreadable, errs.Unreachable} {
		r, p := linked(t, 1<<30, 1<<30)
		long := &broken{disk: r.disk, code: code, began: make(chan struct{}), gate: make(chan struct{})}
		r.src = long
		all := []Need{need(0, 0), need(0, 1), need(1, 2)}
		p.Add(all, nil, true)
		<-long.began
		reqs := of(all[:2])
		r.wg.Add(len(reqs))
		p.Submit(context.Background(), reqs, func() bool { return false }, 0, 1)
		close(long.gate)
		r.wg.Wait()
		for _, q := range reqs {
			if want := errs.CodeOf(q.Err); (code == errs.Unreachable) != (want == code) || code != errs.Unreachable && q.Err != nil {
				t.Errorf("%s: sample %d: %v", code, q.Sample, q.Err)
			}
			q.Release()
		}
		q := r.submit(p, 1, all[2:])[0]
		if q.Err != nil {
			t.Errorf("%s: claimed after the read has failed: %v", code, q.Err)
		}
		q.Release()
		r.quiet(t)
	}
}

// Chunks that requests wait for are read before those that only plans want.
func TestRequestsComeBeforePlans(t *testing.T) {
	r, p := linked(t, 1<<30, 1<<30)
	const readers = 7 // of a link worth 4 requests: some more
	gate := make(chan struct{})
	r.disk.gate = gate
	r.disk.began.Store(0)
	var all []Need
	for i := range int64(40) {
		all = append(all, need(i, i*10))
	}
	p.Add(all, nil, true)
	for end := time.Now().Add(time.Minute); r.disk.began.Load() < readers; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no reads began")
		}
	}
	reqs := of([]Need{need(39, 39*10), need(39, 700)})
	order := make(chan int64, 100)
	r.lane = func(q *Request) { order <- q.Sample }
	r.wg.Add(len(reqs))
	p.Submit(context.Background(), reqs, func() bool { return false }, 39, 1)
	for range readers + 2 { // those that had begun, and the two
		gate <- struct{}{}
	}
	done := make(chan struct{})
	go func() { r.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("what a batch needs waits for what it does not need")
	}
	close(gate)
	r.wg.Wait()
	for _, q := range reqs {
		q.Release()
	}
	p.Drop()
	r.quiet(t)
}

// broken is a disk on which only reads of one sample succeed. The first one that fails says
// that it began, and waits.
type broken struct {
	*disk
	code        errs.Code
	once        sync.Once
	began, gate chan struct{}
}

func (b *broken) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if len(p) > each {
		b.once.Do(func() { close(b.began); <-b.gate })
		return errs.New(b.code, "%d bytes at %d", len(p), off)
	}
	return b.disk.ReadAt(ctx, obj, p, off)
}

// A block that is mixed in a window is read in a row, although a group of its samples is only
// a part of the window: what the next groups need is read with it, once, and kept for them.
// Steps may be short, or so long that two of them have no room.
func TestAWindowIsReadInARow(t *testing.T) {
	for _, steps := range []int{200, 8} {
		t.Run(strconv.Itoa(steps), func(t *testing.T) { windowInARow(t, steps) })
	}
}

func windowInARow(t *testing.T, steps int) {
	const samples, window, limit = 2000, 400, 64 << 20
	random := rand.New(rand.NewPCG(1, 2))
	var all []Need
	for first := 0; first < samples; first += window {
		for _, i := range random.Perm(window) {
			all = append(all, need(int64(len(all)*steps/samples), int64(first+i)))
		}
	}
	reads := func(look bool) int64 {
		r, p := linked(t, 1<<30, limit)
		rest := all
		for step := range int64(steps) {
			// A planner of its own is as far ahead as the machine lets it be, and how much is read
			// together depends on that. This one plans a step when it is due.
			for !p.Covers(step) {
				if len(rest) == 0 {
					t.Fatalf("step %d of %d was not planned", step, steps)
				}
				bytes, later, _ := p.Wait()
				n := min(int(bytes/each)+1, len(rest))
				for n < len(rest) && rest[n].Step == rest[n-1].Step {
					n++
				}
				next := rest[n:]
				if next = next[:min(int(later/each), len(next))]; !look {
					next = nil
				}
				if a := r.Ahead(); a.Bytes > limit {
					t.Errorf("%d bytes are read ahead", a.Bytes)
				}
				p.Add(rest[:n], next, n == len(rest))
				rest = rest[n:]
			}
			for _, q := range r.submit(p, step, all[int(step)*samples/steps:int(step+1)*samples/steps]) {
				if q.Err != nil || q.Raw[0][0] != at(1, q.Sample*each) || q.Raw[0][each-1] != at(1, q.Sample*each+each-1) {
					t.Fatalf("sample %d: %v", q.Sample, q.Err)
				}
				q.Release()
			}
		}
		if n := r.disk.bytes.Load(); n > samples*each*102/100 { // a few holes are read, and their samples again
			t.Errorf("%d bytes read of %d", n, samples*each)
		}
		if a := r.Ahead(); a.Claimed < samples*8/10 || a.Dropped != 0 { // a group may be longer than its room
			t.Errorf("%+v", a)
		}
		r.quiet(t)
		return r.disk.reads.Load()
	}
	with, without := reads(true), reads(false)
	t.Logf("%d reads, %d without a look at later groups", with, without)
	if with > without*9/10 {
		t.Errorf("%d reads, %d without a look at later groups", with, without)
	}
}
