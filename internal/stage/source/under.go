package source

import (
	"net/url"
	"path"
	"slices"
	"strings"
)

// Under says whether a name is one of these prefixes, or below one. A prefix ends where a
// part of the name ends: s3://b/a is none of s3://b/ab, nor https://h of https://h.evil.
// What leaves a prefix by "..", however it is written, is not under it. Servers disagree
// about what "a//../b" is, and in a store it is a key: a name with a ".." is under nothing
// but the folders of this machine.
func Under(prefixes []string, name string) bool {
	host, rest := placeOf(name)
	if host != "" {
		decoded, err := url.PathUnescape(rest) // as some servers do before they follow a ".."
		if up(rest) || err == nil && up(decoded) {
			return false
		}
	}
	for _, p := range prefixes {
		of, dir := placeOf(p)
		if !SameHost(host, of) || of == "" && (SchemeOf(Bare(p)) != "" || p == "") {
			continue
		}
		if inside(path.Clean(rest), path.Clean(dir)) {
			return true
		}
	}
	return false
}

// up says whether a path has a part "..".
func up(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// inside says whether a clean path is a folder, or below it.
func inside(p, dir string) bool {
	rest, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// placeOf is the host of a name and its path: "https://h", "/a/b".
func placeOf(name string) (host, rest string) {
	name = Bare(name)
	host = HostOf(name)
	if host == "" {
		return "", name
	}
	prefix, rest := CutScheme(name)
	if rest, _ = query(prefix, rest); strings.IndexByte(rest, '/') < 0 {
		return host, "/"
	}
	return host, rest[strings.IndexByte(rest, '/'):]
}

// SameStore says whether a name, which a file may give, is stored where the file is: on its
// host, in its bucket or container, or of the Hub, in its repository. Of a repository without
// an owner, that is the folder of the file.
func SameStore(file, name string) bool {
	if host, rest := placeOf(name); !SameHost(HostOf(file), host) || host != "" && up(rest) {
		return false
	}
	return !strings.EqualFold(SchemeOf(file), "hf") || StoreOf(file) == StoreOf(name) || Under([]string{Dir(file)}, name)
}

// StoreOf is HostOf, and of the Hub the repository, with its revision.
func StoreOf(name string) string {
	prefix, rest := CutScheme(name)
	parts := strings.Split(rest, "/")
	if !strings.EqualFold(prefix, "hf://") {
		return HostOf(name)
	}
	return prefix + strings.Join(parts[:min(len(parts), 3)], "/")
}
