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
