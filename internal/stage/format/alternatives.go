package format

import "strings"

// First returns the number of the first alternative of a wanted field that exists, as
// found by at, or -1 if there is none. The whole of wanted is tried first: a ; may be
// part of a name.
func First(wanted string, at func(name string) int) int {
	if i := at(wanted); i >= 0 || !strings.Contains(wanted, ";") {
		return i
	}
	for more := true; more; {
		var name string
		name, wanted, more = strings.Cut(wanted, ";")
		if i := at(name); i >= 0 {
			return i
		}
	}
	return -1
}
