package remote_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// judged is a link whose attempts may fail, as the test says.
type judged struct {
	*link
	judge func(off int64, attempt int) error // attempt counts from 1 for each offset

	count    sync.Mutex
	attempts map[int64]int
}

func (j *judged) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	j.count.Lock()
	if j.attempts == nil {
		j.attempts = map[int64]int{}
	}
	j.attempts[off]++
	n := j.attempts[off]
	j.count.Unlock()
	if err := j.judge(off, n); err != nil {
		return 0, err
	}
	return j.link.Read(ctx, obj, p, off)
}

func free() *link {
	return &link{latency: 20 * time.Millisecond, connection: mb(90), total: mb(250)}
}

func reset() error {
	return &remote.Fault{Kind: remote.Unreachable, What: "the connection was reset"}
}

var large = source.Info{Name: "mem://a", Size: 1 << 40, Version: "1"}

// together makes so many reads at once, each at an offset of its own, and returns their errors.
func together(t *testing.T, src source.Source, readers, length int) []error {
	t.Helper()
	all := make([]error, readers)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() { all[i] = src.ReadAt(t.Context(), large, make([]byte, length), int64(i)<<32) })
	}
	wg.Wait()
	return all
}

// A request that waits for its turn, because others are answered before it or because the
// user allows only so many, has its deadline before it: one fault after that is not the end.
func TestTheDeadlineBeginsWithTheTurn(t *testing.T) {
	for what, access := range map[string]source.Access{
		"bandwidth":   {Deadline: 10 * time.Second, Bandwidth: 64 << 10, NoHedge: true},
		"connections": {Deadline: 10 * time.Second, Connections: 1, NoHedge: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := free()
				l.latency = time.Second
				store := &judged{link: l, judge: func(off int64, attempt int) error {
					if attempt == 1 && off>>32%4 == 3 {
						return reset()
					}
					return nil
				}}
				begin := time.Now()
				for i, err := range together(t, remote.New(store, remote.NewNet(remote.Options{}), access), 40, 64<<10) {
					if err != nil {
						t.Errorf("read %d: %v", i, err)
					}
				}
				if took := time.Since(begin); took < 30*time.Second {
					t.Errorf("after %s: nobody waited for longer than the deadline", took)
				}
			})
		})
	}
}

// Where nothing is answered, waiting for a turn does not put the deadline off: all reads end
// about then, however many there are.
func TestTheDeadlineOfAQueueWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &judged{link: free(), judge: func(off int64, _ int) error {
			if off == 1 {
				return nil
			}
			time.Sleep(30 * time.Second)
			return reset()
		}}
		src := remote.New(store, remote.NewNet(remote.Options{}), source.Access{Deadline: 5 * time.Minute})
		if err := src.ReadAt(t.Context(), large, make([]byte, 2), 1); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for i, err := range together(t, src, 200, 2) {
			if errs.CodeOf(err) != errs.Unreachable {
				t.Errorf("read %d: %v", i, err)
			}
		}
		if took := time.Since(begin); took < 4*time.Minute || took > 20*time.Minute {
			t.Errorf("the last one ended after %s", took)
		}
	})
}

// What the user allows says nothing of the host: its latency and bandwidth are measured
// without the time that requests were held back.
func TestALimitOfBandwidthIsNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		measured := func(access source.Access, readers int) source.Link {
			net := remote.NewNet(remote.Options{})
			consume(t, remote.New(free(), net, access), 1<<20, readers, 20*time.Second)
			l, _ := remote.New(free(), net, source.Access{}).Link(large.Name)
			return l
		}
		want, got := measured(source.Access{}, 1), measured(source.Access{Bandwidth: 4 << 20}, 16)
		if got.Gap > 2*want.Gap || got.Part > 2*want.Part || got.Gap < want.Gap/2 || got.Part < want.Part/2 {
			t.Errorf("with a limit %+v, without %+v", got, want)
		}
	})
}

// What the user allows is of a store, whoever asks: second requests count, and so do those
// of all sources that may ask for as much.
func TestLimitsOfTheUser(t *testing.T) {
	late := func() *link {
		l := free()
		l.late, l.lateBy, l.random = 0.04, 300*time.Millisecond, rand.New(rand.NewPCG(1, 2))
		return l
	}
	t.Run("connections", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, net := late(), remote.NewNet(remote.Options{})
			src := remote.New(l, net, source.Access{Connections: 2})
			consume(t, src, 110_000, 1, 30*time.Second)
			hedges := net.Counts()["store"].Hedges
			consume(t, src, 110_000, 8, 30*time.Second)
			if l.most.Load() != 2 || hedges == 0 {
				t.Errorf("%d requests at once, %d sent twice while one connection was free", l.most.Load(), hedges)
			}
		})
	})
	t.Run("bandwidth", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, net := late(), remote.NewNet(remote.Options{})
			consume(t, remote.New(l, net, source.Access{Bandwidth: 20e6}), 110_000, 16, 60*time.Second)
			c := net.Counts()["store"]
			if rate := float64(c.Requests) * 110_000 / 60; rate > 20e6*1.015 || rate < 20e6*0.95 || c.Hedges < c.Requests/50 {
				t.Errorf("%.1f MB/s were asked for, with %d of %d requests sent twice", rate/1e6, c.Hedges, c.Requests)
			}
		})
	})
	for what, access := range map[string]source.Access{"two sources, connections": {Connections: 3}, "two sources, bandwidth": {Bandwidth: 20e6}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, net := free(), remote.NewNet(remote.Options{})
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() { consume(t, remote.New(l, net, access), 1_000_000, 8, 20*time.Second) })
				}
				wg.Wait()
				if most := l.most.Load(); access.Connections > 0 && most != 3 {
					t.Errorf("%d requests at once", most)
				}
				if rate := float64(l.bytes.Load()) / 20; access.Bandwidth > 0 && (rate > 20e6*1.1 || rate < 20e6*0.9) {
					t.Errorf("%.1f MB/s", rate/1e6)
				}
			})
		})
	}
}

// Once a host that refused everything answers again, nobody waits for a turn that was given
// out when it did not.
func TestTurnsAfterRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := free()
		l.latency = time.Second // many requests at once
		var refuses atomic.Bool
		store := &judged{link: l, judge: func(int64, int) error {
			if refuses.Load() {
				return remote.Answered(http.Header{}, 503, "SlowDown")
			}
			return nil
		}}
		net := remote.NewNet(remote.Options{})
		src := remote.New(store, net, source.Access{NoHedge: true})
		var wg sync.WaitGroup
		wg.Go(func() { consume(t, src, 110_000, 512, 60*time.Second) })
		time.Sleep(40 * time.Second)
		if at := net.Counts()["store"].Limit; at < 100 {
			t.Errorf("%d requests at once are too few for this test", at)
		}
		refuses.Store(true)
		for i := range 400 { // others come while it does
			if i < 100 {
				time.Sleep(200 * time.Millisecond)
			}
			wg.Go(func() { _ = src.ReadAt(t.Context(), large, make([]byte, 2), 2) })
		}
		time.Sleep(time.Second)
		refuses.Store(false)
		begin := time.Now()
		if err := src.ReadAt(t.Context(), large, make([]byte, 2), 1); err != nil || time.Since(begin) > 40*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		wg.Wait()
	})
}

// Everything that is on its way fails at once, and nothing else is requested before that has
// been read: retries that succeed pay for the others.
func TestARestartOfABusyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before = 10
		net := remote.NewNet(remote.Options{})
		src := remote.New(&judged{link: free(), judge: func(_ int64, attempt int) error {
			if attempt == before+1 {
				return reset()
			}
			return nil
		}}, net, source.Access{NoHedge: true})
		for range before {
			together(t, src, 250, 2)
		}
		begin := time.Now()
		for _, err := range together(t, src, 250, 2) {
			if err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("250 reads that broke once took %s", took)
		}
		if c := net.Counts()["store"]; 10*c.Retries > c.Requests+10 {
			t.Errorf("%d of %d requests were retries", c.Retries, c.Requests)
		}
	})
}

// During an outage each request gets another attempt before any gets a third, and there is
// one a second of them; where there are other requests, they are a tenth of these, if that is
// more, and not both.
func TestRetriesComeInTurn(t *testing.T) {
	fails := func(off int64, _ int) error {
		if off == 1 {
			return nil
		}
		return &remote.Fault{Kind: remote.Unreachable, Status: 500, What: "the server answered 500"}
	}
	synctest.Test(t, func(t *testing.T) {
		net := remote.NewNet(remote.Options{})
		store := &judged{link: free(), judge: fails}
		src := remote.New(store, net, source.Access{})
		together(t, src, 500, 2)
		for off, n := range store.attempts {
			if n < 2 {
				t.Fatalf("read %d had no second attempt", off>>32)
			}
		}
		if n := net.Counts()["store"].Retries; n < 550 || n > 670 { // a tenth of 500, and one a second
			t.Errorf("%d retries in ten minutes", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		net := remote.NewNet(remote.Options{})
		src := remote.New(&judged{link: free(), judge: fails}, net, source.Access{Deadline: 100 * time.Second})
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 500 {
				time.Sleep(200 * time.Millisecond)
				if err := src.ReadAt(t.Context(), large, make([]byte, 2), 1); err != nil {
					t.Error(err)
				}
			}
		})
		together(t, src, 90, 2)
		n := net.Counts()["store"].Retries
		wg.Wait()
		if n < 90 || n > 120 {
			t.Errorf("%d retries in 100 s", n)
		}
	})
}

// What a server says is shown in a line without what moves a cursor, and without signatures.
func TestWhatRequestsWaitForIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := remote.NewNet(remote.Options{})
		src := remote.New(&judged{link: free(), judge: func(int64, int) error {
			return remote.Answered(http.Header{}, 500, "\x1b[2Jno\r\nhttps://h/x?X-Amz-Signature=hush&a=b")
		}}, net, source.Access{Deadline: time.Minute})
		var wg sync.WaitGroup
		wg.Go(func() { _ = src.ReadAt(t.Context(), large, make([]byte, 2), 1) })
		time.Sleep(10 * time.Second)
		line := net.Waiting()
		if !strings.HasPrefix(line, "store does not answer: 1 request has waited for 10 s (") || strings.ContainsAny(line, "\x1b\r\n") || strings.Contains(line, "hush") || !strings.Contains(line, "https://h/x") {
			t.Errorf("%q", line)
		}
		wg.Wait()
	})
}

// lagging answers the first read at each offset from 1 << 32 on after ten seconds.
type lagging struct {
	*link
	seen sync.Map
}

func (l *lagging) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	if _, again := l.seen.LoadOrStore(off, true); off >= 1<<32 && !again {
		if err := source.Sleep(ctx, 10*time.Second); err != nil {
			return 0, err
		}
	}
	return l.link.Read(ctx, obj, p, off)
}

// More reads are late at once than may be sent a second time. Each gets its second request as
// soon as others have paid for it, and not only if there was credit when it became late.
func TestLateReadsWaitForCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 20
		net := remote.NewNet(remote.Options{})
		src := remote.New(&lagging{link: free()}, net, source.Access{})
		read := func(off int64) {
			if err := src.ReadAt(t.Context(), large, make([]byte, 1000), off); err != nil {
				t.Error(err)
			}
		}
		var others, wg sync.WaitGroup
		others.Go(func() {
			for i := range 1000 { // 200 a second: ten second requests
				time.Sleep(5 * time.Millisecond)
				others.Go(func() { read(int64(i)) })
			}
		})
		time.Sleep(time.Second)
		begin := time.Now()
		for i := range int64(late) {
			wg.Go(func() { read((i + 1) << 32) })
		}
		wg.Wait()
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("%d late reads took %s", late, took)
		}
		others.Wait()
		if c := net.Counts()["store"]; c.Hedges > (c.Requests-c.Hedges)/20+1 {
			t.Errorf("%d of %d requests were second ones", c.Hedges, c.Requests)
		}
	})
}
