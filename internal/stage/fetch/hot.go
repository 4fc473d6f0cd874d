package fetch

import (
	"context"
	"unsafe"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// What is in the page cache is read fastest by the lane that needs it: there is
// nobody to wake, no budget to keep, and the bytes are in the cache of the processor
// that decodes them. A lane must never wait for a disk, though, and what has to come
// from one has to be asked for early. So readers note whether they wait; as long as
// they do not, samples may go to their lanes unread, and a lane that would have to
// wait after all hands its sample to the readers.

const (
	// hotRow is how many reads in a row must not have waited.
	hotRow = 256
	// hotBytes is the longest sample that a lane reads: it stays in the cache.
	hotBytes = 1 << 20
)

// Hot says whether a lane may read a request by itself: it is not too long, and what
// was read last was at hand.
func (f *Fetcher) Hot(r *Request) bool { return f.row.Load() >= hotRow && r.Bytes() <= hotBytes }

// Now reads a request's bytes into h if they are at hand, and says whether they are.
// If not the request is as it was before. What it read is valid until the next Now
// or Read of h.
func (f *Fetcher) Now(ctx context.Context, h *Hand, r *Request) bool {
	if f.hot == nil || r.Bytes() > hotBytes {
		return false
	}
	if h.f != f {
		h.f, h.name = f, -1
	}
	h.Reset()
	r.chunks, r.Raw, r.Err = r.chunks[:0], r.Raw[:0], nil
	for _, e := range r.Extents {
		p := h.room(e.Len)
		if hot, err := f.hot.ReadHot(ctx, h.object(e.File), p, e.Off, false); !hot || err != nil {
			f.row.Store(0)
			r.Raw = r.Raw[:0]
			return false
		}
		r.Raw = append(r.Raw, p)
	}
	return true
}

// readAt reads as readers do, and notes whether that waited.
func (f *Fetcher) readAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if f.hot == nil {
		return f.src.ReadAt(ctx, obj, p, off)
	}
	hot, err := f.hot.ReadHot(ctx, obj, p, off, true)
	switch {
	case !hot:
		f.row.Store(0)
	case f.row.Load() < hotRow: // no word that all readers write all the time
		f.row.Add(1)
	}
	return err
}

// room is so many bytes of h's memory; what was given before stays where it is.
func (h *Hand) room(n int64) []byte {
	at := len(h.buf)
	if int64(cap(h.buf)-at) < n {
		h.buf, at = make([]byte, 0, max(2*int64(cap(h.buf)), n, 64<<10)), 0
	}
	h.buf = h.buf[:int64(at)+n]
	return h.buf[at : int64(at)+n : int64(at)+n]
}

// object is a file of the dataset; its name is valid until the next call.
func (h *Hand) object(file int) source.Info {
	if h.name != file {
		h.path, h.name = h.f.files.AppendPath(file, h.path[:0]), file
	}
	size, version := h.f.files.Stamp(file)
	return source.Info{Name: unsafe.String(unsafe.SliceData(h.path), len(h.path)), Size: size, Version: version}
}
