package dataset

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset/script"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// mistaken returns err, of a dataset that could not be opened as the requested format.
// If the stored data is plainly of another format, the error names that format and the
// line to write. A damaged file, and one that is of the requested format, keep their
// error.
func (f finder) mistaken(d spec.Dataset, err error) error {
	all := f.all
	e := errs.From(err)
	if d.Format == "" || d.Format == "auto" || d.Manifest != "" ||
		!slices.Contains([]errs.Code{errs.Config, errs.NotFound, errs.Empty, errs.Damaged, errs.Unsupported}, e.Code) {
		return err
	}
	paths, wrong := pattern.ExpandFrom(f.ctx, f.src, d.Paths(), d.Elsewhere)
	if wrong != nil || len(paths) == 0 {
		return err
	}
	at := slices.IndexFunc(all, func(k Format) bool { return k.Name == d.Format })
	if at < 0 || f.takes(&all[at], paths[0]) {
		return err
	}
	found, name, wrong := f.likely(paths)
	var arrow *errs.Error
	if errors.As(wrong, &arrow) && arrow.Code == errs.Unsupported {
		return wrong
	}
	if wrong != nil || found == nil || found.Name == all[at].Name || found.Python == all[at].Python || found.Python == "" {
		return err
	}
	if all[at].Rows == format.RowsName && found.Rows != format.RowsHold {
		return err // a table may be a Parquet file
	}
	if name == "" { // as the user wrote it
		name = d.Paths()[0]
	}
	out := *e
	return out.Try("it is %s: load it with %s (--format %s)", found.Is(), found.line(name), found.Name)
}

// takes reports whether a file is of a format by its name or its first bytes.
func (f finder) takes(kind *Format, name string) bool {
	if f.isDir(name) || kind.Sniff == nil {
		return false
	}
	head, err := f.headOf(name)
	return err == nil && kind.Sniff(source.Unquery(name), head)
}

// likely is the format of the paths; for a folder of folders with files of one format,
// also the first of these folders. nil: unknown.
func (f finder) likely(paths []string) (found *Format, at string, err error) {
	found, _, err = f.sniff("", paths)
	if err != nil || found.Name != f.all[0].Name {
		return found, "", err
	}
	// A folder of an unknown kind must hold pictures by class.
	entries, err := source.Names(f.ctx, f.src, paths[0])
	if err != nil {
		return nil, "", err
	}
	shards := slices.DeleteFunc(slices.Clone(f.all), func(k Format) bool { return k.Single || k.Named || k.Made })
	single := slices.IndexFunc(f.all, func(k Format) bool { return k.Loose })
	of, loose := func(e source.Info) bool { return !e.Dir && single >= 0 && f.all[single].Sniff(e.Name, nil) }, false
	for _, e := range entries {
		if !e.Dir {
			loose = loose || of(e)
			continue
		}
		dir := source.Join(paths[0], e.Base())
		inside, err := source.Names(f.ctx, f.src, dir)
		if err != nil {
			return nil, "", err
		}
		if slices.ContainsFunc(inside, of) {
			return found, "", nil
		}
		if files, err := f.filesIn(dir, shards); err == nil && len(files) == 1 {
			return files[0].kind, dir, nil
		}
	}
	if loose {
		return &f.all[single], source.Join(paths[0], "*"), nil
	}
	return nil, "", nil
}

// line is the line of Python that loads the data at path.
func (f *Format) line(name string) string {
	more := ""
	if f.Arguments != "" {
		more = ", " + f.Arguments
	}
	return fmt.Sprintf("stoker.%s(%s%s)", f.Python, script.Quoted(name), more)
}
