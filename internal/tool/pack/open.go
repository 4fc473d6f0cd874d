package pack

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/lines"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// openSource opens the dataset: text as its lines and files if it is to become
// tokens, everything else as it is loaded. end may be nil.
func (p *packer) openSource(ctx context.Context, src source.Source) (end func(), err error) {
	if p.Options.Tokenize != "" && p.Dataset.Format == "" {
		paths, err := texts(ctx, src, p.Dataset.Path)
		if err != nil {
			return nil, err
		}
		if len(paths) > 0 {
			ds, err := lines.Open(ctx, src, paths, lines.Options{Progress: p.Indexing})
			if err != nil {
				return nil, err
			}
			p.ds = ds
			return func() { _ = ds.Close() }, nil
		}
	}
	l, err := p.load(ctx, p.Dataset)
	if err == nil {
		l, err = p.current(ctx, src, l)
	}
	if err != nil {
		return nil, err
	}
	p.ds = l.Dataset()
	return l.Close, nil
}

// load opens a dataset as a loader would.
func (p *packer) load(ctx context.Context, d spec.Dataset) (*dataset.Collection, error) {
	open := func(d spec.Dataset) (*dataset.Collection, error) {
		return dataset.Open(ctx, spec.Spec{Dataset: d}, dataset.Options{Sources: p.Sources, Progress: p.Indexing, Stored: true})
	}
	l, err := open(d)
	if err != nil && errs.CodeOf(err) == errs.Config && p.Options.Output == OutputTokens && d.Window == (spec.Window{}) {
		// Token files are packed by their documents.
		d.Window.Documents = true
		var again *dataset.Collection
		if again, err = open(d); err == nil {
			return again, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if l.Dataset() == nil {
		l.Close()
		return nil, errs.New(errs.Config, "only a single dataset of stored samples can be packed")
	}
	return l, nil
}

// current replaces what was opened by what is to be packed: the files that a table
// names, with an up-to-date index. It closes l if it returns another one.
func (p *packer) current(ctx context.Context, src source.Source, l *dataset.Collection) (*dataset.Collection, error) {
	d := p.Dataset
	if table := p.manifest(l.Dataset()); table != "" {
		kind := l.Format()
		d = spec.Dataset{Format: "files", Manifest: table, Label: d.Label, Root: d.Root}
		named, err := p.load(ctx, d)
		switch {
		case err == nil:
			l.Close()
			l = named
		case kind == "table":
			l.Close()
			return nil, errs.New(errs.CodeOf(err), "cannot pack the files that the column path names").At(file(table)).Because(err).
				Try("repair the table; or pack its rows themselves with --format %s", kind)
		default: // a path column beside other data is not a manifest
			return l, nil
		}
	}
	same, err := fresh(ctx, src, l.Dataset())
	if err == nil && !same {
		err = l.Dataset().Index().Invalidate()
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	if same {
		return l, nil
	}
	l.Close()
	return p.load(ctx, d)
}

// manifest is the path of a table that names the files to pack; "" if what was
// opened is packed itself.
func (p *packer) manifest(ds format.Stored) string {
	x := ds.Index()
	kind, fields := x.Meta().Format, x.Meta().Fields
	if p.Dataset.Format != "" || p.Options.Tokenize != "" || p.Options.Fields != nil || x.Files() != 1 {
		return ""
	}
	switch {
	case (kind == "table" || kind == "parquet") && slices.Contains(fields, "path"):
		return string(x.AppendPath(0, nil))
	case kind == "table":
		p.note = "the rows of the table are packed; if a column names files, --path-column NAME packs those"
	}
	return ""
}

// fresh reports whether single files are still as in the index. Their folders do
// not tell: rewriting a file in place does not change its folder.
func fresh(ctx context.Context, src source.Source, ds format.Stored) (bool, error) {
	x := ds.Index()
	if kind := x.Meta().Format; kind != "folder" && kind != "files" {
		return true, nil // formats of shards check each file
	}
	const run = 256 // files looked at by one goroutine in one go
	err := format.Each(ctx, (x.Files()+run-1)/run, func(i int) error {
		var path []byte
		for f := i * run; f < min((i+1)*run, x.Files()); f++ {
			path = x.AppendPath(f, path[:0])
			st, err := src.Stat(ctx, string(path))
			if err != nil {
				return err
			}
			if size, version := x.Stamp(f); st.Size != size || version != "" && st.Version != version {
				return errs.New(errs.Changed, "stale")
			}
		}
		return nil
	})
	return err == nil, ctx.Err()
}

// apart refuses to pack a folder into itself: the next run would look for samples
// in the shards, or the shards would be among their own sources.
func (c Config) apart(ctx context.Context) error {
	src, dst := dataset.NewSource(c.Sources), c.Dst
	defer src.Close()
	paths, err := source.Expand(ctx, src, c.Dataset.Path)
	if err != nil {
		return nil //nolint:nilerr // opening it says so
	}
	to := truly(dst)
	for _, path := range paths {
		if source.SchemeOf(path) != "" || !source.IsDir(ctx, src, path) {
			continue
		}
		from := truly(path)
		if rel, err := filepath.Rel(from, to); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return errs.New(errs.Config, "the dataset would be packed into itself: %s would be written to %s", path, dst).At(file(dst)).
				Try("choose a folder beside it, such as %s-packed", filepath.Clean(path))
		}
	}
	return nil
}

// truly is a path without links and dots, as far as it exists.
func truly(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for rest := ""; ; {
		if there, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Join(there, rest)
		}
		if path == "/" {
			return filepath.Join(path, rest)
		}
		path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest)
	}
}
