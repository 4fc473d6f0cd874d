package remote

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Source is a Store as a source.Source.
type Source struct {
	store  Store
	net    *Net
	access source.Access
	given  bool // the user said how long a read is tried

	mu   sync.Mutex                      // of who changes ways
	ways atomic.Pointer[map[string]*way] // by what Store.Host says
}

var (
	_ source.Source = (*Source)(nil)
	_ source.Linked = (*Source)(nil)
	_ source.Walker = (*Source)(nil)
	_ source.Able   = (*Source)(nil)
)

// New makes a Source of a store, within the limits of net and of access.
func New(store Store, net *Net, access source.Access) *Source {
	s := &Source{store: store, net: net, access: access, given: access.Deadline > 0}
	if access.Deadline == 0 {
		s.access.Deadline = 10 * time.Minute
	}
	s.ways.Store(&map[string]*way{})
	return s
}

// Stat is source.Source's.
func (s *Source) Stat(ctx context.Context, name string) (info source.Info, err error) {
	err = s.try(ctx, request{name: name, off: -1}, func(ctx context.Context, _ *way, _ *request) (int, error) {
		info, err = s.store.Stat(ctx, name)
		return 0, err
	})
	return info, err
}

// ReadAt is source.Source's.
func (s *Source) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	n := int64(len(p))
	if off < 0 || off > obj.Size || n > obj.Size-off {
		return errs.New(errs.Bug, "%d bytes were asked for at %d of an object of %d", n, off, obj.Size).At(atByte(obj.Name, off))
	}
	if n == 0 {
		return ctx.Err()
	}
	part := int64(1) << 62
	if l, ok := s.Link(obj.Name); ok {
		part = l.Part
	}
	if n <= part+part/2 {
		return s.part(ctx, obj, p, off)
	}
	return s.parts(ctx, obj, p, off, part)
}

// parts reads a long range in equal parts at once.
func (s *Source) parts(ctx context.Context, obj source.Info, p []byte, off, part int64) error {
	count := (int64(len(p)) + part - 1) / part
	each := (int64(len(p)) + count - 1) / count
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for at := int64(0); at < int64(len(p)); at += each {
		piece, from := p[at:min(at+each, int64(len(p)))], off+at
		wg.Go(func() {
			if err := s.part(ctx, obj, piece, from); err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	wg.Wait() // p is the caller's again
	return first
}

// part reads one range by one request, and by more if that breaks off.
func (s *Source) part(ctx context.Context, obj source.Info, p []byte, off int64) error {
	return s.try(ctx, request{name: obj.Name, off: off, bytes: len(p), timed: true}, func(ctx context.Context, h *way, r *request) (int, error) {
		done := len(p) - r.bytes
		n, err := s.hedged(ctx, h, obj, p[done:], off+int64(done))
		if obj.Version != "" { // or else nothing says that the rest would be of the same object
			r.bytes -= n
		}
		return n, err
	})
}

// request is what attempts are made of.
type request struct {
	name  string
	off   int64 // -1: of no byte
	bytes int   // that the next attempt asks for; an attempt keeps it up to date
	timed bool  // how long the first attempt takes says how long such reads take
}

// try makes attempts until one succeeds, or nothing can be gained by another. attempt
// returns how many bytes it brought; those that need not come again put the deadline off.
func (s *Source) try(ctx context.Context, r request, attempt func(context.Context, *way, *request) (int, error)) error {
	h := s.way(r.name)
	t := trial{since: time.Now(), deadline: s.access.Deadline}
	h.begins()
	for paid := false; ; {
		left := r.bytes
		err := s.once(ctx, h, &t, &r, attempt)
		if err == nil {
			h.recovered(&t)
			if paid {
				h.repaid()
			}
			return nil
		}
		var fault *Fault
		switch {
		case ctx.Err() != nil:
			h.recovered(&t)
			return ctx.Err()
		case !errors.As(err, &fault):
			h.recovered(&t)
			return err
		}
		if t.deadline, t.unreached = s.access.Deadline, !h.reached.Load(); t.unreached && !s.given {
			t.deadline = untilReached
		}
		r.timed = false // the next one asks for less, or is not like others
		wait, again := t.failed(fault, left-r.bytes)
		if again {
			h.waits(&t, fault, wait)
			if fault.Kind != Expired { // which all requests meet at once, and no server's trouble
				again = h.mayRetry(ctx, wait, t.left())
				paid = again
			}
		}
		if ctx.Err() != nil || !again {
			h.recovered(&t)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return t.gaveUp(r.name, r.off, fault, s.origin(r.name))
		}
	}
}

// origin says which setting gave the address of a host that was never reached.
func (s *Source) origin(name string) string {
	if o, ok := s.store.(Origin); ok {
		return o.Origin(name)
	}
	return ""
}

// once makes one attempt, within the limits. What is measured of it begins when it may.
func (s *Source) once(ctx context.Context, h *way, t *trial, r *request, attempt func(context.Context, *way, *request) (int, error)) error {
	// However long the host rests, the request has the other half of its time.
	awake := time.Now().Add(t.left() / 2)
	if err := h.rest(ctx, awake); err != nil {
		return err
	}
	wait := h.rate.take(r.bytes)
	if err := source.Sleep(ctx, wait); err != nil {
		h.rate.giveBack(r.bytes)
		return err
	}
	t.since = t.since.Add(wait)
	asked := time.Now()
	if err := h.hold(ctx); err != nil {
		h.rate.giveBack(r.bytes)
		return err
	}
	defer h.release()
	if err := h.enter(ctx, awake); err != nil {
		h.rate.giveBack(r.bytes)
		return err
	}
	m := &meter{host: h.host, begun: time.Now(), patience: s.net.opt.Patience}
	t.waited(m.begun.Sub(asked), h.born.Add(time.Duration(h.heard.Load())))
	length := 0
	if r.timed {
		length = r.bytes
	}
	// A silent connection is given up later than some deadlines end. An attempt that brings
	// bytes is ended, too, and the next one goes on where it was.
	bounded, cancel := context.WithTimeout(context.WithValue(ctx, meterKey{}, m), max(t.left(), leastTry))
	defer cancel()
	n, err := attempt(bounded, h, r)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = &Fault{Kind: Unreachable, What: "the server did not answer in time"}
	}
	h.left(m, n, length, err)
	return err
}

func atByte(name string, off int64) errs.Where {
	w := at(name)
	w.Offset = errs.Known(off)
	return w
}
