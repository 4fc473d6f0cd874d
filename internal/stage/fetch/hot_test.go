package fetch

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// oven is a disk that is hot or not, as it is told.
type oven struct {
	disk
	hot   atomic.Bool
	alone atomic.Int64 // reads that would not have waited
}

func (o *oven) ReadHot(ctx context.Context, obj source.Info, p []byte, off int64, wait bool) (bool, error) {
	hot := o.hot.Load()
	if !wait {
		o.alone.Add(1)
		if !hot {
			return false, nil
		}
	}
	return hot, o.ReadAt(ctx, obj, p, off)
}

func newOven(t *testing.T) (*oven, *rig) {
	o := &oven{disk: disk{size: 4 << 20}}
	r := newRig(&o.disk, 1<<30)
	r.Close()
	r.Fetcher = New(o, o, func(*Request) { r.wg.Done() }, r.opt)
	t.Cleanup(r.Close)
	return o, r
}

func requests(n int) (reqs []*Request) {
	for i := range n {
		reqs = append(reqs, &Request{Sample: int64(i), Extents: []format.Extent{{File: i % 3, Off: int64(i) * 9000, Len: 700}, {File: 3, Off: int64(i), Len: 1}}})
	}
	return reqs
}

// warm reads until lanes may read, or as much as should do.
func (r *rig) warm() {
	for range 2 * hotRow {
		q := requests(1)
		r.fetch(q)
		q[0].Release()
	}
}

func TestALaneReadsWhatIsHot(t *testing.T) {
	o, r := newOven(t)
	r.warm()
	if r.Hot(requests(1)[0]) {
		t.Fatal("a source where every read waits counts as hot")
	}
	o.hot.Store(true)
	r.warm()
	if !r.Hot(requests(1)[0]) {
		t.Fatal("a source where no read waits does not count as hot")
	}
	var rc ReadContext
	for i, q := range requests(40) {
		if !r.Now(context.Background(), &rc, q) {
			t.Fatalf("request %d is not read", i)
		}
		for k, e := range q.Extents {
			if int64(len(q.Raw[k])) != e.Len || q.Raw[k][0] != at(e.File, e.Off) || q.Raw[k][e.Len-1] != at(e.File, e.Off+e.Len-1) {
				t.Fatalf("request %d: extent %d is wrong", i, k)
			}
		}
		q.Release()
	}
	if r.pool.Out() != 0 || r.bytes.Used() != 0 {
		t.Error("what a lane reads is counted as read ahead")
	}

	o.hot.Store(false)
	q := requests(1)[0]
	if r.Now(context.Background(), &rc, q) {
		t.Fatal("a lane has waited")
	}
	if r.Hot(requests(1)[0]) {
		t.Error("after a read that would have waited lanes go on reading")
	}
	r.fetch([]*Request{q}) // and it is as it was
	if q.Err != nil || len(q.Raw) != 2 || q.Raw[0][0] != at(0, 0) {
		t.Errorf("%v, %d runs", q.Err, len(q.Raw))
	}
	q.Release()
}

// A sample too long for a lane's cache, and one that cannot be read, go to the readers.
func TestALaneLeavesAlone(t *testing.T) {
	o, r := newOven(t)
	o.hot.Store(true)
	o.bad = "2"
	r.warm()
	var rc ReadContext
	long := &Request{Extents: []format.Extent{{File: 1, Len: hotBytes + 1}}}
	bad := &Request{Extents: []format.Extent{{File: 1, Len: 1}, {File: 2, Len: 1}}}
	before := o.alone.Load()
	if r.Hot(long) || !r.Hot(bad) {
		t.Error("what is too long is hot, or what is not is not")
	}
	if r.Now(context.Background(), &rc, long) || o.alone.Load() != before {
		t.Error("a lane tries what is too long for it")
	}
	if r.Now(context.Background(), &rc, bad) || len(bad.Raw) != 0 {
		t.Error("a lane keeps what could not be read")
	}
	r.fetch([]*Request{long, bad})
	if long.Err != nil || bad.Err == nil {
		t.Errorf("read: %v; not to be read: %v", long.Err, bad.Err)
	}
	long.Release()
	bad.Release()
}

// One lane's memory serves several datasets.
func TestOneContextForTwoFetchers(t *testing.T) {
	a, first := newOven(t)
	b, second := newOven(t)
	a.hot.Store(true)
	b.hot.Store(true)
	b.size = 1 << 10
	var rc ReadContext
	for range 3 {
		q := &Request{Extents: []format.Extent{{File: 7, Off: 5000, Len: 3}}}
		if !first.Now(context.Background(), &rc, q) || q.Raw[0][0] != at(7, 5000) {
			t.Fatal("the first dataset's bytes are wrong")
		}
		if second.Now(context.Background(), &rc, q) {
			t.Fatal("the second dataset's file of 1 KiB is read beyond its end")
		}
	}
}
