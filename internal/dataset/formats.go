package dataset

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/dataset/script"
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
	"github.com/stoker-data/stoker/internal/stage/format/python"
	"github.com/stoker-data/stoker/internal/stage/format/synthetic"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/format/tfrecord"
	"github.com/stoker-data/stoker/internal/stage/format/tokens"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Format is a format and the keys of a Spec's dataset that it uses.
type Format struct {
	format.Format
	Keys []string
	// Open opens a dataset with those keys; nil: Format.Open does, without keys.
	Open func(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error)
	// Script writes the lines of Python that load a dataset with those keys; nil:
	// script.Any does.
	Script script.Func
}

// Lines are the lines of Python that load a dataset of the format.
func (f Format) Lines(d spec.Dataset, c script.Contents) script.Lines {
	if c.Class = f.Python; c.Class == "" {
		return script.Lines{Made: "train = ...  # the Python package has no class for the format " + f.Name + "\n", Loop: "batch"}
	}
	if f.Script == nil {
		return script.Any(d, c)
	}
	return f.Script(d, c)
}

func (f *Format) open(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	if f.Open == nil {
		return f.Format.Open(ctx, o)
	}
	return f.Open(ctx, d, o)
}

// Formats are all formats, in the order in which a file is matched against them; a
// folder that matches none is opened as the first.
func Formats() []Format {
	return []Format{
		{Format: folder.Format(), Keys: []string{"extensions", "allow_empty"}, Open: openFolder, Script: script.Classes},
		{Format: tar.Format(), Script: script.Members},
		{Format: tfrecord.Format()},
		{Format: npy.Format(), Keys: []string{"columns", "unpacked"}, Open: openNPY, Script: script.Arrays},
		{Format: npy.NPZ(), Keys: []string{"columns", "unpacked"}, Open: openNPY, Script: script.Arrays},
		{Format: mds.Format(), Keys: []string{"unpacked"}, Open: openMDS},
		{Format: parquet.Format(), Keys: []string{"label", "unpacked"}, Open: openParquet},
		{Format: hdf5.Format(), Keys: []string{"columns", "group", "unpacked"}, Open: openHDF5},
		{Format: beton.Format(), Keys: []string{"pictures"}, Open: openBeton},
		{Format: lmdb.Format(), Keys: []string{"database", "values"}, Open: openLMDB},
		{Format: files.Format(), Keys: []string{"manifest", "path_column", "root", "label"}, Open: openFiles, Script: script.Files},
		{Format: files.TableFormat(), Keys: []string{"label"}, Open: openTable, Script: script.Rows},
		{Format: lines.Format()},
		{Format: tokens.Format(), Keys: []string{"window", "dtype"}, Open: openTokens, Script: script.Windows}, // the last one: any .bin may hold tokens
		{Format: synthetic.Format(), Keys: []string{"samples", "shape"}, Open: openSynthetic},
		{Format: python.Format(), Keys: []string{"samples", "digest", "code"}, Open: openPython},
	}
}

// Made reports whether datasets of that format are made, not stored, and need no path.
func Made(name string) bool { return slices.Contains(known(Formats()).Made, name) }

// Synthetic is a dataset of this many samples of one shape, which cost nothing to make.
func Synthetic(samples int64, shape ...int) spec.Dataset {
	return spec.Dataset{Format: synthetic.Format().Name, Samples: samples, Shape: shape}
}

// known is what a Spec is checked against.
func known(all []Format) spec.Formats {
	k := spec.Formats{Names: names(all)}
	for _, f := range all {
		if f.Made {
			k.Made = append(k.Made, f.Name)
			if slices.Contains(f.Keys, "shape") {
				k.Shaped = append(k.Shaped, f.Name)
			}
		}
	}
	return k
}

// names are the values of dataset.format.
func names(all []Format) []string {
	out := []string{"", "auto"}
	for _, f := range all {
		out = append(out, f.Name)
	}
	return out
}

// keys are the keys of a dataset that only some formats use, and whether each is set.
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
		{"digest", d.Digest != ""},
		{"code", d.Code != ""},
	}
}

type key struct {
	name string
	set  bool
}

// meaningless reports keys of a dataset that its format does not use.
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

func openPython(_ context.Context, d spec.Dataset, _ format.Opening) (format.Dataset, error) {
	return python.New(d.Samples, d.Digest)
}

func openTable(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	return files.OpenTable(ctx, o.Source, o.Paths, files.Options{Label: d.Label, Progress: o.Progress})
}

// openFiles opens a dataset in which each file is a sample: a list, or the files that a
// manifest names.
func openFiles(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	opt := files.Options{Path: d.PathColumn, Label: d.Label, Root: d.Root, Origins: d.Origins, Progress: o.Progress}
	if d.Manifest != "" {
		return files.OpenManifest(ctx, o.Source, d.Manifest, opt)
	}
	return files.Open(ctx, o.Source, o.Paths, opt)
}

// openNPY opens arrays, named after their files unless columns gives other names.
func openNPY(ctx context.Context, d spec.Dataset, o format.Opening) (format.Dataset, error) {
	opt := npy.Options{UnpackedBytes: int64(d.Unpacked), Progress: o.Progress}
	for _, c := range d.Columns {
		paths := o.Paths
		if c.Path != nil {
			var err error
			if paths, err = pattern.ExpandFrom(ctx, o.Source, c.Path, d.Elsewhere); err != nil {
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
