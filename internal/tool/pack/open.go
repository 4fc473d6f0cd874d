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
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// openSource opens the dataset: text as its lines and files if it is to become
// tokens, everything else as it is loaded. end may be nil.
func (p *packer) openSource(ctx context.Context, src source.Source) (end func(), err error) {
	d := p.Dataset
	if p.Options.Tokenize != "" && d.Format == "" {
		kind, paths, err := p.texts(ctx, src)
		if err != nil {
			return nil, err
		}
		if len(paths) > 0 {
			d.Format, d.Path = kind, paths
		}
	}
	l, err := p.load(ctx, d)
	if err == nil && d.Format == p.Dataset.Format {
		l, err = p.current(ctx, src, l)
	}
	if err != nil {
		return nil, err
	}
	p.ds, p.kind = l.Dataset(), l.Parts[0].Format()
	return l.Close, nil
}

// texts is the format of text that the paths of the dataset are of, and its files, in
// folders at any depth, sorted; none if a path is anything else.
func (p *packer) texts(ctx context.Context, src source.Source) (kind string, all []string, err error) {
	formats := p.Formats
	if formats == nil {
		formats = dataset.Formats()
	}
	at := slices.IndexFunc(formats, func(f dataset.Format) bool { return f.Names.Text != "" && f.List != nil && f.Sniff != nil })
	if at < 0 {
		return "", nil, nil
	}
	text := formats[at]
	paths, err := pattern.ExpandFrom(ctx, src, p.Dataset.Path, p.Dataset.Elsewhere)
	if err != nil {
		return "", nil, err
	}
	for _, name := range paths {
		if !source.IsDir(ctx, src, name) {
			all = append(all, name)
			continue
		}
		within, err := text.List(ctx, src, name)
		if err != nil && errs.CodeOf(err) != errs.Empty {
			return "", nil, err
		}
		all = append(all, within...)
	}
	if slices.ContainsFunc(all, func(path string) bool { return !text.Sniff(path, nil) }) {
		return "", nil, nil
	}
	return text.Name, all, nil
}

// load opens a dataset as a loader would.
func (p *packer) load(ctx context.Context, d spec.Dataset) (*dataset.Collection, error) {
	open := func(d spec.Dataset) (*dataset.Collection, error) {
		return dataset.Open(ctx, spec.Spec{Dataset: d}, dataset.Options{Formats: p.Formats, Sources: p.Sources, Progress: p.Indexing, Stored: true})
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
	if table := p.manifest(l); table != "" {
		d = spec.Dataset{Manifest: table, Label: d.Label, Root: d.Root}.ReachedAs(d)
		named, err := p.load(ctx, d)
		switch {
		case err == nil:
			l.Close()
			l = named
		case l.Parts[0].Format().Rows == format.RowsName:
			kind := l.Format()
			l.Close()
			return nil, errs.New(errs.CodeOf(err), "cannot pack the files that the column path names").At(file(table)).Because(err).
				Try("repair the table; or pack its rows themselves with --format %s", kind)
		default: // a path column beside other data is not a manifest
			return l, nil
		}
	}
	same, err := fresh(ctx, src, l)
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
func (p *packer) manifest(l *dataset.Collection) string {
	x, rows := l.Dataset().Index(), l.Parts[0].Format().Rows
	if p.Dataset.Format != "" || p.Options.Tokenize != "" || p.Options.Fields != nil || x.Files() != 1 {
		return ""
	}
	switch {
	case rows != format.RowsHold && slices.Contains(x.Meta().Fields, "path"):
		return string(x.AppendPath(0, nil))
	case rows == format.RowsName:
		p.note = "the rows of the table are packed; if a column names files, --path-column NAME packs those"
	}
	return ""
}

// fresh reports whether single files are still as in the index. Their folders do
// not tell: rewriting a file in place does not change its folder.
func fresh(ctx context.Context, src source.Source, l *dataset.Collection) (bool, error) {
	x := l.Dataset().Index()
	if !l.Parts[0].Format().Files {
		return true, nil // formats of shards check each file
	}
	same := func(f int, st source.Info, err error) error {
		if size, version := x.Stamp(f); err == nil && (st.Size != size || version != "" && st.Version != version) {
			err = errs.New(errs.Changed, "stale")
		}
		return err
	}
	if _, waits := source.LinkOf(src, string(x.AppendPath(0, nil))); waits { // a listing says it of all
		paths := make([]string, x.Files())
		for f := range paths {
			paths[f] = string(x.AppendPath(f, nil))
		}
		look := browse.New(ctx, src, nil)
		defer look.End()
		return source.Stats(ctx, look, paths, same) == nil, ctx.Err()
	}
	const run = 256 // files looked at by one goroutine in one go
	err := format.Each(ctx, (x.Files()+run-1)/run, func(i int) error {
		var path []byte
		for f := i * run; f < min((i+1)*run, x.Files()); f++ {
			path = x.AppendPath(f, path[:0])
			st, err := src.Stat(ctx, string(path))
			if err := same(f, st, err); err != nil {
				return err
			}
		}
		return nil
	})
	return err == nil, ctx.Err()
}

// apart refuses to pack a folder into itself: the next run would look for samples
// in the shards, or the shards would be among their own sources.
func (c Config) apart(ctx context.Context) error {
	dst := c.Dst
	src, err := dataset.SourceOf(c.Sources, spec.Spec{Dataset: c.Dataset})
	if err != nil {
		return err
	}
	defer src.Close()
	paths, err := pattern.ExpandFrom(ctx, src, c.Dataset.Path, c.Dataset.Elsewhere)
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
