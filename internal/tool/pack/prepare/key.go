package prepare

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/stage/format"
)

// key appends the name of copy n of a sample: that of the source, without the
// extension if it is a file's, or the sample's number.
func (p *Program) key(dst []byte, s *format.Sample, name []byte, n int64) []byte {
	switch {
	case p.opt.Keys == "number" || len(name) == 0:
		dst = fmt.Appendf(dst, "%09d", s.ID)
	case p.names.Members:
		dst = printable(dst, name)
	case p.names.Key != "" && p.names.Key != format.Key && isKey(name): // perhaps stoker pack has escaped it
		dst = append(dst, name...)
	default:
		if ext := path.Ext(string(name)); slices.Contains(known(), strings.ToLower(strings.TrimPrefix(ext, "."))) {
			name = name[:len(name)-len(ext)]
		}
		dst = escape(dst, name)
	}
	if p.opt.Augment > 0 {
		dst = fmt.Appendf(dst, "-%d", n)
	}
	return dst
}

// isKey reports whether a name can be used unchanged before the first dot of a
// member's name.
func isKey(name []byte) bool {
	rest := bytes.ReplaceAll(name, []byte{'%'}, nil)
	return len(name) > 0 && bytes.Equal(escape(nil, rest), rest)
}

// escape appends a name so that it can be used before the first dot of a member's
// name, and differs from every other escaped name: characters with another meaning
// there become a percent sign and two digits. Folders stay folders.
func escape(dst, name []byte) []byte {
	last := bytes.LastIndexByte(name, '/') + 1
	ends := 0 // end of the rune that i is in, if it is UTF-8
	for i, c := range name {
		if i >= ends {
			ends = i + runeLen(name[i:])
		}
		first := i == 0 || name[i-1] == '/'
		switch {
		case c < 0x20, c == 0x7f, c == '%', c == '\\',
			i >= ends,                               // not UTF-8
			c == '.' && (i >= last || first),        // ends the key; "..", hidden
			c == '/' && (first || i == len(name)-1), // an empty part
			c == '_' && i == 0 && bytes.HasPrefix(name, []byte("__")): // WebDataset's own
			dst = fmt.Appendf(dst, "%%%02X", c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// printable appends the key of a tar member, unchanged except for control
// characters and bytes that are not UTF-8, which not every reader of names can
// handle.
func printable(dst, name []byte) []byte {
	for len(name) > 0 {
		n := runeLen(name)
		if c := name[0]; n == 0 || c < 0x20 || c == 0x7f {
			dst = fmt.Appendf(dst, "%%%02X", c)
			name = name[1:]
			continue
		}
		dst = append(dst, name[:n]...)
		name = name[n:]
	}
	return dst
}

// runeLen is the length in bytes of the rune that p begins with; 0 if it is not
// UTF-8.
func runeLen(p []byte) int {
	if c, n := utf8.DecodeRune(p); c != utf8.RuneError || n > 1 {
		return n
	}
	return 0
}
