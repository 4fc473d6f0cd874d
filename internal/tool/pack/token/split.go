package token

import (
	"unicode"
	"unicode/utf8"
)

// Classes of characters that the split patterns name. A character may have several.
const (
	letter  = 1 << iota // \p{L}
	number              // \p{N}
	blank               // \s
	newline             // [\r\n], blanks too
	other               // [^\s\p{L}\p{N}]
	upper               // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower               // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
)

// splitter cuts text into words as the split patterns of OpenAI's vocabularies do:
// pairs are merged within a word only. The patterns are written as functions, since
// Go's regexp has no look-ahead and those libraries that have it backtrack.
// It has the classes of every character; 0 is the end of the text.
type splitter [unicode.MaxRune + 1]uint8

func newSplitter() *splitter {
	s := new(splitter)
	for r := range s {
		s[r] = other
	}
	set := func(class uint8, not uint8, tables ...*unicode.RangeTable) {
		for _, t := range tables {
			for _, r := range t.R16 {
				for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
					s[c] = s[c]&^not | class
				}
			}
			for _, r := range t.R32 {
				for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
					s[c] = s[c]&^not | class
				}
			}
		}
	}
	set(letter, other, unicode.L)
	set(number, other, unicode.N)
	set(blank, other, unicode.White_Space)
	set(upper, 0, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M)
	set(lower, 0, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M)
	s['\r'] |= newline
	s['\n'] |= newline
	return s
}

// at is the classes and the size of the character at a byte of text.
func (s *splitter) at(text string, i int) (class uint8, size int) {
	if i >= len(text) {
		return 0, 0
	}
	if c := text[i]; c < utf8.RuneSelf {
		return s[c], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	return s[r], size
}

// run is the end of the characters from i on that are of a class.
func (s *splitter) run(text string, i int, of uint8) int {
	for {
		class, size := s.at(text, i)
		if class&of == 0 {
			return i
		}
		i += size
	}
}

// gpt2 is the length of the word that text begins with, by the pattern
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func (s *splitter) gpt2(text string) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	if i, class := s.afterBlank(text); class&(letter|number|other) != 0 {
		return s.run(text, i, class&(letter|number|other))
	}
	return s.blanks(text, false)
}

// cl100k does the same by the pattern
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func (s *splitter) cl100k(text string) int {
	if n := contraction(text, true); n > 0 {
		return n
	}
	class, size := s.at(text, 0)
	switch {
	case class&number != 0:
		return s.digits(text)
	case class&(letter|newline) != 0:
		size = 0 // no character comes before the letters
	}
	if end := s.run(text, size, letter); end > size {
		return end
	}
	if i, class := s.afterBlank(text); class&other != 0 {
		return s.run(text, s.run(text, i, other), newline)
	}
	return s.blanks(text, true)
}

// o200k does the same by the pattern, where U is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L is
// [\p{Ll}\p{Lm}\p{Lo}\p{M}] and C is (?i:'s|'t|'re|'ve|'m|'ll|'d)?,
//
//	[^\r\n\p{L}\p{N}]?U*L+C|[^\r\n\p{L}\p{N}]?U+L*C|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func (s *splitter) o200k(text string) int {
	class, size := s.at(text, 0)
	if class&number != 0 {
		return s.digits(text)
	}
	end, before := 0, class&(letter|newline) == 0
	if before {
		end = s.lowered(text, size)
	}
	if end == 0 && class&(upper|lower) != 0 {
		end = s.lowered(text, 0)
	}
	if end == 0 { // no L follows U: then none is in it either, and L* is empty
		if !before {
			size = 0
		}
		if upTo := s.run(text, size, upper); upTo > size {
			end = upTo
		}
	}
	if end > 0 {
		return end + contraction(text[end:], true)
	}
	if i, class := s.afterBlank(text); class&other != 0 {
		end := s.run(text, i, other)
		for end < len(text) && (text[end] == '\r' || text[end] == '\n' || text[end] == '/') {
			end++
		}
		return end
	}
	return s.blanks(text, true)
}

// lowered is the end of U*L+ at i, or 0: letters that are not lower case, and then
// those that are not upper case, to which U* gives back what both have.
func (s *splitter) lowered(text string, i int) (end int) {
	for {
		class, size := s.at(text, i)
		if class&upper == 0 {
			break
		}
		if i += size; class&lower != 0 {
			end = i
		}
	}
	if after := s.run(text, i, lower); after > i {
		return after
	}
	return end
}

// digits is the end of \p{N}{1,3}.
func (s *splitter) digits(text string) (end int) {
	for range 3 {
		class, size := s.at(text, end)
		if class&number == 0 {
			break
		}
		end += size
	}
	return end
}

// afterBlank is where a word begins that may have a space before it.
func (s *splitter) afterBlank(text string) (i int, class uint8) {
	if text[0] == ' ' {
		i = 1
	}
	class, _ = s.at(text, i)
	return i, class
}

// blanks is the end of [\s*[\r\n]+|]\s+(?!\S)|\s+: blanks up to the last line break, if
// the pattern has that; without one all but the last, which belongs to the next word.
func (s *splitter) blanks(text string, breaks bool) int {
	end, last, broken := 0, 0, 0
	for {
		class, size := s.at(text, end)
		if class&blank == 0 {
			break
		}
		last = end
		end += size
		if class&newline != 0 {
			broken = end
		}
	}
	switch {
	case breaks && broken > 0:
		return broken
	case end < len(text) && last > 0:
		return last
	}
	return end
}

// contraction is the length of 's, 't, 're, 've, 'm, 'll or 'd at the start of text,
// or 0. Without regard to case, an s may also be U+017F.
func contraction(text string, anyCase bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	fold := func(c byte) byte {
		if anyCase && 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		return c
	}
	switch first := fold(text[1]); first {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		if len(text) > 2 {
			if second := fold(text[2]); second == 'e' && first != 'l' || second == 'l' && first == 'l' {
				return 3
			}
		}
	case 0xc5:
		if anyCase && len(text) > 2 && text[2] == 0xbf {
			return 3
		}
	}
	return 0
}
