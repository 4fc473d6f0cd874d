package format

import (
	"context"

	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Format describes a format: how its files are told from others, how a dataset of them
// is opened, and what is true of all its datasets. Code that opens datasets has a list
// of these, and knows about formats only through it.
type Format struct {
	Name string // in dataset.format of a Spec
	// Sniff says whether a file, by its name and its first bytes (none where they
	// cannot be read), is of the format; nil: only dataset.format chooses it.
	Sniff func(name string, head []byte) bool
	// Endings are those of the format's files, where Sniff goes by the bytes: they tell
	// what a damaged file is.
	Endings []string
	// Named says that only dataset.format chooses it, and Sniff only its files in a
	// folder: what they hold may be meant in several ways.
	Named bool
	// Root says that the dataset is one folder or file, which is handed on as it is; else
	// a folder means the files in it.
	Root bool
	// Single says that a folder is never recognized as this format by its contents.
	Single bool
	// Made says that its samples are made and not stored: there is no path.
	Made bool
	// Files says that each sample is read from a file of its own.
	Files bool
	// Beside are names of files in a folder that belong to others and hold no samples.
	Beside []string
	// List is the files of a folder that was named with dataset.format; nil: those that
	// Sniff finds in the folder itself.
	List func(ctx context.Context, src source.Source, dir string) ([]string, error)
	// Open opens a dataset of such files; nil where that takes keys of a Spec, see
	// dataset.Format.
	Open func(ctx context.Context, o Opening) (Dataset, error)

	// Values says how a field is decoded whose name does not tell; "": by what its first
	// sample holds.
	Values string
	// Arrays says that a value which begins as a .npy file is an array.
	Arrays bool
	// ByName says that the name of a field tells what it holds (jpg, cls, txt), as a
	// check of samples sees it; otherwise what they are decoded as does.
	ByName bool
	// Python is the class of the Python package that opens it with a path; "" means
	// that there is no such class, or that it takes arguments of its own.
	Python string
}

// Opening is what a format needs to open a dataset.
type Opening struct {
	Source   source.Source
	Paths    []string // expanded; one at least, of a Root exactly one
	Progress index.Progress
}
