package token

import "math"

// ranks is a vocabulary of byte-pair encoding: a token's number is its rank, and of all
// neighbours that make a token the pair of the lowest rank is merged first.
type ranks struct {
	byText map[string]uint32
	ones   [256]uint32     // tokens of one byte: a vocabulary has all of them
	twos   [1 << 16]uint32 // tokens of two, big-endian; or none
	most   uint32          // the highest rank
}

// none is the rank of bytes that are not a token.
const none = math.MaxUint32

func newRanks(size int) *ranks {
	r := &ranks{byText: make(map[string]uint32, size)}
	for i := range r.ones {
		r.ones[i] = none
	}
	for i := range r.twos {
		r.twos[i] = none
	}
	return r
}

// add reports whether the token is a new one.
func (r *ranks) add(text string, rank uint32) bool {
	known := len(r.byText)
	r.byText[text] = rank
	switch len(text) {
	case 1:
		r.ones[text[0]] = rank
	case 2:
		r.twos[int(text[0])<<8|int(text[1])] = rank
	}
	r.most = max(r.most, rank)
	return len(r.byText) > known
}

// rank is the rank of a text of two bytes or more, or none.
func (r *ranks) rank(text string) uint32 {
	if len(text) == 2 {
		return r.twos[int(text[0])<<8|int(text[1])]
	}
	if rank, there := r.byText[text]; there {
		return rank
	}
	return none
}

// word appends the tokens of a word. A word that is a token is that one, even if merges
// would not make it.
func (r *ranks) word(text string, dst []uint32) []uint32 {
	switch {
	case len(text) == 1:
		return append(dst, r.ones[text[0]])
	case len(text) <= short:
		if rank := r.rank(text); rank != none {
			return append(dst, rank)
		}
		return r.scan(text, dst)
	}
	if rank := r.rank(text); rank != none {
		return append(dst, rank)
	}
	return r.merge(text, dst)
}

// short is the length of the words in bytes in which looking at all pairs for the best
// takes less time than a heap does.
const short = 64

// scan appends the tokens of a short word.
func (r *ranks) scan(text string, dst []uint32) []uint32 {
	// A part begins at ends[i-1] and ends at ends[i]; pairs[i] is the rank of it with the next.
	var ends [short]uint8
	var pairs [short]uint32
	var tokens [short]uint32
	n := len(text)
	begin := func(i int) int {
		if i == 0 {
			return 0
		}
		return int(ends[i-1])
	}
	for i := range n {
		ends[i] = uint8(i + 1)
		tokens[i] = r.ones[text[i]]
		pairs[i] = none
		if i+1 < n {
			pairs[i] = r.twos[int(text[i])<<8|int(text[i+1])]
		}
	}
	for n > 1 {
		best := 0
		for i := 1; i < n; i++ {
			if pairs[i] < pairs[best] {
				best = i
			}
		}
		if pairs[best] == none {
			break
		}
		tokens[best] = pairs[best]
		copy(ends[best:n-1], ends[best+1:n])
		copy(tokens[best+1:n-1], tokens[best+2:n])
		copy(pairs[best+1:n-1], pairs[best+2:n])
		n--
		pairs[best] = none
		if best+1 < n {
			pairs[best] = r.rank(text[begin(best):ends[best+1]])
		}
		if best > 0 {
			pairs[best-1] = r.rank(text[begin(best-1):ends[best]])
		}
	}
	return append(dst, tokens[:n]...)
}

// part is a part of a long word: it begins at its place in the list.
type part struct {
	before, after int32 // parts; before is -1 at the beginning, after the word's length at the end
	token         uint32
	pair          uint32 // the rank of it with the next one
}

// longest is the length of the longest word in bytes: places in it are 32 bits.
const longest = math.MaxInt32

// merge appends the tokens of a word in O(n log n).
func (r *ranks) merge(text string, dst []uint32) []uint32 {
	size := int32(len(text))
	parts := make([]part, size)
	todo := make(merges, 0, size)
	for i := range parts {
		parts[i] = part{before: int32(i) - 1, after: int32(i) + 1, token: r.ones[text[i]], pair: none}
		if i+1 < len(text) {
			if parts[i].pair = r.rank(text[i : i+2]); parts[i].pair != none {
				todo = append(todo, merging(parts[i].pair, int32(i)))
			}
		}
	}
	for i := len(todo)/2 - 1; i >= 0; i-- {
		todo.down(i)
	}
	look := func(i int32) {
		next := parts[i].after
		parts[i].pair = none
		if next == size {
			return
		}
		if parts[i].pair = r.rank(text[i:parts[next].after]); parts[i].pair != none {
			todo.push(merging(parts[i].pair, i))
		}
	}
	for len(todo) > 0 {
		m := todo.pop()
		rank, at := uint32(m>>32), int32(uint32(m))
		left := &parts[at]
		if left.pair != rank { // one of the two was merged with another since
			continue
		}
		gone := left.after
		left.token, left.after = rank, parts[gone].after
		parts[gone].pair = none
		if left.after < size {
			parts[left.after].before = at
		}
		look(at)
		if left.before >= 0 {
			look(left.before)
		}
	}
	for i := int32(0); i < size; i = parts[i].after {
		dst = append(dst, parts[i].token)
	}
	return dst
}

// merging is a pair that can be merged, by its first part: the lowest rank comes first, of
// equal ones the leftmost.
func merging(rank uint32, at int32) uint64 { return uint64(rank)<<32 | uint64(at) }

// merges is a heap of them.
type merges []uint64

func (h *merges) push(m uint64) {
	*h = append(*h, m)
	all := *h
	i := len(all) - 1
	for i > 0 {
		up := (i - 1) / 2
		if all[up] <= m {
			break
		}
		all[i] = all[up]
		i = up
	}
	all[i] = m
}

func (h *merges) pop() uint64 {
	top, last := (*h)[0], len(*h)-1
	(*h)[0] = (*h)[last]
	*h = (*h)[:last]
	if last > 0 {
		h.down(0)
	}
	return top
}

func (h merges) down(i int) {
	m := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if m <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = m
}
