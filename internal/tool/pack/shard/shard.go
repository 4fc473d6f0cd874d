// Package shard is what the files of a packed shard hold: tar members, framed
// TFRecords, arrays, tokens. An Output says how a sample becomes bytes; a Writer
// puts the bytes of samples behind each other into files that are there whole or
// not at all.
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
	// Data is the encoded bytes where DType is Object (Ext says of what), else
	// the elements, little-endian, in C order.
	Data  []byte
	DType mem.DType
	Shape mem.Shape // of this sample; {}: a scalar
	Ext   string    // of encoded bytes, without a dot: "jpg", "txt", "bin"
	// Unnamed says that Name is only what stoker calls it, as the value of a key.
	Unnamed bool
}

// Int is the value of a scalar of an integer type; false where it is none, or
// more than an int64 holds.
func (f *Field) Int() (int64, bool) {
	if len(f.Shape) != 0 || f.DType == mem.Object || len(f.Data) != f.DType.Size() {
		return 0, false
	}
	return element(f.DType, f.Data)
}

// Sample is what an Output takes in. Key names it: no zero byte, no dot in its
// last part, and different from all others of its shard.
type Sample struct {
	Key    []byte
	Fields []Field
}

// Output is one kind of shard. Safe for concurrent use.
type Output interface {
	// Files are those of every shard, in order.
	Files() []File
	// Encode appends what stands of s in file i to parts[i], for every file.
	Encode(s *Sample, parts [][]byte) error
}

// File is one file of every shard of an Output.
type File struct {
	End string // of its name: ".tar"
	// Field stands in its name instead of the usual name of shards; "": none does.
	Field string
	// Plain says that it is never compressed.
	Plain bool
	// Head is what stands before the first sample; nil: nothing.
	Head func(samples int64) []byte
	// Tail writes what stands behind the last. body is what stands before that,
	// of so many bytes, where Plain is set. nil: nothing.
	Tail func(w io.Writer, body io.ReaderAt, size, samples int64) error
}

// misfit is the error of a sample that an output can not hold. It outlives the
// sample, whose names are views.
func misfit(field, format string, a ...any) *errs.Error {
	return errs.New(errs.Config, format, a...).At(errs.Where{Field: strings.Clone(field)})
}
