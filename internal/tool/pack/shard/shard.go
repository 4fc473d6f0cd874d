// Package shard writes the files of a packed shard: tar members, framed TFRecords,
// arrays, tokens. An Output turns a sample into bytes; a Writer writes the bytes of
// samples one after the other into files that appear complete or not at all.
//
// Nothing here depends on the time, the machine or the number of workers: equal
// samples in equal order give equal files.
package shard

import (
	"io"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Field is one named value of a sample.
type Field struct {
	Name string
	// Data is the encoded bytes if DType is Object (Ext says of what), otherwise
	// the elements, little-endian, in C order.
	Data  []byte
	DType mem.DType
	Shape mem.Shape // of this sample; {}: a scalar
	Ext   string    // extension of encoded bytes, without a dot: "jpg", "txt", "bin"
	// Unnamed says that Name is stoker's own name for it, such as the value of a
	// key.
	Unnamed bool
}

// Int is the value of a scalar of an integer type; false if it is not one, or does
// not fit into an int64.
func (f *Field) Int() (int64, bool) {
	if len(f.Shape) != 0 || f.DType == mem.Object || len(f.Data) != f.DType.Size() {
		return 0, false
	}
	return element(f.DType, f.Data)
}

// Sample is the input of an Output. Key is its name: no zero byte, no dot in its
// last part, and different from all others of its shard.
type Sample struct {
	Key    []byte
	Fields []Field
}

// Output is one kind of shard. Safe for concurrent use.
type Output interface {
	// Files are the files of every shard, in order.
	Files() []File
	// Encode appends the part of s in file i to parts[i], for every file.
	Encode(s *Sample, parts [][]byte) error
}

// File is one file of every shard of an Output.
type File struct {
	End string // extension: ".tar"
	// Field is in its name instead of the usual name of shards; "" for none.
	Field string
	// Plain says that it is never compressed.
	Plain bool
	// Head is the bytes before the first sample; nil for none.
	Head func(samples int64) []byte
	// Tail writes the bytes after the last sample. body is what was written before,
	// size bytes, if Plain is set. nil for none.
	Tail func(w io.Writer, body io.ReaderAt, size, samples int64) error
}

// misfit is the error of a sample that an output cannot store. It outlives the
// sample, whose names are views.
func misfit(field, format string, a ...any) *errs.Error {
	return errs.New(errs.Config, format, a...).At(errs.Where{Field: strings.Clone(field)})
}
