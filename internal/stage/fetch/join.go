package fetch

import (
	"cmp"
	"slices"

	"github.com/stoker-data/stoker/internal/stage/format"
)

// piece is one extent on its way into a chunk.
type piece struct {
	ext    format.Extent
	sample int64
	req    int  // of the requests
	index  int  // of the request's extents
	later  bool // a later group needs it: it is read only if it is between pieces of this one
}

// keptBytes is the most that a chunk with later pieces may have. A longer one would save few
// requests more, and stay in memory until the last of its pieces is needed.
const keptBytes = 2 << 20

// allowance is what a group may read for later ones.
type allowance struct {
	keep  int64 // bytes of all chunks that have later pieces
	holes int64 // bytes of the holes that are read for them
}

// join sorts pieces by position and joins those that are better read together: made makes a
// chunk that begins with an extent, and add adds a piece to it. No chunk begins or ends with
// a later piece.
func (f *Fetcher) join(pieces []piece, may allowance, made func(format.Extent) *chunk, add func(*chunk, piece)) (chunks []*chunk) {
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.ext.File, b.ext.File), cmp.Compare(a.ext.Off, b.ext.Off), cmp.Compare(a.req, b.req))
	})
	var c *chunk
	var reach reach
	var between []piece // later pieces since the last needed one
	for _, p := range pieces {
		if p.later {
			if c != nil {
				between = append(between, p)
			}
			continue
		}
		if c == nil || c.file != p.ext.File {
			reach = f.storeOf(p.ext.File).reach()
		}
		end := p.ext.Off + p.ext.Len
		between = slices.DeleteFunc(between, func(q piece) bool { return q.ext.Off+q.ext.Len > end })
		paid := int64(0) // of may.keep, for c
		near, fits := false, false
		if c != nil && c.file == p.ext.File {
			if c.later {
				paid = c.length
			}
			near = end-c.off <= max(reach.length, c.length)
			fits = near && max(end-c.off, c.length) <= min(keptBytes, may.keep+paid)
		}
		switch {
		case fits && len(between) > 0 && c.fills(p, between, may.holes, reach):
			may.holes -= p.ext.Off - c.off - c.length
			c.later = true
			for _, q := range between {
				c.grow(q, add)
			}
		case near && (fits || !c.later || end-c.off <= c.length) && c.reaches(p, 0, reach):
		default:
			c, paid = made(p.ext), 0
			c.first, c.end = p.req, p.req
			chunks = append(chunks, c)
		}
		between = between[:0]
		c.grow(p, add)
		c.first, c.end = min(c.first, p.req), max(c.end, p.req)
		if c.later {
			may.keep -= c.length - paid
		}
	}
	return chunks
}

// fills reports whether later pieces fill the hole before p so far that it is worth reading.
func (c *chunk) fills(p piece, between []piece, holes int64, r reach) bool {
	begin := c.off + c.length
	hole := p.ext.Off - begin
	return 0 < hole && hole <= holes && c.reaches(p, covered(between, begin, p.ext.Off), r)
}

// grow adds a piece that begins at or after the chunk's last one, and lengthens the chunk to
// contain it.
func (c *chunk) grow(p piece, add func(*chunk, piece)) {
	end := p.ext.Off + p.ext.Len
	if beyond := end - c.off - c.length; beyond > 0 {
		c.need += min(p.ext.Len, beyond)
		c.length += beyond
	}
	c.last = p.sample
	add(c, p)
}

// covered is how many of the bytes from begin to end belong to pieces, which are sorted.
func covered(pieces []piece, begin, end int64) (n int64) {
	for _, p := range pieces {
		to := min(p.ext.Off+p.ext.Len, end)
		if from := max(p.ext.Off, begin); to > from {
			n += to - from
			begin = to
		}
	}
	return n
}

// reaches reports whether an extent of a sample, at or after the chunk's own, is near
// enough to be read with them. needed is how many bytes of the hole between them are read
// for later groups.
//
// Over a link, every other sample in the hole would be read again with its own batch. So no
// hole is read that costs more than a request (Link.Gap), and none longer than gapBytes
// where holes would be more than an eighth of what is needed: if the link is full, a
// request costs nothing, because others use the time that it waits.
func (c *chunk) reaches(p piece, needed int64, r reach) bool {
	gap := p.ext.Off - c.off - c.length - needed
	if r.linked {
		return gap <= r.gap && (gap <= gapBytes || c.length-c.need+gap <= (c.need+p.ext.Len)/8)
	}
	return gap <= pageBytes || gap <= gapBytes && -1 <= p.sample-c.last && p.sample-c.last <= 1
}
