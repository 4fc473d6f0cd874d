package remote_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// link is a store at the other end of a link, in the time of a synctest bubble.
type link struct {
	latency    time.Duration
	connection float64 // bytes per second of one request
	total      float64 // and of all
	perSecond  float64 // requests that are answered; 0: all
	late       float64 // share of answers that are late
	lateBy     time.Duration

	mu       sync.Mutex
	free     time.Time // when all that was promised is sent
	tokens   float64
	counted  time.Time
	requests atomic.Int64
	refused  atomic.Int64
	bytes    atomic.Int64
	active   atomic.Int64
	most     atomic.Int64
	random   *rand.Rand
}

func (l *link) Host(string) string { return "store" }

func (l *link) Stat(context.Context, string) (source.Info, error) { return source.Info{}, nil }

func (l *link) Page(context.Context, string, bool, string) (remote.Page, error) {
	return remote.Page{}, nil
}

func (l *link) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	l.requests.Add(1)
	n := l.active.Add(1)
	defer l.active.Add(-1)
	for most := l.most.Load(); n > most && !l.most.CompareAndSwap(most, n); most = l.most.Load() {
	}
	l.mu.Lock()
	late := l.late > 0 && l.random.Float64() < l.late
	if l.perSecond > 0 {
		now := time.Now()
		l.tokens = min(l.tokens+now.Sub(l.counted).Seconds()*l.perSecond, l.perSecond/20)
		l.counted = now
		if l.tokens < 1 {
			l.mu.Unlock()
			l.refused.Add(1)
			time.Sleep(l.latency)
			return 0, remote.Answered(http.Header{}, 503, "SlowDown")
		}
		l.tokens--
	}
	l.mu.Unlock()
	wait := l.latency
	if late {
		wait += l.lateBy
	}
	if err := pause(ctx, wait); err != nil {
		return 0, err
	}
	body := &paced{ctx, l}
	got, err := remote.Fill(ctx, obj.Name, body, p)
	l.bytes.Add(int64(got))
	return got, err
}

type paced struct {
	ctx context.Context
	l   *link
}

// Read gives 64 KiB at a time, as fast as both limits allow.
func (b *paced) Read(p []byte) (int, error) {
	n := min(len(p), 64<<10)
	if n == 1 {
		return 0, nil // nothing comes after the body
	}
	l := b.l
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / l.total * 1e9))
	wait := max(l.free.Sub(now), time.Duration(float64(n)/l.connection*1e9))
	l.mu.Unlock()
	return n, pause(b.ctx, wait)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// consume reads ranges of that length with so many readers, for a time, and returns how
// long each took.
func consume(t *testing.T, src source.Source, length, readers int, d time.Duration) (took []time.Duration) {
	t.Helper()
	obj := source.Info{Name: "mem://a", Size: 1 << 40, Version: "1"}
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for range readers {
		wg.Go(func() {
			p := make([]byte, length)
			for time.Now().Before(end) {
				begun := time.Now()
				if err := src.ReadAt(t.Context(), obj, p, 0); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return took
}

func mb(n float64) float64 { return n * 1e6 }

// The link of the benchmarks: the number of requests at once finds what fills it.
func TestRequestsAtOnceFillTheLink(t *testing.T) {
	for _, length := range []int{110_000, 1 << 20, 8 << 20} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &link{latency: 20 * time.Millisecond, connection: mb(90), total: mb(250)}
				net := remote.NewNet(remote.Options{})
				src := remote.New(l, net, source.Access{})
				consume(t, src, length, 256, 5*time.Second)
				l.bytes.Store(0)
				l.most.Store(0)
				var came int64 // before the last reads end
				time.AfterFunc(20*time.Second, func() { came = l.bytes.Load() })
				consume(t, src, length, 256, 20*time.Second)
				synctest.Wait()
				share := float64(came) / 20 / l.total
				t.Logf("%.3f of the link, at most %d at once, limit %d", share, l.most.Load(), net.Counts()["store"].Limit)
				if share < 0.95 {
					t.Errorf("%.2f of the link", share)
				}
				// Four would do; the growth of the first seconds may still be on its way back.
				if length == 8<<20 && l.most.Load() > 128 {
					t.Errorf("%d requests at once of 256 that were wanted, where 4 would do", l.most.Load())
				}
			})
		})
	}
}

// A host that refuses what is over its limit is asked for nearly as much as it answers,
// by one process and by four, and for all it can once the limit is lifted.
func TestALimitOfRequests(t *testing.T) {
	for _, engines := range []int{1, 4} {
		t.Run(fmt.Sprint(engines), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &link{latency: 20 * time.Millisecond, connection: mb(90), total: mb(250), perSecond: 400, counted: time.Now()}
				var wg sync.WaitGroup
				var all []source.Source
				for range engines {
					all = append(all, remote.New(l, remote.NewNet(remote.Options{}), source.Access{}))
				}
				run := func(d time.Duration) {
					for _, src := range all {
						wg.Go(func() { consume(t, src, 110_000, 128, d) })
					}
					wg.Wait()
				}
				run(10 * time.Second)
				l.requests.Store(0)
				l.refused.Store(0)
				run(30 * time.Second)
				answered := float64(l.requests.Load()-l.refused.Load()) / 30
				refused := float64(l.refused.Load()) / float64(l.requests.Load())
				t.Logf("%.0f answered a second, %.3f refused", answered, refused)
				if answered < 0.85*400 || refused > 0.1 {
					t.Errorf("%.0f answered a second, %.2f refused", answered, refused)
				}
				l.mu.Lock()
				l.perSecond = 0
				l.mu.Unlock()
				run(20 * time.Second)
				l.bytes.Store(0)
				var came int64
				time.AfterFunc(5*time.Second, func() { came = l.bytes.Load() })
				run(5 * time.Second)
				synctest.Wait()
				if share := float64(came) / 5 / l.total; share < 0.9 {
					t.Errorf("%.2f of the link, 20 s after the limit was lifted", share)
				} else {
					t.Logf("%.2f of the link after", share)
				}
			})
		})
	}
}

// follow reads ranges of that length with as many readers as the link says, for a time, as
// package fetch does: none of them waits where the limit is too small.
func follow(t *testing.T, src *remote.Source, length int, d time.Duration) {
	t.Helper()
	obj := source.Info{Name: "mem://a", Size: 1 << 40, Version: "1"}
	var wg sync.WaitGroup
	var readers atomic.Int64
	conns := func() int64 {
		l, _ := src.Link(obj.Name)
		return int64(l.Conns)
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for ; readers.Load() < conns(); readers.Add(1) {
			wg.Go(func() {
				defer readers.Add(-1)
				p := make([]byte, length)
				for time.Now().Before(end) && readers.Load() <= conns() {
					if err := src.ReadAt(t.Context(), obj, p, 0); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// Readers of whom there are never more than the link says find the limit that fills it,
// within a second and without many more requests than that needs.
func TestReadersFollowTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{latency: 20 * time.Millisecond, connection: mb(90), total: mb(250)}
		src := remote.New(l, remote.NewNet(remote.Options{}), source.Access{})
		var begun, came int64
		time.AfterFunc(time.Second, func() { begun = l.bytes.Load() })
		time.AfterFunc(5*time.Second, func() { came = l.bytes.Load() - begun })
		follow(t, src, 110_000, 6*time.Second)
		synctest.Wait()
		share := float64(came) / 4 / l.total
		t.Logf("%.3f of the link, at most %d at once", share, l.most.Load())
		if share < 0.9 || l.most.Load() > 256 {
			t.Errorf("%.2f of the link, %d at once", share, l.most.Load())
		}
	})
}

// Engines that meet a limit when all of them are at full speed soon use it, and are soon
// within it.
func TestALimitThatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{latency: 20 * time.Millisecond, connection: mb(90), total: mb(250)}
		var wg sync.WaitGroup
		for range 4 {
			src := remote.New(l, remote.NewNet(remote.Options{}), source.Access{})
			wg.Go(func() { follow(t, src, 110_000, 14*time.Second) })
		}
		time.Sleep(8 * time.Second)
		l.mu.Lock()
		l.perSecond, l.counted = 400, time.Now()
		l.mu.Unlock()
		time.Sleep(500 * time.Millisecond)
		requests, refused := l.requests.Load(), l.refused.Load()
		time.Sleep(4 * time.Second)
		requests, refused = l.requests.Load()-requests, l.refused.Load()-refused
		wg.Wait()
		answered, share := float64(requests-refused)/4, float64(refused)/float64(requests)
		t.Logf("%.0f answered a second, %.3f refused", answered, share)
		if answered < 0.85*400 || share > 0.1 {
			t.Errorf("%.0f answered a second, %.2f refused", answered, share)
		}
	})
}

// Late answers are overtaken by a second request, at the price of few bytes.
func TestLateAnswersAreOvertaken(t *testing.T) {
	p99 := func(hedge bool) (time.Duration, float64) {
		var p time.Duration
		var twice float64
		synctest.Test(t, func(t *testing.T) {
			l := &link{latency: 20 * time.Millisecond, connection: mb(90), total: mb(250), late: 0.012, lateBy: time.Second, random: rand.New(rand.NewPCG(1, 2))}
			net := remote.NewNet(remote.Options{})
			src := remote.New(l, net, source.Access{NoHedge: !hedge})
			took := consume(t, src, 110_000, 16, 20*time.Second)
			slices.Sort(took)
			p = took[len(took)*99/100]
			c := net.Counts()["store"]
			twice = float64(c.Twice) / float64(c.Bytes)
			t.Logf("p99 %v, %d requests, %d hedges, %.4f of the bytes twice", p, c.Requests, c.Hedges, twice)
		})
		return p, twice
	}
	without, _ := p99(false)
	with, twice := p99(true)
	if with > without*3/10 || twice > 0.05 {
		t.Errorf("%v with, %v without; %.3f of the bytes twice", with, without, twice)
	}
}
