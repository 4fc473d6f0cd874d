package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Name is the name of a file, or part of one: a byte that is not UTF-8 is the lone
// surrogate \udcXX in JSON, which Python's os.fsencode takes back (PEP 383).
type Name string

// MarshalJSON writes the name as one JSON string.
func (n Name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	out := []byte{'"'}
	for rest := string(n); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if r == utf8.RuneError && size == 1 {
			out = fmt.Appendf(out, `\udc%02x`, rest[0])
		} else {
			part, err := json.Marshal(rest[:size])
			if err != nil {
				return nil, err
			}
			out = append(out, part[1:len(part)-1]...)
		}
		rest = rest[size:]
	}
	return append(out, '"'), nil
}

// UnmarshalJSON reads what MarshalJSON writes. A surrogate that is not a byte's is
// refused.
func (n *Name) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '"' || Check(b) == nil {
		return json.Unmarshal(b, (*string)(n))
	}
	if !utf8.Valid(b) {
		return Check(b)
	}
	var bad rune
	text := unquote(nil, b, func(dst []byte, r rune) []byte {
		if r < 0xDC80 || r > 0xDCFF {
			bad = r
		}
		return append(dst, byte(r))
	})
	if bad != 0 {
		return &Error{bytes.Index(bytes.ToLower(b), fmt.Appendf(nil, `\u%04x`, bad)), fmt.Sprintf(`\u%04x is half a surrogate pair`, bad)}
	}
	*n = Name(text)
	return nil
}

// Names is texts as names.
func Names(texts []string) []Name {
	if texts == nil {
		return nil
	}
	out := make([]Name, len(texts))
	for i, t := range texts {
		out[i] = Name(t)
	}
	return out
}

// Texts is names as texts.
func Texts(names []Name) []string {
	if names == nil {
		return nil
	}
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return out
}
