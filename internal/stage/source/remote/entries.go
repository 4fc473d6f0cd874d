package remote

import (
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Split cuts a name into bucket (or container) and key: "gs://b/a/x.tar" is "b", "a/x.tar".
// Slashes at the end do not count. Both are "" for the scheme alone.
func Split(name string) (bucket, key string) {
	_, rest, _ := strings.Cut(name, ":")
	bucket, key, _ = strings.Cut(strings.Trim(rest, "/"), "/")
	return bucket, key
}

// Entries makes the entries of a page out of what a store lists: objects by their names,
// and folders by names with a slash at the end. An object whose name ends in a slash is
// what some tools put into a folder to make it: it is none of the dataset. A name that
// would be another one after source.Clean is an error, since there is no name for it here.
func Entries(objects []source.Info, folders []string) ([]source.Info, error) {
	all := make([]source.Info, 0, len(objects)+len(folders))
	for _, it := range objects {
		if !strings.HasSuffix(it.Name, "/") {
			all = append(all, it)
		}
	}
	for _, name := range folders {
		all = append(all, source.Info{Name: strings.TrimSuffix(name, "/"), Dir: true})
	}
	for _, it := range all {
		if it.Name != source.Clean(it.Name) {
			return nil, errs.New(errs.Unsupported, `the store has an object whose name has an empty part, "." or ".." in it`).At(at(it.Name)).
				Try("rename it: it cannot be told from another name")
		}
	}
	sorted(all)
	return all, nil
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

// key is what an entry is sorted by.
func key(it source.Info) string {
	if it.Dir {
		return it.Name + "/"
	}
	return it.Name
}
