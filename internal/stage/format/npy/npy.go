// Package npy reads NumPy's own files. The rows of an array, along its first axis, are
// the samples; arrays of the same length beside each other are the fields of one
// sample:
//
//	images.npy  labels.npy              fields images and labels
//	images-0.npy  images-1.npy          one field, images, whose rows go on from
//	                                    file to file
//	train.npz                           a field for every array in it
//
// A .npy file, and an array in a .npz that is not compressed, is read in place: a row
// is one range of bytes. The CRC of such an array in a .npz is compared when the file
// is indexed. An array written by numpy.savez_compressed can only be unpacked from its
// beginning, so it is unpacked whole when its first row is requested, checked against
// its CRC, and kept as one block. After that its rows cost no reading except of the
// member's header, which detects a file that was written to in the meantime.
//
// The types read are bool, integers and floats in C order; big-endian ones are
// byte-swapped. Python objects are pickles and are never opened.
package npy

import (
	"context"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Field says where one field of a dataset comes from.
type Field struct {
	Name string
	// Paths are .npy or .npz files; the rows of each go on where those of the one
	// before it end.
	Paths []string
	// Array is the array that is taken of .npz files; "": Name.
	Array string
}

// Options of NumPy files.
type Options struct {
	// Fields are the fields; nil: those that the list of paths stands for.
	Fields []Field
	// Sharded says that a number at the end of a .npy file's name ("image-000000") is
	// that of a shard even if there is only one such file, as stoker pack writes it;
	// otherwise it takes two of them.
	Sharded bool
	// UnpackedBytes bounds what is kept of compressed arrays, and so the length of
	// one; 0: a gigabyte.
	UnpackedBytes int64

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

const defaultUnpacked = 1 << 30

// Sniff says whether a file is one of NumPy's, by its name and its first bytes.
func Sniff(name string, head []byte) bool {
	h := string(head)
	return strings.HasPrefix(h, Magic) || strings.HasSuffix(strings.ToLower(name), ".npz") && strings.HasPrefix(h, zipMagic)
}

// field is one field of an open dataset.
type field struct {
	name  string
	dtype mem.DType
	shape mem.Shape // of a row
	row   int64     // bytes
	from  int       // its first part
	to    int       // after its last
}

// Dataset is an open list of NumPy files; safe for concurrent use.
type Dataset struct {
	x      *index.Index
	src    source.Source
	blocks *format.Blocks
	fields []field

	// Of parts, which are arrays, field after field.
	file  []int32
	swap  []int32 // 1: big-endian
	off   []int64 // of row 0: in the file, or in the unpacked member
	start []int64 // number of the sample that row 0 is
	// Of parts that are compressed; compressed is -1 for the others.
	compressed []int64 // bytes in the file
	head       []int64 // of the member's header in the file
	body       []int64 // of its data in the file
	size       []int64 // unpacked, bytes
	crc        []int64
	member     index.Strings
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// Open opens the files of paths, or those of opt.Fields if there are any, indexing them
// if there is no current index. Of paths, .npy files of one folder that differ in a
// number at the end (-0, -1, or _0, _1) are parts of one field. Errors: config,
// not_found, unreadable, damaged, unsupported, empty, changed (a file is being written
// to).
func Open(ctx context.Context, src source.Source, paths []string, opt Options) (*Dataset, error) {
	if opt.UnpackedBytes == 0 {
		opt.UnpackedBytes = defaultUnpacked
	}
	want, err := plan(paths, opt)
	if err != nil {
		return nil, err
	}
	files := want.files()
	x, err := format.Load(ctx, src, format.Plan{
		Format: "npy", Options: want.text(opt), Paths: files,
		Store: opt.Store, Progress: opt.Progress,
		Valid: func(x *index.Index) bool { return valid(x, opt) },
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, want, files, opt, b)
		},
	})
	if err != nil {
		return nil, err
	}
	d := open(x)
	d.src, d.blocks = src, format.NewBlocks(opt.UnpackedBytes)
	return d, nil
}

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

// Plain says that Parse does no more than point into what was read: no array is
// compressed or big-endian.
func (d *Dataset) Plain() bool {
	return !slices.Contains(d.swap, 1) && !slices.ContainsFunc(d.compressed, func(n int64) bool { return n >= 0 })
}

// Type is format.Typed's.
func (d *Dataset) Type(field string) (format.Type, bool) {
	f := d.resolve(field)
	if f < 0 {
		return format.Type{}, false
	}
	return format.Type{DType: d.fields[f].dtype, Shape: d.fields[f].shape}, true
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if there is no such field.
func (d *Dataset) Size(_ int64, field string) int64 {
	f := d.resolve(field)
	if f < 0 {
		return -1
	}
	return d.fields[f].row
}

// resolve returns the number of the first alternative that is a field, or -1 if there
// is none.
func (d *Dataset) resolve(wanted string) int {
	for more := true; more; {
		var name string
		name, wanted, more = strings.Cut(wanted, ";")
		for f := range d.fields {
			if d.fields[f].name == name {
				return f
			}
		}
	}
	return -1
}

// part returns the part that contains row id of a field.
func (d *Dataset) part(f *field, id int64) int {
	lo, hi := f.from, f.to
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; d.start[mid] <= id {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// extent is what is read of a file for row id of a field.
func (d *Dataset) extent(f *field, id int64) (int, format.Extent) {
	p := d.part(f, id)
	if d.compressed[p] >= 0 {
		return p, format.Extent{File: int(d.file[p]), Off: d.head[p], Len: localLen}
	}
	return p, format.Extent{File: int(d.file[p]), Off: d.off[p] + (id-d.start[p])*f.row, Len: f.row}
}

// Format describes the format.
func Format() format.Format {
	return format.Format{Name: "npy", Sniff: Sniff, Endings: []string{".npy", ".npz"}, Python: "NpyDataset"}
}

// NPZ describes the format of archives of arrays, which only dataset.format chooses.
func NPZ() format.Format {
	return format.Format{Name: "npz", Python: "NpyDataset"}
}
