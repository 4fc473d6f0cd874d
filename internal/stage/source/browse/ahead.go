package browse

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// ahead makes reads of sources that wait long ones. Whoever indexes a shard reads a header,
// steps over a body and reads the next: over a store, a request for a few bytes each. What
// is between two reads is read too where that costs less than a request (Link.Gap), and the
// ranges grow until they are as long as one request may be (Link.Part). Then the parts
// that follow are requested before they are asked for, so that the connections of the link
// are in use. Where what comes next is farther away, it is stepped over, and the next read
// is short again.
//
// What is in memory is bounded: streams objects that were read last, each with the parts
// that were asked for last; of those that were not asked for yet there are never more than
// Link.Conns in all.
type ahead struct {
	src source.Source
	ctx context.Context //nolint:containedctx // of what is read before anybody asks for it
	cut context.CancelFunc

	early atomic.Int64 // parts in flight that nobody asked for yet

	mu   sync.Mutex
	of   map[string]*stream
	used int64 // counts reads, for the age of streams
}

// stream is one object, read by one goroutine or by several.
type stream struct {
	obj  source.Info
	last int64 // of ahead.used

	mu    sync.Mutex
	end   int64 // of the read before
	want  int64 // length of the next range, bytes
	parts []*part
}

// part is a range of an object, read or being read.
type part struct {
	off   int64
	buf   []byte // of its reader until done is closed
	done  chan struct{}
	err   error
	cut   context.CancelFunc // nil: somebody waits for it, with a context of his own
	asked bool
}

const (
	// streams is how many objects are in memory at most.
	streams = 32
	// smallRange is the first range of an object, and the first after a step: on a link of
	// 20 ms and 90 MB/s it takes 4 % longer than a byte.
	smallRange = 64 << 10
	// growth is how much longer each range of a row is than the one before.
	growth = 8
	// mostPart bounds Link.Part: parts in flight are memory.
	mostPart = 4 << 20
	// mostEarly is how many parts of one object are requested before they are asked for.
	mostEarly = 8
	// keptParts of an object that were asked for are kept: those who walk trees come back.
	keptParts = 16
	// keptBytes of them at most, beside the one that was asked for last.
	keptBytes = 2 << 20
)

func newAhead(ctx context.Context, src source.Source) *ahead {
	a := &ahead{src: src, of: map[string]*stream{}}
	a.ctx, a.cut = context.WithCancel(ctx)
	return a
}

func (a *ahead) end() {
	a.cut()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of = nil
}

// stream is that of an object; nil after the end.
func (a *ahead) stream(obj source.Info) *stream {
	s, old := a.take(obj)
	if old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		old.forget()
	}
	return s
}

// take is the stream of an object, and one that had to make room for it.
func (a *ahead) take(obj source.Info) (s, old *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		return nil, nil
	}
	a.used++
	s = a.of[obj.Name]
	if s == nil || s.obj.Size != obj.Size || s.obj.Version != obj.Version {
		if old = s; s == nil && len(a.of) >= streams {
			for _, t := range a.of {
				if old == nil || t.last < old.last {
					old = t
				}
			}
			delete(a.of, old.obj.Name)
		}
		s = &stream{obj: obj}
		s.obj.Name, s.obj.Version = strings.Clone(obj.Name), strings.Clone(obj.Version)
		a.of[s.obj.Name] = s
	}
	s.last = a.used
	return s, old
}

// done forgets a stream that was read in a row to its end.
func (a *ahead) done(s *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[s.obj.Name] == s {
		delete(a.of, s.obj.Name)
	}
}

func (a *ahead) readAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	link, waits := source.LinkOf(a.src, obj.Name)
	s := a.stream(obj)
	if !waits || s == nil || len(p) == 0 || off < 0 || off > obj.Size || int64(len(p)) > obj.Size-off {
		return a.src.ReadAt(ctx, obj, p, off)
	}
	link.Part = max(min(link.Part, mostPart), smallRange)
	for first := true; len(p) > 0; first = false {
		r, mine := s.at(a, link, off, int64(len(p)), first)
		if mine {
			a.read(ctx, s.obj, r)
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if r.err != nil { // a range that was not asked for may fail where what was asked for does not
			s.mu.Lock()
			s.remove(r)
			s.mu.Unlock()
			return a.src.ReadAt(ctx, obj, p, off)
		}
		n := copy(p, r.buf[off-r.off:])
		p, off = p[n:], off+int64(n)
	}
	s.mu.Lock()
	over := s.want == link.Part && s.end == obj.Size
	s.mu.Unlock()
	if over {
		a.done(s)
	}
	return nil
}

// read reads a part for whoever waits for it.
func (a *ahead) read(ctx context.Context, obj source.Info, r *part) {
	r.err = a.src.ReadAt(ctx, obj, r.buf, r.off)
	close(r.done)
}

// at is the part that has the byte at off, of n that are read. mine: it is new, and the
// caller reads it. first: the read begins at off.
func (s *stream) at(a *ahead, link source.Link, off, n int64, first bool) (r *part, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	near := s.want > 0 && off >= s.end && off-s.end <= link.Gap
	s.end = off + n
	if r = s.find(off); r == nil {
		switch {
		case !first:
		case near:
			s.want = min(growth*s.want, link.Part)
		default:
			s.want = smallRange
			s.forget()
		}
		r, mine = s.add(off, min(max(s.want, min(n, link.Part)), s.obj.Size-off)), true
	}
	r.asked = true
	s.trim()
	if s.want == link.Part || off+n > r.off+int64(len(r.buf)) {
		s.follow(a, link, r)
	}
	return r, mine
}

func (s *stream) find(off int64) *part {
	for i, r := range s.parts {
		if off >= r.off && off < r.off+int64(len(r.buf)) {
			copy(s.parts[i:], s.parts[i+1:])
			s.parts[len(s.parts)-1] = r // used last
			return r
		}
	}
	return nil
}

func (s *stream) add(off, n int64) *part {
	r := &part{off: off, buf: make([]byte, n), done: make(chan struct{})}
	s.parts = append(s.parts, r)
	return r
}

func (s *stream) remove(r *part) {
	for i := range s.parts {
		if s.parts[i] == r {
			s.parts = append(s.parts[:i:i], s.parts[i+1:]...)
			return
		}
	}
}

// forget gives up what nobody asked for.
func (s *stream) forget() {
	kept := s.parts[:0]
	for _, r := range s.parts {
		if r.asked {
			kept = append(kept, r)
		} else {
			r.cut()
		}
	}
	clear(s.parts[len(kept):])
	s.parts = kept
}

// trim forgets the parts that were asked for longest ago.
func (s *stream) trim() {
	var bytes int64
	asked := 0
	for i := len(s.parts) - 1; i >= 0; i-- {
		r := s.parts[i]
		if !r.asked {
			continue
		}
		if asked++; asked > 1 && (asked > keptParts || bytes+int64(len(r.buf)) > keptBytes) {
			s.parts = append(s.parts[:i:i], s.parts[i+1:]...)
			continue
		}
		bytes += int64(len(r.buf))
	}
}

// follow requests what comes after r: the rest of what is read now, and what is not asked
// for yet where reads are in a row.
func (s *stream) follow(a *ahead, link source.Link, r *part) {
	a.mu.Lock()
	share := int64(max(1, link.Conns/max(1, len(a.of))))
	a.mu.Unlock()
	at := r.off + int64(len(r.buf))
	for n := int64(0); n < min(share, mostEarly); n++ {
		if at >= s.obj.Size || at >= s.end && s.want < link.Part {
			return
		}
		if next := s.find(at); next != nil {
			at = next.off + int64(len(next.buf))
			continue
		}
		if a.early.Add(1) > int64(link.Conns) {
			a.early.Add(-1)
			return
		}
		next := s.add(at, min(link.Part, s.obj.Size-at))
		at += int64(len(next.buf))
		ctx, cut := context.WithCancel(a.ctx)
		next.cut = cut
		go func() {
			defer cut()
			defer a.early.Add(-1)
			a.read(ctx, s.obj, next)
		}()
	}
}
