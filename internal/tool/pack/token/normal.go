package token

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"
)

// trie finds the prefixes of a text among pieces.
type trie struct {
	next  map[uint64]int32 // node<<8 | byte
	piece []int32          // of nodes; -1: none ends there
}

func newTrie() trie { return trie{next: map[uint64]int32{}, piece: []int32{-1}} }

func (t *trie) add(text string, id int32) {
	node := int32(0)
	for i := range len(text) {
		key := uint64(node)<<8 | uint64(text[i])
		to, there := t.next[key]
		if !there {
			to = int32(len(t.piece))
			t.piece = append(t.piece, -1)
			t.next[key] = to
		}
		node = to
	}
	t.piece[node] = id
}

// step advances by one byte; -1 if there is no such piece.
func (t *trie) step(node int32, c byte) int32 {
	if to, there := t.next[uint64(node)<<8|uint64(c)]; there {
		return to
	}
	return -1
}

// longest is the length of the longest piece that text begins with.
func (t *trie) longest(text string) (n int) {
	node := int32(0)
	for i := range len(text) {
		if node = t.step(node, text[i]); node < 0 {
			break
		}
		if t.piece[node] >= 0 {
			n = i + 1
		}
	}
	return n
}

// charsMap is precompiled rules of normalization: a double-array trie in the layout
// of darts-clone (Yata), and the texts that its values point to, each followed by a
// zero byte. A unit has
//
//	bits 0-7   label      bit 8  a value hangs below      bit 9  offset times 256
//	bits 10-30 offset     bit 31 this is a value
type charsMap struct {
	units []uint32
	texts []byte
}

func parseCharsMap(b []byte) (charsMap, error) {
	if len(b) == 0 {
		return charsMap{}, nil
	}
	if len(b) < 4 {
		return charsMap{}, errCut
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if uint64(n) > uint64(len(b)) || n%4 != 0 {
		return charsMap{}, errors.New("the rules of normalization are truncated")
	}
	c := charsMap{units: make([]uint32, n/4), texts: b[n:]}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return c, nil
}

// rule is the replacement of the longest prefix of text that has a rule, and the
// prefix's length; 0 if there is none.
func (c *charsMap) rule(text string) (becomes []byte, length int) {
	if len(c.units) == 0 {
		return nil, 0
	}
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	at := offset(c.units[0])
	value := uint32(0)
	for i := range len(text) {
		at ^= uint32(text[i])
		if at >= uint32(len(c.units)) || c.units[at]&(1<<31|0xff) != uint32(text[i]) {
			break
		}
		u := c.units[at]
		at ^= offset(u)
		if u>>8&1 == 1 && at < uint32(len(c.units)) {
			value, length = c.units[at]&0x7fffffff, i+1
		}
	}
	if length == 0 || value > uint32(len(c.texts)) {
		return nil, 0
	}
	becomes, _, _ = bytes.Cut(c.texts[value:], []byte{0})
	return becomes, length
}

const escaped = "\u2581" // replaces a blank

// head is the normal form of the beginning of text, and the length of that
// beginning. User-defined pieces stay unchanged.
func (m *model) head(text string) (becomes string, length int) {
	if n := m.made.longest(text); n > 0 {
		return text[:n], n
	}
	if b, n := m.rules.rule(text); n > 0 {
		return string(b), n
	}
	if r, n := utf8.DecodeRuneInString(text); r != utf8.RuneError || n > 1 {
		return text[:n], n
	}
	return "\ufffd", 1
}

// normal is the text that is cut into pieces, as in the library's normalizer.cc.
func (m *model) normal(text string) string {
	if m.squeeze {
		for text != "" {
			s, n := m.head(text)
			if s != " " {
				break
			}
			text = text[n:]
		}
	}
	if text == "" {
		return ""
	}
	blank := " "
	if m.escape {
		blank = escaped
	}
	var out strings.Builder
	out.Grow(len(text) + len(text)/2)
	if m.prefix && !m.suffix {
		out.WriteString(blank)
	}
	afterBlank := m.squeeze
	for text != "" {
		s, n := m.head(text)
		for afterBlank && strings.HasPrefix(s, " ") {
			s = s[1:]
		}
		if s != "" {
			if m.escape && strings.Contains(s, " ") {
				out.WriteString(strings.ReplaceAll(s, " ", blank))
			} else {
				out.WriteString(s)
			}
			afterBlank = strings.HasSuffix(s, " ")
		}
		afterBlank = afterBlank && m.squeeze
		text = text[n:]
	}
	s := out.String()
	if m.squeeze {
		for strings.HasSuffix(s, blank) {
			s = s[:len(s)-len(blank)]
		}
	}
	if m.prefix && m.suffix {
		s += blank
	}
	return s
}
