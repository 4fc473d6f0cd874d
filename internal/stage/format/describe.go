package format

import (
	"context"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Format describes a format: how its files are recognized, how a dataset of them is
// opened, and what is true of all its datasets. Code that opens datasets has a list of
// these, and knows about formats only through it.
type Format struct {
	Name string // in dataset.format of a Spec
	// Sniff reports whether a file is of the format, by its name and its first bytes
	// (empty if they cannot be read). nil: only dataset.format chooses the format.
	Sniff func(name string, head []byte) bool
	// Endings are the extensions of the format's files, if Sniff needs their bytes: a
	// damaged file is recognized by them.
	Endings []string
	// Named means that only dataset.format chooses the format, because the contents of
	// its files can be meant in several ways. Sniff then only finds the files in a folder.
	Named bool
	// Root means that the dataset is one folder or file, whose path Open gets unchanged.
	// Otherwise Open gets the files in a folder.
	Root bool
	// Single means that a folder is never recognized as this format by its contents.
	Single bool
	// Made means that the samples are made, not stored: there is no path.
	Made bool
	// Files means that each sample is read from a file of its own.
	Files bool
	// Beside are names of files in a folder that are beside its data and have no samples,
	// such as a lock.
	Beside []string
	// List lists the files of a folder if dataset.format chose the format; nil: those
	// that Sniff finds in the folder itself.
	List func(ctx context.Context, src source.Source, dir string) ([]string, error)
	// Open opens a dataset of such files; nil if that needs keys of the Spec: then
	// dataset.Format has another Open.
	Open func(ctx context.Context, o Opening) (Dataset, error)

	// Values is how a field is decoded if its name does not say; "": its first sample
	// decides.
	Values string
	// Arrays means that a value which begins like a .npy file is an array.
	Arrays bool
	// ByName means that tools that check samples take the kind of a field from its name
	// (jpg, cls, txt); otherwise they take it from what a loader decodes the field as.
	ByName bool
	// Python is the class of the Python package that opens a path; "": there is none.
	Python string
	// Arguments are what that class needs after the path, as Python writes them.
	Arguments string
	// Words are what to call a dataset of the format in a sentence ("tar shards"); "":
	// the format's name is used.
	Words string
	// Loose means that the format's files in a folder can be loaded as the list FOLDER/*.
	Loose bool
	// Names tells tools that write samples elsewhere what the names in them mean.
	Names Names
	// Rows says what a column "path" of its rows is.
	Rows Rows
	// Damage checks each shard below a root on its own. It returns the damage, one error
	// per damaged shard, and the number of all shards; err is a failure that concerns no
	// single shard. nil: each shard can be opened as a dataset, which checks it.
	Damage func(ctx context.Context, src source.Source, root string) (wrong []*errs.Error, shards int, err error)
}

// Is completes the sentence "it is ..." about a dataset of the format.
func (f Format) Is() string {
	if f.Words != "" {
		return f.Words
	}
	return "of the format " + f.Name
}

// Key is the field with the name of a sample, in formats that add such a field.
const Key = "__key__"

// Names says what the names in a format's samples mean. The zero value is for a format
// whose samples have no names, and whose data name the fields.
type Names struct {
	// Key is the field with the name of a sample: the constant Key, or a stored field in
	// which writers of such files keep the name. It is not one of the sample's contents.
	Key string
	// Members means that keys and fields are parts of the names of files, as in a tar
	// shard: fields are extensions, and both can be used unchanged in other shards.
	Members bool
	// Record is the field with the whole record of which other fields are parts.
	Record string
	// Nameless is the field whose name the format made up, because its data have none.
	Nameless string
	// Text is the field with the text of a sample, in a format of text. Its files are
	// text even if they may be opened as another format.
	Text string
}

// Rows says what a column "path" of rows is.
type Rows int

const (
	// RowsHold: a column like others.
	RowsHold Rows = iota
	// RowsMayName: the path of a sample's file, if all those files exist.
	RowsMayName
	// RowsName: the path of a sample's file.
	RowsName
)

// Opening is what a format needs to open a dataset.
type Opening struct {
	Source   source.Source
	Paths    []string // expanded; at least one, and exactly one if Format.Root
	Progress index.Progress
}
