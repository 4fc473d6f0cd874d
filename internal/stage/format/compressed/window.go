package compressed

import (
	"context"
	"fmt"
	"io"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	minWindow = 4 << 10
	maxWindow = 1 << 20
)

// Window is the part of a stored file that an indexer looks at as it goes from
// beginning to end; of a compressed file, the unpacked bytes. In a plain file, small things
// share a read, and large ones are stepped over: reads grow as long as what is
// requested next is near, and shrink when it is far. A compressed file is unpacked whole.
type Window struct {
	ctx context.Context
	src source.Source
	obj source.Info

	buf  []byte
	off  int64 // of buf
	want int
	r    *Reader // nil: plain
	done bool    // r has ended
}

// NewWindow looks at a file, whose first bytes say whether it is compressed.
func NewWindow(ctx context.Context, src source.Source, obj source.Info) (*Window, error) {
	w := &Window{ctx: ctx, src: src, obj: obj}
	head, err := w.plain(0, 4)
	if err != nil {
		return nil, err
	}
	if kind := Sniff(head); kind != Plain {
		w.buf, w.r = nil, NewReader(ctx, src, obj, kind)
	}
	return w, nil
}

// Bytes is n bytes at off, which is not before the last one asked for; fewer where
// the file ends, and nil beyond that. A view until the next call. Memory is taken
// for bytes that are there, never for n.
func (w *Window) Bytes(off int64, n int) ([]byte, error) {
	if w.r == nil {
		return w.plain(off, n)
	}
	for !w.done && off+int64(n) > w.off+int64(len(w.buf)) {
		drop := min(off-w.off, int64(len(w.buf)))
		w.buf, w.off = append(w.buf[:0], w.buf[drop:]...), w.off+drop
		p, err := w.r.Next()
		if err == io.EOF { //nolint:errorlint // as it is
			w.done = true
			break
		}
		if err != nil {
			return nil, err
		}
		if skip := off - w.off - int64(len(w.buf)); skip > 0 { // buf is empty then
			skip = min(skip, int64(len(p)))
			w.off, p = w.off+skip, p[skip:]
		}
		w.buf = append(w.buf, p...)
	}
	from := min(off-w.off, int64(len(w.buf)))
	return w.buf[from:min(from+int64(n), int64(len(w.buf)))], nil
}

// Left is how many of n bytes at off there are. Of a compressed file those before them
// are gone then.
func (w *Window) Left(off, n int64) (int64, error) {
	if w.r == nil {
		return max(min(n, w.obj.Size-off), 0), nil
	}
	n = min(n, 1<<62)
	for !w.done && off+n > w.off+int64(len(w.buf)) {
		at := max(w.off+int64(len(w.buf)), off)
		if _, err := w.Bytes(at, int(min(off+n-at, maxWindow))); err != nil {
			return 0, err
		}
	}
	return max(min(n, w.off+int64(len(w.buf))-off), 0), nil
}

func (w *Window) plain(off int64, n int) ([]byte, error) {
	off = min(off, w.obj.Size)
	n = int(min(int64(n), w.obj.Size-off))
	end := w.off + int64(len(w.buf))
	if off >= w.off && off+int64(n) <= end {
		return w.buf[off-w.off:][:n], nil
	}
	if off-end < 64<<10 {
		w.want = min(max(2*w.want, minWindow), maxWindow)
	} else {
		w.want = minWindow
	}
	size := int(min(int64(max(w.want, n)), w.obj.Size-off))
	if cap(w.buf) < size {
		w.buf = make([]byte, size)
	}
	w.buf, w.off = w.buf[:size], off
	if err := w.src.ReadAt(w.ctx, w.obj, w.buf, off); err != nil {
		w.buf = w.buf[:0]
		return nil, format.InShard(err)
	}
	return w.buf[:n], nil
}

// Compressed says whether the file is.
func (w *Window) Compressed() bool { return w.r != nil }

// Finish reads a compressed file to its end, so that all of it was checked, and is
// its points; of a plain one, nil.
func (w *Window) Finish() (*Points, error) {
	if w.r == nil {
		return nil, nil
	}
	for !w.done {
		w.off += int64(len(w.buf))
		w.buf = w.buf[:0]
		if _, err := w.Bytes(w.off, 1); err != nil {
			return nil, err
		}
	}
	return w.r.Points(), nil
}

// Where is the location of damage at off: its offset in the stored file, and a note to
// add if that is only the point at which decompression was resumed.
func (w *Window) Where(off int64) (at int64, note string) {
	if w.r == nil {
		return off, ""
	}
	for _, p := range w.r.points.list {
		if p.out <= off {
			at = p.in
		}
	}
	return at, fmt.Sprintf(" (at byte %d of the decompressed file)", off)
}

// At is how much of the stored file was read by the time that off was reached.
func (w *Window) At(off int64) int64 {
	if w.r == nil {
		return min(off, w.obj.Size)
	}
	return w.r.Off()
}
