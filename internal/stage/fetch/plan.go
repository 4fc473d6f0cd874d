package fetch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// Need is what a sample of a later step of a pass needs.
type Need struct {
	Step    int64
	Sample  int64
	Extents []format.Extent // not changed after Add
}

// memory is roughly what a Need takes while it is planned, without the bytes that are read.
func (n *Need) memory() int64 { return 96 + 96*int64(len(n.Extents)) }

// Bytes is how much a Need adds to the length of a group.
func (n *Need) Bytes() int64 {
	total := n.memory()
	for _, e := range n.Extents {
		total += e.Len
	}
	return total
}

// Plan is what one pass will need, beyond the batches that have been submitted. One goroutine,
// its planner, calls Wait and Add; one calls Submit. A nil Plan plans nothing.
//
// A planner adds needs in groups, because only what is added together is joined, and waits
// with the next group until there is room for all of it: adding each batch as soon as there is
// room would read nearly every sample by itself. With a group it says what later groups will
// need. What is between the extents of the group and is needed later is read with them, and
// kept until its own group is added. So samples that are shuffled within a window are still
// read in long ranges.
type Plan struct {
	f   *Fetcher
	ctx context.Context

	// Fetcher.mu guards these.
	from     int64   // the first step that was not submitted
	entries  []entry // of from and later steps
	used     int64   // bytes of its chunks, and Need.memory of its entries
	group    int64   // bytes of the next group, at most
	small    bool    // local files are read by others
	unasked  bool    // its pass was begun before it was asked for
	lead     int64   // steps of other passes that precede its first
	finished bool    // it will not get more
	dropped  bool

	share int64  // of the limit, when Wait returned last
	kept  []kept // chunks with what later groups need
	keeps int64  // bytes of these

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
		p.group = max(p.group, p.f.ahead.group)
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

// Wait waits until there is room for another group. It returns how many bytes the group
// should have, how many bytes of needs after it Add should be told of, and the first step
// that it may have. If bytes is 0, the plan was dropped.
func (p *Plan) Wait() (bytes, later, step int64) {
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
				p.share, f.ahead.group = share, p.group
				f.ahead.keep(f, limit/2)
				return group, min(laterGroups*group, share), p.from
			}
		}
		if len(p.kept) > 0 && p.used <= p.keeps { // nothing else will be released: they hold the room of the next group
			old := p.expire(true, nil)
			f.mu.Unlock()
			release(old)
			f.mu.Lock()
			continue
		}
		f.ahead.room.Wait()
	}
	return 0, 0, 0
}

// Add plans a group, in the order of steps; no earlier group has had later ones. last says
// that it is the last group. Chunks beyond the limit are not read ahead. later are needs of the
// groups that follow: those that are between extents of this group are read with them.
func (p *Plan) Add(needs, later []Need, last bool) {
	f := p.f
	entries := make([]entry, len(needs))
	n := 0
	for i := range needs {
		n += len(needs[i].Extents)
	}
	room := make([]*chunk, n)
	pieces := make([]piece, 0, n)
	p.live = slices.DeleteFunc(p.live, func(c *chunk) bool { return c.refs.Load() == 0 || c.held == 0 })
	reused, bytes, memory := int64(0), int64(0), int64(0)
	for i, need := range needs {
		k := len(need.Extents)
		entries[i], room = entry{need, room[:k:k]}, room[k:]
		memory += need.memory()
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
			pieces = append(pieces, piece{ext: e, sample: need.Sample, req: i, index: j})
			bytes += e.Len
		}
	}
	until := map[*chunk]int64{} // the last step of later that needs it
	may := p.allows(bytes)
	pieces = p.ahead(pieces, later, len(needs), until, may.keep > 0)
	chunks := f.join(pieces, may, func(e format.Extent) *chunk {
		c := &chunk{f: f, ctx: p.ctx, file: e.File, off: e.Off, length: e.Len, need: e.Len}
		c.plan = &planned{of: p, store: f.storeOf(e.File)}
		return c
	}, func(c *chunk, at piece) {
		if at.later {
			until[c] = max(until[c], later[at.req-len(needs)].Step)
			return
		}
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
			if c.later && until[c] >= p.from {
				c.refs.Add(1)
				p.kept = append(p.kept, kept{c, until[c]})
				p.keeps += c.length
			}
			c.plan.store.push(c)
			c.plan.store.staff(1)
		}
	}
	f.ahead.counts.Planned += reused
	p.finished = p.finished || last
	p.used += memory
	p.entries = append(p.entries, entries...)
	var late []entry
	if p.dropped {
		late = p.cut(len(p.entries))
	} else {
		late = p.before(p.from)
	}
	for i, k := range p.kept {
		p.kept[i].step = max(k.step, until[k.chunk])
	}
	old := p.expire(p.dropped || p.finished, needs)
	f.mu.Unlock()
	f.forget(late)
	release(old)
}

// has is like find, and takes a reference.
func (p *Plan) has(e format.Extent) *chunk {
	if c := p.find(e); c != nil && c.hold() {
		return c
	}
	return nil
}

// find returns a chunk of an earlier group that contains an extent; nil: there is none.
func (p *Plan) find(e format.Extent) *chunk {
	i := sort.Search(len(p.live), func(i int) bool {
		c := p.live[i]
		return c.file > e.File || c.file == e.File && c.off > e.Off
	})
	if i == 0 {
		return nil
	}
	c := p.live[i-1]
	if c.file != e.File || e.Off+e.Len > c.off+c.length {
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
	for i := range out {
		p.used -= out[i].memory()
	}
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
	entries, old := p.cut(len(p.entries)), p.expire(true, nil)
	f.ahead.plans = slices.DeleteFunc(f.ahead.plans, func(q *Plan) bool { return q == p })
	if len(f.ahead.plans) == 0 {
		f.ahead.keep(f, 0)
	}
	f.mu.Unlock()
	f.forget(entries)
	release(old)
}
