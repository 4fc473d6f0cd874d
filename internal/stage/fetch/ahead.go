package fetch

import (
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
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

	// laterGroups is how far beyond a group needs are looked at, in groups of its length.
	laterGroups = 8

	// keptShare: kept chunks have at most one in so many of a plan's bytes. That leaves room
	// for the next group, which may have half.
	keptShare = 3
)

// ahead is what the plans of a fetcher share. Fetcher.mu guards it.
type ahead struct {
	plans  []*Plan
	used   int64     // bytes of their chunks
	keeps  int64     // bytes that the pool keeps for them
	clock  int64     // steps submitted, of all plans
	room   sync.Cond // used or limit have changed, or a plan was dropped
	counts stats.Ahead

	group int64 // Plan.group of the plan that got one last; the next epoch begins with it

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
