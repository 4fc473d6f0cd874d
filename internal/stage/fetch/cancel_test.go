package fetch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// slow is a disk whose reads hang while one waits for nothing but its context.
type slow struct {
	*disk
	hung chan struct{} // gets one for every read that hangs; nil: none does any more
}

func (s *slow) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if s.hung != nil {
		s.hung <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	return s.disk.ReadAt(ctx, obj, p, off)
}

// Reads that hang end with the context of whoever wants them: all requests are answered,
// those that had not begun are not read, and the readers go on with what others want.
func TestHungReadsEndWithTheirContext(t *testing.T) {
	s := &slow{disk: &disk{size: 1 << 20}, hung: make(chan struct{}, 100)}
	r := newRig(s.disk, 1<<30)
	r.src = s
	defer r.Close()
	var reqs []*Request
	for i := range 8 { // more than there are readers
		reqs = append(reqs, &Request{Sample: int64(i), Extents: []format.Extent{{File: i, Len: s.size, Whole: true}}})
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.wg.Add(len(reqs))
	go r.Submit(ctx, reqs, false, func() bool { return false })
	for range 3 {
		select {
		case <-s.hung:
		case <-time.After(time.Minute):
			t.Fatal("the readers do not begin")
		}
	}
	cancel()
	r.wg.Wait() // for ever, if a reader hangs on
	for i, q := range reqs {
		if !errors.Is(q.Err, ErrStopped) {
			t.Errorf("request %d: %v", i, q.Err)
		}
		q.Release()
	}
	if n := len(s.hung); n > 0 {
		t.Errorf("%d reads were begun that nobody wanted any more", n)
	}
	s.hung = nil
	one := &Request{Extents: []format.Extent{{File: 3, Off: 5, Len: 100}}}
	r.fetch([]*Request{one})
	if one.Err != nil || len(one.Raw[0]) != 100 || one.Raw[0][0] != at(3, 5) {
		t.Errorf("what is wanted next: %v", one.Err)
	}
	one.Release()
}
