package dataset

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format/folder"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// mistaken is err, of a dataset that could not be opened as the format that was asked
// for. If what is stored is plainly of another format, it says which, and the line to
// write; a file that is damaged, and one that is what was asked for, keep their error.
func (f finder) mistaken(d spec.Dataset, err error) error {
	all := f.all
	e := errs.From(err)
	if d.Format == "" || d.Format == "auto" || d.Manifest != "" ||
		!slices.Contains([]errs.Code{errs.Config, errs.NotFound, errs.Empty, errs.Damaged, errs.Unsupported}, e.Code) {
		return err
	}
	paths, wrong := source.Expand(f.ctx, f.src, d.Paths())
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
	if name == "" { // as the user wrote it
		name = d.Paths()[0]
	}
	out := *e
	return out.Try("it is %s: load it with %s (--format %s)", found.kind(), found.line(name), found.Name)
}

// takes says that a file is of a format by its name or its first bytes.
func (f finder) takes(kind *Format, name string) bool {
	if f.isDir(name) || kind.Sniff == nil {
		return false
	}
	head, err := f.headOf(name)
	return err == nil && kind.Sniff(name, head)
}

// likely is the format that paths are of; of a folder of folders with files of one
// format, the first of these folders too. nil: nothing says.
func (f finder) likely(paths []string) (found *Format, at string, err error) {
	found, _, err = f.sniff("", paths)
	if err != nil || found.Name != f.all[0].Name {
		return found, "", err
	}
	// A folder of which nothing says what it is: it has to hold pictures by class.
	entries, err := source.Names(f.ctx, f.src, paths[0])
	if err != nil {
		return nil, "", err
	}
	shards := slices.DeleteFunc(slices.Clone(f.all), func(k Format) bool { return k.Single || k.Named || k.Made })
	pictures := 0
	for _, e := range entries {
		if !e.Dir {
			if pictured(e.Name) {
				pictures++
			}
			continue
		}
		dir := source.Join(paths[0], e.Base())
		inside, err := source.Names(f.ctx, f.src, dir)
		if err != nil {
			return nil, "", err
		}
		if slices.ContainsFunc(inside, func(e source.Info) bool { return !e.Dir && pictured(e.Name) }) {
			return found, "", nil
		}
		if files, err := f.filesIn(dir, shards); err == nil && len(files) == 1 {
			return files[0].kind, dir, nil
		}
	}
	if i := slices.IndexFunc(f.all, func(k Format) bool { return k.Name == "files" }); pictures > 0 && i >= 0 {
		return &f.all[i], source.Join(paths[0], "*"), nil
	}
	return nil, "", nil
}

func pictured(name string) bool {
	return slices.Contains(folder.Extensions(), strings.ToLower(path.Ext(name)))
}

// line is the line of Python that loads what is at path.
func (f *Format) line(name string) string {
	more := ""
	if f.Name == "tokens" {
		more = ", 1024"
	}
	return fmt.Sprintf("stoker.%s(%q%s)", f.Python, name, more)
}

// kind is what the format holds, in words.
func (f *Format) kind() string {
	switch f.Name {
	case "folder":
		return "a folder with one folder of pictures per class"
	case "files":
		return "pictures without class folders"
	case "tar":
		return "tar shards"
	}
	return "of the format " + f.Name
}
