package lines

import (
	"context"
	"strings"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// List is the text files in a folder, at any depth, in the order of their names
// within each folder. What begins with a dot is left out, and so is what such a folder
// holds. Links to folders are not followed.
func List(ctx context.Context, src source.Source, dir string) (paths []string, err error) {
	entries, err := source.Names(ctx, src, dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Base(), "."):
		case e.Dir:
			below, err := List(ctx, src, e.Name)
			if err != nil {
				return nil, err
			}
			paths = append(paths, below...)
		case Sniff(e.Name):
			paths = append(paths, e.Name)
		}
	}
	return paths, nil
}
