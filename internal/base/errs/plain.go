package errs

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names and texts of datasets are untrusted: a key may contain an escape that
// clears a terminal, or a newline. Text for people is therefore written by these
// two.

// Name is a name from data (a key, a path, a field) on one line: unchanged, or
// quoted as in Go if a character cannot be printed.
func Name(s string) string {
	if strings.HasPrefix(s, `"`) || strings.ContainsAny(s, "\n\t") || !printable(s) {
		return strconv.Quote(s)
	}
	return s
}

// Plain is a text in which only newlines and tabs move the cursor: every other
// character that cannot be printed is escaped as in Go's strings.
func Plain(s string) string {
	if printable(s) {
		return s
	}
	return string(AppendPlain(nil, s))
}

// AppendPlain appends Plain(s) to dst.
func AppendPlain(dst []byte, s string) []byte {
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\n' || r == '\t' || r == ' ':
			dst = append(dst, s[:n]...)
		case r == utf8.RuneError && n == 1:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'x', hex[s[0]>>4], hex[s[0]&15])
		case strconv.IsPrint(r):
			dst = append(dst, s[:n]...)
		default:
			quoted := strconv.AppendQuoteRune(nil, r)
			dst = append(dst, quoted[1:len(quoted)-1]...)
		}
		s = s[n:]
	}
	return dst
}

// printable reports whether Plain changes nothing.
func printable(s string) bool {
	for i, r := range s {
		switch {
		case r == '\n' || r == '\t' || r >= ' ' && r < 0x7f:
		case !strconv.IsPrint(r):
			return false
		case r == utf8.RuneError:
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return false
			}
		}
	}
	return true
}
