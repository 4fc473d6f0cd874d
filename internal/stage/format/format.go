// Package format is what bytes mean: how a dataset is found, indexed, judged
// stale, and how the bytes of one sample become its encoded fields. Each format
// is a package below this one; none decodes pixels.
package format

import (
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/index"
)

// Extent is a run of bytes of one stored file.
type Extent struct {
	File int   // number of the stored file in the index
	Off  int64 // bytes
	Len  int64 // bytes
	// Whole says that the extent is its file from end to end.
	Whole bool
}

// Field is one encoded field of a sample: a view into what was fetched or into
// the index, valid until the sample's buffers are released.
type Field struct {
	Name   string // "image", "label", "jpg", "__key__", ...
	Data   []byte // the encoded bytes, where IsInt is not set
	Int    int64  // the value itself, where the index holds it (a folder's label)
	IsInt  bool
	File   int    // stored file that Data came from; -1: the index
	Member []byte // name of the member within its shard; nil where a file is one sample
	Off    int64  // of Data in File, bytes
	// Unpacked says that Data is not part of File: it came out of packed
	// bytes, which begin at Off, or was made of what is there.
	Unpacked bool
	// JSON says that Data is a JSON value that is not a string, where the format holds
	// strings as their text: a number, a list, an object, true, false or null.
	JSON bool
}

// Left is something stored that is not a field of the samples, or not of all of them,
// and why.
type Left struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Sample is the encoded fields of one sample; its memory is reused.
type Sample struct {
	ID     int64
	Fields []Field

	room []byte // what Room gives out: len of it is taken
}

// Begin empties s for the sample of that id.
func (s *Sample) Begin(id int64) { s.ID, s.Fields, s.room = id, s.Fields[:0], s.room[:0] }

// Room is n bytes for a field that is not a view of what was read; valid until the
// next Begin. What is in them is not cleared.
func (s *Sample) Room(n int) []byte {
	at := len(s.room)
	if n > cap(s.room)-at { // what was given out before stays where it is
		s.room, at = make([]byte, 0, max(2*cap(s.room), n, 256)), 0
	}
	s.room = s.room[:at+n]
	return s.room[at : at+n : at+n]
}

// Dataset is an immutable collection of samples with random access; it is safe for
// concurrent use. It is what all datasets have in common, regardless of where their
// samples come from; see also Typed.
type Dataset interface {
	// Len is the number of samples, which are called 0 to Len-1.
	Len() int64
	// Digest names the contents: states of a dataset go on with one of the same digest.
	Digest() string
	// Classes returns the names of the classes in the order of their numbers, or nil if
	// the dataset has none.
	Classes() []string
}

// Samples is a Dataset whose samples this process makes: lanes fill rows with them. One
// that is not stored makes them of nothing but their numbers; raw is empty then.
type Samples interface {
	Dataset
	// Parse turns the bytes of the extents of a sample into the wanted fields, in the
	// order of fields, as views. A field that is not there is an *errs.Error with code
	// missing_field that names the fields there are.
	Parse(id int64, fields []string, raw [][]byte, s *Sample) error
}

// Stored is a Dataset whose samples are parts of stored files, of which there is an
// index.
type Stored interface {
	Samples
	Index() *index.Index
	// Extents appends where the bytes of sample id are: from the index alone, no I/O.
	// fields names what is wanted ("jpg;png" takes the first there is); nil wants
	// everything.
	Extents(id int64, fields []string, dst []Extent) []Extent
}

// Placed is a Stored whose extents are not just its fields.
type Placed interface {
	// Places appends where the wanted fields of sample id are stored: from the index alone, no
	// I/O. Those that are not stored as they are have none.
	Places(id int64, fields []string, dst []Extent) []Extent
}

// Ready is a Dataset whose samples are rows of a batch as they are: nothing is decoded,
// and fields of a Spec have no say. Its fields are pictures, HWC.
type Ready interface {
	Samples
	Ready() []ReadyField
}

// ReadyField is one field of a Ready dataset, of which every sample has Shape.
type ReadyField struct {
	Name  string
	DType mem.DType
	Shape mem.Shape
}

// Type says what a field holds, where the index of its format knows.
type Type struct {
	// DType is that of an array, whose Data are its elements, little-endian, in C
	// order; Object: encoded bytes, as a file holds them.
	DType mem.DType
	// Shape is that of one sample's array. Where Ragged is set it lacks the first
	// axis, whose length differs from sample to sample.
	Shape  mem.Shape
	Ragged bool
}

// Typed is a Dataset that knows what its fields hold before any sample is there.
type Typed interface {
	// Type is that of a field; false: there is no such field.
	Type(field string) (Type, bool)
}
