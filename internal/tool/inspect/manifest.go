package inspect

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/dataset/script"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// namesFiles returns the dataset that the lines in Python load. If a column of the table
// has paths of pictures, that is the table as a manifest, so that the lines load the
// pictures, not their names. It looks at the first row only.
func (r *Report) namesFiles(ctx context.Context, c Config, l *dataset.Collection) spec.Dataset {
	d := c.Dataset
	one := len(d.Path) == 1 && !strings.ContainsAny(d.Path[0], "*?[{") && l.Dataset().Index().Files() == 1
	if !one || d.PathColumn != "" || slices.ContainsFunc(r.delivered, func(c dataset.Column) bool { return c.Kind == "image" }) {
		return d
	}
	src, err := dataset.SourceOf(c.Sources, spec.Spec{Dataset: d})
	if err != nil {
		return d
	}
	defer src.Close()
	var first format.Sample
	if err := format.NewReader(l.Dataset(), src).Read(ctx, 0, nil, &first); err != nil {
		return d // it is among the damage
	}
	column, file := script.PicturePath(&first)
	if column == "" || source.SchemeOf(file) != "" { // a URL is not a path
		return d
	}
	table := d.Path[0]
	if path.Base(source.Clean(table)) != path.Base(r.first) { // a folder, of which it is the only file
		table = source.Join(table, path.Base(r.first))
	}
	base := source.Dir(table)
	exists := func(root string) bool {
		full := file
		if !path.IsAbs(file) {
			full = source.Join(root, file)
		}
		st, err := src.Stat(ctx, full)
		return err == nil && !st.Dir
	}
	root := ""
	switch {
	case path.IsAbs(file) && exists(base) && !strings.HasPrefix(source.Clean(file), strings.TrimSuffix(base, "/")+"/"):
		root = "/"
	case exists(base):
	case !path.IsAbs(file) && exists("."):
		root = "."
	default:
		r.Notes = append(r.Notes, fmt.Sprintf("column %q has paths of pictures, but there is no %s in %s; to load them, write stoker.Table(%s, path=%s, root=...) with the folder that they are relative to",
			column, file, base, script.Quoted(table), script.Quoted(column)))
		return d
	}
	d.PathColumn, d.Manifest, d.Path = column, table, nil
	if d.Root == "" {
		d.Root = root
	}
	return d
}
