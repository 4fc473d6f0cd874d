package main

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
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

	EndpointURL   string   `name:"endpoint-url" help:"Address of the store, if not the vendor's own, such as http://HOST:9000." placeholder:"URL"`
	Region        string   `help:"Region of the bucket (default: from the environment)." placeholder:"NAME"`
	Profile       string   `help:"Profile of the shared AWS configuration." placeholder:"NAME"`
	Anonymous     bool     `help:"Send no credentials to the store."`
	RequesterPays bool     `help:"Pay for requests to somebody else's bucket."`
	TokenEnv      string   `help:"Name of the environment variable that holds a bearer token: the name, not the token." placeholder:"VARIABLE"`
	Fresh         string   `help:"Compare the index with a listing at every opening (always), or trust it (never)." placeholder:"WHEN" choices:"always,never"`
	Origins       []string `help:"Prefixes of what a manifest or list may name elsewhere." placeholder:"PREFIX"`
}

// fetchFlags say how much is requested from a store at once: the keys of a Spec's fetch.
type fetchFlags struct {
	FetchAhead  string `help:"Most bytes requested for batches that have not begun, such as 1GiB (default auto)." placeholder:"SIZE"`
	Connections string `help:"Most concurrent requests to a host (default auto)." placeholder:"N"`
	Bandwidth   string `help:"Most bytes per second from a host, such as 100MB (default none)." placeholder:"RATE"`
	Hedge       bool   `help:"Send a slow request a second time (default)."`
	NoHedge     bool   `help:"Do not send slow requests a second time."`
	Deadline    string `help:"How long one read is retried, such as 90s, at most 24h (default 10m)." placeholder:"TIME"`
}

// set overrides a Spec with the flags.
func (f fetchFlags) set(to *spec.Fetch) error {
	if f.Hedge && f.NoHedge {
		return errs.New(errs.Config, "--hedge and --no-hedge exclude each other").Try("keep one")
	}
	if f.Hedge || f.NoHedge {
		to.Hedge = &f.Hedge
	}
	for _, flag := range []struct {
		name, given string
		read        func([]byte) error
	}{
		{"--fetch-ahead", f.FetchAhead, to.Ahead.UnmarshalJSON},
		{"--connections", f.Connections, to.Connections.UnmarshalJSON},
		{"--bandwidth", f.Bandwidth, to.Bandwidth.UnmarshalJSON},
		{"--deadline", f.Deadline, to.Deadline.UnmarshalJSON},
	} {
		if flag.given == "" {
			continue
		}
		if err := flag.read([]byte(flag.given)); err != nil {
			return errs.New(errs.Config, "%s: %s", flag.name, err)
		}
	}
	return nil
}

// datasetOf is a dataset in the form of a Spec, as JSON; "-" reads it from standard input,
// where a client puts it, because everybody on a machine sees command lines.
func datasetOf(text string) (d spec.Dataset, err error) {
	raw := []byte(text)
	if text == "-" {
		if raw, err = io.ReadAll(os.Stdin); err != nil {
			return d, errs.New(errs.Unreadable, "cannot read the dataset from standard input").Because(err)
		}
	}
	if err := jsontext.UnmarshalNames(raw, &d); err != nil {
		if e := (*errs.Error)(nil); errors.As(err, &e) {
			return d, e
		}
		return d, errs.New(errs.Config, "--dataset is not a dataset of a Spec").Because(err)
	}
	return d.Hidden(), nil
}

// dataset returns the flags and the paths of a command line in the form of a Spec.
func (f dataFlags) dataset(paths ...string) (d spec.Dataset, err error) {
	d.Path = paths
	return d, f.set(&d)
}

// set overrides a dataset with the flags.
func (f dataFlags) set(d *spec.Dataset) error {
	if err := f.override(d); err != nil {
		return err
	}
	*d = d.Hidden()
	return nil
}

func (f dataFlags) override(d *spec.Dataset) error {
	over(&d.Storage.EndpointURL, f.EndpointURL)
	over(&d.Storage.Region, f.Region)
	over(&d.Storage.Profile, f.Profile)
	over(&d.Storage.Anonymous, f.Anonymous)
	over(&d.Storage.RequesterPays, f.RequesterPays)
	over(&d.Storage.TokenEnv, f.TokenEnv)
	over(&d.Storage.Fresh, f.Fresh)
	if f.Origins != nil {
		d.Origins = f.Origins
	}
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
