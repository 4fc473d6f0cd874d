// Package parquet reads Parquet files as their writers left them: a row is a sample,
// in stored order, file by file. A row group is a block of the order; only the
// pages of the wanted columns are read for a row.
//
// Fields are the leaves of the schema by their path ("a.b"); lists of numbers are
// arrays whose first axis differs from sample to sample; of a struct of bytes and
// path, as HuggingFace's datasets store pictures, the field with the struct's
// name is the bytes. Dates, times and timestamps are the integers they are stored
// as. Decimals, INT96, maps and lists in lists are refused by name where they are
// wanted, and nowhere else.
//
// # Why not a library for reading
//
// parquet-go believes what a file claims: a list of 2^31 items or a run of 2^31
// values is allocated before its bytes are looked at, and running out of memory
// cannot be recovered from, as a panic can. It also needs every footer whenever a
// dataset is opened, and holds readers, not places; here the index has the place of
// every page, and a page is decoded from its bytes alone. Tests compare this reader
// with pyarrow and parquet-go.
package parquet

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// None is the Label of a dataset without classes.
const None = "none"

// Options of Parquet files.
type Options struct {
	// Label is the field that numbers the samples' classes: a column of integers
	// from 0 on, or of texts, whose sorted values are the classes. "": what
	// HuggingFace's description of the file calls a ClassLabel, if it is one
	// column; else there are no classes. None: no classes in any case.
	Label string
	// Cache is the bytes of unpacked pages that are kept; 0: 256 MiB.
	Cache int64

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

func (o Options) text() string {
	b, _ := json.Marshal(map[string]any{"label": jsontext.Name(o.Label), "layout": 3})
	return string(b)
}

// Sniff says whether a file looks like Parquet, by its first bytes or, where
// there are none, by its name.
func Sniff(name string, head []byte) bool {
	if len(head) >= 4 {
		return string(head[:4]) == meta.Magic || string(head[:4]) == meta.MagicEncrypted
	}
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".parquet") || strings.HasSuffix(name, ".pq")
}

// Dataset is an open list of files; safe for concurrent use.
type Dataset struct {
	x       *index.Index
	columns []meta.Column
	label   int // column whose values are the classes; -1: none
	blocks  *format.Blocks
	keep    int64 // bytes of blocks
	src     source.Source
	turn    chan struct{} // who reads a large page

	groupFirst []int64
	groupFile  []int32
	chunkPage  []int64
	chunkCodec []int32
	dictOff    []int64
	dictLen    []int64
	pageOff    []int64
	pageLen    []int64
	pageRow    []int64
	pageFlags  []int32
	pageValue  []int64
	valueOff   []int64
	valueLen   []int32
	class      []int64
	nulls      []int64 // a column: rows without a value
	holes      []int64 // a column: nulls in lists
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// Open opens files in this order, indexing them unless there is an index of them that
// is still valid. All must have the same columns. Errors: not_found, config,
// unreadable, damaged, unsupported, empty, changed (a file is being written to),
// missing_field (no column Label, or a row without one).
func Open(ctx context.Context, src source.Source, files []string, opt Options) (*Dataset, error) {
	if len(files) == 0 {
		return nil, errs.New(errs.Config, "the list of Parquet files is empty").Try("give at least one file, or a pattern such as train-*.parquet")
	}
	paths, err := format.Absolute(files)
	if err != nil {
		return nil, err
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "parquet", Options: opt.text(), Paths: paths,
		Store: opt.Store, Progress: opt.Progress,
		Valid: func(x *index.Index) bool { return open(x).valid() },
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, paths, opt, b)
		},
	})
	if err != nil {
		return nil, err
	}
	d := open(x)
	limit := opt.Cache
	if limit == 0 {
		limit = 256 << 20
	}
	d.blocks, d.keep, d.src, d.turn = format.NewBlocks(limit), limit, src, make(chan struct{}, atOnce)
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

// Runs is the number of samples of every row group that has any, in order: the
// samples whose bytes are stored side by side.
func (d *Dataset) Runs() []int64 {
	var runs []int64
	for g := range d.groupFile {
		if n := d.groupFirst[g+1] - d.groupFirst[g]; n > 0 {
			runs = append(runs, n)
		}
	}
	return runs
}

// Type is format.Typed's.
func (d *Dataset) Type(field string) (format.Type, bool) {
	c := d.resolve(field)
	if c < 0 || d.columns[c].Why != "" {
		return format.Type{}, false
	}
	if c == d.label {
		return format.Type{DType: mem.Int64, Shape: mem.Shape{}}, true
	}
	col := &d.columns[c]
	switch {
	case col.DType == mem.Object:
		return format.Type{}, true
	case !col.List():
		return format.Type{DType: col.DType, Shape: mem.Shape{}}, true
	case col.Fixed > 0:
		return format.Type{DType: col.DType, Shape: mem.Shape{col.Fixed}}, true
	}
	return format.Type{DType: col.DType, Shape: mem.Shape{}, Ragged: true}, true
}

// Decode is how a field is decoded unless the caller says it: "none" for what some
// rows lack, what cannot be read, and the path next to an encoded picture.
func (d *Dataset) Decode(field string) string {
	c := d.resolve(field)
	switch {
	case c < 0 || d.columns[c].Why != "" || d.columns[c].Side || d.lacks(c):
		return "none"
	case c == d.label:
		return "int"
	case d.columns[c].Text:
		return "text"
	}
	return ""
}

// LeftOut says why Decode leaves a field out; "": there is nothing to explain.
func (d *Dataset) LeftOut(field string) string {
	c := d.resolve(field)
	if c < 0 {
		return ""
	}
	col := &d.columns[c]
	switch {
	case col.Why != "":
		what, _, _ := strings.Cut(col.Why, "; ")
		return "it is " + what + ", which is not read"
	case col.Side || !d.lacks(c):
		return ""
	case d.nulls[c] == d.x.Len() && d.sidePath(c) != "":
		return "paths and no bytes: " + d.tableLine(c) + " loads the files"
	case d.nulls[c] == 0 && d.holes[c] == 1:
		return "a null in one of its lists"
	case d.nulls[c] == 0:
		return fmt.Sprintf("%d nulls in its lists", d.holes[c])
	}
	return fmt.Sprintf("null in %d of %d rows", d.nulls[c], d.x.Len())
}

// sidePath is the field of the paths beside encoded pictures; "": column c has none,
// or no path either. HuggingFace's datasets write paths alone if pictures are files
// that were not embedded.
func (d *Dataset) sidePath(c int) string {
	name := d.columns[c].Name + ".path"
	for i := range d.columns {
		if d.columns[i].Side && d.columns[i].Name == name && d.nulls[i] < d.x.Len() {
			return name
		}
	}
	return ""
}

// tableLine is the line that loads the files whose paths are beside column c.
func (d *Dataset) tableLine(c int) string {
	return fmt.Sprintf("stoker.Table(%q, path=%q)", d.x.AppendPath(0, nil), d.sidePath(c))
}

// lacks says whether some row cannot return the column because of a null.
func (d *Dataset) lacks(c int) bool { return c != d.label && (d.nulls[c] > 0 || d.holes[c] > 0) }

// resolve is the first alternative of a wanted field that exists: the number of
// its column, or -1.
func (d *Dataset) resolve(field string) int {
	return format.First(field, func(name string) int {
		for c := range d.columns {
			if d.columns[c].Name == name {
				return c
			}
		}
		return -1
	})
}

// group is the row group of a sample.
func (d *Dataset) group(id int64) int {
	return sort.Search(len(d.groupFile), func(g int) bool { return d.groupFirst[g+1] > id })
}

// pages are the numbers of the pages of a column that hold a row of a group:
// from first to before end. More than one: a list that goes on over their edges.
func (d *Dataset) pages(g, c int, row int64) (first, end int) {
	at := g*len(d.columns) + c
	lo, hi := int(d.chunkPage[at]), int(d.chunkPage[at+1])
	first = lo + sort.Search(hi-lo, func(i int) bool { return d.pageRow[lo+i] > row }) - 1
	end = first + 1
	for end < hi && d.pageFlags[end]&flagMid != 0 && d.pageRow[end] == row+1 {
		end++
	}
	return first, end
}

// numbered says whether the page may need its chunk's dictionary.
func (d *Dataset) numbered(g, c, page int) bool {
	return d.dictLen[g*len(d.columns)+c] > 0 && d.pageFlags[page]&flagPlain == 0
}

// Check says whether samples have these fields, before the first one is read.
func (d *Dataset) Check(fields []string) error {
	at := errs.Where{Shard: string(d.x.AppendPath(0, nil))}
	for _, f := range fields {
		at.Field = f
		c := d.resolve(f)
		if c >= 0 && d.columns[c].Why == "" {
			continue
		}
		if c >= 0 {
			return d.refused(c).At(at)
		}
		return errs.New(errs.Config, "no row has a column %q; there are %s", f, strings.Join(d.x.Meta().Fields, ", ")).At(at).Try("%s", d.advice(f))
	}
	return nil
}

// refused is the error of a column that exists but cannot be read.
func (d *Dataset) refused(c int) *errs.Error {
	what, try, _ := strings.Cut(d.columns[c].Why, "; ")
	e := errs.New(errs.Unsupported, "column %q is %s, which is not read", d.columns[c].Name, what)
	if try == "" {
		try = "write it as columns of numbers or texts"
	}
	return e.Try("%s", try)
}

func (d *Dataset) advice(field string) string {
	var have []string
	for c := range d.columns {
		have = append(have, d.columns[c].Name)
	}
	for alt := range strings.SplitSeq(field, ";") {
		for _, name := range have {
			if strings.HasPrefix(name, alt+".") {
				return "it is a struct: ask for one of its members, such as \"" + name + "\""
			}
		}
		if near := errs.Nearest(alt, have); near != "" {
			return "did you mean \"" + near + "\"?"
		}
	}
	return "ask for one of these columns; a;b takes the first that is there"
}

// Format describes the format.
func Format() format.Format {
	return format.Format{Name: "parquet", Sniff: Sniff, Rows: format.RowsMayName, Python: "ParquetDataset"}
}
