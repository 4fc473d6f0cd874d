// Package waiting is a source for tests whose reads take as long as those over a network, and
// which says so (source.Linked). It counts what it served.
package waiting

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Link is how a Source waits; the zero value does not.
type Link struct {
	Latency time.Duration // of every request, before its bytes
	Conn    int64         // bytes per second of one request; 0: no bound
	Total   int64         // bytes per second of all; 0: no bound
	Told    source.Link   // what Link says of all names
	Silent  bool          // it says that nothing is known
}

// Source wraps a source. A read is one request, or several at once where it is longer than
// Told.Part. Safe for concurrent use.
type Source struct {
	source.Source
	link Link
	slot chan struct{} // one for each request at work: Told.Conns

	mu     sync.Mutex
	free   time.Time // when the bandwidth has no more promises to keep
	served Served
	now    int
	fails  func(name string, off, n int64) error
}

// Served is what was asked since the Source was made.
type Served struct {
	Requests int64
	Bytes    int64
	Most     int // requests at once
	Spans    []Span
}

// Span is the bytes of one read.
type Span struct {
	Name     string
	Off, Len int64
}

// New makes a Source. Options of a loader wrap with it: it passes on everything that is not
// ReadAt, and is never Hot.
func New(src source.Source, link Link) *Source {
	s := &Source{Source: src, link: link}
	if n := link.Told.Conns; n > 0 {
		s.slot = make(chan struct{}, n)
	}
	return s
}

// Fail has reads fail with what fails returns, if that is not nil.
func (s *Source) Fail(fails func(name string, off, n int64) error) {
	s.mu.Lock()
	s.fails = fails
	s.mu.Unlock()
}

// Served is what was asked so far.
func (s *Source) Served() Served {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.served
	out.Spans = append([]Span(nil), out.Spans...)
	return out
}

// Link is source.Linked's.
func (s *Source) Link(string) (source.Link, bool) { return s.link.Told, !s.link.Silent }

// ReadAt is source.Source's.
func (s *Source) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	s.mu.Lock()
	s.served.Spans = append(s.served.Spans, Span{strings.Clone(obj.Name), off, int64(len(p))})
	fails := s.fails
	s.mu.Unlock()
	if fails != nil {
		if err := fails(obj.Name, off, int64(len(p))); err != nil {
			return err
		}
	}
	part := int(s.link.Told.Part)
	if part == 0 || len(p) <= part {
		return s.request(ctx, obj, p, off)
	}
	var all sync.WaitGroup
	errs := make(chan error, len(p)/part+1)
	for at := 0; at < len(p); at += part {
		all.Go(func() { errs <- s.request(ctx, obj, p[at:min(at+part, len(p))], off+int64(at)) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) request(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if s.slot != nil {
		s.slot <- struct{}{}
		defer func() { <-s.slot }()
	}
	took := func(rate int64) time.Duration {
		if rate == 0 {
			return 0
		}
		return time.Duration(float64(len(p)) / float64(rate) * float64(time.Second))
	}
	s.mu.Lock()
	s.served.Requests++
	s.served.Bytes += int64(len(p))
	s.now++
	s.served.Most = max(s.served.Most, s.now)
	first := time.Now().Add(s.link.Latency)
	until := first.Add(took(s.link.Conn))
	if s.link.Total > 0 {
		if s.free.Before(first) {
			s.free = first
		}
		s.free = s.free.Add(took(s.link.Total))
		if until.Before(s.free) {
			until = s.free
		}
	}
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.now--; s.mu.Unlock() }()
	if d := time.Until(until); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Source.ReadAt(ctx, obj, p, off)
}
