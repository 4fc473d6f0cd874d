package facts

import (
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// segment is one mapped file. It lives as long as somebody holds it: the store's
// goroutine, a view, a merge. The last one to release it unmaps it.
type segment struct {
	name  string
	size  int64  // of the file, bytes
	data  []byte // the mapping
	end   int64  // of the records, bytes from the start
	table []slot // sorted by hash, with empty slots; in the mapping, or in memory for what was rescued
	homes int64
	facts int64

	refs   atomic.Int32
	broken atomic.Bool // reading it failed; it is not read again
}

// openSegment maps a sealed file and checks it; the caller holds it.
func openSegment(d disk, name, kind string, seed uint32) (*segment, error) {
	err := d.ask("open", name, "", nil)
	if err != nil {
		return nil, err
	}
	data, err := mapped(d.path(name))
	if err != nil {
		return nil, err
	}
	g := &segment{name: name, size: int64(len(data)), data: data}
	g.refs.Store(1)
	err = errTruncated
	guarded(func() {
		var s shape
		if table := le.Uint64(data[max(len(data)-footerLen, 0)+16:]); table < uint64(len(data)) {
			willNeed(data[int(table)&^(os.Getpagesize()-1):], nil)
		}
		if s, err = parse(data, kind, seed); err == nil {
			table := data[s.table : s.table+s.slots*slotLen]
			// Every machine that stoker is built for is little-endian.
			g.table = unsafe.Slice((*slot)(unsafe.Pointer(unsafe.SliceData(table))), s.slots)
			g.end, g.homes, g.facts = s.table, s.homes, s.facts
		}
	})
	if err != nil {
		g.release()
		return nil, err
	}
	return g, nil
}

var errShort = errors.New("it is too short for a header")

var errTruncated = errors.New("it cannot be read any more: it was truncated, or its disk failed")

// mapped maps a file and closes it again.
func mapped(path string) ([]byte, error) {
	// Opening waits for nobody, whatever took the file's place since it was listed.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errForeign
	}
	if fi.Size() < headerLen || fi.Size() != int64(int(fi.Size())) {
		return nil, errShort
	}
	return unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_SHARED)
}

// guarded reads a mapping: false if a part of it cannot be read, as of a file that was
// truncated after it was mapped, or on a disk that failed.
func guarded(read func()) (ok bool) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if !ok {
			caught(recover())
		}
	}()
	read()
	return true
}

// caught panics again with anything but a fault.
func caught(v any) {
	if _, fault := v.(interface{ Addr() uintptr }); v != nil && !fault {
		panic(v)
	}
}

func (g *segment) hold() *segment { g.refs.Add(1); return g }

func (g *segment) release() {
	if g.refs.Add(-1) == 0 {
		_ = unix.Munmap(g.data)
		g.data, g.table = nil, nil
	}
}

// find is the index of the first slot that may be the hash's, and that after the last
// one to look at.
func (g *segment) find(h uint64) (at, end int64) {
	at = home(h, g.homes)
	return at, min(at+maxProbe, int64(len(g.table)))
}

// record is the bytes of a slot's record, unchecked; nil if they are not in the file.
func (g *segment) record(s slot) []byte {
	off, n := s.record()
	if off < headerLen || off > g.end || n > g.end-off || n > recordHead+MaxFact {
		return nil
	}
	return g.data[off : off+n : off+n]
}

// populate brings bytes of the mapping into memory. It is a system call, which, unlike
// a page fault, does not keep a processor of Go's while it waits.
func (g *segment) populate(off, n int64) {
	from := int(off) &^ (os.Getpagesize() - 1)
	to := min(int(off+n), len(g.data))
	if from >= to {
		return
	}
	if err := unix.Madvise(g.data[from:to], unix.MADV_POPULATE_READ); errors.Is(err, unix.EINVAL) { // before Linux 5.14
		_ = unix.Madvise(g.data[from:to], unix.MADV_WILLNEED)
	}
}

// willNeed begins to read a part of a mapping; data starts at a page. For one request Linux reads
// no more than its read-ahead window, 128 KiB unless set otherwise, so it is asked in pieces of
// that size. It says false if quit was closed meanwhile.
func willNeed(data []byte, quit <-chan struct{}) bool {
	for piece := range slices.Chunk(data, 128<<10) {
		select {
		case <-quit:
			return false
		default:
			_ = unix.Madvise(piece, unix.MADV_WILLNEED)
		}
	}
	return true
}

// view is the segments that facts are looked up in, at one time. Readers take the
// current one and release it, without a lock; the last to release it releases what was
// removed since.
type view struct {
	segs []*segment
	refs atomic.Int64 // readers, and one while it is current
}

func (s *Store) acquire() *view {
	for {
		v := s.current.Load()
		if v == nil {
			return nil
		}
		for n := v.refs.Load(); n > 0; n = v.refs.Load() {
			if v.refs.CompareAndSwap(n, n+1) {
				return v
			}
		}
	}
}

func (v *view) release() {
	if v.refs.Add(-1) == 0 {
		for _, g := range v.segs {
			g.release()
		}
	}
}

// publish makes those segments the current view; none: the store is closed.
func (s *Store) publish(segs []*segment) {
	var v *view
	if segs != nil {
		v = &view{segs: segs}
		v.refs.Store(1)
		for _, g := range segs {
			g.hold()
		}
	}
	if old := s.current.Swap(v); old != nil {
		old.release()
	}
}

// populate brings the records of a hash into memory.
func (v *view) populate(h uint64) {
	for _, g := range v.segs {
		if g.broken.Load() {
			continue
		}
		for i, end := g.find(h); i < end && g.table[i].hash != 0 && g.table[i].hash <= h; i++ {
			if off, n := g.table[i].record(); g.table[i].hash == h && off <= g.end {
				g.populate(off, n)
			}
		}
	}
}

// append appends the newest whole fact of the key. bad: a record failed its check.
// broken: a segment cannot be read; look again, it is left out then.
func (v *view) append(dst []byte, k Key, seed uint32) (out []byte, ok, bad, broken bool) {
	base := len(dst)
	h := k.hash()
	var at *segment
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if !broken {
			return
		}
		if fault := recover(); fault != nil {
			caught(fault)
			at.broken.Store(true)
		}
		out, ok = dst[:base], false
	}()
	broken = true // until the end is reached
	newest := uint64(0)
	for _, at = range v.segs {
		if at.broken.Load() {
			continue
		}
		for i, end := at.find(h); i < end; i++ {
			s := at.table[i]
			if s.hash == 0 || s.hash > h {
				break
			}
			if s.hash < h {
				continue
			}
			// The copy is checked, not the mapping, which a stranger might write to; and
			// before the key is compared, so that the processor waits for memory once.
			cut := len(dst)
			dst = append(dst, at.record(s)...)
			rec := dst[cut:]
			switch {
			case !whole(rec, seed):
				dst, bad = dst[:cut], true
			case keyOf(rec) != k, ok && stampOf(rec) <= newest:
				dst = dst[:cut]
			default:
				newest, ok = stampOf(rec), true
				dst = dst[:base+copy(dst[base:], rec[recordHead:])]
			}
		}
	}
	broken = false
	return dst, ok, bad, false
}
