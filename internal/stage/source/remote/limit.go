package remote

import (
	"math"
	"time"
)

// Limits of concurrent requests to a host, and of requests per second.
//
// Concurrent requests: the limit follows throughput. Time is cut into windows; where all of
// the limit was used, the next window tries a larger one, and keeps it if more came of it.
// Now and then a smaller one is tried, and kept if no less came. So the limit settles near
// bandwidth times latency, and moves when these do. Several processes find their shares in
// the same way: what one gives up, others win.
//
// Callers have as many readers as Link.Conns says, so nobody waits for a turn even if the
// limit is too small: a limit that is used up must count as demand for more.
//
// Requests per second: a host that refuses some (429, 503 SlowDown) has a limit of rate, not
// of concurrency. From then on requests are also spaced, at first a little below
// the rate at which they were answered, and then faster the longer nothing is refused:
// the rate comes near the host's limit again within seconds, and leaves it within 20
// seconds where that was lifted.

const (
	firstLimit = 20.0 // the first batch waits for all of its ranges: most of them are asked for in three rows
	leastLimit = 1.0
	mostLimit  = 512.0

	gain    = 0.25 // of what a larger limit has more, as much more has to come: it pays
	kept    = 0.98 // no less than that came: a smaller one does
	upRow   = 4    // windows between attempts with a larger limit, once growth has ended
	downRow = 7    // and with a smaller one

	double = 2.0 // while the limit grows
	slips  = 2   // windows in a row without more, until a larger limit is given up

	windowLeast = 250 * time.Millisecond
	windowFirst = 100 * time.Millisecond // while the limit grows
	// requestBytes is what a request counts in addition to its bytes: small ones are work too.
	requestBytes = 16 << 10

	backRate  = 0.9                    // of the rate that was answered, after a refusal
	leastBack = 0.85                   // of the rate that was allowed, at least
	cutEvery  = 200 * time.Millisecond // refusals within that time are one event
)

// window is what came while the limit stayed as it was; under host.mu.
type window struct {
	begun  time.Time
	work   float64 // bytes, and requestBytes for each request
	done   int
	full   int  // of them, those that ended while all turns were taken
	spaced bool // the spacing held a request back

	growing bool    // no limit has been too large yet
	trying  int     // 1: a larger limit is tried, -1: a smaller one, 0: neither
	before  float64 // the limit before that
	rate    float64 // work per second with it
	row     int     // windows since the last attempt
	count   int     // of attempts
	slips   int     // windows in which the larger limit has not brought more
}

// ended judges a window if it is over; h.mu is held. latency is that of a request.
func (h *host) ended(now time.Time, latency time.Duration) {
	w := &h.window
	length := now.Sub(w.begun)
	least := windowLeast
	if w.growing {
		least = windowFirst
	}
	if length < max(least, 4*latency) || w.done < int(h.limit) && length < 20*max(windowLeast, latency) {
		return
	}
	rate := w.work / length.Seconds()
	if 2*w.full >= w.done && !w.spaced {
		h.judge(rate)
	} else {
		w.trying, w.rate = 0, 0 // nobody wanted more, or more is not allowed: nothing is known
	}
	w.begun, w.work, w.done, w.full, w.spaced = now, 0, 0, 0, false
}

// judge sets the limit of the next window from what came in this one.
func (h *host) judge(rate float64) {
	w := &h.window
	switch {
	case w.trying > 0 && rate < w.rate*(1+float64(gain*(h.limit/w.before-1))): // not worth it
		if w.slips++; w.slips < slips {
			return // the first requests beyond the limit had to connect, or others had a pause
		}
		h.limit, w.growing, w.trying, w.row, w.slips = w.before, false, 0, 0, 0
		return
	case w.trying < 0 && rate < w.rate*kept:
		h.limit, w.trying, w.row = w.before, 0, 0
		return
	}
	was := w.trying
	w.trying, w.slips = 0, 0
	w.row++
	factor := 1.0
	switch {
	case w.growing:
		factor = double
	case was > 0:
		factor = 1.25 // it paid: once more
	case was < 0:
		factor = 0.85
	case w.row >= upRow && w.count%3 != 2:
		factor = 1.25
	case w.row >= downRow:
		factor = 0.85
	}
	if factor != 1 {
		h.try(factor, rate)
	} else {
		w.rate = rate
	}
}

// try changes the limit for a window.
func (h *host) try(factor, rate float64) {
	w := &h.window
	next := min(max(h.limit*factor, leastLimit), mostLimit)
	if factor > 1 {
		next = min(max(next, h.limit+1), mostLimit)
	}
	if next == h.limit {
		w.rate = rate
		return
	}
	w.before, w.rate, w.row = h.limit, rate, 0
	w.trying = 1
	if factor < 1 {
		w.trying = -1
	}
	w.count++
	h.limit = next
}

// spacing keeps requests apart, once some were refused; under host.mu.
type spacing struct {
	rate    float64   // requests a second; 0: not limited
	refused time.Time // when it was set
	next    time.Time // when the next request may be made

	sent, answered recent
}

// recent counts what happened in the last second.
type recent struct {
	slots [10]int // by tenth of a second
	at    int64   // the tenth of a second of the last one
	since int64   // the first tenth of a second that was counted
}

func (r *recent) add(now time.Time) {
	r.turn(now)
	r.slots[r.at%int64(len(r.slots))]++
}

// turn empties the tenths of a second since the last one.
func (r *recent) turn(now time.Time) {
	at, size := now.UnixMilli()/100, int64(len(r.slots))
	if at >= r.at+size {
		*r = recent{at: at, since: at}
	}
	for ; r.at < at; r.at++ {
		r.slots[(r.at+1)%size] = 0
	}
	r.since = max(r.since, at-size+1)
}

// rate is how many there were a second.
func (r *recent) rate(now time.Time) float64 {
	r.turn(now)
	n := 0
	for _, c := range r.slots {
		n += c
	}
	return float64(n) * 10 / float64(r.at-r.since+1)
}

// allowed is the rate now: it grows with the square of the time since the last refusal.
func (s *spacing) allowed(now time.Time) float64 {
	t := now.Sub(s.refused).Seconds()
	return s.rate * math.Exp(0.02*t*(t+2))
}

// wait takes the next request's turn, and returns how long it must wait.
func (s *spacing) wait(now time.Time) time.Duration {
	if s.rate == 0 {
		return 0
	}
	allowed := s.allowed(now)
	if allowed > 100*s.rate || allowed > 100_000 {
		s.rate = 0 // nothing has been refused for long
		return 0
	}
	if s.next.Before(now) {
		s.next = now
	}
	wait := s.next.Sub(now)
	s.next = s.next.Add(time.Duration(float64(time.Second) / allowed))
	return wait
}

// refuse spaces requests after the refusal of one that was made at begun; h.mu is held. How
// many there are at once is left to the windows, which find that fewer bring as much.
func (h *host) refuse(begun, now time.Time) {
	if now.Sub(h.cut) < cutEvery || begun.Before(h.cut) { // what is on its way knows nothing of the last cut
		return
	}
	h.cut = now
	// What was answered may be little by chance, because others were before, or because
	// nobody asked for more: no refusal takes more than a part.
	answered := h.answered.rate(now) * backRate
	rate := max(answered, h.sent.rate(now)/2)
	if h.spacing.rate > 0 {
		allowed := h.allowed(now)
		rate = min(max(answered, allowed*leastBack), allowed*backRate)
	}
	h.spacing.rate, h.refused = max(rate, 1), now
	h.window = window{begun: now} // what came was not the limit's doing
}
