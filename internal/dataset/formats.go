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
	"github.com/stoker-data/stoker/internal/stage/format/synthetic"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/format/tfrecord"
	"github.com/stoker-data/stoker/internal/stage/format/tokens"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Format is a format and the keys of a Spec's dataset that it has use for.
type Format struct {
	format.Format
	Keys []string
	// Open opens a dataset with those keys; nil: the format's own Open, without any.
	Open func(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error)
}

func (f *Format) open(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	if f.Open == nil {
		return f.Format.Open(ctx, o)
	}
	return f.Open(ctx, d, o)
}

// Formats are the formats that there are, in the order in which a file is held against
// them; a folder of which nothing says what it is, is of the first.
func Formats() []Format {
	return []Format{
		{Format: folder.Format(), Keys: []string{"extensions", "allow_empty"}, Open: openFolder},
		{Format: tar.Format()},
		{Format: tfrecord.Format()},
		{Format: npy.Format(), Keys: []string{"columns", "unpacked"}, Open: openNPY},
		{Format: npy.NPZ(), Keys: []string{"columns", "unpacked"}, Open: openNPY},
		{Format: mds.Format(), Keys: []string{"unpacked"}, Open: openMDS},
		{Format: parquet.Format(), Keys: []string{"label", "unpacked"}, Open: openParquet},
		{Format: hdf5.Format(), Keys: []string{"columns", "group", "unpacked"}, Open: openHDF5},
		{Format: beton.Format(), Keys: []string{"pictures"}, Open: openBeton},
		{Format: lmdb.Format(), Keys: []string{"database", "values"}, Open: openLMDB},
		{Format: files.Format(), Keys: []string{"manifest", "path_column", "root", "label"}, Open: openFiles},
		{Format: files.TableFormat(), Keys: []string{"label"}, Open: openTable},
		{Format: lines.Format()},
		{Format: tokens.Format(), Keys: []string{"window", "dtype"}, Open: openTokens}, // the last to be asked: any .bin may be one of tokens
		{Format: synthetic.Format(), Keys: []string{"samples", "shape"}, Open: openSynthetic},
	}
}

// names are what dataset.format can be.
func names(all []Format) []string {
	out := []string{"", "auto"}
	for _, f := range all {
		out = append(out, f.Name)
	}
	return out
}

// keys are the keys of a dataset that only some formats have use for, and whether one
// is set.
func keys(d spec.Dataset) []key {
	return []key{
		{"extensions", d.Extensions != nil},
		{"allow_empty", d.AllowEmpty},
		{"samples", d.Samples != 0},
		{"shape", d.Shape != nil},
		{"columns", d.Columns != nil},
		{"group", d.Group != ""},
		{"pictures", d.Pictures},
		{"manifest", d.Manifest != ""},
		{"path_column", d.PathColumn != ""},
		{"root", d.Root != ""},
		{"unpacked", d.Unpacked != 0},
		{"window", d.Window != spec.Window{}},
		{"dtype", d.DType != ""},
		{"label", d.Label != ""},
		{"database", d.Database != ""},
		{"values", d.Values != ""},
	}
}

type key struct {
	name string
	set  bool
}

// meaningless names keys of a dataset that its format has no use for.
func meaningless(all []Format, d spec.Dataset, kind *Format) error {
	var p spec.Problems
	for _, k := range keys(d) {
		if !k.set || slices.Contains(kind.Keys, k.name) {
			continue
		}
		var of []string
		for _, f := range all {
			if slices.Contains(f.Keys, k.name) {
				of = append(of, f.Name)
			}
		}
		p.Addf("dataset.%s is of %s datasets, and this is %s", k.name, strings.Join(of, ", "), kind.Name)
	}
	return p.Err()
}

func openFolder(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	return folder.Open(ctx, o.Source, o.Paths[0], folder.Options{Extensions: d.Extensions, AllowEmpty: d.AllowEmpty, Progress: o.Progress})
}

func openMDS(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	return mds.Open(ctx, o.Source, o.Paths[0], mds.Options{Memory: int64(d.Unpacked), Progress: o.Progress})
}

func openParquet(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	return parquet.Open(ctx, o.Source, o.Paths, parquet.Options{Label: d.Label, Cache: int64(d.Unpacked), Progress: o.Progress})
}

func openHDF5(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	opt := hdf5.Options{Group: d.Group, Cache: int64(d.Unpacked), Progress: o.Progress}
	for _, c := range d.Columns {
		opt.Columns = append(opt.Columns, cmp.Or(c.From, c.Name))
	}
	return hdf5.Open(ctx, o.Source, o.Paths, opt)
}

func openBeton(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	return beton.Open(ctx, o.Source, o.Paths[0], beton.Options{Pictures: d.Pictures, Progress: o.Progress})
}

func openLMDB(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	return lmdb.Open(ctx, o.Source, o.Paths, lmdb.Options{Database: d.Database, Values: lmdb.Values(d.Values), Progress: o.Progress})
}

func openSynthetic(_ context.Context, d spec.Dataset, _ format.Opening) (format.Dataset, error) {
	return synthetic.New(d.Samples, d.Shape)
}

func openTable(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	return files.OpenTable(ctx, o.Source, o.Paths, files.Options{Label: d.Label, Progress: o.Progress})
}

// openFiles opens files that are a sample each: those of a list, or those that a
// manifest names.
func openFiles(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	opt := files.Options{Path: d.PathColumn, Label: d.Label, Root: d.Root, Progress: o.Progress}
	if d.Manifest != "" {
		return files.OpenManifest(ctx, o.Source, d.Manifest, opt)
	}
	return files.Open(ctx, o.Source, o.Paths, opt)
}

// openNPY opens arrays, whose names are those of their files unless columns gives
// others.
func openNPY(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	opt := npy.Options{UnpackedBytes: int64(d.Unpacked), Progress: o.Progress}
	for _, c := range d.Columns {
		paths := o.Paths
		if c.Path != nil {
			var err error
			if paths, err = source.Expand(ctx, o.Source, c.Path); err != nil {
				return nil, err
			}
		}
		opt.Fields = append(opt.Fields, npy.Field{Name: c.Name, Paths: paths, Array: c.From})
	}
	if opt.Fields != nil {
		return npy.Open(ctx, o.Source, nil, opt)
	}
	opt.Sharded = finder{ctx: ctx, src: o.Source}.packedArrays(o.Paths)
	return npy.Open(ctx, o.Source, o.Paths, opt)
}

// openTokens opens files of tokens.
func openTokens(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	opt := tokens.Options{Progress: o.Progress}
	if d.DType != "" {
		var err error
		if opt.DType, err = transform.DTypeOf(d.DType); err != nil {
			return nil, err
		}
	}
	w := d.Window
	opt.Window, opt.Stride, opt.Next = w.Length, w.Stride, w.Next
	opt.Random, opt.Seed = w.Random, w.Seed
	opt.Documents, opt.EOS, opt.BOS = w.Documents, w.EOS, w.BOS
	return tokens.Open(ctx, o.Source, o.Paths, opt)
}
