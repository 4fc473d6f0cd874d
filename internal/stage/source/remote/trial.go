package remote

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	firstWait = 100 * time.Millisecond // the longest wait before the second attempt
	mostWait  = 20 * time.Second       // the longest of all
	mostAfter = 2 * time.Minute        // the longest that a server may ask for: it may be wrong
	toldLast  = 5                      // attempts that an error lists
	leastCame = 64 << 10               // bytes that put the deadline off: a few at a time would do so for ever
	leastTry  = time.Second            // that an attempt has, however little is left
	sameBytes = 3                      // times that bytes have to arrive which are not those of their checksum

	// untilReached is how long a host is tried that has never answered: it is more likely
	// misspelt than down. A deadline that the user gave counts instead.
	untilReached = 30 * time.Second
)

// trial is the attempts of one request.
type trial struct {
	since     time.Time // of the first attempt, or of the last leastCame bytes; see waited
	came      int       // bytes since then
	deadline  time.Duration
	unreached bool // the host has never answered
	row       int  // faults since the last bytes
	renewed   bool
	got       uint64 // the bytes of the last mismatch
	same      int    // times that they arrived
	all       int
	last      []told // the last few
	waiting   bool   // the host lists it among those that wait
}

type told struct {
	after time.Duration
	what  string
	times int
}

// failed counts a fault, and says how long to wait before the next attempt, if there is
// to be one. came is how many bytes the attempt brought that need not come again. Waits are drawn evenly from zero to twice the
// last limit ("full jitter"), so that requests that failed together do not retry together.
func (t *trial) failed(f *Fault, came int) (wait time.Duration, again bool) {
	if t.came += came; came > 0 {
		t.row = 0
	}
	if t.came >= leastCame {
		t.since, t.came = time.Now(), 0
	}
	t.all++
	t.row++
	if n := len(t.last); n > 0 && t.last[n-1].what == f.Error() {
		t.last[n-1].times++
	} else {
		t.last = append(t.last, told{time.Since(t.since), f.Error(), 1})
		t.last = t.last[max(0, len(t.last)-toldLast):]
	}
	if f.Kind == Expired {
		if t.renewed {
			return 0, false
		}
		t.renewed = true
		return 0, true
	}
	if f.got != 0 {
		if t.same++; f.got != t.got {
			t.got, t.same = f.got, 1
		}
		if t.same == sameBytes {
			return 0, false
		}
	}
	limit := min(firstWait<<min(t.row-1, 20), mostWait)
	wait = time.Duration(rand.Int64N(int64(limit) + 1))
	left := t.left()
	if f.After > 0 {
		// However long a server wants to be left alone, it is asked again before the
		// deadline: half of what is left is not spent on one wait.
		wait = max(wait, min(f.After+time.Duration(rand.Int64N(int64(firstWait))), mostAfter, max(left/2, firstWait)))
	}
	return wait, left > wait
}

// waited says how long the next attempt had to wait until it might be made, and when the host
// last answered any. A wait for requests that are answered does not count: they are many, and
// the host is well. One for requests that fail does, or else each of many would have the
// deadline for itself.
func (t *trial) waited(d time.Duration, heard time.Time) {
	if heard.After(t.since) {
		t.since = t.since.Add(min(d, heard.Sub(t.since)))
	}
}

// left is the time until the deadline.
func (t *trial) left() time.Duration { return t.deadline - time.Since(t.since) }

// gaveUp is the error of a request that no further attempt is made of; origin is where
// the host's address was read from, if that is known.
func (t *trial) gaveUp(name string, off int64, f *Fault, origin string) error {
	if f.Final != nil {
		return f.Final
	}
	var b strings.Builder
	for i, a := range t.last {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "after %s: %s", errs.InSeconds(a.after), a.what)
		if a.times > 1 {
			fmt.Fprintf(&b, " (%d times)", a.times)
		}
	}
	code, what, hint := errs.Unreachable, "the store could not be read", "check the network and the store; fetch.deadline (stoker bench: --deadline) sets how long a read is retried"
	switch {
	case t.unreached && origin != "":
		what, hint = "the store did not answer", "check its address, which comes from "+origin+"; fetch.deadline (stoker bench: --deadline) sets how long it is tried"
	case t.unreached:
		vendor := ""
		if source.Keyed(name) { // a URL names its host
			vendor = "if another vendor runs the store, set endpoint_url; "
		}
		what, hint = "the server did not answer", "check its name, the network and any proxies; "+vendor+"fetch.deadline (stoker bench: --deadline) sets how long it is tried"
	case f.Kind == Throttled:
		code, what, hint = errs.Throttled, "the store accepted no request", "ask for a higher limit, spread the data over more prefixes, or set fetch.connections (stoker bench: --connections)"
	}
	return errs.New(code, "%s within %s, in %s", what, errs.InSeconds(t.deadline), errs.Many(t.all, "attempt")).
		At(atByte(name, off)).Because(fmt.Errorf("%s", b.String())).Try("%s", hint)
}
