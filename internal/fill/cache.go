package fill

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// cache is the kept samples of one loader. A sample stays until the loader is
// closed. An epoch visits every sample once, so never evicting is the best policy:
// the least recently used sample is the one that comes next. Safe for concurrent
// use.
//
// Its memory is mapped and not on Go's heap, which would grow to twice the size
// before the collector runs.
type cache struct {
	limit int64

	mu      sync.RWMutex
	entries map[int64]entry // by sample id
	chunks  [][]byte
	used    int // of the last chunk
	bytes   int64
	full    bool
}

// entry is the location of a kept sample. It has no pointers, so the collector does not
// scan the map.
type entry struct {
	chunk    int32
	off, len int32
}

// chunkBytes is the unit in which memory is allocated; a larger sample gets a chunk of
// its own.
const chunkBytes = 32 << 20

// overhead is the memory that a kept sample needs besides its bytes.
const overhead = 64

// get is the kept bytes of a sample, valid until close.
func (c *cache) get(sample int64) ([]byte, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, ok := c.entries[sample]
	if !ok {
		return nil, false
	}
	return c.chunks[p.chunk][p.off : p.off+p.len : p.off+p.len], true
}

func (c *cache) has(sample int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.entries[sample]
	return ok
}

// open reports whether there may be room for another sample.
func (c *cache) open() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.full
}

// fits reports whether there is room for n more bytes. If there is not, the cache
// is full for good.
func (c *cache) fits(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n <= 1<<30 && c.bytes+int64(n)+overhead > c.limit {
		c.full = true
	}
	return n <= 1<<30 && !c.full
}

// put keeps a sample if there is room.
func (c *cache) put(sample int64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.entries[sample]; there || c.full {
		return
	}
	n := len(data)
	if n > 1<<30 {
		return // an offset has 31 bits
	}
	if c.bytes+int64(n)+overhead > c.limit {
		c.full = true
		return
	}
	if len(c.chunks) == 0 || c.used+n > len(c.chunks[len(c.chunks)-1]) {
		size := max(n, int(min(chunkBytes, c.limit)))
		if mem.Available() < 2*int64(size) {
			c.full = true // other processes need the memory more
			return
		}
		chunk, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			c.full = true
			return
		}
		c.chunks, c.used = append(c.chunks, chunk), 0
	}
	last := len(c.chunks) - 1
	copy(c.chunks[last][c.used:], data)
	c.entries[sample] = entry{int32(last), int32(c.used), int32(n)}
	c.used += n
	c.bytes += int64(n) + overhead
}

// close gives the memory back. No sample may be in use.
func (c *cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, chunk := range c.chunks {
		_ = unix.Munmap(chunk)
	}
	c.chunks, c.entries, c.full = nil, nil, true
}

// Cache is what the cache holds; nil without one.
func (f *Filler) Cache() *stats.Cache { return f.cache.snapshot() }

// snapshot is what the cache holds.
func (c *cache) snapshot() *stats.Cache {
	if c == nil {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return &stats.Cache{Samples: int64(len(c.entries)), Bytes: c.bytes, Limit: c.limit, Full: c.full}
}

// cuts are the programs of a part with a cache: before has the part of each
// picture's program that runs before the cache (nil for other fields), after what
// runs after it. Both are empty if nothing of the part is kept. same is, for a view
// whose kept picture is that of an earlier view, 1 + the number of that one's field.
type cuts struct {
	before, after []*transform.Program
	same          []int
}

// cutsOf returns the cuts of a part; they are empty without a cache.
func (f *Filler) cutsOf(part *dataset.Part) cuts {
	if f.cuts == nil {
		return cuts{}
	}
	return f.cuts[part.Number]
}

// newCache makes the cache if the Spec asks for one, and cuts the programs of
// pictures at it.
func (f *Filler) newCache() error {
	if f.spec.Cache.IsZero() {
		return nil
	}
	limit, left := int64(f.spec.Cache.Memory), mem.Available()
	if limit == 0 {
		limit = left / 4
	}
	if limit > left {
		return errs.New(errs.Memory, "the cache may use %s, but this machine or its cgroup has %s left", mem.Size(limit), mem.Size(left)).
			Try("lower cache.memory; what does not fit is decoded again in every epoch")
	}
	f.cuts = make([]cuts, len(f.data.Parts))
	for n, part := range f.data.Parts {
		if part.Stored == nil {
			continue // samples that are made cost nothing to make again
		}
		c := cuts{before: make([]*transform.Program, len(part.Programs)), after: slices.Clone(part.Programs)}
		for i, prog := range part.Programs {
			n, ok := prog.Settled()
			if f.spec.Cache.After == spec.AfterDecode {
				n = 0
			}
			if ok {
				c.before[i], c.after[i] = prog.Cut(n)
			}
		}
		c.same = sameKept(part, c.before)
		f.cuts[n] = c
	}
	f.cache = &cache{limit: limit, entries: map[int64]entry{}}
	return nil
}

// sameKept finds the views of a part whose kept pictures are equal.
func sameKept(part *dataset.Part, before []*transform.Program) []int {
	same := make([]int, len(before))
	for i, prog := range before {
		for j := range i {
			if prog != nil && before[j] != nil && part.Value[i] == part.Value[j] && prog.Digest() == before[j].Digest() {
				same[i] = j + 1
				break
			}
		}
	}
	return same
}

// keep makes and returns what is kept of a parsed sample. It returns nil if that is
// not possible. It does not report why: decoding the sample will, if it needs the
// damaged part of the picture at all.
func (f *Filler) keep(own *State, part *dataset.Part, sample int64) []byte {
	lane, s := own.Lane, &own.sample
	var out record
	for i := range part.Programs {
		if f.fields[i].Of > 0 {
			continue
		}
		v := &s.Fields[part.Value[i]]
		before := f.cuts[part.Number].before[i]
		switch {
		case f.cuts[part.Number].same[i] > 0:
			continue
		case v.IsInt:
			binary.LittleEndian.PutUint64(out.field(1, 0), uint64(v.Int))
			continue
		case before == nil:
			copy(out.field(0, len(v.Data)), v.Data)
			continue
		}
		shape, err := before.Begin(lane, v.Data, rng.Key(0))
		if err != nil {
			return out.drop()
		}
		head, n := format.AppendPNM(nil, shape[1], shape[0], shape[2]), shape.Elems()
		if len(out.b)+n > transform.Share && !f.cache.fits(len(out.b)+n) {
			return out.drop()
		}
		row := out.field(0, len(head)+n)
		copy(row, head)
		lane.Beside = int64(len(out.b))
		err = before.Finish(lane, row[len(head):])
		lane.Beside = 0
		if err != nil {
			return out.drop()
		}
		f.counted(own, before)
	}
	f.cache.put(sample, out.b)
	if len(out.b) <= transform.Share {
		return out.b
	}
	out.drop()
	kept, _ := f.cache.get(sample)
	return kept
}

// record is what is kept of one sample, on its way into the cache. Each field has a
// mark, then a length or a number, then bytes. A long record is mapped memory.
type record struct{ b []byte }

// field appends a mark, a length and n bytes of room, which it returns. For a number
// (mark 1, n 0) it returns the 8 bytes in place of the length.
func (r *record) field(mark byte, n int) []byte {
	at := len(r.b)
	end := at + 9 + n
	if end > cap(r.b) && end > transform.Share {
		if longer, err := mem.Map(end + 1<<16); err == nil {
			copy(longer, r.b)
			mem.Unmap(r.b)
			r.b = longer[:at]
		}
	}
	r.b = slices.Grow(r.b, end-at)[:end]
	r.b[at] = mark
	if mark == 1 {
		return r.b[at+1 : end]
	}
	binary.LittleEndian.PutUint64(r.b[at+1:], uint64(n))
	return r.b[at+9:]
}

// drop frees the record.
func (r *record) drop() []byte {
	mem.Unmap(r.b)
	r.b = nil
	return nil
}

// kept puts the fields of a kept sample into s, one per program.
func (f *Filler) kept(part *dataset.Part, data []byte, s *format.Sample) {
	s.Fields = s.Fields[:0]
	for i := range part.Programs {
		v := format.Field{Name: part.Fields[i].From, File: -1}
		if at := f.cuts[part.Number].same[i]; at > 0 {
			v = s.Fields[at-1]
		} else if f.fields[i].Of == 0 {
			n := binary.LittleEndian.Uint64(data[1:])
			if v.IsInt = data[0] == 1; v.IsInt {
				v.Int, data = int64(n), data[9:]
			} else {
				v.Data, data = data[9:9+n:9+n], data[9+n:]
			}
		}
		s.Fields = append(s.Fields, v)
	}
}

// Notes returns notices about steps in an order that wastes what a cache could
// save.
func (f *Filler) Notes() (notes []string) {
	if f.cache == nil {
		return nil
	}
	for _, part := range f.data.Parts {
		for i, field := range part.Fields {
			before := f.cuts[part.Number].before
			if i >= len(before) || before[i] == nil {
				continue
			}
			if first, later := transform.Wasted(field.Transform); later != "" {
				notes = append(notes, fmt.Sprintf("field %q: %s comes after %s, and is done again in every epoch: before it, the result is the same and the cache keeps it", field.Name, later, first))
			}
			if before[i].Steps() == 0 && f.cuts[part.Number].same[i] == 0 && f.spec.Cache.After != spec.AfterDecode {
				notes = append(notes, fmt.Sprintf("field %q: its first step is random, so the cache keeps whole pictures: a Resize before it makes them small", field.Name))
			}
		}
	}
	return notes
}
