package source

import (
	"net/url"
	"path"
	"strings"
)

// Origins are beginnings of names that a user trusts: what a table, a manifest or a list
// that somebody else wrote may name besides what is stored where it is.
type Origins []string

// Has says whether a name is one of those, or below one. Parts of names count whole:
// s3://b/train is not the beginning of s3://b/training/x, nor https://h of https://h.evil.
// What leaves one by "..", however it is written, is not below it.
func (o Origins) Has(name string) bool {
	host, below := placeOf(name)
	for _, p := range o {
		of, dir := placeOf(p)
		if !sameHost(host, of) || of == "" && (SchemeOf(Bare(p)) != "" || p == "") {
			continue
		}
		if decoded, err := url.PathUnescape(below); Below(below, dir) && (err != nil || Below(path.Clean(decoded), dir)) {
			return true
		}
	}
	return false
}

// placeOf is the host of a name and its path, cleaned: "https://h", "/a/b".
func placeOf(name string) (host, below string) {
	name = Bare(name)
	host = HostOf(name)
	if host == "" {
		return "", path.Clean(name)
	}
	prefix, rest := split(name)
	if rest, _ = query(prefix, rest); strings.IndexByte(rest, '/') < 0 {
		return host, "/"
	}
	below = rest[strings.IndexByte(rest, '/'):]
	return host, path.Clean(below)
}
