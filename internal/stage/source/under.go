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
		if !SameHost(host, of) || of == "" && (SchemeOf(Bare(p)) != "" || p == "") {
			continue
		}
		// Some servers decode a path before they follow its "..", some do not.
		if decoded, err := url.PathUnescape(below); inside(below, dir) && (err != nil || inside(path.Clean(decoded), dir)) {
			return true
		}
	}
	return false
}

// inside says whether a clean path is a folder, or below it.
func inside(p, dir string) bool {
	rest, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// placeOf is the host of a name and its path, cleaned: "https://h", "/a/b".
func placeOf(name string) (host, below string) {
	name = Bare(name)
	host = HostOf(name)
	if host == "" {
		return "", path.Clean(name)
	}
	prefix, rest := CutScheme(name)
	if rest, _ = query(prefix, rest); strings.IndexByte(rest, '/') < 0 {
		return host, "/"
	}
	return host, path.Clean(rest[strings.IndexByte(rest, '/'):])
}
