package files

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// PathColumns and LabelColumns are the names that are used if no column is given.
func PathColumns() []string {
	return []string{"path", "file", "filename", "file_name", "filepath", "image", "image_path", "img"}
}

func LabelColumns() []string { return []string{"label", "class"} }

// buildList indexes files, a sample each.
func buildList(ctx context.Context, src source.Source, paths []string, opt Options, b *index.Builder) error {
	l := newList()
	for _, p := range paths {
		l.add(p)
	}
	sizes, versions, err := l.stat(ctx, src, opt.Progress, func(i int, err error) error {
		if errs.CodeOf(err) == errs.NotFound {
			return errs.New(errs.NotFound, "there is no file %q", l.paths[i]).At(errs.Where{File: l.paths[i]}).
				Because(errs.From(err).Cause).Try("%s", pattern.Suggest(ctx, src, l.paths[i]))
		}
		return err
	})
	if err != nil {
		return err
	}
	b.Meta.Fields = []string{Image, Key}
	l.write(b, format.Folder(l.paths), sizes, versions)
	if opt.Label != Folder {
		return nil
	}
	b.Meta.Fields = []string{Image, Label, Key}
	folders := make([]string, 0, len(l.file))
	for i, f := range l.file {
		at := source.Dir(l.paths[f])
		dir := path.Base(at)
		if dir == "." || dir == "/" || strings.HasSuffix(at, "://") {
			return errs.New(errs.Config, "%q is not in a folder that could be its class", l.paths[f]).
				At(errs.Where{File: l.paths[f], Sample: errs.Known(int64(i))}).Try("leave label out, or put the files in one folder per class")
		}
		folders = append(folders, dir)
	}
	ids, names, err := ranked(folders)
	writeLabels(b, -1, ids, names)
	return err
}

// list is files, each once, and which of them every sample is.
type list struct {
	paths []string
	file  []int32
	first []int // the first sample of each
	no    map[string]int32
}

func newList() *list { return &list{no: make(map[string]int32)} }

func (l *list) add(p string) {
	f, known := l.no[p]
	if !known {
		f = int32(len(l.paths))
		l.no[p] = f
		l.paths, l.first = append(l.paths, p), append(l.first, len(l.file))
	}
	l.file = append(l.file, f)
}

// stat is the sizes and versions of all files. fail turns the error of one into that of the
// dataset.
func (l *list) stat(ctx context.Context, src source.Source, progress index.Progress, fail func(i int, err error) error) (sizes []int64, versions []string, err error) {
	sizes, versions = make([]int64, len(l.paths)), make([]string, len(l.paths))
	one := func(i int, st source.Info, err error) error {
		if err == nil && st.Dir {
			err = errs.New(errs.Config, "%q is a folder, not a file", l.paths[i]).At(errs.Where{File: l.paths[i]}).
				Try("for the files in it write %s/*", l.paths[i])
		}
		sizes[i], versions[i] = st.Size, st.Version
		return err
	}
	const run = 256 // files between two words of progress, and looked at by one goroutine in one go
	done := 0
	told := func(n int) {
		if done += n; progress != nil {
			progress(int64(done), int64(len(sizes)), "files")
		}
	}
	if slices.ContainsFunc(l.paths, func(p string) bool { return source.SchemeOf(p) != "" }) {
		lowest, first, left := len(l.paths), error(nil), 0
		err = source.Stats(ctx, src, l.paths, func(i int, st source.Info, err error) error {
			if err := one(i, st, err); err != nil && i < lowest {
				lowest, first = i, err
			}
			if left++; left == run {
				left = 0
				told(run)
			}
			return nil
		})
		told(left)
		if first != nil && err == nil {
			err = fail(lowest, first)
		}
		return sizes, versions, err
	}
	var mu sync.Mutex
	err = format.Each(ctx, (len(sizes)+run-1)/run, func(r int) error {
		end := min((r+1)*run, len(sizes))
		for i := r * run; i < end; i++ {
			st, err := src.Stat(ctx, l.paths[i])
			if err := one(i, st, err); err != nil {
				return fail(i, err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		told(end - r*run)
		return nil
	})
	return sizes, versions, err
}

// write adds the columns of files below root, and of samples.
func (l *list) write(b *index.Builder, root string, sizes []int64, versions []string) {
	if slices.ContainsFunc(l.paths, func(p string) bool { return !source.Under([]string{root}, p) }) {
		root = "" // names of several stores have no folder in common
	}
	var names index.Texts
	for _, p := range l.paths {
		name := strings.TrimPrefix(p, root)
		if root != "" {
			name = strings.TrimPrefix(name, "/")
		}
		names.AppendString(name)
	}
	b.Meta.Root, b.Meta.Samples = root, int64(len(l.file))
	b.Strings(index.FileName, &names, index.Identity)
	b.Int64s(index.FileSize, sizes, index.Identity)
	b.Versions(versions)
	b.Int32s(sampleFile, l.file, index.Identity)
}

// buildManifest indexes the files that a manifest names.
func buildManifest(ctx context.Context, src source.Source, manifest string, opt Options, b *index.Builder) error {
	objs, err := format.Stat(ctx, src, []string{manifest}, "manifest")
	if err != nil {
		return err
	}
	var t *table
	if err := format.Settled(ctx, src, objs[0], func() (err error) {
		t, err = read(ctx, src, objs[0])
		return err
	}); err != nil {
		return err
	}
	paths, err := t.choose(opt.Path, PathColumns(), "paths")
	if err != nil {
		return err
	}
	if paths < 0 {
		return t.without("a path", "path")
	}
	root := opt.Root
	if root == "" {
		root = source.Dir(manifest)
	}
	l := newList()
	for row := range t.rows {
		p, err := t.resolve(t.cols[paths], row, root, opt)
		if err != nil {
			return err
		}
		l.add(p)
	}
	sizes, versions, err := l.stat(ctx, src, opt.Progress, func(i int, err error) error {
		e := *errs.From(err)
		if e.Code == errs.NotFound {
			e.What = "there is no such file"
			e.Hint = "the paths of a manifest are relative to its folder, or to root; " + pattern.Suggest(ctx, src, l.paths[i])
		}
		e.What = t.row(l.first[i]) + " of " + path.Base(manifest) + " names " + l.paths[i] + ": " + e.What
		e.Where = errs.Where{File: manifest, Sample: errs.Known(int64(l.first[i]))}
		return &e
	})
	if err != nil {
		return err
	}
	b.Meta.Fields = []string{Image}
	l.write(b, root, sizes, versions)
	if err := t.write(b, opt, paths, Image, Key); err != nil {
		return err
	}
	b.Meta.Fields = append(b.Meta.Fields, Key)
	b.Int64s(manifestStamp, []int64{objs[0].Size, format.Mark(objs[0].Version)}, index.Aside)
	return nil
}

// resolve returns the file that a row names. A manifest is only data, and others may have
// written it: a path that leaves the root is refused, and so is any other store or host,
// to which the user's keys would be sent, unless the user has listed it in the origins.
func (t *table) resolve(c *cells, row int, root string, opt Options) (string, error) {
	p := string(c.text.At(row))
	if k := c.kinds[row]; k == cellNull || k == cellEmpty {
		return "", t.fail(errs.MissingField, -1, "%s has no path in column %q", t.row(row), c.name).Try("give every row a path, or remove the row")
	}
	full := source.Bare(p)
	if !path.IsAbs(full) && source.SchemeOf(full) == "" {
		full = source.Join(root, full)
	}
	full = source.Clean(full)
	shown := source.Shown(full)
	wrong := func(format string, a ...any) *errs.Error {
		e := t.fail(errs.Config, -1, "%s names %q, "+format, append([]any{t.row(row), source.Shown(p)}, a...)...)
		e.Where.Sample = errs.Known(int64(row))
		return e
	}
	host := source.HostOf(full)
	switch {
	case shown != full:
		return "", wrong("a URL with a signature, a token or a password, which an index may not store").
			Try("write the name alone into the manifest, and set credentials in the environment")
	case full != root && source.Under([]string{root}, full), source.Under(opt.Origins, full):
		return full, nil
	case host != "":
		return "", wrong("which is outside of %s: a manifest may name only what is stored where it is", root).
			Try("if you trust the manifest, add the place to origins, such as %q (dataset.origins of a Spec)", source.Dir(full)+"/")
	case source.SchemeOf(root) != "":
		return "", wrong("a file on this machine, but the manifest is stored elsewhere").
			Try("if you trust the manifest, add the folder to origins, such as %q (dataset.origins of a Spec)", source.Dir(full)+"/")
	case opt.Root != "":
		return "", wrong("which is outside of %s", root).Try("paths may not leave the root that was given")
	}
	return "", wrong("which is outside of %s", root).
		Try("give root, the folder that holds all files (root \"/\" allows any path), if you trust the manifest")
}

// choose returns the number of the column called want, or, if that is empty, of the
// first usual one that exists, or -1 if there is none.
func (t *table) choose(want string, usual []string, what string) (int, error) {
	if want == "" {
		for _, name := range usual {
			if i, ok := t.no[name]; ok {
				return i, nil
			}
		}
		return -1, nil
	}
	if i, ok := t.no[want]; ok {
		return i, nil
	}
	e := t.fail(errs.Config, -1, "there is no column %q to take the %s from", want, what)
	if near := errs.Nearest(want, t.names()); near != "" {
		return 0, e.Try("did you mean %q?", near)
	}
	return 0, e.Try("there are %q", t.names())
}

func (t *table) names() (names []string) {
	for _, c := range t.cols {
		names = append(names, c.name)
	}
	return names
}

func (t *table) without(what, example string) error {
	return t.fail(errs.Config, -1, "no column of the table is known to be %s; there are %q", what, t.names()).
		Try("name it with %s=; the first line of a CSV file has the names of the columns", example)
}

// write adds the columns of the table as fields, and the labels. taken are names
// that columns may not have: such a column is left out, as the one with the paths
// where it is called image.
func (t *table) write(b *index.Builder, opt Options, paths int, taken ...string) error {
	label := -1
	if opt.Label != None {
		var err error
		if label, err = t.choose(opt.Label, LabelColumns(), "labels"); err != nil {
			return err
		}
	}
	var ids []int64
	var classes []string
	if label >= 0 {
		var err error
		if ids, classes, err = t.labels(t.cols[label]); err != nil {
			return err
		}
	}
	var names index.Texts
	var types []int32
	var odd []int64
	at, from := -1, -1
	for i, c := range t.cols {
		if slices.Contains(taken, c.name) {
			continue
		}
		dtype := c.dtype()
		if i == label && ids != nil {
			at, dtype = len(types), mem.Object
		}
		if i == paths {
			from = len(types)
		}
		names.AppendString(c.name)
		if i != label {
			odd = t.addOdd(odd, len(types), c, dtype)
		}
		c.write(len(types), dtype, b)
		types = append(types, int32(dtype))
		b.Meta.Fields = append(b.Meta.Fields, c.name)
	}
	b.Strings(columnName, &names, index.Identity)
	b.Int32s(columnType, types, index.Identity)
	b.Int32s(pathOf, []int32{int32(from)}, index.Aside)
	if odd != nil {
		b.Int64s(columnOdd, odd, index.Aside)
	}
	writeLabels(b, at, ids, classes)
	return nil
}

// buildTable indexes the rows of tables.
func buildTable(ctx context.Context, src source.Source, paths []string, opt Options, b *index.Builder) error {
	objs, err := format.Stat(ctx, src, paths, "table")
	if err != nil {
		return err
	}
	tables := make([]*table, len(objs))
	if err := format.EachOf(ctx, src, objs[0].Name, len(objs), func(i int) error {
		return format.Settled(ctx, src, objs[i], func() (err error) {
			tables[i], err = read(ctx, src, objs[i])
			return err
		})
	}); err != nil {
		return err
	}
	t := tables[0]
	for _, more := range tables[1:] {
		if err := t.join(more); err != nil {
			return err
		}
	}
	b.Meta.Samples = int64(t.rows)
	format.Describe(b, objs)
	return t.write(b, opt, -1)
}

// join appends the rows of another table, which has the same columns, to t's.
func (t *table) join(o *table) error {
	for _, c := range t.cols {
		i, ok := o.no[c.name]
		if !ok {
			return o.fail(errs.Config, -1, "there is no column %q, which %s has", c.name, t.path).Try("give tables with the same columns")
		}
		from := o.cols[i]
		for row, k := range from.kinds {
			c.add(string(from.text.At(row)), k)
		}
	}
	if len(o.cols) > len(t.cols) {
		return o.fail(errs.Config, -1, "there are more columns than in %s", t.path).Try("give tables with the same columns")
	}
	t.rows += o.rows
	t.lines = make([]int64, t.rows) // rows are counted through
	return nil
}
