package order

import (
	"math/bits"
	"slices"
)

// packer is the state of best fit decreasing (Johnson 1973), reused from window to
// window.
type packer struct {
	filled []int64 // by place of the window: full rows up to and including it
	of     []int32 // the row of each piece, in the order of pieces: longest first
	room   roomTree
}

// total is the number of rows that one sample fills.
func (p *packer) total() int64 {
	if len(p.filled) == 0 {
		return 0
	}
	return p.filled[len(p.filled)-1]
}

// rows packs the samples that were read: the result is in s.pack.filled, s.pack.of,
// and in s.ends, where each shared row ends. s.keys are then the pieces of shared
// rows, longest first and places in order: (Pack - tokens) <<32 | place.
//
// A sample fills as many rows as it can by itself. The rest of it, or all of a
// short one, goes into the fullest row with enough room, of equally full ones into
// the one that has been so for longest, otherwise into a new row.
func (s *scratch) rows(l *Lengths) {
	p := &s.pack
	p.filled = p.filled[:0]
	var filled int64
	rests := s.keys[:0]
	for _, k := range s.keys {
		length := int64(k >> 32)
		if l.Long == Truncate {
			length = min(length, l.Pack)
		}
		filled += length / l.Pack
		p.filled = append(p.filled, filled)
		if rest := length % l.Pack; rest > 0 || length == 0 {
			rests = append(rests, uint64(l.Pack-rest)<<32|k&(1<<32-1))
		}
	}
	s.keys = rests
	s.sort()
	p.room.reset(l.Pack)
	p.of = slices.Grow(p.of[:0], len(s.keys))[:len(s.keys)]
	s.ends = s.ends[:0]
	for j, k := range s.keys {
		tokens := l.Pack - int64(k>>32)
		row, room, ok := p.room.take(tokens)
		if !ok {
			row, room = int32(len(s.ends)), l.Pack
			s.ends = append(s.ends, 0)
		}
		p.of[j] = row
		s.ends[row]++
		p.room.put(row, room-tokens)
	}
	for r := 1; r < len(s.ends); r++ {
		s.ends[r] += s.ends[r-1]
	}
}

// pieces stores the result of rows, for the window that begins at place first.
func (s *scratch) pieces(l *Lengths, first int64, t *items) {
	next := make([]int32, len(s.ends)) // where each row's next piece goes
	for r := 1; r < len(next); r++ {
		next[r] = s.ends[r-1]
	}
	p := &s.pack
	for j, k := range s.keys {
		place := uint32(k)
		from := p.filled[place]
		if place > 0 {
			from -= p.filled[place-1]
		}
		row := p.of[j]
		t.pieces[next[row]] = Piece{Place: first + int64(place), Sample: s.samples[place], From: from * l.Pack, Len: l.Pack - int64(k>>32)}
		next[row]++
	}
	if p.total() > 0 {
		t.filled, t.held = p.filled, s.samples
		t.row = Piece{Place: first, Len: l.Pack}
	}
}

// roomTree has rows by the room that is left in them, and finds the row with the
// least room that is enough. It is a radix tree over the room with six bits per
// level and a mask in each branch: both calls take ceil(bits(Pack)/6) short steps,
// two for rows of 2,048 tokens. Rows with equal room are queued.
//
// A balanced tree needs log(rows) steps, each with a cache miss; a sorted list
// moves everything after the row.
type roomTree struct {
	levels   uint
	branches []branch // the first is the root; emptied ones stay where they are
	after    []int32  // by row: the next row in its queue
}

type branch struct {
	mask uint64    // of the children with rows
	next [64]int32 // a branch, 0: none yet; on the lowest level the first row of a queue
	last [64]int32 // on the lowest level, the last row of the queue
}

func (t *roomTree) reset(most int64) {
	t.levels = max(1, uint(bits.Len64(uint64(most))+5)/6)
	t.branches = append(t.branches[:0], branch{})
	t.after = t.after[:0]
}

// put adds a row. Rows are numbered from 0 in the order in which they come.
func (t *roomTree) put(row int32, room int64) {
	if int(row) == len(t.after) {
		t.after = append(t.after, 0)
	}
	at := int32(0)
	for level := t.levels - 1; level > 0; level-- {
		d := room >> (6 * level) & 63
		t.branches[at].mask |= 1 << d
		if t.branches[at].next[d] == 0 {
			t.branches[at].next[d] = int32(len(t.branches))
			t.branches = append(t.branches, branch{})
		}
		at = t.branches[at].next[d]
	}
	leaf, d := &t.branches[at], room&63
	if leaf.mask>>d&1 == 0 {
		leaf.mask |= 1 << d
		leaf.next[d] = row
	} else {
		t.after[leaf.last[d]] = row
	}
	leaf.last[d] = row
}

// take removes the row with the least room that is at least tokens.
func (t *roomTree) take(tokens int64) (row int32, room int64, ok bool) {
	room, ok = t.find(0, t.levels-1, tokens)
	if ok {
		row, _ = t.remove(0, t.levels-1, room)
	}
	return row, room, ok
}

// find returns the least room under a branch that is at least `least`; both count
// from the start of the branch.
func (t *roomTree) find(at int32, level uint, least int64) (int64, bool) {
	b := &t.branches[at]
	shift := 6 * level
	d := least >> shift
	if d > 63 {
		return 0, false
	}
	if level == 0 {
		m := b.mask >> d << d
		return int64(bits.TrailingZeros64(m)), m != 0
	}
	if b.mask>>d&1 == 1 {
		if room, ok := t.find(b.next[d], level-1, least-d<<shift); ok {
			return d<<shift | room, true
		}
	}
	m := b.mask >> (d + 1) << (d + 1)
	if m == 0 {
		return 0, false
	}
	d = int64(bits.TrailingZeros64(m))
	room, _ := t.find(b.next[d], level-1, 0)
	return d<<shift | room, true
}

// remove takes the first row of a room's queue, which must not be empty, and
// reports whether the branch is empty now.
func (t *roomTree) remove(at int32, level uint, room int64) (row int32, empty bool) {
	b := &t.branches[at]
	d := room >> (6 * level) & 63
	if level == 0 {
		row = b.next[d]
		if row != b.last[d] {
			b.next[d] = t.after[row]
			return row, false
		}
	} else if row, empty = t.remove(b.next[d], level-1, room); !empty {
		return row, false
	}
	b.mask &^= 1 << d
	return row, b.mask == 0
}
