// Package dataset opens what a Spec names: it finds out formats, opens or builds
// indexes, puts the members of a mixture one after the other, and compiles the
// fields of the Spec against what is stored. It reads a few samples to do so, and
// starts nothing: tools that look at samples need no loader.
package dataset

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/beton"
	"github.com/stoker-data/stoker/internal/stage/format/files"
	"github.com/stoker-data/stoker/internal/stage/format/folder"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5"
	"github.com/stoker-data/stoker/internal/stage/format/lines"
	"github.com/stoker-data/stoker/internal/stage/format/lmdb"
	"github.com/stoker-data/stoker/internal/stage/format/mds"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/format/tfrecord"
	"github.com/stoker-data/stoker/internal/stage/format/tokens"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// opening is what a format needs to open a dataset.
type opening struct {
	src      source.Source
	paths    []string // expanded; one at least
	d        spec.Dataset
	progress index.Progress
}

// opener is one format. To add one: a package below format, an entry in openers,
// and its keys in keys.
type opener struct {
	name string
	// sniff says whether a file, by its name and its first bytes, is of the format;
	// nil: only its format= in the Spec says so.
	sniff func(name string, head []byte) bool
	// endings are those of the format's files, where sniff goes by the bytes.
	endings []string
	open    func(ctx context.Context, o opening) (format.Dataset, error)
	// named says that only format= in the Spec chooses it, and sniff only its files
	// in a folder: what they hold may be meant in several ways.
	named bool
	// root says that the dataset is one folder, which is handed on as it is; else a
	// folder stands for the files in it.
	root bool
}

// openers are the formats, in the order in which a file is held against them.
func openers() []opener {
	return []opener{
		{name: "folder", root: true, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return folder.Open(ctx, o.src, o.paths[0], folder.Options{Extensions: o.d.Extensions, AllowEmpty: o.d.AllowEmpty, Progress: o.progress})
		}},
		{name: "tar", sniff: tar.Sniff, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return tar.Open(ctx, o.src, o.paths, tar.Options{Progress: o.progress})
		}},
		{name: "tfrecord", sniff: tfrecord.Sniff, endings: []string{".tfrecord", ".tfrecords", ".tfrec"}, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return tfrecord.Open(ctx, o.src, o.paths, tfrecord.Options{Progress: o.progress})
		}},
		{name: "npy", sniff: npy.Sniff, endings: []string{".npy", ".npz"}, open: openNPY},
		{name: "npz", open: openNPY},
		{name: "mds", sniff: mds.Sniff, endings: []string{".mds"}, root: true, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return mds.Open(ctx, o.src, o.paths[0], mds.Options{Memory: int64(o.d.Unpacked), Progress: o.progress})
		}},
		{name: "parquet", sniff: parquet.Sniff, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return parquet.Open(ctx, o.src, o.paths, parquet.Options{Label: o.d.Label, Cache: int64(o.d.Unpacked), Progress: o.progress})
		}},
		{name: "hdf5", sniff: hdf5.Sniff, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			opt := hdf5.Options{Group: o.d.Group, Cache: int64(o.d.Unpacked), Progress: o.progress}
			for _, c := range o.d.Columns {
				opt.Columns = append(opt.Columns, cmp.Or(c.From, c.Name))
			}
			return hdf5.Open(ctx, o.src, o.paths, opt)
		}},
		{name: "beton", sniff: beton.Sniff, endings: []string{".beton"}, root: true, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return beton.Open(ctx, o.src, o.paths[0], beton.Options{Pictures: o.d.Pictures, Progress: o.progress})
		}},
		{name: "lmdb", sniff: lmdb.Sniff, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return lmdb.Open(ctx, o.src, o.paths, lmdb.Options{Database: o.d.Database, Values: lmdb.Values(o.d.Values), Progress: o.progress})
		}},
		{name: "files", sniff: func(name string, _ []byte) bool { return hasSuffix(name, folder.Extensions()...) }, open: openFiles},
		{name: "table", sniff: files.Sniff, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return files.OpenTable(ctx, o.src, o.paths, files.Options{Label: o.d.Label, Progress: o.progress})
		}},
		{name: "lines", named: true, sniff: func(name string, _ []byte) bool { return lines.Sniff(name) }, open: func(ctx context.Context, o opening) (format.Dataset, error) {
			return lines.Open(ctx, o.src, o.paths, lines.Options{Progress: o.progress})
		}},
		{name: "tokens", sniff: tokens.Sniff, open: openTokens}, // the last: any .bin may be one of tokens
	}
}

// openFiles opens files that are a sample each: those of a list, or those that a
// manifest names.
func openFiles(ctx context.Context, o opening) (format.Dataset, error) {
	opt := files.Options{Path: o.d.PathColumn, Label: o.d.Label, Root: o.d.Root, Progress: o.progress}
	if o.d.Manifest != "" {
		return files.OpenManifest(ctx, o.src, o.d.Manifest, opt)
	}
	return files.Open(ctx, o.src, o.paths, opt)
}

// openNPY opens arrays, whose names are those of their files unless columns gives
// others.
func openNPY(ctx context.Context, o opening) (format.Dataset, error) {
	opt := npy.Options{UnpackedBytes: int64(o.d.Unpacked), Progress: o.progress}
	for _, c := range o.d.Columns {
		paths := o.paths
		if c.Path != nil {
			var err error
			if paths, err = source.Expand(c.Path); err != nil {
				return nil, err
			}
		}
		opt.Fields = append(opt.Fields, npy.Field{Name: c.Name, Paths: paths, Array: c.From})
	}
	if opt.Fields != nil {
		return npy.Open(ctx, o.src, nil, opt)
	}
	opt.Sharded = packedArrays(o.paths)
	return npy.Open(ctx, o.src, o.paths, opt)
}

// openTokens opens files of tokens.
func openTokens(ctx context.Context, o opening) (format.Dataset, error) {
	opt := tokens.Options{Progress: o.progress}
	if o.d.DType != "" {
		var err error
		if opt.DType, err = transform.DTypeOf(o.d.DType); err != nil {
			return nil, err
		}
	}
	w := o.d.Window
	opt.Window, opt.Stride, opt.Next = w.Length, w.Stride, w.Next
	opt.Random, opt.Seed = w.Random, w.Seed
	opt.Documents, opt.EOS, opt.BOS = w.Documents, w.EOS, w.BOS
	return tokens.Open(ctx, o.src, o.paths, opt)
}

func hasSuffix(name string, suffixes ...string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// formatNames are what dataset.format can be.
func formatNames() []string {
	names := []string{"", "auto"}
	for _, o := range openers() {
		names = append(names, o.name)
	}
	return append(names, "synthetic")
}

// keys are the keys of a dataset that only some formats have use for, whether one
// is set, and which formats those are.
func keys(d spec.Dataset) []key {
	return []key{
		{"extensions", d.Extensions != nil, []string{"folder"}},
		{"allow_empty", d.AllowEmpty, []string{"folder"}},
		{"samples", d.Samples != 0, []string{"synthetic"}},
		{"shape", d.Shape != nil, []string{"synthetic"}},
		{"columns", d.Columns != nil, []string{"npy", "npz", "hdf5"}},
		{"group", d.Group != "", []string{"hdf5"}},
		{"pictures", d.Pictures, []string{"beton"}},
		{"manifest", d.Manifest != "", []string{"files"}},
		{"path_column", d.PathColumn != "", []string{"files"}},
		{"root", d.Root != "", []string{"files"}},
		{"unpacked", d.Unpacked != 0, []string{"npy", "npz", "mds", "parquet", "hdf5"}},
		{"window", d.Window != spec.Window{}, []string{"tokens"}},
		{"dtype", d.DType != "", []string{"tokens"}},
		{"label", d.Label != "", []string{"parquet", "files", "table"}},
		{"database", d.Database != "", []string{"lmdb"}},
		{"values", d.Values != "", []string{"lmdb"}},
	}
}

type key struct {
	name string
	set  bool
	of   []string
}

// meaningless names keys of a dataset that its format has no use for.
func meaningless(d spec.Dataset, kind string) error {
	var p spec.Problems
	for _, k := range keys(d) {
		if k.set && !slices.Contains(k.of, kind) {
			p.Addf("dataset.%s is of %s datasets, and this is %s", k.name, strings.Join(k.of, ", "), kind)
		}
	}
	return p.Err()
}

// Options are what an Open needs besides the Spec.
type Options struct {
	Progress func(done, total int64, what string) // of indexing; may be nil
	// Wrap puts something between the dataset and its storage; may be nil.
	Wrap func(source.Source) source.Source
	// Stored says that what is stored is looked at, and no batch is made: no field
	// need be left to deliver.
	Stored bool
}

// Open opens what a Spec names. Errors name every problem of the Spec at once.
func Open(ctx context.Context, s spec.Spec, opt Options) (*Collection, error) {
	s = s.Defaults()
	p := s.Check(formatNames())
	if !s.Dataset.Openable(formatNames()) {
		return nil, p.Err()
	}
	c, err := openCollection(ctx, s.Dataset, opt)
	if err != nil && len(p) > 0 {
		p.Addf("%s", withHint(err))
		err = p.Err()
	}
	if err != nil {
		return nil, err
	}
	c.spec = s
	if err := c.compile(p, opt.Stored); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// openPart opens one dataset.
func openPart(ctx context.Context, src source.Source, d spec.Dataset, opt Options) (*Part, error) {
	if d.Format == "synthetic" {
		if err := meaningless(d, d.Format); err != nil {
			return nil, err
		}
		return openSynthetic(d)
	}
	if err := local(d.Paths()); err != nil {
		return nil, err
	}
	if d.Manifest != "" && (d.Format == "" || d.Format == "auto") {
		d.Format = "files"
	}
	paths, err := source.Expand(d.Paths())
	if err != nil {
		return nil, err
	}
	for _, dir := range paths {
		if isDir(dir) {
			if err := wholePacking(dir); err != nil {
				return nil, err
			}
		}
	}
	if err := wholeShards(d.Paths(), paths); err != nil {
		return nil, err
	}
	kind, paths, err := sniff(d.Format, paths)
	if err != nil {
		return nil, err
	}
	if err := meaningless(d, kind.name); err != nil {
		return nil, err
	}
	ds, err := kind.open(ctx, opening{src: src, paths: paths, d: d, progress: opt.Progress})
	if err != nil {
		return nil, err
	}
	x := ds.Index()
	return &Part{spec: d, DS: ds, N: x.Len(), digest: x.Digest(), from: sourceOf(x), format: x.Meta().Format}, nil
}
