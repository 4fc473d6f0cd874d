package s3

import (
	"bytes"
	"strconv"
	"strings"
)

// A listing of a million objects is a gigabyte of XML, which encoding/xml takes more
// than ten times as long to read. scan understands what stores write: plain elements, ASCII, the
// five entities. Whatever else a document has, it leaves to encoding/xml, which decides
// whether that is a listing: what both read is the same, as FuzzListing checks.

// scan reads a ListBucketResult, or says that it does not understand it.
func scan(body []byte) (l listing, ok bool) {
	for _, prolog := range []string{`<?xml version="1.0" encoding="UTF-8"?>`, `<?xml version="1.0" encoding="utf-8"?>`, `<?xml version="1.0"?>`} {
		if rest, found := bytes.CutPrefix(body, []byte(prolog)); found {
			body = rest
			break
		}
	}
	s := scanner{rest: string(body)}
	for !s.done {
		text, tag, ok := s.next()
		if !ok {
			return l, false
		}
		if name, ends := strings.CutPrefix(tag, "/"); ends {
			if !s.end(&l, name, text) {
				return l, false
			}
			continue
		}
		tag, empty := strings.CutSuffix(tag, "/")
		name, ok := opened(tag)
		if !ok || !blank(text) || s.leaf && wanted(s.path()) || !s.begin(&l, name) || empty && !s.end(&l, name, "") {
			return l, false
		}
	}
	return l, true
}

// scanner is where scan is in a document.
type scanner struct {
	rest  string
	names [8]string // of the elements that are open
	depth int
	leaf  bool // the innermost has had no elements in it
	done  bool // the root has ended
}

// next is the text up to the next tag, and what is in its brackets.
func (s *scanner) next() (text, tag string, ok bool) {
	text, rest, ok := strings.Cut(s.rest, "<")
	if !ok {
		return "", "", false
	}
	tag, s.rest, ok = strings.Cut(rest, ">")
	return text, tag, ok
}

func (s *scanner) path() []string { return s.names[:s.depth] }

func (s *scanner) begin(l *listing, name string) bool {
	if s.depth == len(s.names) || s.depth == 0 && name != "ListBucketResult" {
		return false
	}
	if s.depth == 1 {
		switch name {
		case "Contents":
			l.Contents = append(l.Contents, listed{})
		case "CommonPrefixes":
			l.CommonPrefixes = append(l.CommonPrefixes, common{})
		}
	}
	s.names[s.depth] = name
	s.depth++
	s.leaf = true
	return true
}

// end is the end of the innermost element, after text.
func (s *scanner) end(l *listing, name, text string) bool {
	if s.depth == 0 || s.names[s.depth-1] != name || !s.leaf && !blank(text) {
		return false
	}
	if s.leaf {
		value, ok := plain(text)
		if !ok || !l.set(s.path(), value) {
			return false
		}
	}
	s.depth--
	s.leaf, s.done = false, s.depth == 0
	return true
}

// wanted says whether the text of an element is a field of a listing, so that there may be
// no elements in it.
func wanted(path []string) bool {
	switch {
	case len(path) == 2:
		return path[1] == "EncodingType" || path[1] == "IsTruncated" || path[1] == "NextContinuationToken"
	case len(path) == 3 && path[1] == "Contents":
		return path[2] == "Key" || path[2] == "ETag" || path[2] == "LastModified" || path[2] == "Size"
	}
	return len(path) == 3 && path[1] == "CommonPrefixes" && path[2] == "Prefix"
}

// set puts the text of an element where it belongs. Elements that are not wanted are
// left out.
func (l *listing) set(path []string, value string) bool {
	switch {
	case len(path) == 2 && path[1] == "EncodingType":
		l.EncodingType = value
	case len(path) == 2 && path[1] == "NextContinuationToken":
		l.NextContinuationToken = value
	case len(path) == 2 && path[1] == "IsTruncated":
		l.IsTruncated = value == "true"
		return value == "true" || value == "false"
	case len(path) == 3 && path[1] == "CommonPrefixes" && path[2] == "Prefix":
		l.CommonPrefixes[len(l.CommonPrefixes)-1].Prefix = value
	case len(path) == 3 && path[1] == "Contents":
		it := &l.Contents[len(l.Contents)-1]
		switch path[2] {
		case "Key":
			it.Key = value
		case "ETag":
			it.ETag = value
		case "LastModified":
			it.LastModified = value
		case "Size":
			var err error
			it.Size, err = strconv.ParseInt(value, 10, 64)
			return err == nil
		}
	}
	return true
}

// opened is the name of a tag, whose attributes may be namespaces.
func opened(tag string) (name string, ok bool) {
	name, rest, _ := strings.Cut(tag, " ")
	for i := range len(name) {
		if c := name[i] | 0x20; (c < 'a' || c > 'z') && (i == 0 || name[i] < '0' || name[i] > '9') {
			return "", false
		}
	}
	if rest == "" {
		return name, name != "" && tag == name
	}
	uri, ok := strings.CutPrefix(rest, `xmlns="`)
	uri, ok2 := strings.CutSuffix(uri, `"`)
	return name, ok && ok2 && name != "" && !strings.ContainsAny(uri, "\"'<&") && printable(uri)
}

func blank(text string) bool { return strings.Trim(text, " \n\t") == "" }

func printable(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < 0x20 || c > 0x7e) && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// plain is a text with its entities replaced.
func plain(text string) (string, bool) {
	if !printable(text) || strings.IndexByte(text, '>') >= 0 {
		return "", false
	}
	if strings.IndexByte(text, '&') < 0 {
		return text, true
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "&")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		entity, rest, found := strings.Cut(after, ";")
		if !found {
			return "", false
		}
		switch entity {
		case "quot", "#34":
			b.WriteByte('"')
		case "amp", "#38":
			b.WriteByte('&')
		case "apos", "#39":
			b.WriteByte('\'')
		case "lt", "#60":
			b.WriteByte('<')
		case "gt", "#62":
			b.WriteByte('>')
		default:
			return "", false
		}
		text = rest
	}
}
