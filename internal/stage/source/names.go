package source

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Names are paths with slashes. Those of a scheme begin with it (s3://bucket/key);
// a name without one is a path of the local file system. Package path and
// path/filepath would make s3:/bucket/key of the former: the functions here do not.
//
// The key of an object is not a path: "a//x", "a/./x" and "a/x" are three objects, and what
// cleans one reads another. So the functions here take keys as they are. A folder without a
// name, that of "a//x", is written with its slashes, "a//"; "a/" is the same as "a". Names of
// local files, HTTP and the Hub are paths.

// SchemeOf is the scheme of a name, in lower case; "" for a local path. A scheme
// begins with a letter and has letters, digits, "+", "-" and "." only (RFC 3986),
// so that a local name may contain "://" elsewhere.
func SchemeOf(name string) string {
	for i := 0; i < len(name); i++ {
		switch c := name[i] | 0x20; {
		case 'a' <= c && c <= 'z':
		case i > 0 && (name[i] >= '0' && name[i] <= '9' || name[i] == '+' || name[i] == '-' || name[i] == '.'):
		case i > 0 && strings.HasPrefix(name[i:], "://"):
			return strings.ToLower(name[:i])
		default:
			return ""
		}
	}
	return ""
}

// CutScheme cuts a name after the "://" of its scheme; prefix is "" for a local path.
func CutScheme(name string) (prefix, rest string) {
	if scheme := SchemeOf(name); scheme != "" {
		n := len(scheme) + len("://")
		return name[:n], name[n:]
	}
	return "", name
}

// Bare is the local path of a file:// name, and any other name as it is.
func Bare(name string) string {
	if prefix, rest := CutScheme(name); strings.EqualFold(prefix, "file://") {
		return rest
	}
	return name
}

// query cuts the query off the name of a file of an HTTP server: its slashes are none of
// the path.
func query(prefix, rest string) (before, query string) {
	if at := strings.IndexByte(rest, '?'); at >= 0 && (strings.EqualFold(prefix, "http://") || strings.EqualFold(prefix, "https://")) {
		return rest[:at], rest[at:]
	}
	return rest, ""
}

// Unquery is the name of a file without the query that a URL may end in: what says of what
// kind the file is.
func Unquery(name string) string {
	prefix, rest := CutScheme(name)
	rest, _ = query(prefix, rest)
	return prefix + rest
}

// keys says whether what follows a prefix is the key of an object, and not a path.
func keys(prefix string) bool {
	switch strings.ToLower(prefix) {
	case "", "file://", "http://", "https://", "hf://":
		return false
	}
	return true
}

// Keyed says whether a name is that of an object in a store, whose key is not a path.
func Keyed(name string) bool {
	prefix, _ := CutScheme(name)
	return keys(prefix)
}

// Below is the beginning of the names in a folder.
func Below(dir string) string {
	if strings.HasSuffix(dir, "/") {
		return dir
	}
	return dir + "/"
}

// Clean is path.Clean for names of any scheme. Of a key, slashes at the end are taken away.
func Clean(name string) string {
	prefix, rest := CutScheme(name)
	rest, more := query(prefix, rest)
	switch {
	case prefix == "":
		return path.Clean(name)
	case strings.Trim(rest, "/") == "":
		return prefix + more
	case keys(prefix):
		return prefix + strings.TrimRight(rest, "/")
	}
	clean := path.Clean(rest)
	if more != "" && strings.HasSuffix(rest, "/") {
		clean += "/" // with a query, it is part of the name of a file
	}
	return prefix + clean + more
}

// Dir is path.Dir for names of any scheme: Join of it and the last part is the name.
func Dir(name string) string {
	prefix, rest := CutScheme(name)
	rest, _ = query(prefix, rest)
	switch {
	case prefix == "":
		return path.Dir(name)
	case !strings.Contains(rest, "/"):
		return prefix
	case keys(prefix):
		return prefix + keyDir(rest)
	}
	return prefix + path.Dir(rest)
}

// keyDir is the folder of a key, which has a slash.
func keyDir(key string) string {
	if folder, ok := strings.CutSuffix(key, "/"); ok {
		if !strings.HasSuffix(folder, "/") {
			return folder // as path.Dir
		}
		key = folder
	}
	dir := key[:strings.LastIndexByte(key, '/')]
	if strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	return dir
}

// Join is path.Join for names of any scheme; the first one may have one. What is joined to
// a key is a path, which may lead up.
func Join(first string, more ...string) string {
	prefix, rest := CutScheme(first)
	if keys(prefix) && rest != "" {
		name := path.Join(more...)
		for ; name == ".." || strings.HasPrefix(name, "../"); name = strings.TrimPrefix(name[2:], "/") {
			first = Dir(first)
		}
		if name = strings.TrimPrefix(name, "/"); name == "" || name == "." {
			return first
		}
		return Below(first) + name
	}
	return prefix + path.Join(append([]string{rest}, more...)...)
}

// Abs is the name that means the same whatever the working folder is, cleaned.
func Abs(name string) (string, error) {
	name = Bare(name)
	if SchemeOf(name) != "" {
		return Clean(name), nil
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", errs.New(errs.Unreadable, "the working folder is gone").Because(err)
	}
	return abs, nil
}

// Inside says whether a relative name stays in the folder that it is joined to.
func Inside(name string) bool { return filepath.IsLocal(name) }

// ToWrite is the local path of a file or folder that is to be written, called what;
// elsewhere nothing is written. Errors: config.
func ToWrite(name, what string) (string, error) {
	name = Bare(name)
	scheme := SchemeOf(name)
	if scheme == "" {
		return name, nil
	}
	return "", errs.New(errs.Config, "%s cannot be written to %s://: stoker reads stores, but does not write to them yet", what, scheme).At(where(Shown(name), -1)).
		Try("write to a folder on this machine, and upload it, for example with rclone copy")
}

// OfList is the name of the list that a path stands for, or the path itself.
func OfList(path string) string {
	if list, is := strings.CutPrefix(path, "@"); is && SchemeOf(list) != "" {
		return list
	}
	return path
}

// Shown is a name that may be shown and stored, without signatures, tokens and
// passwords. The names of local files have none, whatever they look like.
func Shown(name string) string {
	if list, is := strings.CutPrefix(name, "@"); is && list != "" && list[0] != '@' { // of names
		return "@" + Shown(list)
	}
	if SchemeOf(name) != "" || Unslashed(name) != "" {
		return errs.Shown(name)
	}
	return name
}

// Unslashed is the URL that was meant where a slash after its scheme is missing, as Python's
// Path writes it: "s3:/bucket" or, made absolute, "/home/me/s3:/bucket". "" for other names.
func Unslashed(name string) string {
	before, rest, found := strings.Cut(name, ":/")
	scheme := before[strings.LastIndexByte(before, '/')+1:]
	if !found || rest == "" || rest[0] == '/' || !slices.Contains(errs.Schemes, strings.ToLower(scheme)) {
		return ""
	}
	return scheme + "://" + rest
}
