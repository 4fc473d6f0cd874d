package fetch

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	over "github.com/stoker-data/stoker/internal/stagetest/waiting"
)

// closing is files whose index is closed once the last sample was delivered.
type closing struct {
	*disk
	closed, late atomic.Bool
}

func (c *closing) AppendPath(file int, dst []byte) []byte {
	if c.closed.Load() {
		c.late.Store(true)
	}
	return c.disk.AppendPath(file, dst)
}

// narrowing is files over a link whose number of readers falls after a while.
type narrowing struct {
	*disk
	narrow atomic.Bool
}

func (n *narrowing) Link(string) (source.Link, bool) {
	l := source.Link{Gap: 1, Part: 1 << 10, Conns: 16}
	if n.narrow.Load() {
		l.Conns = 1
	}
	return l, true
}

// When a link is worth fewer readers than wait for work, the ones that end pass on what they
// were woken for.
func TestNoChunkIsLeftWhenReadersEnd(t *testing.T) {
	for range 10 {
		src := &narrowing{disk: &disk{size: 1 << 30}}
		r := &rig{disk: src.disk, pool: &mem.Pool{KeepBytes: 1 << 20}, bytes: mem.NewBudget(1 << 30)}
		r.Fetcher = New(src, src, func(*Request) { r.wg.Done() }, Options{
			Readers: 3, Budget: r.bytes, Pool: r.pool, Board: stats.NewBoard(nil, 64), Stage: new(stats.Stage),
		})
		apart := func(n int) (reqs []*Request) {
			for i := range n {
				reqs = append(reqs, &Request{Sample: int64(i), Extents: []format.Extent{{File: 1, Off: int64(i) << 16, Len: 100}}})
			}
			return reqs
		}
		r.fetch(apart(1)) // the link is not known before
		gate := make(chan struct{})
		src.gate = gate
		r.wg.Add(40)
		r.Submit(context.Background(), apart(40), false, func() bool { return false })
		for src.began.Load() < 16 {
			time.Sleep(time.Millisecond)
		}
		close(gate)
		r.wg.Wait()
		st := r.storeOf(1)
		for idle := false; !idle; time.Sleep(time.Millisecond) {
			r.mu.Lock()
			idle = st.idle == st.readers
			r.mu.Unlock()
		}
		src.narrow.Store(true)
		time.Sleep(2 * time.Duration(askEvery)) // the next look at the link finds it narrow
		r.fetch(apart(3))
		r.Close()
	}
}

// A reader that looks at its link after its last read does not ask for the name of a file:
// the loader may have closed the index by then.
func TestNoNamesAfterTheLastSample(t *testing.T) {
	files := &closing{disk: &disk{size: 1 << 20}}
	src := over.New(files.disk, over.Link{Latency: 2 * time.Duration(askEvery), Told: source.Link{Gap: 1000, Part: 1 << 20, Conns: 4}})
	delivered := make(chan struct{})
	f := New(src, files, func(*Request) { files.closed.Store(true); close(delivered) }, Options{
		Readers: 3, Budget: mem.NewBudget(1 << 20), Pool: &mem.Pool{KeepBytes: 1 << 20}, Board: stats.NewBoard(nil, 8), Stage: new(stats.Stage),
	})
	f.Submit(context.Background(), []*Request{{Extents: []format.Extent{{Off: 10, Len: 100}}}}, false, func() bool { return false })
	<-delivered
	// The reader has looked when it waits for work again.
	st := f.storeOf(0)
	for idle := false; !idle; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		idle = st.idle == st.readers
		f.mu.Unlock()
	}
	f.Close()
	if files.late.Load() {
		t.Error("the name of a file was asked for when the index was closed")
	}
}
