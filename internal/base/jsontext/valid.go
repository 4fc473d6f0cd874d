package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Valid says why b is not one JSON value as Python's json module reads it: JSON
// (RFC 8259), and the numbers NaN, Infinity and -Infinity, which json.dumps writes
// for floats. It does not check texts; Check does. The error is an *Error.
func Valid(b []byte) error {
	if json.Valid(b) {
		return nil
	}
	plain := finite(b)
	if plain != nil && json.Valid(plain) {
		return nil
	}
	if plain == nil {
		plain = b
	}
	var all json.RawMessage
	err := json.Unmarshal(plain, &all) // which says where
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return &Error{0, fmt.Sprint(err)}
	}
	what, at := syntax.Error(), int(syntax.Offset)
	if strings.HasPrefix(what, "unexpected end") {
		return &Error{len(b), what}
	}
	if at = max(at-1, 0); b[at] != plain[at] { // a number instead of a key
		what = fmt.Sprintf("invalid character %q looking for beginning of object key string", b[at])
	}
	return &Error{at, what}
}

// finite returns a copy of b in which every NaN, Infinity and -Infinity that is a value
// is a number of the same length, so that offsets stay; nil if there is none.
func finite(b []byte) (out []byte) {
	before := byte('[') // the last byte before i that is not white space; '[' at first: a value may begin
	for i := 0; i < len(b); {
		switch c := b[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
			continue
		case '"':
			i = value(b, i)
			before = '"'
			continue
		case 'N', 'I', '-':
			if n := special(b[i:]); n > 0 && (before == '[' || before == ',' || before == ':') {
				if out == nil {
					out = bytes.Clone(b)
				}
				digits := out[i : i+n]
				if c == '-' {
					digits = digits[1:]
				}
				copy(digits, "0e000000")
				i += n
				before = '0'
				continue
			}
		}
		before = b[i]
		i++
	}
	return out
}

// special is the length of the NaN, Infinity or -Infinity that b begins with; 0 if b
// begins with none of them, or with a longer word.
func special(b []byte) int {
	for _, word := range [...]string{"NaN", "Infinity", "-Infinity"} {
		n := len(word)
		if len(b) < n || string(b[:n]) != word {
			continue
		}
		if len(b) == n || bytes.IndexByte([]byte(",]} \t\n\r"), b[n]) >= 0 {
			return n
		}
	}
	return 0
}
