package source

import (
	"net/url"
	"path"
	"strings"
)

// Under says whether a name is one of these prefixes, or below one. A prefix ends where a
// part of the name ends: s3://b/a is none of s3://b/ab, nor https://h of https://h.evil.
// What leaves a prefix by "..", however it is written, is not under it.
func Under(prefixes []string, name string) bool {
	host, below := placeOf(name)
	for _, p := range prefixes {
		of, dir := placeOf(p)
		if !sameHost(host, of) || of == "" && (SchemeOf(Bare(p)) != "" || p == "") {
			continue
		}
		if rest, ok := strings.CutPrefix(below, strings.TrimSuffix(dir, "/")); ok && (rest == "" || rest[0] == '/') {
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
	if decoded, err := url.PathUnescape(below); err == nil { // as some servers do
		below = decoded
	}
	return host, path.Clean(below)
}
