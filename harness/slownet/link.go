package slownet

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Link is what is between clients and the server; the zero value adds nothing.
type Link struct {
	Latency    time.Duration // from a request to the first byte of its answer
	Connection Rate          // of each connection
	Total      Rate          // of all connections together

	// More requests a second than Requests are not passed on, but answered as Excess
	// says. Burst requests may come at once after a pause; 0: a tenth of a second's,
	// and at least one.
	Requests float64
	Burst    int
	Excess   Excess
}

// Excess is the answer to a request beyond the limit.
type Excess struct {
	Status     int           // 0: 503
	Code       string        // in a body like S3's; "": SlowDown; "plain": no such body
	RetryAfter time.Duration // in whole seconds; 0: the header is left out
}

// Rate is bytes a second; 0: no bound. As text it has a unit if wanted: 90MB/s, 64KiB/s.
type Rate int64

const (
	// chunk is the most that passes at once: at 250 MB/s it takes a millisecond, which
	// is about what timers are worth. Bytes are copied: splice took as much CPU at that
	// rate, since what a paced byte costs is being woken for it.
	chunk = 256 << 10
	// step is how long a chunk takes where the bandwidth is smaller.
	step = 3 * time.Millisecond
	// credit is how much of the time that a connection came late, because its timer
	// or the machine did, it may make up for.
	credit = 20 * time.Millisecond
)

// piece is how many bytes pass at once at some bandwidths, of which 0 are none.
func piece(rates ...Rate) int {
	n := int64(chunk)
	for _, r := range rates {
		if r > 0 {
			n = min(n, max(64, int64(r)/int64(time.Second/step)))
		}
	}
	return int(n)
}

// bucket is a bandwidth that is dealt out in the order of requests. It keeps no bytes of
// an idle time: what comes after it has to wait for its own.
type bucket struct {
	mu   sync.Mutex
	free time.Time // when everything promised has passed
}

// take promises n bytes, and says when the last of them has passed.
func (b *bucket) take(from time.Time, n int, r Rate) time.Time {
	took := time.Duration(float64(n) / float64(r) * float64(time.Second))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free.Before(from) {
		b.free = from
	}
	b.free = b.free.Add(took)
	return b.free
}

// limit is a limit of requests a second.
type limit struct {
	mu   sync.Mutex
	next time.Time // when the next request would be due, were they evenly spaced
}

// take says whether a request may pass now.
func (m *limit) take(now time.Time, l *Link) bool {
	if l.Requests <= 0 {
		return true
	}
	burst := l.Burst
	if burst <= 0 {
		burst = max(1, int(l.Requests/10))
	}
	each := time.Duration(float64(time.Second) / l.Requests)
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.next
	if next.Before(now) {
		next = now
	}
	if next.Sub(now) > time.Duration(burst-1)*each {
		return false
	}
	m.next = next.Add(each)
	return true
}

func (m *limit) restart() {
	m.mu.Lock()
	m.next = time.Time{}
	m.mu.Unlock()
}

// pause sleeps until a moment. False: nobody waits any more.
func pause(ctx context.Context, until time.Time) bool {
	d := time.Until(until)
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pauseExactly is pause for what has no next time to make up for lateness: timers of
// the runtime may be a millisecond late, the kernel's are not.
func pauseExactly(ctx context.Context, until time.Time) bool {
	const fine = 1500 * time.Microsecond
	if time.Until(until) > fine && !pause(ctx, until.Add(-fine)) {
		return false
	}
	if d := time.Until(until); d > 0 {
		ts := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&ts, nil) // early only if a signal came
	}
	return pause(ctx, until)
}

// UnmarshalText reads a rate.
func (r *Rate) UnmarshalText(b []byte) error {
	n, err := parseBytes(strings.TrimSuffix(string(b), "/s"))
	*r = Rate(n)
	return err
}

// UnmarshalJSON reads a rate that is a number, or a text with a unit.
func (r *Rate) UnmarshalJSON(b []byte) error {
	return r.UnmarshalText([]byte(strings.Trim(string(b), `"`)))
}

// parseBytes reads a number of bytes, with a unit if there is one.
func parseBytes(s string) (int64, error) {
	number := strings.TrimRight(s, "BiKMGk")
	unit, known := map[string]float64{
		"": 1, "B": 1, "KB": 1e3, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[s[len(number):]]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || n < 0 || n*unit >= 1<<62 {
		return 0, errs.New(errs.Config, "%q is not a number of bytes", s).Try("write it like 1000, 64KiB or 1.5MB")
	}
	return int64(n * unit), nil
}

// linkJSON is a Link as the control address writes and reads it: durations as text.
type linkJSON struct {
	Latency    string  `json:"latency"`
	Connection Rate    `json:"connection"`
	Total      Rate    `json:"total"`
	Requests   float64 `json:"requests"`
	Burst      int     `json:"burst"`
	Status     int     `json:"status"`
	Code       string  `json:"code"`
	RetryAfter string  `json:"retry_after"`
}

// MarshalJSON implements json.Marshaler.
func (l Link) MarshalJSON() ([]byte, error) {
	return json.Marshal(linkJSON{
		l.Latency.String(), l.Connection, l.Total, l.Requests, l.Burst, l.Excess.Status, l.Excess.Code, l.Excess.RetryAfter.String(),
	})
}

// UnmarshalJSON changes the parts of the link that are there, and keeps the others.
func (l *Link) UnmarshalJSON(b []byte) error {
	j := linkJSON{
		l.Latency.String(), l.Connection, l.Total, l.Requests, l.Burst, l.Excess.Status, l.Excess.Code, l.Excess.RetryAfter.String(),
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	err := dec.Decode(&j)
	latency, after := time.Duration(0), time.Duration(0)
	if err == nil {
		latency, err = time.ParseDuration(j.Latency)
	}
	if err == nil {
		after, err = time.ParseDuration(j.RetryAfter)
	}
	if err != nil {
		return errs.New(errs.Config, "cannot read the link").Because(err).Try(`write it like {"latency": "20ms", "connection": "90MB/s", "total": "250MB/s", "requests": 400}`)
	}
	*l = Link{latency, j.Connection, j.Total, j.Requests, j.Burst, Excess{j.Status, j.Code, after}}
	return nil
}
