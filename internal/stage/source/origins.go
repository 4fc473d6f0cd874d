package source

import "strings"

// Under reports whether a name is one of these prefixes or below one: s3://bucket/a is
// below s3://bucket, and s3://bucket-2/a is not. What a file names that somebody else wrote
// is held against the places that the user listed. The name is clean (see Clean).
func Under(name string, prefixes []string) bool {
	if lower := strings.ToLower(name); SchemeOf(name) != "" && strings.Contains(lower, "%2e") {
		return false // a server may take it for a dot, and two of them for the folder above
	}
	for _, p := range prefixes {
		p = strings.TrimRight(Bare(p), "/")
		if p != "" && (name == p || strings.HasPrefix(name, p+"/")) {
			return true
		}
	}
	return false
}
