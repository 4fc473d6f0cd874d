package remote

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Source is a Store as a source.Source.
type Source struct {
	store  Store
	net    *Net
	access source.Access
	given  bool          // the user said how long a read is tried
	slots  chan struct{} // one for each request of this source; nil: Access.Connections is 0
	rate   *rate         // nil: Access.Bandwidth is 0
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
	if access.Connections > 0 {
		s.slots = make(chan struct{}, access.Connections)
	}
	if access.Bandwidth > 0 {
		s.rate = &rate{perSecond: float64(access.Bandwidth)}
	}
	return s
}

// Stat is source.Source's.
func (s *Source) Stat(ctx context.Context, name string) (info source.Info, err error) {
	err = s.try(ctx, name, -1, 0, func(ctx context.Context, _ *host) (int, error) {
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
	done := 0
	return s.try(ctx, obj.Name, off, len(p), func(ctx context.Context, h *host) (int, error) {
		if obj.Version == "" {
			done = 0 // nothing says that the rest would be of the same object
		}
		if err := s.rate.wait(ctx, len(p)-done); err != nil {
			return 0, err
		}
		n, err := s.hedged(ctx, h, obj, p[done:], off+int64(done))
		done += n
		return n, err
	})
}

// try makes attempts until one succeeds, or nothing can be gained by another. attempt
// returns how many bytes it brought: while bytes come, the deadline is put off. length is
// how many are asked for by the first; 0: it is not a read.
func (s *Source) try(ctx context.Context, name string, off int64, length int, attempt func(context.Context, *host) (int, error)) error {
	h := s.net.host(s.store.Host(name))
	t := trial{since: time.Now(), deadline: s.access.Deadline}
	for {
		n, err := s.once(ctx, h, length, attempt)
		if err == nil {
			h.recovered(&t)
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
		length = 0 // the next one asks for less, or is not like others
		wait, again := t.failed(fault, n > 0)
		if again {
			h.waits(&t, fault)
			if fault.Kind != Expired { // which all requests meet at once, and no server's trouble
				again = h.mayRetry(ctx, wait, t.left()) == nil
			}
		}
		if ctx.Err() != nil || !again {
			h.recovered(&t)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return t.gaveUp(name, off, fault, s.origin(name))
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

// once makes one attempt, within the limits.
func (s *Source) once(ctx context.Context, h *host, length int, attempt func(context.Context, *host) (int, error)) (int, error) {
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if err := h.enter(ctx); err != nil {
		return 0, err
	}
	m := &meter{begun: time.Now(), patience: s.net.opt.Patience}
	n, err := attempt(context.WithValue(ctx, meterKey{}, m), h)
	h.left(m, n, length, err)
	return n, err
}

func atByte(name string, off int64) errs.Where {
	w := at(name)
	w.Offset = errs.Known(off)
	return w
}
