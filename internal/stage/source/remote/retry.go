package remote

import (
	"context"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Retries are at most a tenth of the requests of a host, or one a second, whichever is more:
// during an outage there are no other requests. They come in the order in which their waits
// have ended, so that none is left without an attempt.
//
// When a server restarts or begins to refuse requests, everything that is planned may be on
// its way and fail. Then no new request earns credit, and one retry a second would take
// minutes. So while nothing new is read, each retry that succeeds allows another one, as long
// as retries are less than a tenth of all requests to the host so far. One that fails allows
// none.

const (
	retryShare = 0.1 // retries for each request
	retryRate  = 1.0 // and for each second
	retryMost  = 10.0
	nothingNew = time.Second / 4
)

// retrying is the retries that may be made, and those that wait for that; under host.mu.
type retrying struct {
	share   float64   // retries that may be made for the requests there were
	timely  float64   // and for the time that has passed: a retry is one of both
	counted time.Time // when timely was last counted
	asked   time.Time // when a read began last
	again   []chan struct{}
	waking  bool // again is looked at when the next retry is due
}

// takeAgain takes the credit for a retry, if there is any; h.mu is held.
func (h *host) takeAgain(now time.Time) bool {
	h.timely = min(h.timely+now.Sub(h.counted).Seconds()*retryRate, retryMost)
	h.counted = now
	if max(h.share, h.timely) < 1 {
		return false
	}
	h.share, h.timely = max(h.share-1, 0), max(h.timely-1, 0)
	return true
}

// begins says that a read begins.
func (h *host) begins() {
	h.mu.Lock()
	h.asked = time.Now()
	h.mu.Unlock()
}

// repaid returns the credit of a retry that succeeded.
func (h *host) repaid() {
	if float64(h.retries.Load()) >= float64(retryShare*float64(h.requests.Load())) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) > nothingNew {
		h.share = min(h.share+1, retryMost)
		h.admitAgain(time.Now())
	}
}

// admitAgain lets those retry for whom there is credit, and sees to the next one; h.mu is
// held.
func (h *host) admitAgain(now time.Time) {
	n := 0
	for ; n < len(h.again) && h.takeAgain(now); n++ {
		close(h.again[n])
	}
	h.again = slices.Delete(h.again, 0, n)
	if len(h.again) == 0 || h.waking {
		return
	}
	h.waking = true
	due := time.Duration((1-h.timely)/retryRate*float64(time.Second)) + time.Millisecond
	time.AfterFunc(due, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waking = false
		h.admitAgain(time.Now())
	})
}

// mayRetry waits that long, and then until it is the request's turn to be made again. false:
// the time that is left, or ctx, has ended before.
func (h *host) mayRetry(ctx context.Context, wait, left time.Duration) bool {
	end := time.NewTimer(left)
	defer end.Stop()
	if source.Sleep(ctx, wait) != nil {
		return false
	}
	turn := make(chan struct{})
	h.mu.Lock()
	h.again = append(h.again, turn)
	h.admitAgain(time.Now())
	h.mu.Unlock()
	select {
	case <-turn:
		h.retries.Add(1)
		return true
	case <-end.C:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := slices.Index(h.again, turn); at >= 0 {
		h.again = slices.Delete(h.again, at, at+1)
	} else { // its turn came, too: another may have it
		h.share = min(h.share+1, retryMost)
		h.admitAgain(time.Now())
	}
	return false
}
