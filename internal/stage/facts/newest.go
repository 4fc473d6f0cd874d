package facts

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"slices"
)

// cursor goes through the table of a segment, in the order of hashes.
type cursor struct {
	g     *segment
	next  int
	last  uint64 // the hash before
	ahead int64  // bytes of the file that were populated
}

// head is the next slot. One out of order is forged, and is passed.
func (c *cursor) head() (slot, bool) {
	for c.next < len(c.g.table) {
		if s := c.g.table[c.next]; s.hash != 0 && s.hash >= c.last {
			return s, true
		}
		c.next++
	}
	return slot{}, false
}

// candidate is a slot of a cursor's segment.
type candidate struct {
	c *cursor
	s slot
}

// load copies a record to buf; it says false if it is not a whole one of that hash.
func (x candidate) load(buf []byte, seed uint32) (rec []byte, ok bool) {
	off, n := x.s.record()
	if off+n > x.c.ahead && off+n <= x.c.g.end { // files of merges are read from front to back
		from := max(x.c.ahead, off)
		n := int64(4 << 20)
		if x.c.g.size <= 2*stride { // it may be a part that was sealed, with records in any order
			from, n = 0, x.c.g.size
		}
		x.c.ahead = max(from, off) + n
		x.c.g.populate(from, n)
	}
	guarded(func() { rec = append(buf[:0], x.c.g.record(x.s)...) })
	return rec, whole(rec, seed) && hash(rec) == x.s.hash
}

// newest is the newest whole record of every key, in the order of hashes; each is valid
// until the next one. The segments are the caller's.
func (s *Store) newest(segs []*segment) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		cursors := make([]cursor, len(segs))
		for i, g := range segs {
			cursors[i].g = g
		}
		var rec []byte
		var group []candidate
		for {
			var more bool
			if group, more = gather(cursors, group[:0]); !more {
				return
			}
			if len(group) > 1 {
				s.order(group, rec)
			}
			var done []Key // of the group
			for i, x := range group {
				var ok bool
				if rec, ok = x.load(rec, s.seed); !ok {
					s.damaged(errors.New("the checksum of a fact is wrong"))
					continue
				}
				if i > 0 && slices.Contains(done, keyOf(rec)) {
					continue
				}
				if len(group) > 1 {
					done = append(done, keyOf(rec))
				}
				if !yield(rec) {
					return
				}
			}
		}
	}
}

// gather takes the slots of the lowest hash from all cursors: one, or the versions of one
// key, as a rule. A forged table may have any number of them; 64 are taken.
func gather(cursors []cursor, group []candidate) (_ []candidate, more bool) {
	at := 0
	if guarded(func() {
		low := uint64(0)
		for at = range cursors {
			if s, ok := cursors[at].head(); ok && (!more || s.hash < low) {
				low, more = s.hash, true
			}
		}
		for at = range cursors {
			c := &cursors[at]
			for s, ok := c.head(); ok && s.hash == low; s, ok = c.head() {
				c.next, c.last = c.next+1, low
				if len(group) < 64 {
					group = append(group, candidate{c, s})
				}
			}
		}
	}) {
		return group, more
	}
	cursors[at].next = math.MaxInt // its table cannot be read
	return group, true
}

// order sorts a group by stamps, the newest first. Those that cannot be read stay.
func (s *Store) order(group []candidate, buf []byte) {
	stamps := make(map[candidate]uint64, len(group))
	for _, x := range group {
		if rec, ok := x.load(buf, s.seed); ok {
			stamps[x] = stampOf(rec)
			buf = rec
		}
	}
	slices.SortStableFunc(group, func(a, b candidate) int { return -cmp.Compare(stamps[a], stamps[b]) })
}
