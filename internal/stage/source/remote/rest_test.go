package remote_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// A server that asks for half a minute of rest gets no request in it, whoever wants one; one
// that asks for a second limits the rate, and others go on.
func TestAHostIsLeftAlone(t *testing.T) {
	for after, alone := range map[string]bool{"30": true, "1": false} {
		t.Run(after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var early atomic.Int64
				store := &judged{link: free()}
				store.judge = func(off int64, attempt int) error {
					since := time.Since(begin)
					if off == 1 && attempt == 1 {
						return remote.Answered(http.Header{"Retry-After": {after}}, 503, "SlowDown")
					}
					if since > time.Second && since < 30*time.Second {
						early.Add(1)
					}
					return nil
				}
				net := remote.NewNet(remote.Options{})
				src := remote.New(store, net, source.Access{NoHedge: true})
				var wg sync.WaitGroup
				for i := range int64(50) { // the first is refused; the others come in the half minute after it
					wg.Go(func() {
						if err := src.ReadAt(t.Context(), large, make([]byte, 2), i+1); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(500 * time.Millisecond)
				}
				wg.Wait()
				if n := early.Load(); (n == 0) != alone && (n > 2) == alone {
					t.Errorf("%d requests in the half minute after Retry-After: %s", n, after)
				}
				if took := time.Since(begin); took > 40*time.Second {
					t.Errorf("after Retry-After: %s all was read in %s", after, took)
				}
			})
		})
	}
}

// However long a server wants to be left alone, a request is made before its deadline ends,
// also by those who were not refused.
func TestRestEndsBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &judged{link: free()}
		store.judge = func(off int64, attempt int) error {
			if off == 1 && attempt == 1 {
				return remote.Answered(http.Header{"Retry-After": {"3600"}}, 429, "")
			}
			return nil
		}
		net := remote.NewNet(remote.Options{})
		patient := remote.New(store, net, source.Access{NoHedge: true})
		hasty := remote.New(store, net, source.Access{NoHedge: true, Deadline: 10 * time.Second})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := patient.ReadAt(t.Context(), large, make([]byte, 2), 1); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		begin := time.Now()
		if err := hasty.ReadAt(t.Context(), large, make([]byte, 2), 2); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("%s of a deadline of 10 s", took)
		}
		wg.Wait()
		if took := time.Since(begin); took > 3*time.Minute {
			t.Errorf("the refused one took %s", took)
		}
	})
}

// A server that takes requests and says nothing is named while it is waited for.
func TestASilentHostIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := free()
		l.latency = 20 * time.Second
		net := remote.NewNet(remote.Options{})
		src := remote.New(l, net, source.Access{NoHedge: true})
		time.Sleep(time.Hour) // of which nothing is said: nobody asked
		var wg sync.WaitGroup
		for i := range int64(2) {
			wg.Go(func() { _ = src.ReadAt(t.Context(), large, make([]byte, 2), i) })
		}
		for _, want := range []struct {
			wait time.Duration
			line string
		}{
			{3 * time.Second, ""},
			{4 * time.Second, "store is silent: nothing has come for 7 s, and 2 requests wait"},
		} {
			time.Sleep(want.wait)
			if line := net.Waiting(); line != want.line || net.Waits() != (line != "") {
				t.Errorf("%q, want %q, waits: %v", line, want.line, net.Waits())
			}
		}
		wg.Wait()
		if line := net.Waiting(); line != "" {
			t.Errorf("%q after all answers", line)
		}
	})
}

// With a limit of bytes per second, no request asks for much more than what an eighth of a
// second brings, and holes are small: the first batch does not wait for what is read with it.
func TestALimitOfBandwidthMakesRequestsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for bandwidth, want := range map[int64]source.Link{
			256 << 10: {Gap: 16 << 10, Part: 64 << 10},
			8 << 20:   {Gap: 128 << 10, Part: 1 << 20},
			8 << 30:   {Gap: 256 << 10, Part: 4 << 20},
		} {
			src := remote.New(free(), remote.NewNet(remote.Options{}), source.Access{Bandwidth: bandwidth})
			if l, _ := src.Link(large.Name); l.Gap != want.Gap || l.Part != want.Part {
				t.Errorf("%d bytes a second: holes of %d and requests of %d bytes, want %d and %d", bandwidth, l.Gap, l.Part, want.Gap, want.Part)
			}
		}
	})
}

// What a cancelled read was promised is there for those who come after it.
func TestACancelledReadGivesItsBandwidthBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := remote.New(free(), remote.NewNet(remote.Options{}), source.Access{Bandwidth: 64 << 10})
		read := func(ctx context.Context) error { return src.ReadAt(ctx, large, make([]byte, 64<<10), 0) }
		if err := read(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _ = read(ctx) })
		}
		time.Sleep(time.Second / 2)
		cancel()
		wg.Wait()
		begin := time.Now()
		if err := read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("a read of a second's bytes took %s after 100 others were cancelled", took)
		}
	})
}

// Requests that wait for their turn when a host asks for rest are not made in it, and neither
// are second requests of late reads.
func TestAQueueIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var early atomic.Int64
		store := &judged{link: free()}
		store.latency = 2 * time.Second
		store.judge = func(off int64, attempt int) error {
			since := time.Since(begin)
			if off == 0 && attempt == 1 {
				return remote.Answered(http.Header{"Retry-After": {"30"}}, 503, "SlowDown")
			}
			if since > time.Second && since < 30*time.Second {
				early.Add(1)
			}
			return nil
		}
		src := remote.New(store, remote.NewNet(remote.Options{}), source.Access{})
		for i, err := range together(t, src, 250, 2) { // many more than may be made at once
			if err != nil {
				t.Errorf("read %d: %v", i, err)
			}
		}
		if n := early.Load(); n > 0 {
			t.Errorf("%d requests in the half minute of rest", n)
		}
	})
}

// A server that answers at once that there is no such thing, or that it may not be read, is
// not silent, however many requests overlap.
func TestRefusalsAreNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &judged{link: free(), judge: func(int64, int) error {
			time.Sleep(100 * time.Millisecond)
			return errs.New(errs.Denied, "no")
		}}
		net := remote.NewNet(remote.Options{})
		src := remote.New(l, net, source.Access{})
		var wg sync.WaitGroup
		for i := range int64(2) {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				for range 200 {
					_ = src.ReadAt(t.Context(), large, make([]byte, 2), i)
				}
			})
		}
		for range 19 {
			time.Sleep(time.Second)
			if line := net.Waiting(); line != "" {
				t.Error(line)
			}
		}
		wg.Wait()
	})
}
