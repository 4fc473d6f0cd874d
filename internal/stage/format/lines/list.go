package lines

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// List is the text files in a folder, at any depth, in the order of their names
// within each folder; what begins with a dot is none, nor what lies in such a folder.
func List(dir string) (paths []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return filepath.SkipDir
			}
		case !e.IsDir() && Sniff(path):
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return nil, errs.New(errs.Unreadable, "a folder can not be listed").At(errs.Where{File: dir}).Because(err)
	}
	return paths, nil
}
