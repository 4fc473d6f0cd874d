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
// that were asked for last; of those that were not asked for yet, whether they have come or
// not, there are never more than Link.Conns in all, or than one for each object.
type ahead struct {
	src source.Source
	ctx context.Context //nolint:containedctx // of what is read before anybody asks for it
	cut context.CancelFunc

	early atomic.Int64 // parts that nobody asked for yet

	mu   sync.Mutex
	of   map[string]*stream
	used int64 // counts reads, for the age of streams
	live int   // streams that are read, as of a few reads ago
}

// stream is one object, read by one goroutine or by several.
type stream struct {
	obj  source.Info
	last int64 // of ahead.used

	early atomic.Int64 // of ahead.early

	mu    sync.Mutex
	over  bool  // nobody finds it any more: nothing is requested early
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
	// streams is how many objects are in memory at most: what Width lets read at once. If
	// fewer were, those that are read would cancel each other's parts.
	streams = source.MostWidth
	// idle is after how many reads of others an object is no longer one of those that share
	// the connections, and gives up its early parts if there is no room for more.
	idle = 16 * streams
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
		a.drop(old)
	}
	return s
}

// drop ends a stream that nobody finds any more.
func (a *ahead) drop(s *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.forget(a)
}

// room is how many early parts there may be, and how many of them one object may have.
func (a *ahead) room(link source.Link) (all, each int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(max(link.Conns, a.live)), int64(min(max(1, link.Conns/max(1, a.live)), mostEarly))
}

// reclaim makes room for early parts, where an object that nobody reads now has some.
func (a *ahead) reclaim(link source.Link) {
	early := a.early.Load()
	if early < int64(link.Conns) { // for most reads
		return
	}
	if all, _ := a.room(link); early < all {
		return
	}
	var oldest *stream
	a.mu.Lock()
	for _, s := range a.of {
		if s.early.Load() > 0 && a.used-s.last > idle && (oldest == nil || s.last < oldest.last) {
			oldest = s
		}
	}
	a.mu.Unlock()
	if oldest != nil {
		oldest.mu.Lock()
		defer oldest.mu.Unlock()
		oldest.forget(a)
	}
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
		a.live++
	}
	s.last = a.used
	if a.used%streams == 0 || a.live > len(a.of) {
		a.live = 0
		for _, t := range a.of {
			if a.used-t.last <= idle {
				a.live++
			}
		}
	}
	return s, old
}

// done forgets a stream that was read in a row to its end.
func (a *ahead) done(s *stream) {
	a.mu.Lock()
	if a.of[s.obj.Name] == s {
		delete(a.of, s.obj.Name)
	}
	a.mu.Unlock()
	a.drop(s)
}

func (a *ahead) readAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	link, waits := source.LinkOf(a.src, obj.Name)
	s := a.stream(obj)
	if !waits || s == nil || len(p) == 0 || off < 0 || off > obj.Size || int64(len(p)) > obj.Size-off {
		return a.src.ReadAt(ctx, obj, p, off)
	}
	link.Part = max(min(link.Part, mostPart), smallRange)
	a.reclaim(link)
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
			s.forget(a)
		}
		r, mine = s.add(off, min(max(s.want, min(n, link.Part)), s.obj.Size-off)), true
	}
	if !r.asked && !mine {
		s.counted(a, -1)
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

// counted adds to the early parts.
func (s *stream) counted(a *ahead, n int64) int64 {
	s.early.Add(n)
	return a.early.Add(n)
}

// forget gives up what nobody asked for.
func (s *stream) forget(a *ahead) {
	kept := s.parts[:0]
	for _, r := range s.parts {
		if r.asked {
			kept = append(kept, r)
		} else {
			r.cut()
			s.counted(a, -1)
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
	room, share := a.room(link)
	at := r.off + int64(len(r.buf))
	for n := int64(0); n < share; n++ {
		if s.over || at >= s.obj.Size || at >= s.end && s.want < link.Part {
			return
		}
		if next := s.find(at); next != nil {
			at = next.off + int64(len(next.buf))
			continue
		}
		if s.counted(a, 1) > room {
			s.counted(a, -1)
			return
		}
		next := s.add(at, min(link.Part, s.obj.Size-at))
		at += int64(len(next.buf))
		ctx, cut := context.WithCancel(a.ctx)
		next.cut = cut
		go func() {
			defer cut()
			a.read(ctx, s.obj, next)
		}()
	}
}
