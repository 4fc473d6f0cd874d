// Package lmdb reads LMDB environments (data.mdb) in place: every key of one
// database is a sample, in the order of the keys.
//
// key_order: bytes compared as unsigned numbers, a shorter key before those that
// it begins; "10" comes before "9". A database made with MDB_INTEGERKEY is in the
// order of its numbers, one made with MDB_REVERSEKEY in that of its keys read
// backwards. It is the order in which a cursor of LMDB yields them.
//
// The pages are read by our own code through a source: LMDB itself maps the file and
// trusts it, so that a damaged one ends the process, and an object store cannot be
// mapped. The index holds where each value is stored; a value is stored in one piece,
// so that a sample is one read, by any number of readers, without a lock file and
// without a reader's slot. The file must not be written to meanwhile; a read that
// finds it changed says so.
//
// Keys that begin and end with two underscores (__len__, __keys__) are notes about
// the data, by convention of those who write such files, and not samples.
package lmdb

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The fields of a sample.
const (
	Key   = format.Key // the key; one that is an integer, as decimal digits
	Value = "value"    // the value as it is stored, if it is not a Datum
	Image = "image"    // of a Datum: an encoded file, or an array C, H, W
	Label = "label"    // of a Datum: a number
)

// Values says what values are taken for.
type Values string

const (
	Auto  Values = ""      // Datums where the first, the middle and the last one are
	Raw   Values = "bytes" // bytes, whatever they look like
	Datum Values = "datum" // Caffe's Datum
)

// Options of an environment; the zero value reads what is unmistakable.
type Options struct {
	// Database is the name of the database within the environment; "": the unnamed
	// one, or the only named one where the unnamed one holds nothing else.
	Database string
	Values   Values

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

func (o Options) text() string {
	b, _ := json.Marshal(map[string]any{"database": jsontext.Name(o.Database), "values": o.Values})
	return string(b)
}

// Dataset is an open list of environments; safe for concurrent use.
type Dataset struct {
	x    *index.Index
	off  []int64 // of the value
	size []int64
	file []int32
	page []int64 // length of a page, of each file
	// keyLen is the length of integer keys, of each file; 0: keys are bytes.
	keyLen []int64
	kind   valueKind
	shape  mem.Shape
	keys   index.Strings
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// Sniff says whether a file or folder of this name, with a file that begins with
// head, looks like an environment. 32 bytes are enough.
func Sniff(name string, head []byte) bool {
	if len(head) >= 20 {
		return binary.LittleEndian.Uint32(head[16:]) == magic
	}
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".mdb") || strings.HasSuffix(name, ".lmdb")
}

// Open opens environments, one after the other: each path is a folder with data.mdb
// in it, or a file. Errors: not_found, config (a database that does not exist, or one
// has to be chosen), unreadable, damaged, unsupported (dupsort, encrypted, of another
// machine), empty, changed (it is being written to).
func Open(ctx context.Context, src source.Source, paths []string, opt Options) (*Dataset, error) {
	if len(paths) == 0 {
		return nil, errs.New(errs.Config, "the list of paths is empty").Try("give the folder that holds data.mdb, or the file")
	}
	switch opt.Values {
	case Auto, Raw, Datum:
	default:
		return nil, errs.New(errs.Config, "values are not %q", opt.Values).Try("write %q or %q, or leave it out", Raw, Datum)
	}
	paths, err := format.Absolute(paths)
	if err != nil {
		return nil, err
	}
	for i, p := range paths {
		if st, err := src.Stat(ctx, p); err == nil && st.Dir {
			paths[i] = strings.TrimRight(p, "/") + "/data.mdb"
		}
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "lmdb", Options: opt.text(), Paths: paths,
		Store: opt.Store, Progress: opt.Progress,
		Valid: valid,
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, paths, opt, b)
		},
	})
	if err != nil {
		return nil, err
	}
	return open(x), nil
}

func open(x *index.Index) *Dataset {
	d := &Dataset{
		x:      x,
		off:    x.Int64s(sampleOff),
		size:   x.Int64s(sampleSize),
		file:   x.Int32s(sampleFile),
		page:   x.Int64s(filePage),
		keyLen: x.Int64s(fileKey),
		keys:   x.Strings(sampleKey),
	}
	if v := x.Int64s(valueType); len(v) == 4 {
		d.kind, d.shape = valueKind(v[0]), mem.Shape{int(v[1]), int(v[2]), int(v[3])}
	}
	return d
}

// Plain says that Parse does no more than point into what was read: values are not
// lists of floats, which are copied.
func (d *Dataset) Plain() bool { return d.kind != datumFloats }

// Index is format.Stored's.
func (d *Dataset) Index() *index.Index { return d.x }

// Len is format.Dataset's.
func (d *Dataset) Len() int64 { return d.x.Len() }

// Digest is format.Dataset's.
func (d *Dataset) Digest() string { return d.x.Digest() }

// Classes is format.Dataset's.
func (d *Dataset) Classes() []string { return d.x.Classes() }

// Close closes the index; no sample may be in use.
func (d *Dataset) Close() error { return d.x.Close() }

// Type is format.Typed's.
func (d *Dataset) Type(field string) (format.Type, bool) {
	switch d.resolve(field) {
	case Key, Value:
		return format.Type{DType: mem.Object}, true
	case Label:
		return format.Type{DType: mem.Int64, Shape: mem.Shape{}}, true
	case Image:
		switch d.kind {
		case datumBytes:
			return format.Type{DType: mem.Uint8, Shape: d.shape}, true
		case datumFloats:
			return format.Type{DType: mem.Float32, Shape: d.shape}, true
		}
		return format.Type{DType: mem.Object}, true
	}
	return format.Type{}, false
}

// Format describes the format.
func Format() format.Format {
	return format.Format{Name: "lmdb", Sniff: Sniff, Beside: []string{"lock.mdb"}, Python: "LMDBDataset", Names: format.Names{Key: Key, Nameless: Value}}
}
