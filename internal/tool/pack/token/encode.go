package token

import (
	"container/heap"
	"unicode/utf8"
)

// encode appends the pieces of a text. Unknown text becomes its bytes, or, for each
// run of it, one unknown piece.
func (m *model) encode(text string, dst []uint32) ([]uint32, error) {
	text = m.normal(text)
	if text == "" {
		return dst, nil
	}
	lastUnknown := false
	put := func(s string, id int32) {
		unknown := id == m.unknown
		switch {
		case unknown && m.fallback:
			for i := range len(s) {
				dst = append(dst, uint32(m.bytes[s[i]]))
			}
		case !unknown || !lastUnknown:
			dst = append(dst, uint32(id))
		}
		lastUnknown = unknown
	}
	if m.bpe {
		m.merge(text, put)
	} else {
		m.viterbi(text, put)
	}
	return dst, nil
}

// id is the piece of a text, or the unknown one.
func (m *model) id(s string) int32 {
	if id, there := m.byText[s]; there {
		return id
	}
	return m.unknown
}

// symbol is a run of the text that merges treat as one: [at, at+size). After it was
// merged into its left neighbour its size is 0.
type symbol struct {
	at, size   int
	prev, next int
	frozen     bool // defined by a user: never merged
}

// pair is two neighbours that could become a piece.
type pair struct {
	left, right int
	score       float32
	size        int
}

// agenda is pairs, best first: by score, then from the left.
type agenda []pair

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].score > a[j].score || a[i].score == a[j].score && a[i].left < a[j].left
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(v any)   { *a = append(*a, v.(pair)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// merge is byte-pair encoding (Sennrich, Haddow, Birch 2016): the neighbours that
// make the best piece are merged until none make one.
func (m *model) merge(text string, put func(string, int32)) {
	var all []symbol
	for at := 0; at < len(text); {
		s := symbol{at: at, prev: len(all) - 1, next: len(all) + 1}
		if s.size = m.made.longest(text[at:]); s.size > 0 {
			s.frozen = true
		} else {
			_, s.size = utf8.DecodeRuneInString(text[at:])
		}
		at += s.size
		all = append(all, s)
	}
	all[len(all)-1].next = -1
	var todo agenda
	unused := map[string][2]string{} // the parts of pieces that must not be used
	add := func(left, right int) {
		if left < 0 || right < 0 || all[left].frozen || all[right].frozen {
			return
		}
		s := text[all[left].at : all[right].at+all[right].size]
		id, there := m.byText[s]
		if !there {
			return
		}
		heap.Push(&todo, pair{left, right, m.pieces[id].score, len(s)})
		if m.pieces[id].kind == kindUnused {
			unused[s] = [2]string{s[:all[left].size], s[all[left].size:]}
		}
	}
	for i := 1; i < len(all); i++ {
		add(i-1, i)
	}
	for len(todo) > 0 {
		p := heap.Pop(&todo).(pair)
		l, r := &all[p.left], &all[p.right]
		if l.size == 0 || r.size == 0 || l.size+r.size != p.size {
			continue
		}
		l.size, r.size = p.size, 0
		if l.next = r.next; l.next >= 0 {
			all[l.next].prev = p.left
		}
		add(l.prev, p.left)
		add(p.left, l.next)
	}
	var part func(s string)
	part = func(s string) {
		id := m.id(s)
		if two, made := unused[s]; made && m.pieces[id].kind == kindUnused {
			part(two[0])
			part(two[1])
			return
		}
		put(s, id)
	}
	for i := 0; i >= 0; i = all[i].next {
		part(text[all[i].at : all[i].at+all[i].size])
	}
}

// viterbi is the most likely sequence of pieces (Kudo 2018). Sums are rounded to
// float32 as in the library, so that ties are broken in the same way.
func (m *model) viterbi(text string, put func(string, int32)) {
	type end struct {
		score float32
		from  int // -1: not reached
		id    int32
	}
	best := make([]end, len(text)+1)
	for i := range best {
		best[i].from = -1
	}
	unknownScore := float64(m.worst - 10)
	for at := 0; at < len(text); {
		here := float64(best[at].score)
		reach := func(to int, score float64, id int32) {
			if sum := score + here; best[to].from < 0 || sum > float64(best[to].score) {
				best[to] = end{float32(sum), at, id}
			}
		}
		_, char := utf8.DecodeRuneInString(text[at:])
		single := false
		node := int32(0)
		for to := at; to < len(text); {
			if node = m.prefixes.step(node, text[to]); node < 0 {
				break
			}
			to++
			id := m.prefixes.piece[node]
			if id < 0 || m.pieces[id].kind == kindUnused {
				continue
			}
			score := float64(m.pieces[id].score)
			if m.pieces[id].kind == kindUser { // always wins
				score = float64(float32(to-at)*m.best) - 0.1
			}
			reach(to, score, id)
			single = single || to-at == char
		}
		if !single {
			reach(at+char, unknownScore, m.unknown)
		}
		at += char
	}
	var ends []int
	for at := len(text); at > 0; at = best[at].from {
		ends = append(ends, at)
	}
	for i := len(ends) - 1; i >= 0; i-- {
		b := best[ends[i]]
		put(text[b.from:ends[i]], b.id)
	}
}
