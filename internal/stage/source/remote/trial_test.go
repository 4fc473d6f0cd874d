package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// script is a store whose attempts go as it says, and its object is the digits.
type script struct {
	mu     sync.Mutex
	read   []attempt // the last one goes on for ever
	asked  []string  // "off+n" of each read
	origin string
}

type attempt struct {
	n   int // bytes that arrive
	err error
}

const digits = "0123456789"

func (s *script) Host(string) string { return "h" }

func (s *script) Origin(string) string { return s.origin }

func (s *script) Stat(context.Context, string) (source.Info, error) {
	return source.Info{Name: "x://h/o", Size: 10, Version: "v"}, s.next().err
}

func (s *script) Page(context.Context, string, bool, string) (Page, error) {
	return Page{}, s.next().err
}

func (s *script) next() (a attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a = s.read[0]
	if len(s.read) > 1 {
		s.read = s.read[1:]
	}
	return a
}

func (s *script) Read(_ context.Context, _ source.Info, p []byte, off int64) (int, error) {
	a := s.next()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf("%d+%d", off, len(p)))
	if a.err == nil {
		a.n = len(p)
	}
	return copy(p[:a.n], digits[off:]), a.err
}

func newScript(t *testing.T, deadline time.Duration, read ...attempt) (*Source, *script) {
	s := &script{read: read}
	n := NewNet(Options{})
	t.Cleanup(n.Close)
	return New(s, n, source.Access{Deadline: deadline, NoHedge: true}), s
}

var object = source.Info{Name: "x://h/o", Size: 10, Version: "v"}

// A body that breaks off goes on at the byte where it broke, if a version says that the rest
// is of the same object.
func TestResume(t *testing.T) {
	gone := &Fault{Kind: Unreachable, What: "gone"}
	for version, want := range map[string]string{"v": "2+6 5+3", "": "2+6 2+6"} {
		src, s := newScript(t, time.Minute, attempt{3, gone}, attempt{})
		obj := object
		obj.Version = version
		p := make([]byte, 6)
		if err := src.ReadAt(t.Context(), obj, p, 2); err != nil || string(p) != "234567" || strings.Join(s.asked, " ") != want {
			t.Errorf("version %q: %q by %q, %v; want %s", version, p, s.asked, err, want)
		}
	}
}

// After the deadline, the error lists the attempts; its code says what to do.
func TestDeadline(t *testing.T) {
	for kind, code := range map[Kind]errs.Code{Unreachable: errs.Unreachable, Broken: errs.Unreachable, Throttled: errs.Throttled} {
		src, s := newScript(t, 200*time.Millisecond, attempt{0, &Fault{Kind: kind, What: "first", Cause: errors.New("why")}}, attempt{0, &Fault{Kind: kind, What: "second"}})
		begin := time.Now()
		err := src.ReadAt(t.Context(), object, make([]byte, 4), 3)
		e := errs.From(err)
		off, _ := e.Where.Offset.Get()
		if e.Code != code || e.Hint == "" || e.Where.File != object.Name || off != 3 || time.Since(begin) > 20*time.Second {
			t.Errorf("%v at %v (%s) after %s", err, e.Where, e.Hint, time.Since(begin))
		}
		for _, says := range []string{"within 0.2 s", fmt.Sprintf("in %d attempts", len(s.asked)), "first: why", "second"} {
			if len(s.asked) < 2 || !strings.Contains(e.Error(), says) {
				t.Errorf("%v does not have %q", e, says)
			}
		}
	}
	// The same for what is not a read, and a server that wants to be left alone for longer.
	src, _ := newScript(t, 200*time.Millisecond, attempt{0, &Fault{Kind: Throttled, What: "later", After: time.Hour}})
	if _, err := src.Stat(t.Context(), object.Name); errs.CodeOf(err) != errs.Throttled {
		t.Errorf("%v", err)
	}
	for _, err := range src.List(t.Context(), object.Name) {
		if errs.CodeOf(err) != errs.Throttled {
			t.Errorf("%v", err)
		}
	}
	own := errs.New(errs.Denied, "the last word")
	src, _ = newScript(t, 100*time.Millisecond, attempt{0, &Fault{Kind: Unreachable, What: "x", Final: own}})
	if err := src.ReadAt(t.Context(), object, make([]byte, 4), 3); err != error(own) {
		t.Errorf("%v", err)
	}
}

// What a retry cannot mend is not retried; credentials are renewed once.
func TestWhatIsRetried(t *testing.T) {
	denied := errs.New(errs.Denied, "no")
	expired := &Fault{Kind: Expired, What: "expired", Final: denied}
	for what, c := range map[string]struct {
		read []attempt
		err  error
		n    int
	}{
		"denied":        {[]attempt{{0, denied}}, denied, 1},
		"renewed":       {[]attempt{{0, expired}, {}}, nil, 2},
		"expired again": {[]attempt{{0, expired}, {0, expired}, {}}, denied, 2},
	} {
		src, s := newScript(t, time.Minute, c.read...)
		if err := src.ReadAt(t.Context(), object, make([]byte, 4), 3); err != c.err || len(s.asked) != c.n {
			t.Errorf("%s: %v in %d attempts", what, err, len(s.asked))
		}
	}
}

// Bytes that are not those of their checksum are read again, since they may have changed on
// the way; those that come three times are what is stored.
func TestSpoiled(t *testing.T) {
	wrong := func(bytes string) attempt {
		return attempt{0, Spoiled(object.Name, "CRC32C", []byte(bytes))}
	}
	broken := attempt{0, &Fault{Kind: Unreachable, Status: 500, What: "500"}}
	for what, c := range map[string]struct {
		read []attempt
		n    int
		code errs.Code
	}{
		"once":           {[]attempt{wrong("a"), {}}, 2, ""},
		"never the same": {[]attempt{wrong("a"), wrong("a"), wrong("b"), wrong("b"), {}}, 5, ""},
		"the same":       {[]attempt{wrong("b"), wrong("a"), broken, wrong("a"), wrong("a"), {}}, 5, errs.Unreadable},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src, s := newScript(t, 10*time.Minute, c.read...)
				err := src.ReadAt(t.Context(), object, make([]byte, 4), 3)
				if e := errs.From(err); len(s.asked) != c.n || (err == nil) != (c.code == "") || err != nil && (e.Code != c.code || e.Where.File != object.Name || e.Hint == "") {
					t.Errorf("%v in %d attempts", err, len(s.asked))
				}
			})
		})
	}
}

// Bytes put the deadline off, and a context ends the waiting at once.
func TestWaiting(t *testing.T) {
	tr := trial{since: time.Now().Add(-time.Hour), deadline: time.Minute}
	if tr.left() > 0 {
		t.Error("the deadline is not over")
	}
	if _, again := tr.failed(&Fault{What: "x"}, leastCame); !again || tr.left() < 50*time.Second {
		t.Error("bytes did not put the deadline off")
	}
	// A few bytes with each attempt are an end in hours: they do so together.
	few := trial{since: time.Now().Add(-time.Hour), deadline: time.Minute}
	if _, again := few.failed(&Fault{What: "x"}, leastCame/2); again || few.left() > 0 {
		t.Error("a few bytes put the deadline off")
	}
	if _, again := few.failed(&Fault{What: "x"}, leastCame/2); !again || few.left() < 50*time.Second {
		t.Error("bytes of two attempts did not put the deadline off")
	}

	src, s := newScript(t, time.Hour, attempt{0, &Fault{Kind: Throttled, What: "x", After: time.Minute}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := src.ReadAt(ctx, object, make([]byte, 4), 3); !errors.Is(err, context.DeadlineExceeded) || len(s.asked) != 1 {
		t.Errorf("%v in %d attempts", err, len(s.asked))
	}
}

// Waits are drawn from zero to a limit that doubles, and are never before what the server
// wants.
func TestJitter(t *testing.T) {
	var longest [12]time.Duration
	for range 300 {
		tr := trial{since: time.Now(), deadline: time.Hour}
		for row := range longest {
			wait, again := tr.failed(&Fault{What: "x"}, 0)
			limit := min(firstWait<<row, mostWait)
			if !again || wait < 0 || wait > limit {
				t.Fatalf("wait %d is %s, the limit %s", row, wait, limit)
			}
			longest[row] = max(longest[row], wait)
		}
	}
	for row, wait := range longest {
		if limit := min(firstWait<<row, mostWait); wait < limit*9/10 {
			t.Errorf("of 300 waits %d the longest is %s, the limit %s", row, wait, limit)
		}
	}
	tr := trial{since: time.Now(), deadline: time.Hour}
	if wait, again := tr.failed(&Fault{What: "x", After: 30 * time.Second}, 0); !again || wait < 30*time.Second || wait > 31*time.Second {
		t.Errorf("after Retry-After of 30 s: %s", wait)
	}
	for range 2 * toldLast {
		for i := range 2 {
			tr.failed(&Fault{What: fmt.Sprint("kind ", i)}, 0)
		}
	}
	if len(tr.last) != toldLast || tr.all != 4*toldLast+1 {
		t.Errorf("%d attempts, of which %d are kept", tr.all, len(tr.last))
	}
}

// A server that wants to be left alone for longer than the deadline is asked again before
// that: it may not know, and a job does not end of one answer.
func TestALongRetryAfter(t *testing.T) {
	later := &Fault{Kind: Throttled, Status: 503, What: "503", After: time.Hour}
	for what, c := range map[string]struct {
		deadline time.Duration
		read     []attempt
		most     time.Duration
	}{
		"well at once":    {10 * time.Minute, []attempt{{0, later}, {}}, mostAfter},
		"a short while":   {4 * time.Second, []attempt{{0, later}, {}}, 3 * time.Second},
		"well at the end": {10 * time.Minute, []attempt{{0, later}, {0, later}, {0, later}, {0, later}, {}}, 9 * time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src, s := newScript(t, c.deadline, c.read...)
				begin := time.Now()
				err := src.ReadAt(t.Context(), object, make([]byte, 4), 3)
				if took := time.Since(begin); err != nil || len(s.asked) != len(c.read) || took < time.Second || took > c.most {
					t.Errorf("after %s, in %d attempts: %v", took, len(s.asked), err)
				}
			})
		})
	}
}

// A host that has never answered is tried for half a minute, unless the user said for how
// long; one that has is tried for ten minutes.
func TestAHostThatHasNeverAnswered(t *testing.T) {
	refused := attempt{0, &Fault{Kind: Unreachable, What: "the connection was refused"}}
	unnamed := attempt{0, &Fault{Kind: Unreachable, What: "no name", Final: errs.New(errs.Unreachable, "there is no server named h")}}
	for what, c := range map[string]struct {
		given       time.Duration
		origin      string
		read        []attempt
		least, most time.Duration
		says, hint  string
	}{
		"no origin":   {0, "", []attempt{refused}, 5 * time.Second, 31 * time.Second, "the server did not answer within 30 s", "endpoint_url"},
		"an origin":   {0, "AWS_ENDPOINT_URL", []attempt{refused}, 5 * time.Second, 31 * time.Second, "the store did not answer within 30 s", "AWS_ENDPOINT_URL"},
		"no name":     {0, "", []attempt{unnamed}, 5 * time.Second, 31 * time.Second, "no server named h", ""},
		"a deadline":  {2 * time.Minute, "", []attempt{refused}, 90 * time.Second, 2 * time.Minute, "did not answer within 120 s", "--deadline"},
		"a 503 first": {0, "", []attempt{{0, &Fault{Kind: Throttled, Status: 503, What: "503"}}, refused}, 9 * time.Minute, 10 * time.Minute, "could not be read within 600 s", "network"},
		"bytes first": {0, "", []attempt{{2, refused.err}, refused}, 9 * time.Minute, 10 * time.Minute, "could not be read within 600 s", "network"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src, s := newScript(t, c.given, c.read...)
				s.origin = c.origin
				begin := time.Now()
				err := src.ReadAt(t.Context(), object, make([]byte, 4), 3)
				took, e := time.Since(begin), errs.From(err)
				if took < c.least || took > c.most || e.Code != errs.Unreachable || !strings.Contains(e.What, c.says) || !strings.Contains(e.Hint, c.hint) {
					t.Errorf("after %s: %v (%s)", took, err, e.Hint)
				}
			})
		})
	}
}
