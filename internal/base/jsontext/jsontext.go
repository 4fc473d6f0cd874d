// Package jsontext reads JSON that users wrote: texts that are not Unicode keep their
// bytes, and the numbers that Python's json module adds to JSON are numbers (Valid).
//
// encoding/json silently replaces what it cannot represent by U+FFFD: bytes that
// are not UTF-8, and escapes of half a surrogate pair such as \ud800. In data that
// is a wrong sample; in names it is another name, and two names become one. Code
// that reads a user's JSON has three choices here:
//
//   - Check and Unmarshal reject such a text, and say at which byte it is;
//   - Unquote returns its bytes unchanged, and a lone surrogate as the three bytes that UTF-8 would use for it (Python's "surrogatepass"). These are not UTF-8 either, so code that needs text notices;
//   - Name is the name of a file, in which Linux allows every byte: a byte that is not UTF-8 becomes the lone surrogate that Python's file functions use for it (PEP 383, "surrogateescape").
package jsontext

import (
	"encoding/json"
	"fmt"
	"iter"
	"unicode/utf16"
	"unicode/utf8"
)

// Error describes a text that is not Unicode or, from Valid, what is not JSON.
type Error struct {
	Offset int    // of the first invalid byte, in the JSON
	What   string // "byte 0xff is not UTF-8", `\ud800 is half a surrogate pair`
}

func (e *Error) Error() string { return fmt.Sprintf("%s, at byte %d", e.What, e.Offset) }

// Check rejects JSON with texts that encoding/json would change. It checks nothing
// else: invalid JSON may pass. The error is an *Error.
func Check(b []byte) error {
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '\\' && i+1 < len(b) && b[i+1] == 'u':
			r, n := escape(b[i:])
			if n == 0 {
				i += 2 // invalid JSON, which is not checked here
				continue
			}
			if utf16.IsSurrogate(r) {
				return &Error{i, fmt.Sprintf("%s is half a surrogate pair", b[i:i+6])}
			}
			i += n
		case c == '\\':
			i += 2
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return &Error{i, fmt.Sprintf("byte %#02x is not UTF-8", c)}
			}
			i += n
		}
	}
	return nil
}

// Unmarshal is json.Unmarshal, but rejects texts that it would change.
func Unmarshal(b []byte, v any) error {
	if err := Check(b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// escape reads \uXXXX, or two of them that are a pair; half of a pair is returned
// unchanged. n is the number of bytes read; 0 if it is not an escape.
func escape(b []byte) (r rune, n int) {
	if r = hex(b); r < 0 {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		if pair := utf16.DecodeRune(r, hex(b[6:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

// hex is the number of \uXXXX at the beginning of b; -1 if there is none.
func hex(b []byte) (r rune) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// Plain returns the bytes of a quoted text without escapes, as a view; false if it
// has some.
func Plain(quoted []byte) ([]byte, bool) {
	for _, c := range quoted {
		if c == '\\' {
			return nil, false
		}
	}
	return quoted[1 : len(quoted)-1 : len(quoted)-1], true
}

// Unquote appends the bytes of a quoted text, which must be valid JSON: at most
// len(quoted) bytes.
func Unquote(dst, quoted []byte) []byte {
	return unquote(dst, quoted, appendSurrogate)
}

// unquote appends a text; half converts half of a surrogate pair.
func unquote(dst, quoted []byte, half func([]byte, rune) []byte) []byte {
	b := quoted[1 : len(quoted)-1]
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			dst = append(dst, b[i])
			continue
		}
		i++
		switch c := b[i]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n := escape(b[i-1:])
			if utf16.IsSurrogate(r) {
				dst = half(dst, r)
			} else {
				dst = utf8.AppendRune(dst, r)
			}
			i += max(n-2, 0)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func appendSurrogate(dst []byte, r rune) []byte {
	return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
}

// Members returns the keys of an object, quoted, and their values, both as views. b
// is valid JSON; a value that is not an object has no members.
func Members(b []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		i := space(b, 0)
		if i == len(b) || b[i] != '{' {
			return
		}
		for i = space(b, i+1); i < len(b) && b[i] == '"'; i = space(b, i+1) { // the comma
			end := value(b, i)
			key := b[i:end:end]
			i = space(b, space(b, end)+1) // the colon
			end = value(b, i)
			if !yield(key, b[i:end:end]) {
				return
			}
			if i = space(b, end); i == len(b) || b[i] != ',' {
				return
			}
		}
	}
}

// space is the end of the white space from i on.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return min(i, len(b))
}

// value is the end of the value that begins at i.
func value(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(b))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}
