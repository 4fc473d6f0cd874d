package main

import (
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
)

// dataFlags describe a dataset in addition to its paths: the flags that all verbs which
// open one have in common, each a key of a Spec's dataset.
type dataFlags struct {
	Format     string   `help:"Format of the dataset; detected by default." placeholder:"NAME" choices:"*formats"`
	AllowEmpty bool     `help:"Accept classes without a sample."`
	Columns    []string `help:"Only these arrays or columns (NumPy, HDF5); NEW=STORED renames one." placeholder:"NAME"`
	Group      string   `help:"The group that contains the arrays (HDF5)." placeholder:"PATH"`
	Database   string   `help:"The database of an environment (LMDB)." placeholder:"NAME"`
	Values     string   `help:"What values are: bytes or datum (LMDB)." placeholder:"KIND" choices:"bytes,datum"`
	Label      string   `help:"The column of labels; for files: folder or none." placeholder:"NAME"`
	Manifest   bool     `help:"PATH is a table that names files, one per row."`
	PathColumn string   `help:"The column of a manifest that contains the paths." placeholder:"NAME"`
	Root       string   `help:"The folder that a manifest's paths are relative to." placeholder:"DIR"`
	Pictures   bool     `help:"Treat raw pictures as pictures, not arrays (FFCV)."`
	DType      string   `name:"dtype" help:"Type of the stored numbers (tokens)." placeholder:"NAME"`
	Window     int64    `help:"A sample is a window of N tokens." placeholder:"N"`
	Stride     int64    `help:"Tokens from one window to the next (default N)." placeholder:"M"`
	Documents  bool     `help:"A sample is a document (tokens)."`
	EOS        *int64   `name:"eos" help:"The token that ends a document." placeholder:"TOKEN"`
	BOS        *int64   `name:"bos" help:"The token that begins a document." placeholder:"TOKEN"`
	MaxPixels  int64    `help:"Refuse to decode pictures of more than N pixels (default 178956970)." placeholder:"N"`
	Unpacked   string   `help:"Memory for decompressed data, such as 1GiB." placeholder:"SIZE"`
}

// dataset returns the flags and the paths of a command line in the form of a Spec.
func (f dataFlags) dataset(paths ...string) (d spec.Dataset, err error) {
	d.Path = paths
	return d, f.set(&d)
}

// set overrides a dataset with the flags.
func (f dataFlags) set(d *spec.Dataset) error {
	over(&d.Format, f.Format)
	over(&d.AllowEmpty, f.AllowEmpty)
	over(&d.Group, f.Group)
	over(&d.Database, f.Database)
	over(&d.Values, f.Values)
	over(&d.Label, f.Label)
	over(&d.PathColumn, f.PathColumn)
	over(&d.Root, f.Root)
	over(&d.Pictures, f.Pictures)
	over(&d.DType, f.DType)
	over(&d.MaxPixels, f.MaxPixels)
	over(&d.Window.Length, f.Window)
	over(&d.Window.Stride, f.Stride)
	over(&d.Window.Documents, f.Documents)
	over(&d.Window.EOS, f.EOS)
	over(&d.Window.BOS, f.BOS)
	if f.Columns != nil {
		d.Columns = nil
		for _, c := range f.Columns {
			name, from, _ := strings.Cut(c, "=")
			d.Columns = append(d.Columns, spec.Column{Name: name, From: from})
		}
	}
	if f.Manifest || f.PathColumn != "" || f.Root != "" {
		if len(d.Path) != 1 {
			return errs.New(errs.Config, "a manifest is one table, but %d paths were given", len(d.Path)).Try("stoker inspect train.csv --manifest")
		}
		d.Manifest, d.Path = d.Path[0], nil
	}
	if f.Unpacked != "" {
		if err := d.Unpacked.UnmarshalJSON([]byte(f.Unpacked)); err != nil {
			return errs.New(errs.Config, "--unpacked: %s", err)
		}
	}
	return nil
}

// over sets the value of a flag; the zero value means not given.
func over[T comparable](to *T, given T) {
	var none T
	if given != none {
		*to = given
	}
}
