package fetch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// Need is what a sample of a later step of a pass needs.
type Need struct {
	Step    int64
	Sample  int64
	Extents []format.Extent // not changed after Add
}

// NeedBytes is roughly the memory that a Need takes while it is planned, without the bytes
// that are read.
const NeedBytes = 192

// Plan is what one pass will need, beyond the batches that have been submitted. One goroutine,
// its planner, calls Wait and Add; one calls Submit. A nil Plan plans nothing.
//
// A planner adds needs in groups, because only what is added together is joined, and waits
// with the next group until there is room for all of it: adding each batch as soon as there is
// room would read nearly every sample by itself.
type Plan struct {
	f   *Fetcher
	ctx context.Context

	// Fetcher.mu guards these.
	from     int64   // the first step that was not submitted
	entries  []entry // of from and later steps
	used     int64   // bytes of its chunks, and NeedBytes of each entry
	group    int64   // bytes of the next group, at most
	small    bool    // local files are read by others
	unasked  bool    // its pass was begun before it was asked for
	lead     int64   // steps of other passes that precede its first
	finished bool    // it will not get more
	dropped  bool

	live []*chunk // by file and offset, those that may have ended with them; only Add uses it
}

// entry is a need and where it is read.
type entry struct {
	Need
	chunks []*chunk // one per extent, each with a reference
}

// planned is what only chunks of plans have. Fetcher.mu guards what changes.
type planned struct {
	of      *Plan
	store   *store
	state   state
	urgent  bool // a request waits for it
	due     int64
	extents int64
	err     error
}

type state uint8

const (
	waiting state = iota
	reading
	done
	dead // it has no reference, or got no room
)

const (
	// firstGroup is the length of a plan's first group; each later one is twice as long, up
	// to half of the limit. So the first samples do not wait for long reads.
	firstGroup = 8 << 20

	// The limit of plans, unless Options set it: what the last reads brought in aheadTime,
	// within bounds. Four seconds bridge a request that is retried, and are many times the
	// bandwidth-delay product. A local device does not pause like that, so it gets less.
	aheadTime   = 4
	leastLinked = 64 << 20
	mostAhead   = 1 << 30
	leastLocal  = 32 << 20
	mostLocal   = 256 << 20
	memoryShare = 8 // no more than one in so many of the bytes that are free
)

// ahead is what the plans of a fetcher share. Fetcher.mu guards it.
type ahead struct {
	plans  []*Plan
	used   int64     // bytes of their chunks
	keeps  int64     // bytes that the pool keeps for them
	clock  int64     // steps submitted, of all plans
	room   sync.Cond // used or limit have changed, or a plan was dropped
	counts stats.Ahead

	window, bytes int64   // bytes read since window: stats.Monotonic
	rate          float64 // bytes per second that reads brought lately
	free          int64   // memory, at checked
	checked       int64
}

// Ahead is what plans have done so far.
func (f *Fetcher) Ahead() stats.Ahead {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.ahead.counts
	out.Bytes, out.Limit = f.ahead.used, f.ahead.limit(f)
	return out
}

// read counts bytes that a store brought.
func (a *ahead) read(n int64) {
	a.bytes += n
	now := stats.Monotonic()
	if a.window == 0 {
		a.window = now
	}
	if took := now - a.window; took > int64(time.Second)/4 {
		rate := float64(float64(a.bytes) / float64(took) * float64(time.Second))
		a.rate = max(rate, a.rate+(rate-a.rate)/5)
		a.window, a.bytes = now, 0
		a.room.Broadcast()
	}
}

// limit is the bytes that chunks of plans may have.
func (a *ahead) limit(f *Fetcher) int64 {
	if f.opt.Ahead > 0 {
		return f.opt.Ahead
	}
	least, most := int64(leastLocal), int64(mostLocal)
	for _, st := range *f.stores.Load() {
		if st.link.Load() != nil {
			least, most = leastLinked, mostAhead
		}
	}
	if now := stats.Monotonic(); a.checked == 0 || now-a.checked > int64(time.Second) {
		a.checked, a.free = now, mem.Available()+a.used
	}
	return min(max(least, int64(aheadTime*a.rate)), most, max(a.free/memoryShare, 1<<20))
}

// waits reports whether anything is worth reading far ahead.
func (f *Fetcher) waits(linkedOnly bool) bool {
	for _, st := range *f.stores.Load() {
		if st.link.Load() != nil || !linkedOnly && st.waits() {
			return true
		}
	}
	return false
}

func (a *ahead) close(f *Fetcher) {
	for _, p := range a.plans {
		p.dropped = true
	}
	a.room.Broadcast()
	a.keep(f, 0)
}

// keep has the pool keep so many bytes more than it does by itself.
func (a *ahead) keep(f *Fetcher, n int64) {
	if n != a.keeps {
		f.opt.Pool.Keep(n - a.keeps)
		a.keeps = n
	}
}

// NewPlan begins the plan of a pass, whose reads end with ctx. small says that the local
// files among them are read by others (Do), and not planned.
func (f *Fetcher) NewPlan(ctx context.Context, small bool) *Plan {
	p := &Plan{f: f, ctx: ctx, group: firstGroup, small: small}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.dropped = f.closed
	f.ahead.plans = append(f.ahead.plans, p)
	return p
}

// Unasked says that the pass was begun before it was asked for, with this many steps of
// another pass before it: its plan gets a smaller share until Asked is called.
func (p *Plan) Unasked(lead int64) {
	if p != nil {
		p.f.mu.Lock()
		p.unasked, p.lead = true, lead
		p.f.mu.Unlock()
	}
}

// Asked says that the pass was asked for.
func (p *Plan) Asked() {
	if p != nil {
		p.f.mu.Lock()
		p.unasked, p.lead = false, 0
		p.f.ahead.room.Broadcast()
		p.f.mu.Unlock()
	}
}

// Wait waits until another group should be added, and returns how many bytes it should
// have, and the first step that it may have; 0: the plan was dropped.
func (p *Plan) Wait() (bytes, step int64) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for !p.dropped && !f.closed {
		if f.waits(p.small) {
			limit := f.ahead.limit(f)
			sharing := int64(0)
			for _, q := range f.ahead.plans {
				if !q.finished || q.used > 0 {
					sharing++
				}
			}
			share := limit / max(sharing, 1)
			if p.unasked {
				share = min(share, limit/4)
			}
			group := max(1, min(p.group, share/2))
			if p.used+group <= max(share, 1) && (f.ahead.used+group <= limit || f.ahead.used == 0) {
				p.group = min(2*p.group, mostAhead)
				f.ahead.keep(f, limit/2)
				return group, p.from
			}
		}
		f.ahead.room.Wait()
	}
	return 0, 0
}

// Add plans a group, in the order of steps; no earlier group has had later ones. last says
// that it is the last group. Chunks beyond the limit are not read ahead.
func (p *Plan) Add(needs []Need, last bool) {
	f := p.f
	entries := make([]entry, len(needs))
	n := 0
	for i := range needs {
		n += len(needs[i].Extents)
	}
	room := make([]*chunk, n)
	pieces := make([]piece, 0, n)
	p.live = slices.DeleteFunc(p.live, func(c *chunk) bool { return c.refs.Load() == 0 || c.held == 0 })
	reused := int64(0)
	for i, need := range needs {
		k := len(need.Extents)
		entries[i], room = entry{need, room[:k:k]}, room[k:]
		for j, e := range need.Extents {
			st := f.storeOf(e.File)
			if st.linkNow() == nil && p.small {
				continue
			}
			if c := p.has(e); c != nil {
				entries[i].chunks[j] = c
				reused++
				continue
			}
			pieces = append(pieces, piece{e, need.Sample, i, j})
		}
	}
	chunks := f.join(pieces, func(e format.Extent) *chunk {
		c := &chunk{f: f, ctx: p.ctx, file: e.File, off: e.Off, length: e.Len, need: e.Len}
		c.plan = &planned{of: p, store: f.storeOf(e.File)}
		return c
	}, func(c *chunk, at piece) {
		c.refs.Add(1)
		c.plan.extents++
		entries[at.req].chunks[at.index] = c
	})
	p.live = append(p.live, chunks...)
	slices.SortFunc(p.live, func(a, b *chunk) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.off, b.off)) })
	slices.SortStableFunc(chunks, func(a, b *chunk) int { return cmp.Compare(a.first, b.first) })

	f.mu.Lock()
	limit := f.ahead.limit(f)
	for _, c := range chunks {
		p.used += c.length
		c.plan.due = f.ahead.clock + p.lead + needs[c.first].Step - p.from
		switch {
		case f.closed || p.dropped:
			c.plan.state, c.plan.err = done, ErrStopped
		case f.ahead.used+c.length > limit:
			c.plan.state = dead
		default:
			c.held = c.length
			f.ahead.used += c.held
			f.ahead.counts.Reads++
			f.ahead.counts.Planned += c.plan.extents
			c.plan.store.push(c)
			c.plan.store.staff(1)
		}
	}
	f.ahead.counts.Planned += reused
	p.finished = p.finished || last
	p.used += int64(len(entries)) * NeedBytes
	p.entries = append(p.entries, entries...)
	var late []entry
	if p.dropped {
		late = p.cut(len(p.entries))
	} else {
		late = p.before(p.from)
	}
	f.mu.Unlock()
	f.forget(late)
}

// has returns a chunk of an earlier group that contains an extent, with one more reference;
// nil: there is none.
func (p *Plan) has(e format.Extent) *chunk {
	i := sort.Search(len(p.live), func(i int) bool {
		c := p.live[i]
		return c.file > e.File || c.file == e.File && c.off > e.Off
	})
	if i == 0 {
		return nil
	}
	c := p.live[i-1]
	if c.file != e.File || e.Off+e.Len > c.off+c.length || !c.hold() {
		return nil
	}
	return c
}

// hold takes one more reference, if there is one.
func (c *chunk) hold() bool {
	for {
		n := c.refs.Load()
		if n == 0 {
			return false
		}
		if c.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// before cuts off the entries of steps before one. Fetcher.mu is held.
func (p *Plan) before(step int64) []entry {
	n, _ := slices.BinarySearchFunc(p.entries, step, func(e entry, step int64) int { return cmp.Compare(e.Step, step) })
	return p.cut(n)
}

// cut cuts off the first n entries. Fetcher.mu is held.
func (p *Plan) cut(n int) []entry {
	out := p.entries[:n:n]
	if p.entries = p.entries[n:]; len(p.entries) == 0 {
		p.entries = nil
	}
	p.used -= int64(n) * NeedBytes
	return out
}

// forget releases what nobody has claimed.
func (f *Fetcher) forget(entries []entry) {
	n := int64(0)
	f.mu.Lock()
	for _, e := range entries {
		for _, c := range e.chunks {
			if c != nil && c.plan.state != dead {
				n++
			}
		}
	}
	f.ahead.counts.Dropped += n
	f.ahead.room.Broadcast()
	f.mu.Unlock()
	for _, e := range entries {
		for i, c := range e.chunks {
			if c != nil {
				c.release()
				e.chunks[i] = nil
			}
		}
	}
}

// final reports whether a read that failed like this is not repeated by itself: it was given
// up, or the source has tried it for as long as it may take.
func final(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Unreachable, errs.Denied, errs.Throttled:
		return true
	}
	return errors.Is(err, ErrStopped)
}

// Covers reports whether anything is planned of a step, or of a later one.
func (p *Plan) Covers(step int64) bool {
	if p == nil {
		return false
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	n := len(p.entries)
	return n > 0 && p.entries[n-1].Step >= step
}

// Submit is Fetcher.Submit for the requests of some steps. What is planned for these steps or
// earlier ones, and is not among the requests, is dropped.
func (p *Plan) Submit(ctx context.Context, reqs []*Request, stop func() bool, step, steps int64) (waited time.Duration) {
	f := p.f
	f.mu.Lock()
	if step+steps > p.from {
		f.ahead.clock += step + steps - p.from
		p.from = step + steps
	}
	early := p.before(step)
	entries := p.before(step + steps)
	f.mu.Unlock()
	if len(early) > 0 {
		f.forget(early)
	}
	return f.submit(ctx, reqs, false, stop, entries)
}

// Drop ends the plan, and releases what nobody has claimed.
func (p *Plan) Drop() {
	if p == nil {
		return
	}
	f := p.f
	f.mu.Lock()
	p.dropped = true
	entries := p.cut(len(p.entries))
	f.ahead.plans = slices.DeleteFunc(f.ahead.plans, func(q *Plan) bool { return q == p })
	if len(f.ahead.plans) == 0 {
		f.ahead.keep(f, 0)
	}
	f.mu.Unlock()
	f.forget(entries)
}

// claim gives requests the chunks that are planned for them: both are in the order of the
// batch. What is left of the entries is dropped. The requests are not told before settle.
func (f *Fetcher) claim(reqs []*Request, entries []entry) (claims []use) {
	if len(entries) == 0 {
		return nil
	}
	next := 0
	f.mu.Lock()
	for _, r := range reqs {
		at := next
		for at < len(entries) && entries[at].Sample != r.Sample {
			at++
		}
		if at == len(entries) {
			continue // another sample than was planned
		}
		next = at + 1
		e := &entries[at]
		if !slices.Equal(e.Extents, r.Extents) {
			continue
		}
		for i, c := range e.chunks {
			if c == nil || c.plan.state == dead || c.plan.state == done && c.plan.err != nil {
				continue
			}
			r.chunks[i], e.chunks[i] = c, nil
			claims = append(claims, use{r, i})
		}
	}
	f.ahead.counts.Claimed += int64(len(claims))
	f.mu.Unlock()
	f.forget(entries)
	return claims
}

// settle has the requests of claims answered when their chunks are read. Those of which all
// chunks have been read are answered here.
func (f *Fetcher) settle(claims []use) {
	if len(claims) == 0 {
		return
	}
	var ready, failed []use
	f.mu.Lock()
	for _, u := range claims {
		c := u.req.chunks[u.i]
		switch {
		case c.plan.state == done && c.plan.err != nil:
			failed = append(failed, u)
			continue
		case c.plan.state == done:
			ready = append(ready, u)
			continue
		}
		c.uses = append(c.uses, u)
		if c.plan.state == waiting && !c.plan.urgent {
			c.plan.urgent = true
			st := c.plan.store
			st.queue = append(st.queue, c)
			st.staff(1)
		}
	}
	f.mu.Unlock()
	for _, u := range ready {
		f.deliver(u, u.req.chunks[u.i])
	}
	for _, u := range failed {
		f.alone(u, u.req.chunks[u.i])
	}
}

// deliver gives a request a part of a chunk that was read.
func (f *Fetcher) deliver(u use, c *chunk) {
	e := u.req.Extents[u.i]
	at := e.Off - c.off
	u.req.Raw[u.i] = c.buf.Bytes[at : at+e.Len : at+e.Len]
	if u.req.pending.Add(-1) == 0 {
		f.ready(u.req)
	}
}

// alone reads one part of a chunk whose read has failed. If a link to a store failed, the
// source has already retried until the deadline.
func (f *Fetcher) alone(u use, c *chunk) {
	c2 := f.newChunk(c.ctx, u.req.Extents[u.i])
	err := c.plan.err
	u.req.chunks[u.i] = c2
	c2.uses = append(c2.uses, u)
	c2.refs.Add(1)
	if !final(err) && c.ctx.Err() == nil {
		c2.held = c2.length
		f.budget.Force(c2.held)
		if f.enqueue([]*chunk{c2}) {
			c.release()
			return
		}
		err = ErrStopped
	}
	c.release()
	f.arrived(c2, err)
}

// begins takes a planned chunk to be read, unless that has begun or nobody needs it any
// more. Fetcher.mu is held.
func (c *chunk) begins() bool {
	if c.plan.state != waiting || !c.hold() {
		return false
	}
	c.plan.state = reading
	return true
}

// landed is arrived for a planned chunk.
func (f *Fetcher) landed(c *chunk, err error) {
	f.mu.Lock()
	held := c.plan.state == reading // not if Close has ended it
	c.plan.state, c.plan.err = done, err
	uses := c.uses
	c.uses = nil
	f.mu.Unlock()
	for _, u := range uses {
		if err == nil {
			f.deliver(u, c)
		} else {
			f.alone(u, c)
		}
	}
	if held {
		c.release()
	}
}

// ended gives back the room of a planned chunk without a reference.
func (f *Fetcher) ended(c *chunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.plan.state = dead
	c.plan.of.used -= c.length
	f.ahead.used -= c.held
	c.buf = nil
	f.ahead.room.Broadcast()
}

// push adds to the heap of planned chunks. Fetcher.mu is held.
func (st *store) push(c *chunk) {
	h := append(st.planned, c)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up].plan.due <= h[i].plan.due {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	st.planned = h
}

// pop takes the planned chunk that is due first. Fetcher.mu is held.
func (st *store) pop() *chunk {
	h := st.planned
	n := len(h) - 1
	top := h[0]
	h[0], h[n] = h[n], nil
	h = h[:n]
	for i := 0; ; {
		least := i
		for j := 2*i + 1; j <= 2*i+2 && j < n; j++ {
			if h[j].plan.due < h[least].plan.due {
				least = j
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	st.planned = h
	return top
}
