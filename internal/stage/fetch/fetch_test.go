package fetch

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// disk is files in memory, byte i of file f being a hash of both. It counts
// reads and refuses what runs past the end.
type disk struct {
	size  int64
	reads atomic.Int64
	bytes atomic.Int64
	gate  chan struct{} // if set, every read waits for it
	began atomic.Int64  // reads that got to the gate
	bad   string        // reads of this file fail
	link  *source.Link  // what it says of its link; nil: nothing
}

func (s *disk) Link(string) (source.Link, bool) {
	if s.link == nil {
		return source.Link{}, false
	}
	return *s.link, true
}

func at(file int, off int64) byte { return byte(file*131) + byte(off*7) + byte(off>>8) }

func (s *disk) AppendPath(file int, dst []byte) []byte { return fmt.Appendf(dst, "%d", file) }
func (s *disk) Stamp(int) (size int64, version string) { return s.size, "" }

func (s *disk) Stat(context.Context, string) (source.Info, error) { return source.Info{}, nil }
func (s *disk) List(context.Context, string) iter.Seq2[source.Info, error] {
	return func(func(source.Info, error) bool) {}
}

func (s *disk) ReadAt(_ context.Context, obj source.Info, p []byte, off int64) error {
	if s.gate != nil {
		s.began.Add(1)
		<-s.gate
	}
	s.reads.Add(1)
	s.bytes.Add(int64(len(p)))
	if obj.Name == s.bad || off < 0 || off+int64(len(p)) > obj.Size {
		return errs.New(errs.Unreadable, "no bytes %d to %d of %s", off, off+int64(len(p)), obj.Name)
	}
	var file int
	fmt.Sscan(obj.Name, &file)
	for i := range p {
		p[i] = at(file, off+int64(i))
	}
	return nil
}

// rig is a fetcher over a disk, and a way to wait for its answers.
type rig struct {
	*Fetcher
	disk  *disk
	pool  *mem.Pool
	bytes *mem.Budget
	wg    sync.WaitGroup
	lane  func(*Request) // takes what is ready; nil: it stays with who asked for it
}

func newRig(s *disk, limit int64) *rig { return newAheadRig(s, limit, 0) }

func newAheadRig(s *disk, limit, ahead int64) *rig {
	r := &rig{disk: s, pool: &mem.Pool{KeepBytes: 1 << 20}, bytes: mem.NewBudget(limit)}
	r.Fetcher = New(s, s, func(q *Request) {
		if r.lane != nil {
			r.lane(q)
		}
		r.wg.Done()
	}, Options{
		Readers: 3, Budget: r.bytes, Ahead: ahead, Pool: r.pool, Board: stats.NewBoard(nil, 8), Stage: new(stats.Stage),
	})
	return r
}

func (r *rig) fetch(reqs []*Request) {
	r.wg.Add(len(reqs))
	r.Submit(context.Background(), reqs, false, func() bool { return false })
	r.wg.Wait()
}

// Whatever the extents, every request gets exactly its bytes, neighbours share
// reads, and all memory comes back.
func TestEveryRequestGetsItsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &disk{size: 1 << 20}
		r := newRig(s, 1<<30)
		defer r.Close()
		var reqs []*Request
		pieces := 0
		for i := range rapid.IntRange(1, 30).Draw(t, "requests") {
			q := &Request{Sample: int64(i)}
			for range rapid.IntRange(0, 4).Draw(t, "extents") {
				off := rapid.Int64Range(0, s.size-1).Draw(t, "off")
				q.Extents = append(q.Extents, format.Extent{
					File: rapid.IntRange(0, 3).Draw(t, "file"), Off: off, Len: rapid.Int64Range(0, min(s.size-off, 90000)).Draw(t, "len"),
				})
				pieces++
			}
			reqs = append(reqs, q)
		}
		for range 2 { // requests are used again
			r.fetch(reqs)
			for _, q := range reqs {
				if q.Err != nil || len(q.Raw) != len(q.Extents) {
					t.Fatalf("%v; %d runs of %d", q.Err, len(q.Raw), len(q.Extents))
				}
				for i, e := range q.Extents {
					if int64(len(q.Raw[i])) != e.Len {
						t.Fatalf("%d bytes, want %d", len(q.Raw[i]), e.Len)
					}
					for j := range q.Raw[i] {
						if q.Raw[i][j] != at(e.File, e.Off+int64(j)) {
							t.Fatalf("byte %d of %+v is wrong", j, e)
						}
					}
				}
				q.Release()
			}
		}
		if n := s.reads.Load(); n > 2*int64(pieces) {
			t.Fatalf("%d reads for %d extents", n, 2*pieces)
		}
		if r.pool.Out() != 0 || r.bytes.Used() != 0 {
			t.Fatalf("%d buffers and %d bytes are still held", r.pool.Out(), r.bytes.Used())
		}
	})
}

func TestNeighboursShareOneRead(t *testing.T) {
	s := &disk{size: 1 << 30}
	r := newRig(s, 1<<30)
	defer r.Close()
	var reqs []*Request
	for i := range 64 {
		reqs = append(reqs, &Request{Sample: int64(i), Extents: []format.Extent{{File: 1, Off: int64(i) * 40000, Len: 30000}}})
	}
	r.fetch(reqs)
	if n := s.reads.Load(); n != 1 {
		t.Errorf("%d reads of 2.5 MB in one run, want 1", n)
	}
	for i, q := range reqs { // every third one: those between them belong to another batch
		q.Release()
		q.Sample = int64(3 * i)
	}
	before := s.bytes.Load()
	r.fetch(reqs)
	if n := s.bytes.Load() - before; n != 64*30000 {
		t.Errorf("%d bytes read for 64 samples of 30000 that do not follow one another", n)
	}
	for _, q := range reqs {
		q.Release()
	}
	far := []*Request{
		{Extents: []format.Extent{{File: 1, Off: 0, Len: 100}}},
		{Extents: []format.Extent{{File: 1, Off: 500 << 20, Len: 100}}},
	}
	before = s.bytes.Load()
	r.fetch(far)
	if n := s.bytes.Load() - before; n != 200 {
		t.Errorf("%d bytes read for two extents of 100 far apart", n)
	}
	for _, q := range far {
		q.Release()
	}
}

func TestBudgetBoundsWhatIsReadAhead(t *testing.T) {
	const limit = 10_000
	s := &disk{size: 3000}
	bytes := mem.NewBudget(limit)
	ready := make(chan *Request, 50)
	f := New(s, s, func(r *Request) { ready <- r }, Options{
		Readers: 3, Budget: bytes, Pool: &mem.Pool{}, Board: stats.NewBoard(nil, 8), Stage: new(stats.Stage),
	})
	defer f.Close()
	var reqs []*Request
	for i := range 50 {
		reqs = append(reqs, &Request{Extents: []format.Extent{{File: i, Len: 3000, Whole: true}}})
	}
	go f.Submit(context.Background(), reqs, false, func() bool { return false })
	for range reqs {
		q := <-ready
		if used := bytes.Used(); used > limit {
			t.Fatalf("%d bytes of %d are in use", used, limit)
		}
		q.Release()
	}
}

func TestStopAnswersEverybody(t *testing.T) {
	s := &disk{size: 1 << 20, gate: make(chan struct{})}
	r := newRig(s, 5000)
	var reqs []*Request
	for i := range 20 {
		reqs = append(reqs, &Request{Extents: []format.Extent{{File: i, Len: 3000, Whole: i%2 == 0}}})
	}
	r.wg.Add(len(reqs))
	var stop atomic.Bool
	go r.Submit(context.Background(), reqs, false, stop.Load)
	for end := time.Now().Add(time.Minute); s.began.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no read began")
		}
	}
	stop.Store(true) // the budget has room for one request: the others are not read
	r.bytes.Wake()
	close(s.gate)
	r.wg.Wait()
	stopped := 0
	for i, q := range reqs {
		switch {
		case q.Err == ErrStopped: //nolint:errorlint // exactly this
			stopped++
		case q.Err != nil || len(q.Raw) != 1 || len(q.Raw[0]) != 3000 || q.Raw[0][2999] != at(i, 2999):
			t.Errorf("request %d was read before the stop, and came back with %v", i, q.Err)
		}
		q.Release()
	}
	if read := len(reqs) - stopped; read < 1 || read > 10 {
		t.Errorf("%d of 20 requests were read before the stop", read)
	}
	r.Close()
	r.wg.Add(1)
	late := &Request{Extents: []format.Extent{{Len: 1, Whole: true}}}
	r.Submit(context.Background(), []*Request{late}, false, func() bool { return false })
	r.wg.Wait()
	if late.Err != ErrStopped { //nolint:errorlint // exactly this
		t.Errorf("after Close: %v", late.Err)
	}
	late.Release()
	if r.pool.Out() != 0 || r.bytes.Used() != 0 {
		t.Errorf("%d buffers and %d bytes are still held", r.pool.Out(), r.bytes.Used())
	}
}

func TestAFailedReadFailsItsRequestsOnly(t *testing.T) {
	s := &disk{size: 1 << 20, bad: "3"}
	r := newRig(s, 1<<30)
	defer r.Close()
	var reqs []*Request
	for i := range 6 {
		reqs = append(reqs, &Request{Extents: []format.Extent{{File: i, Len: 10}, {File: i, Off: 20, Len: 10}}})
	}
	r.fetch(reqs)
	for i, q := range reqs {
		if (q.Err != nil) != (i == 3) {
			t.Errorf("request %d: %v", i, q.Err)
		}
		q.Release()
	}
}

// The rule of the budget: whatever the extents and the budget, one byte among them,
// no prefetcher waits for what comes back only if it goes on. Requests of a batch share
// small extents with one another, as labels in one page, and each has a large one of
// its own or shares it with some; several passes share the budget. Over a link their later
// steps are planned too, with any limit for that, by planners that are ahead or late, and
// some samples turn out to be others, or to need nothing.
func TestNoOrderOfExtentsWaitsForItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &disk{size: 1 << 20}
		limit := rapid.SampledFrom([]int64{1, 100, 5000, 70_000, 300_000}).Draw(t, "budget")
		if rapid.Bool().Draw(t, "linked") {
			s.link = &source.Link{Gap: rapid.SampledFrom([]int64{0, 5000, 1 << 20}).Draw(t, "gap"), Part: rapid.SampledFrom([]int64{0, 100_000, 1 << 20}).Draw(t, "part"), Conns: rapid.IntRange(0, 9).Draw(t, "conns")}
		}
		r := newAheadRig(s, limit, rapid.SampledFrom([]int64{1, 5000, 300_000, 1 << 30}).Draw(t, "ahead"))
		defer r.Close()
		r.lane = func(q *Request) {
			for i, e := range q.Extents {
				if q.Err != nil || int64(len(q.Raw[i])) != e.Len || e.Len > 0 && q.Raw[i][e.Len-1] != at(e.File, e.Off+e.Len-1) {
					t.Errorf("%+v: %d bytes, %v", e, len(q.Raw[i]), q.Err)
				}
			}
			q.Release()
		}
		lens := rapid.SampledFrom([]int64{0, 1, 8, 90, 3000, 60_000, 200_000})
		request := func(i int) *Request {
			q := &Request{Sample: int64(i)}
			for range rapid.IntRange(0, 4).Draw(t, "extents") {
				n := lens.Draw(t, "len")
				// Few places: most extents are shared.
				off := rapid.SampledFrom([]int64{0, 4000, 240_000, 250_000, 260_000, 500_000, 800_000}).Draw(t, "off")
				q.Extents = append(q.Extents, format.Extent{File: rapid.IntRange(0, 2).Draw(t, "file"), Off: off, Len: n})
			}
			return q
		}
		var passes, planners sync.WaitGroup
		for range rapid.IntRange(1, 3).Draw(t, "passes") {
			var batches [][]*Request
			plan := r.NewPlan(context.Background(), false)
			var needs [][]Need
			for range rapid.IntRange(1, 4).Draw(t, "batches") {
				var reqs []*Request
				var step []Need
				for i := range rapid.IntRange(1, 12).Draw(t, "requests") {
					q := request(i)
					reqs = append(reqs, q)
					need := Need{Step: int64(len(batches)), Sample: q.Sample, Extents: q.Extents}
					switch rapid.IntRange(0, 9).Draw(t, "as planned") {
					case 0:
						need = Need{Step: need.Step, Sample: 99, Extents: request(99).Extents}
					case 1:
						need.Extents = nil
					case 2:
						need.Extents = request(i).Extents
					}
					step = append(step, need)
				}
				needs = append(needs, step)
				batches = append(batches, reqs)
				r.wg.Add(len(reqs))
			}
			planners.Go(func() {
				for len(needs) > 0 {
					bytes, _, from := plan.Wait()
					if bytes == 0 {
						return
					}
					group := needs[0]
					if needs = needs[1:]; len(needs) > 0 && bytes > 100_000 {
						group, needs = append(group, needs[0]...), needs[1:]
					}
					if group[len(group)-1].Step >= from || len(needs) == 0 {
						var later []Need
						if len(needs) > 0 {
							later = needs[0]
						}
						plan.Add(group, later, len(needs) == 0)
					}
				}
			})
			cut := rapid.IntRange(0, 4).Draw(t, "ends early")
			passes.Go(func() {
				defer plan.Drop()
				for step, reqs := range batches {
					if step == 3 && cut == 0 {
						plan.Drop()
					}
					plan.Submit(context.Background(), reqs, func() bool { return false }, int64(step), 1)
				}
			})
		}
		done := make(chan struct{})
		go func() {
			passes.Wait()
			planners.Wait()
			r.wg.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%d bytes of %d are in use, and everybody waits", r.bytes.Used(), limit)
		}
		r.quiet(t)
	})
}

// quiet waits until reads that nobody wants any more have ended, and checks that everything
// has come back.
func (r *rig) quiet(t interface {
	Helper()
	Fatalf(string, ...any)
},
) {
	t.Helper()
	for end := time.Now().Add(time.Minute); r.pool.Out() != 0 || r.bytes.Used() != 0 || r.Ahead().Bytes != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d buffers, %d bytes, and %d bytes of plans are still held", r.pool.Out(), r.bytes.Used(), r.Ahead().Bytes)
		}
	}
}
