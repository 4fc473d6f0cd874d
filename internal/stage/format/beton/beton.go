// Package beton reads FFCV's files, *.beton, of version 2:
//
//	header       version u16 | fields u16 | page size u32 | samples u64 | where the allocations are u64
//	fields       type u8 | name [16] | arguments [1024]                          for each field
//	samples      a row of numbers and of places, aligned as a C struct           for each sample
//	pages        from the next multiple of the page size on: pictures, bytes, arrays
//	allocations  sample u64 | place u64 | bytes u64                              for each run of bytes, up to the end
//
// (little-endian; ffcv/types.py, writer.py, memory_allocator.py). Numbers are stored
// in the rows and come from the index. Only the allocations say how long a picture
// is; they are checked against the rows when the file is indexed. There are no
// checksums in such a file: a flipped bit within a raw picture goes unnoticed.
//
// A picture is stored as JPEG or as raw pixels, independently of the others. Where
// all are raw and of one size the field is an array, height by width by 3; otherwise
// it is encoded pictures, and the raw ones among them become PNM, which decoders
// read.
package beton

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Options of a file.
type Options struct {
	// Pictures returns raw pictures as PNM even where all are of one size, for
	// callers that decode and crop them.
	Pictures bool

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

// Sniff says whether a file looks like one of FFCV's: there is no magic in it.
func Sniff(name string, head []byte) bool {
	h, wrong := parseHeader(head, -1)
	return wrong == "" && h.version == version && strings.HasSuffix(name, ".beton")
}

// Dataset is an open file; safe for concurrent use.
type Dataset struct {
	x      *index.Index
	path   string
	n      int64
	cols   []column
	places int     // columns whose values are stored in the pages
	off    []int64 // of those, sample by sample
	size   []int64
	head   []int64 // of the pictures among them: mode, width and height
	heads  int
	value  []byte // of the numbers, 8 bytes each, sample by sample
	page   int64  // bytes
	values int
	asPNM  bool
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// Open opens the file at path, indexing it unless an index of it is still valid. Its
// size and time are compared at every Open and at every read. Errors: not_found,
// config, unreadable, damaged, unsupported, empty, changed.
func Open(ctx context.Context, src source.Source, path string, opt Options) (*Dataset, error) {
	if path == "" {
		return nil, errs.New(errs.Config, "the path of the dataset is empty").Try("give a .beton file")
	}
	paths, err := format.Absolute([]string{path})
	if err != nil {
		return nil, err
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "beton", Paths: paths,
		Store: opt.Store, Progress: opt.Progress,
		Valid: valid,
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, paths[0], b, opt.Progress)
		},
	})
	if err != nil {
		return nil, err
	}
	d, err := open(x)
	if err != nil {
		_ = x.Close()
		return nil, err
	}
	d.asPNM = opt.Pictures
	return d, nil
}

func open(x *index.Index) (*Dataset, error) {
	d := &Dataset{
		x: x, path: string(x.AppendPath(0, nil)), n: x.Len(),
		off: x.Int64s(placeOff), size: x.Int64s(placeSize), head: x.Int64s(pictureHead), value: x.Bytes(numberValue),
		page: x.Int64s(pageSize)[0],
	}
	if err := json.Unmarshal(x.Bytes(columnText), &d.cols); err != nil {
		return nil, errs.New(errs.Bug, "cannot read the columns in the index").Because(err)
	}
	d.places, d.heads, d.values = number(d.cols)
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

// Plain says that Parse does no more than point into what was read: no raw picture
// becomes PNM.
func (d *Dataset) Plain() bool {
	return !slices.ContainsFunc(d.cols, func(c column) bool { return c.Kind == image && (!c.Fixed || d.asPNM) })
}

// Runs is the number of samples in each run of them whose first values are stored in
// one page; nil: all values are numbers, which are stored in the index.
func (d *Dataset) Runs() (sizes []int64) {
	if d.places == 0 {
		return nil
	}
	last := int64(-1)
	for id := range d.n {
		page := last
		for at := id * int64(d.places); at < (id+1)*int64(d.places); at++ {
			if d.size[at] > 0 {
				page = d.off[at] / d.page
				break
			}
		}
		if page != last || sizes == nil {
			sizes, last = append(sizes, 0), page
		}
		sizes[len(sizes)-1]++
	}
	return sizes
}

// Close closes the index; no sample may be in use.
func (d *Dataset) Close() error { return d.x.Close() }

// Format describes the format.
func Format() format.Format {
	return format.Format{Name: "beton", Sniff: Sniff, Endings: []string{".beton"}, Root: true, Python: "BetonDataset"}
}
