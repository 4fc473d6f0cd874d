package fetch

import (
	"context"
	"unsafe"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// The lane that needs a sample reads it fastest if it is in the page cache: no goroutine
// is woken, no budget is kept, and the bytes are in the cache of the processor that
// decodes them. But a lane must never wait for a disk, and what comes from a disk must
// be requested early. So readers note whether they wait; as long as they do not, samples
// may go to their lanes unread, and a lane that would have to wait passes its sample to
// the readers.

const (
	// hotRow is how many consecutive reads must not have waited before lanes read.
	hotRow = 256
	// hotBytes is the longest sample that a lane reads: it stays in the processor's
	// cache.
	hotBytes = 1 << 20
)

// Hot reports whether a lane may read a request itself: it is not too long, and the last
// reads did not wait.
func (f *Fetcher) Hot(r *Request) bool {
	st := f.local()
	if len(r.Extents) > 0 {
		st = f.storeOf(r.Extents[0].File)
	}
	return st.row.Load() >= hotRow && r.Bytes() <= hotBytes
}

// Now reads a request's bytes into rc if they are in the page cache, and reports whether
// they are. If not, the request is unchanged. The bytes are valid until the next Now or
// Read of rc.
func (f *Fetcher) Now(ctx context.Context, rc *ReadContext, r *Request) bool {
	if f.hot == nil || r.Bytes() > hotBytes {
		return false
	}
	if rc.f != f {
		rc.f, rc.name = f, -1
	}
	rc.Reset()
	r.chunks, r.Raw, r.Err = r.chunks[:0], r.Raw[:0], nil
	for _, e := range r.Extents {
		p := rc.room(e.Len)
		if hot, err := f.hot.ReadHot(ctx, rc.object(e.File), p, e.Off, false); !hot || err != nil {
			f.storeOf(e.File).row.Store(0)
			r.Raw = r.Raw[:0]
			return false
		}
		r.Raw = append(r.Raw, p)
	}
	return true
}

// readAt reads like a reader of the store, and records and returns whether that waited.
func (f *Fetcher) readAt(ctx context.Context, st *store, obj source.Info, p []byte, off int64) (hot bool, err error) {
	if f.hot == nil {
		return false, f.src.ReadAt(ctx, obj, p, off)
	}
	hot, err = f.hot.ReadHot(ctx, obj, p, off, true)
	switch {
	case !hot:
		st.row.Store(0)
	case st.row.Load() < hotRow: // no word that all readers write all the time
		st.row.Add(1)
	}
	return hot, err
}

// room returns n bytes of rc's memory; bytes returned earlier stay where they are.
func (rc *ReadContext) room(n int64) []byte {
	at := len(rc.buf)
	if int64(cap(rc.buf)-at) < n {
		rc.buf, at = make([]byte, 0, max(2*int64(cap(rc.buf)), n, 64<<10)), 0
	}
	rc.buf = rc.buf[:int64(at)+n]
	return rc.buf[at : int64(at)+n : int64(at)+n]
}

// object describes a file of the dataset; its name is valid until the next call.
func (rc *ReadContext) object(file int) source.Info {
	if rc.name != file {
		rc.path, rc.name = rc.f.files.AppendPath(file, rc.path[:0]), file
	}
	size, version := rc.f.files.Stamp(file)
	return source.Info{Name: unsafe.String(unsafe.SliceData(rc.path), len(rc.path)), Size: size, Version: version}
}
