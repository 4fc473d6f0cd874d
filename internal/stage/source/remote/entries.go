package remote

import (
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Split cuts a name into bucket (or container) and key: "gs://b/a/x.tar" is "b", "a/x.tar".
// Slashes at the end do not count. Both are "" for the scheme alone.
func Split(name string) (bucket, key string) {
	_, rest, _ := strings.Cut(name, ":")
	bucket, key, _ = strings.Cut(strings.Trim(rest, "/"), "/")
	return bucket, key
}

// Prefix is what keys begin with that are below a folder, as Page gets it, and go on with
// letters; "" for all of a bucket. The name of a folder without a name ends in its slash.
func Prefix(dir, letters string) string {
	_, key := Split(dir)
	if key != "" {
		key += "/"
	}
	return key + dir[len(strings.TrimRight(dir, "/")):] + letters
}

// Entries makes the entries of a page out of what a store lists: objects by their names,
// and folders by names with a slash at the end. An object whose name ends in a slash is
// what some tools put into a folder to make it: it is none of the dataset. So is a folder
// without a name ("a//b" has one), which no path leads to; a flat listing has what is in it.
func Entries(objects []source.Info, folders []string) []source.Info {
	all := make([]source.Info, 0, len(objects)+len(folders))
	for _, it := range objects {
		if !strings.HasSuffix(it.Name, "/") {
			all = append(all, it)
		}
	}
	for _, name := range folders {
		if name = strings.TrimSuffix(name, "/"); !strings.HasSuffix(name, "/") {
			all = append(all, source.Info{Name: name, Dir: true})
		}
	}
	sorted(all)
	return all
}

// sorted puts entries in the order of a page.
func sorted(all []source.Info) {
	slices.SortFunc(all, func(a, b source.Info) int {
		if c := strings.Compare(a.Name, b.Name); !a.Dir && !b.Dir || c == 0 {
			return c
		}
		return strings.Compare(key(a), key(b))
	})
}

// key is the sort key of an entry.
func key(it source.Info) string {
	if it.Dir {
		return it.Name + "/"
	}
	return it.Name
}
