package compressed

import (
	"errors"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
)

// The columns. None is part of the dataset's identity: they follow from the files.
const (
	fileKind  = "packed.kind"  // int32, of stored files: Kind
	fileSize  = "packed.size"  // int64, of stored files: unpacked bytes; of plain ones their size
	fileFirst = "packed.first" // int64, one more than files: number of the first point
	pointOut  = "packed.out"   // int64
	pointIn   = "packed.in"    // int64
	pointEnd  = "packed.end"   // int64
	pointLead = "packed.lead"  // int64
	pointSum  = "packed.sum"   // int64: XXH64
	pointNote = "packed.note"  // strings
)

// Write adds the points of all files to an index; those of a plain file are nil,
// and sizes has its size.
func Write(b *index.Builder, files []*Points, sizes []int64) {
	var (
		kind                         []int32
		size, first                  []int64
		outs, ins, ends, leads, sums []int64
		notes                        index.Texts
	)
	for i, f := range files {
		first = append(first, int64(len(outs)))
		if f == nil {
			kind, size = append(kind, int32(Plain)), append(size, sizes[i])
			continue
		}
		kind, size = append(kind, int32(f.kind)), append(size, f.size)
		for _, p := range f.list {
			outs, ins, ends = append(outs, p.out), append(ins, p.in), append(ends, p.end)
			leads, sums = append(leads, p.lead), append(sums, int64(p.sum))
			notes.Append(p.note)
		}
	}
	first = append(first, int64(len(outs)))
	b.Int32s(fileKind, kind, index.Aside)
	b.Int64s(fileSize, size, index.Aside)
	b.Int64s(fileFirst, first, index.Aside)
	b.Int64s(pointOut, outs, index.Aside)
	b.Int64s(pointIn, ins, index.Aside)
	b.Int64s(pointEnd, ends, index.Aside)
	b.Int64s(pointLead, leads, index.Aside)
	b.Int64s(pointSum, sums, index.Aside)
	b.Strings(pointNote, &notes, index.Aside)
}

// Table is the points of all files of an open index; safe for concurrent use.
type Table struct {
	x                         *index.Index
	kind                      []int32
	size, first               []int64
	out, in, end, lead, check []int64
	note                      index.Strings
	paths                     []string

	blocks *format.Blocks
	gzip   sync.Pool // *gunzip
	whole  *zstd.Decoder

	mu      sync.Mutex
	cursors []*cursor // into large zstd frames, the last used last
}

// keepBytes is what a Table keeps unpacked.
const keepBytes = 64 << 20

// Open finds the points in an index; it returns nil if there are none.
func Open(x *index.Index) *Table {
	t := &Table{
		x: x, kind: x.Int32s(fileKind), size: x.Int64s(fileSize), first: x.Int64s(fileFirst),
		out: x.Int64s(pointOut), in: x.Int64s(pointIn), end: x.Int64s(pointEnd), lead: x.Int64s(pointLead), check: x.Int64s(pointSum),
		note: x.Strings(pointNote), blocks: format.NewBlocks(keepBytes),
	}
	if t.kind == nil {
		return nil
	}
	t.gzip.New = func() any { return new(gunzip) }
	t.whole, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(mostWindow))
	for i := range x.Files() {
		t.paths = append(t.paths, string(x.AppendPath(i, nil)))
	}
	return t
}

// Valid reports whether every number can be used without further checks.
func (t *Table) Valid() bool {
	n := len(t.out)
	if len(t.kind) != t.x.Files() || len(t.size) != t.x.Files() || len(t.first) != t.x.Files()+1 ||
		len(t.in) != n || len(t.end) != n || len(t.lead) != n || len(t.check) != n || t.note.Len() != n ||
		t.first[0] != 0 || t.first[len(t.kind)] != int64(n) {
		return false
	}
	for f, k := range t.kind {
		stored, _ := t.x.Stamp(f)
		from, to := t.first[f], t.first[f+1]
		if from > to || k < int32(Plain) || k > int32(LZ4) || k == int32(Plain) && (from != to || t.size[f] != stored) || t.size[f] < 0 {
			return false
		}
		at, in, end := int64(0), int64(0), int64(0)
		for i := from; i < to; i++ {
			next := t.size[f]
			if i+1 < to {
				next = t.out[i+1]
			}
			if t.out[i] != at || next <= at || next-at > maxPiece || t.in[i] < in || t.end[i] < max(end, t.in[i]) || t.end[i] > stored || t.lead[i] < 0 {
				return false
			}
			at, in, end = next, t.in[i], t.end[i]
		}
		if k != int32(Plain) && at != t.size[f] {
			return false
		}
	}
	return true
}

// maxPiece is the most that any codec unpacks from one point on.
const maxPiece = spacing + lz4Block

// Compressed says whether a file is.
func (t *Table) Compressed(file int) bool { return t != nil && t.kind[file] != int32(Plain) }

// Kind is that of a file.
func (t *Table) Kind(file int) Kind { return Kind(t.kind[file]) }

// Size is the unpacked bytes of a file.
func (t *Table) Size(file int) int64 { return t.size[file] }

// Points are those of a file, to be written again; nil of a plain one.
func (t *Table) Points(file int) *Points {
	if !t.Compressed(file) {
		return nil
	}
	p := &Points{kind: t.Kind(file), size: t.size[file]}
	for i := t.first[file]; i < t.first[file+1]; i++ {
		pt := t.point(i)
		pt.note = slices.Clone(pt.note)
		p.list = append(p.list, pt)
	}
	return p
}

func (t *Table) point(i int64) point {
	return point{out: t.out[i], in: t.in[i], end: t.end[i], lead: t.lead[i], sum: uint64(t.check[i]), note: t.note.At(int(i))}
}

// Whole says whether no sample of a file costs more than unpacking a piece of it;
// if not, and for how large a frame, a user should know.
func (t *Table) Whole(file int) (largest int64, ok bool) {
	if t.Kind(file) != Zstd {
		return 0, true
	}
	for i := t.first[file]; i < t.first[file+1]; i++ {
		largest = max(largest, t.lead[i]>>1)
	}
	return largest, largest == 0
}

// span is the points that n unpacked bytes at off take.
func (t *Table) span(file int, off, n int64) (from, to int64) {
	first, last := t.first[file], t.first[file+1]
	from = first + int64(sort.Search(int(last-first), func(i int) bool { return t.out[first+int64(i)] > off })) - 1
	for to = from + 1; to < last && t.out[to] < off+n; to++ {
	}
	return from, to
}

// Extent returns the range of compressed bytes from which n bytes at off of the unpacked
// file are unpacked. Both ranges are within their files.
func (t *Table) Extent(file int, off, n int64) format.Extent {
	e := format.Extent{File: file}
	if n == 0 {
		return e
	}
	from, to := t.span(file, off, n)
	e.Off, e.Len = t.in[from], t.end[to-1]-t.in[from]
	return e
}

// errShort is of bytes that are not those of the extent.
var errShort = errors.New("compressed: the bytes passed in are not those of the extent")

// Unpack is n bytes at off of the unpacked file, where raw is the bytes of their
// Extent: ordinary memory, not to be written to, good for as long as it is held.
func (t *Table) Unpack(file int, off, n int64, raw []byte) ([]byte, error) {
	e := t.Extent(file, off, n)
	if int64(len(raw)) != e.Len {
		return nil, errShort
	}
	if n == 0 {
		return nil, nil
	}
	from, to := t.span(file, off, n)
	var joined []byte
	for i := from; i < to; i++ {
		data, err := t.blocks.Get(i, func() ([]byte, error) {
			return t.unpack(file, i, raw[t.in[i]-e.Off:t.end[i]-e.Off])
		})
		if err != nil {
			return nil, err
		}
		part := data[max(off-t.out[i], 0):min(off+n-t.out[i], int64(len(data)))]
		if to-from == 1 {
			return part[:len(part):len(part)], nil
		}
		joined = append(slices.Grow(joined, int(min(n, 1<<30))-len(joined)), part...)
	}
	return joined, nil
}

// unpack is all from point i to the next.
func (t *Table) unpack(file int, i int64, raw []byte) (data []byte, err error) {
	next := t.size[file]
	if i+1 < t.first[file+1] {
		next = t.out[i+1]
	}
	pt, n := t.point(i), int(next-t.out[i])
	switch t.Kind(file) {
	case Gzip:
		g := t.gzip.Get().(*gunzip)
		data, err = gunzipAt(g, t.paths[file], raw, pt, n, t.window)
		t.gzip.Put(g)
	case LZ4:
		data, err = unlz4At(t.paths[file], raw, pt, n, t.window)
	case Zstd:
		data, err = t.frame(file, raw, pt, n)
	}
	if err != nil {
		return nil, err
	}
	if len(data) != n || xxhash.Sum64(data) != pt.sum {
		return nil, damaged(t.paths[file], pt.in, "the compressed bytes are not those that were indexed").
			Try("the file's size and time have not changed, so its disk or memory is to blame; fetch the file again")
	}
	return data, nil
}

// window unpacks a window into dst.
func (t *Table) window(note, dst []byte) error {
	if len(note) == 0 {
		clear(dst)
		return nil
	}
	w, err := t.whole.DecodeAll(note, dst[:0:len(dst)])
	if err == nil && len(w) != len(dst) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// cursor is a large zstd frame that is unpacked up to some point. While it is in use it
// is not in the table.
type cursor struct {
	file int
	in   int64
	z    zstdFrames
	done int64 // unpacked so far
}

// maxCursors bounds what they keep: a window of the frame each.
const maxCursors = 2

// frame unpacks a piece of a zstd frame.
func (t *Table) frame(file int, raw []byte, pt point, n int) ([]byte, error) {
	if pt.lead == 1 {
		data, err := t.whole.DecodeAll(raw, make([]byte, 0, n))
		if err != nil {
			return nil, damaged(t.paths[file], pt.in, "cannot decompress a zstd frame").Because(err)
		}
		return data, nil
	}
	skip := pt.lead >> 1
	c := t.take(file, pt.in, skip)
	if c == nil {
		c = &cursor{file: file, in: pt.in}
		c.z.dec = newDecoder()
		c.z.feed = feedOf(t.paths[file], raw, pt.in)
		c.z.obj.Size, _ = t.x.Stamp(file)
		if _, err := c.z.head(); err != nil {
			return nil, err
		}
	} else {
		at := c.z.pos() - pt.in
		c.z.feed = feedOf(t.paths[file], raw, pt.in)
		if at > int64(len(raw)) {
			return nil, c.z.damaged(pt.in, "the compressed stream is not the one that was indexed")
		}
		c.z.p = int(at)
	}
	data := make([]byte, n)
	for c.done < skip+int64(n) {
		p := data
		if left := skip - c.done; left > 0 {
			p = data[:min(left, int64(n))]
		}
		k, err := c.z.read(p)
		c.done += int64(k)
		c.z.n = c.done
		if err != nil && (err != io.EOF || c.done < skip+int64(n)) { //nolint:errorlint // as it is
			if err == io.EOF { //nolint:errorlint // as it is
				err = c.z.cut()
			}
			return nil, err
		}
	}
	t.give(c)
	return data, nil
}

// take returns the cursor into a frame that is nearest before skip, or nil if there is
// none.
func (t *Table) take(file int, in, skip int64) *cursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := -1
	for i, c := range t.cursors {
		if c.file == file && c.in == in && c.done <= skip && (best < 0 || c.done > t.cursors[best].done) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	c := t.cursors[best]
	t.cursors = slices.Delete(t.cursors, best, best+1)
	return c
}

func (t *Table) give(c *cursor) {
	c.z.in = nil // the caller's
	c.z.base, c.z.p, c.z.end = c.z.pos(), 0, 0
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.cursors) == maxCursors {
		t.cursors = slices.Delete(t.cursors, 0, 1)
	}
	t.cursors = append(t.cursors, c)
}
