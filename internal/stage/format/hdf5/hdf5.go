// Package hdf5 reads datasets of HDF5 files in place: row i of each of them is
// the sample i, and each of them is a field of it.
//
// Which ones: those that Options.Columns names; if it names none, every dataset that
// can be read, of one dimension or more, whose first one has the most common length
// in the file (or below Options.Group). If two lengths are equally common, or none
// of these datasets can be read, that is an error that says what to choose from;
// Notes names what is left out of the first file, and why. A damaged dataset keeps
// the others from opening only if it is asked for, or if what a sample is could
// depend on it: its length is not known, and could be the most common.
//
// The file's structures are read once, by package tree; the index holds where every
// chunk is stored. After that a sample is a few reads through the source, and
// unpacking, by any number of readers: there is no library with a lock around it, and
// no handle that cannot be used after a fork. Samples that share a chunk share its
// unpacking (format.Blocks).
package hdf5

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Options of HDF5 files.
type Options struct {
	// Columns are the paths of the datasets ("images", "meta/label"), below Group;
	// they are the names of the fields too. nil: see the package.
	Columns []string
	// Group is where to look ("train"); "": the whole file.
	Group string
	// Cache bounds the unpacked chunks that are kept, bytes; 0: 64 MiB, or two
	// chunks where these are larger.
	Cache int64

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

func (o Options) text() string {
	b, _ := json.Marshal(map[string]any{"columns": jsontext.Names(o.Columns), "group": jsontext.Name(o.Group), "version": 3})
	return string(b)
}

// Dataset is an open list of files; safe for concurrent use.
type Dataset struct {
	x      *index.Index
	fields []field
	files  []file
	left   leftOut
	first  []int64 // number of the first sample of each file, and of all samples

	chunkOff, chunkSize []int64
	chunkMask           []int32
	valueOff, valueSize []int64
	blocks              *format.Blocks
	packing             unpacker
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// Sniff says whether a file of this name that begins with head looks like HDF5.
func Sniff(name string, head []byte) bool {
	if tree.HasSignature(head) {
		return true
	}
	name = strings.ToLower(name)
	for _, ext := range []string{".h5", ".hdf5", ".he5", ".hdf"} {
		if strings.HasSuffix(name, ext) {
			return true // with a user block in front, or damaged
		}
	}
	return false
}

// List is everything that is in a file, with types, dimensions, chunks, filters
// and attributes, groups before what is in them.
func List(ctx context.Context, src source.Source, path string) ([]tree.Item, error) {
	objs, err := format.Stat(ctx, src, []string{path}, "HDF5 file")
	if err != nil {
		return nil, err
	}
	f, err := tree.Open(ctx, src, objs[0])
	if err != nil {
		return nil, err
	}
	return f.Items(true)
}

// Open opens files with the same datasets, one after the other. Errors: not_found,
// config (a column that does not exist, or lengths that differ), unreadable, damaged,
// unsupported (a type or a filter that is not implemented), empty, changed (a file is
// being written to).
func Open(ctx context.Context, src source.Source, paths []string, opt Options) (*Dataset, error) {
	if len(paths) == 0 {
		return nil, errs.New(errs.Config, "the list of files is empty").Try("give at least one HDF5 file")
	}
	paths, err := format.Absolute(paths)
	if err != nil {
		return nil, err
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "hdf5", Options: opt.text(), Paths: paths,
		Store: opt.Store, Progress: opt.Progress,
		Valid: func(x *index.Index) bool {
			d, err := open(x)
			return err == nil && d.check() == nil
		},
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, paths, opt, b)
		},
	})
	if err != nil {
		return nil, err
	}
	d, err := open(x)
	if err != nil {
		return nil, err
	}
	limit := opt.Cache
	if limit == 0 {
		limit = max(64<<20, 2*d.largest())
	}
	d.blocks = format.NewBlocks(limit)
	return d, nil
}

func open(x *index.Index) (*Dataset, error) {
	d := &Dataset{
		x:         x,
		chunkOff:  x.Int64s(chunkOff),
		chunkSize: x.Int64s(chunkSize),
		chunkMask: x.Int32s(chunkMask),
		valueOff:  x.Int64s(valueOff),
		valueSize: x.Int64s(valueSize),
	}
	if err := json.Unmarshal(x.Bytes(fieldsColumn), &d.fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(x.Bytes(layoutColumn), &d.files); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(x.Bytes(leftColumn), &d.left); err != nil {
		return nil, err
	}
	n := int64(0)
	for i := range d.files {
		d.first = append(d.first, n)
		n += d.files[i].Rows
	}
	d.first = append(d.first, n)
	return d, nil
}

// largest is the bytes of the largest chunk that has to be unpacked.
func (d *Dataset) largest() int64 {
	n := int64(0)
	for _, f := range d.files {
		for i := range f.Layouts {
			if l := &f.Layouts[i]; len(l.Filters) > 0 {
				n = max(n, l.unpacked())
			}
		}
	}
	return n
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

// Notes are what a user should know of the fields.
func (d *Dataset) Notes() []string {
	if len(d.left.Shown) == 0 {
		return nil
	}
	var names []string
	for _, l := range d.left.Shown {
		names = append(names, fmt.Sprintf("%q (%s)", l.Name, l.Why))
	}
	if more := d.left.Count - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return []string{"left out of the fields: " + strings.Join(names, ", ") + "; columns=[...] names the ones to load, and stoker inspect shows all"}
}

// Left are the datasets of the file that are not fields; only the first ones if there
// are very many.
func (d *Dataset) Left() (all []format.Left) {
	for _, l := range d.left.Shown {
		all = append(all, format.Left{Name: l.Name, Reason: l.Why})
	}
	return all
}

// Lost are the datasets that were left out because they are damaged: errors for
// callers that check whether the file is sound.
func (d *Dataset) Lost() (all []*errs.Error) {
	for _, l := range d.left.Shown {
		if l.Damaged {
			all = append(all, errs.New(errs.Damaged, "a dataset cannot be read").
				At(errs.Where{Shard: string(d.x.AppendPath(0, nil)), Member: l.Name}).Because(errors.New(l.Why)))
		}
	}
	return all
}

// Type is format.Typed's.
func (d *Dataset) Type(name string) (format.Type, bool) {
	i := d.resolve(name)
	if i < 0 {
		return format.Type{}, false
	}
	f := &d.fields[i]
	switch f.Class {
	case tree.Number:
		t := format.Type{DType: f.DType, Shape: mem.Shape{}}
		for _, n := range f.Shape {
			t.Shape = append(t.Shape, int(n))
		}
		return t, true
	case tree.VLen:
		return format.Type{DType: f.DType, Shape: mem.Shape{}, Ragged: true}, true
	}
	return format.Type{DType: mem.Object}, true
}

// locate is the file of a sample, and its row there.
func (d *Dataset) locate(id int64) (file int, row int64) {
	file = sort.Search(len(d.files), func(i int) bool { return d.first[i+1] > id })
	return file, id - d.first[file]
}

// Format describes the format.
func Format() format.Format {
	return format.Format{Name: "hdf5", Sniff: Sniff, Python: "HDF5Dataset"}
}

// Objects is everything that is in the dataset's first file: all have the same.
func (d *Dataset) Objects(ctx context.Context, src source.Source) ([]format.Object, error) {
	items, err := List(ctx, src, string(d.x.AppendPath(0, nil)))
	if err != nil {
		return nil, err
	}
	out := make([]format.Object, len(items))
	for i := range items {
		out[i] = object(&items[i])
	}
	return out, nil
}

func object(item *tree.Item) format.Object {
	o := format.Object{Path: "/" + item.Path, Kind: "type"}
	switch d := item.Dataset; {
	case item.Group:
		o.Kind = "group"
	case d != nil:
		o.Kind, o.Type, o.Shape, o.Chunk = "dataset", d.Type.Name, d.Dims, d.Layout.Chunk
		if o.Unreadable = d.Why; o.Unreadable == "" {
			o.Unreadable = d.Type.Why
		}
		for _, f := range d.Filters {
			o.Filters = append(o.Filters, f.Name)
		}
	case item.Target != "":
		o.Kind, o.Target = "link", item.Target
	}
	switch d := item.Dataset; {
	case item.Err != nil:
		if o.Unreadable = errs.From(item.Err).Error(); o.Kind == "type" {
			o.Kind = "object"
		}
	case d != nil && d.Err != nil:
		o.Unreadable = errs.From(d.Err).Error()
	}
	if item.Again {
		o.Target = "/" + item.Same
	}
	for _, a := range item.Attributes {
		o.Attributes = append(o.Attributes, format.Attribute(a))
	}
	return o
}
