// Package files reads single files as samples, from any place: a list of them (what
// pattern.Expand makes of a glob), with the folder of each as its class or without
// classes; or a manifest, a table with a path in each row, and a label and any other
// columns beside it. A table without paths is a dataset too: its rows are the samples.
//
// Manifests and tables are CSV (or TSV), JSONL or Parquet. Their columns are read once,
// into the index: only the files themselves are read later. A column whose cells are
// all whole numbers is int64, or uint64 if it needs that, one of numbers float64,
// anything else text; a number that is written with leading zeros stays text, because it
// is a name. Words of a CSV file are numbers, or missing values, as in pandas.
//
// The label column numbers the classes: whole numbers from 0 on as they are, or texts,
// whose sorted values are the classes.
package files

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/folder"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The fields that are not columns of a manifest.
const (
	Image = "image"    // the file
	Label = "label"    // the number of its class; also the name by which a label column called otherwise is found
	Key   = format.Key // the path below the root
)

// What Options.Label may be beside the name of a column.
const (
	Folder = "folder" // of Open: the class is the name of the folder that the file is in
	None   = "none"   // no classes
)

// Options of files, manifests and tables; the zero value is the usual.
type Options struct {
	// Path is the column that has the paths. "": the first of path, file,
	// filename, file_name, filepath, image, image_path, img that there is.
	Path string
	// Label is the column that has the classes; "" means label or class, if there is
	// one. For Open it is Folder, or "" for no classes.
	Label string
	// Root is the folder that paths are relative to and may not leave; "": that of
	// the manifest.
	Root string
	// Origins are names elsewhere that the rows of a manifest may have besides.
	Origins []string

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

// text identifies an index. The number of "columns" is raised when cells get other types,
// so that older indexes are not used.
func (o Options) text(kind string) string {
	all := map[string]any{"kind": kind, "columns": 2, "path": jsontext.Name(o.Path), "label": jsontext.Name(o.Label), "root": jsontext.Name(o.Root)}
	if len(o.Origins) > 0 { // an index of rows that are refused without them is another one
		all["origins"] = o.Origins
	}
	b, _ := json.Marshal(all)
	return string(b)
}

// Sniff says whether a file looks like a manifest or a table that is nothing
// else: CSV, TSV or JSONL, by its name.
func Sniff(name string, _ []byte) bool {
	return kindOf(name, nil) != ""
}

// Dataset is open files, or an open table; safe for concurrent use.
type Dataset struct {
	x     *index.Index
	sizes []int64
	keys  index.Strings
	file  []int32 // of each sample; nil: a table
	class []int64 // nil: no label
	label int     // the column whose values the classes are; -1: none
	path  int     // the column whose values the paths are; -1: none
	plain int     // the column that was taken for the labels, if its numbers are not classes; -1: none
	cols  []column
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// Open opens a list of files, a sample each, in this order; the same file may
// come several times. Their sizes and times are those of when they were indexed: a file
// that changed since is found when it is read. Errors: config, not_found,
// unreadable.
func Open(ctx context.Context, src source.Source, paths []string, opt Options) (*Dataset, error) {
	switch {
	case len(paths) == 0:
		return nil, errs.New(errs.Config, "the list of files is empty").Try("give files, or a pattern such as data/*/*.jpg")
	case opt.Label != "" && opt.Label != None && opt.Label != Folder:
		return nil, errs.New(errs.Config, "the label of files is %q", opt.Label).Try("%q takes the name of each file's folder; a column of labels needs a manifest", Folder)
	}
	paths, err := format.Absolute(paths)
	if err != nil {
		return nil, err
	}
	return load(ctx, src, opt, format.Plan{
		Format: "files", Options: opt.text("list"), Paths: paths,
		Fresh: func(*index.Index) bool { return true },
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return buildList(ctx, src, paths, opt, b)
		},
	})
}

// OpenManifest opens the files that the rows of a manifest name. Paths are
// relative to the manifest's folder, or to Root, and may not leave it. A change of
// the manifest is found at every OpenManifest, one of a file when it is read.
// Errors: config (no such column, a path out of the root), not_found (the
// manifest, or a file that a row names), damaged, unsupported, empty,
// missing_field (a row without a path or a label), unreadable, changed.
func OpenManifest(ctx context.Context, src source.Source, manifest string, opt Options) (*Dataset, error) {
	paths, err := format.Absolute([]string{manifest})
	if err != nil {
		return nil, err
	}
	if opt.Root != "" {
		root, err := format.Absolute([]string{opt.Root})
		if err != nil {
			return nil, err
		}
		opt.Root = root[0]
	}
	return load(ctx, src, opt, format.Plan{
		Format: "files", Options: opt.text("manifest"), Paths: paths,
		Fresh: func(x *index.Index) bool { return current(ctx, src, paths, x) },
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return buildManifest(ctx, src, paths[0], opt, b)
		},
	})
}

// OpenTable opens the rows of tables, one table after another, whose columns are the
// only fields. For Parquet files it is parquet.Open. Errors: those of OpenManifest.
func OpenTable(ctx context.Context, src source.Source, tables []string, opt Options) (format.Stored, error) {
	if len(tables) == 0 {
		return nil, errs.New(errs.Config, "the list of tables is empty").Try("give a CSV, JSONL or Parquet file")
	}
	if parquet.Sniff(tables[0], nil) {
		return parquet.Open(ctx, src, tables, parquet.Options{Label: opt.Label, Store: opt.Store, Progress: opt.Progress})
	}
	paths, err := format.Absolute(tables)
	if err != nil {
		return nil, err
	}
	return load(ctx, src, opt, format.Plan{
		Format: "table", Options: opt.text("table"), Paths: paths,
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return buildTable(ctx, src, paths, opt, b)
		},
	})
}

func load(ctx context.Context, src source.Source, opt Options, plan format.Plan) (*Dataset, error) {
	plan.Store, plan.Progress = opt.Store, opt.Progress
	plan.Valid = func(x *index.Index) bool { return open(x).valid() }
	x, err := format.Load(ctx, src, plan)
	if err != nil {
		return nil, err
	}
	d := open(x)
	d.plain = d.unclassed(opt.Label)
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

// What a wanted field was resolved to, if it is not a column.
const (
	isMissing = -1
	isImage   = -2
	isKey     = -3
	isLabel   = -4
)

// resolve is the first alternative of a wanted field that there is: the number of
// its column, or one of the above.
func (d *Dataset) resolve(field string) int {
	what := d.named(field) // first: a ; may be part of a column's name
	for more := strings.Contains(field, ";"); more && what == isMissing; {
		var name string
		name, field, more = strings.Cut(field, ";")
		what = d.named(name)
	}
	return what
}

// named is the field of a name, as resolve says it.
func (d *Dataset) named(name string) int {
	switch {
	case name == Image && d.file != nil:
		return isImage
	case name == Key && d.file != nil:
		return isKey
	}
	for i := range d.cols {
		if d.cols[i].name == name {
			if i == d.label {
				return isLabel
			}
			return i
		}
	}
	switch {
	case name == Label && d.class != nil:
		return isLabel
	case name == Label && d.plain >= 0:
		return d.plain
	}
	return isMissing
}

// Type is format.Typed's.
func (d *Dataset) Type(field string) (format.Type, bool) {
	what := d.resolve(field)
	switch {
	case what == isMissing:
		return format.Type{}, false
	case what == isLabel:
		return format.Type{DType: mem.Int64, Shape: mem.Shape{}}, true
	case what < 0 || d.cols[what].dtype == mem.Object:
		return format.Type{}, true
	}
	return format.Type{DType: d.cols[what].dtype, Shape: mem.Shape{}}, true
}

// Decode says how a field is decoded if nothing else is asked for: "none" for what some
// rows lack, and for the path beside the file.
func (d *Dataset) Decode(field string) string {
	what := d.resolve(field)
	switch {
	case what == isLabel:
		return "int"
	case what == isKey:
		return "text"
	case what == isMissing || what >= 0 && (what == d.path || d.cols[what].nulls != nil):
		return "none"
	case what >= 0 && d.cols[what].dtype == mem.Object:
		return "text"
	}
	return ""
}

// LeftOut says why Decode leaves a field out; "": it needs no word.
func (d *Dataset) LeftOut(field string) string {
	if what := d.resolve(field); what >= 0 && what != d.path && d.cols[what].nulls != nil {
		return "not every row has it"
	}
	return ""
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if the sample has no such field, or has a number there.
func (d *Dataset) Size(id int64, field string) int64 {
	what := d.resolve(field)
	switch {
	case what == isImage:
		return d.sizes[d.file[id]]
	case what == isKey:
		return int64(len(d.keys.At(int(d.file[id]))))
	case what >= 0 && d.cols[what].dtype == mem.Object && !d.cols[what].null(id):
		return int64(len(d.cols[what].text.At(int(id))))
	}
	return -1
}

// Extents is format.Stored's.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(d.x.Len()) || d.file == nil || !d.wantsImage(fields) {
		return dst
	}
	f := d.file[id]
	return append(dst, format.Extent{File: int(f), Len: d.sizes[f], Whole: true})
}

func (d *Dataset) wantsImage(fields []string) bool {
	if fields == nil {
		return true
	}
	for _, f := range fields {
		if d.resolve(f) == isImage {
			return true
		}
	}
	return false
}

// Parse is format.Stored's. With fields nil, what a row lacks is left out.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(d.x.Len()) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, d.x.Len())
	}
	s.Begin(id)
	for _, name := range fields {
		f, err := d.field(id, name, d.resolve(name), raw)
		if err != nil {
			return err
		}
		s.Fields = append(s.Fields, f)
	}
	if fields != nil {
		return nil
	}
	for _, name := range d.x.Meta().Fields {
		what := d.resolve(name)
		if what >= 0 && d.cols[what].null(id) {
			continue
		}
		f, err := d.field(id, name, what, raw)
		if err != nil {
			return err
		}
		s.Fields = append(s.Fields, f)
	}
	return nil
}

// field is one field of a sample.
func (d *Dataset) field(id int64, name string, what int, raw [][]byte) (format.Field, error) {
	switch what {
	case isMissing:
		return format.Field{}, d.missing(id, name)
	case isImage:
		f := int(d.file[id])
		if len(raw) != 1 || int64(len(raw[0])) != d.sizes[f] {
			return format.Field{}, errs.New(errs.Bug, "the bytes passed in are not those of a file of %d bytes", d.sizes[f]).At(d.where(id))
		}
		return format.Field{Name: Image, Data: raw[0], File: f}, nil
	case isKey:
		return format.Field{Name: Key, Data: d.keys.At(int(d.file[id])), File: -1}, nil
	case isLabel:
		called := Label
		if d.label >= 0 {
			called = d.cols[d.label].name
		}
		return format.Field{Name: called, Int: d.class[id], IsInt: true, Data: number(&d.class[id]), File: -1}, nil
	}
	c := &d.cols[what]
	if c.null(id) {
		at := d.where(id)
		at.Field = name
		return format.Field{}, errs.New(errs.MissingField, "the row has nothing in column %q", c.name).At(at).
			Try("fill in the column, leave the field out, or set on_bad to skip such samples")
	}
	return format.Field{Name: c.name, Data: c.value(id), File: -1}, nil
}

func (d *Dataset) where(id int64) errs.Where {
	f := 0
	if d.file != nil {
		f = int(d.file[id])
	}
	return errs.Where{File: string(d.x.AppendPath(f, nil)), Sample: errs.Known(id)}
}

func (d *Dataset) missing(id int64, field string) error {
	at := d.where(id)
	at.Field = field
	have := d.x.Meta().Fields
	e := errs.New(errs.MissingField, "a sample has no field %q; it has %s", field, strings.Join(have, ", ")).At(at)
	for alt := range strings.SplitSeq(field, ";") {
		if near := errs.Nearest(alt, have); near != "" {
			return e.Try("did you mean %q?", near)
		}
	}
	return e.Try("take one of those; a;b takes the first that is there")
}

// Check says whether samples have these fields, before the first one is read.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		if d.resolve(f) == isMissing {
			e := errs.From(d.missing(0, f))
			e.Code, e.Where = errs.Config, errs.Where{File: d.x.Meta().Root, Field: f}
			return e
		}
	}
	return nil
}

// Format describes the format in which each file is a sample.
func Format() format.Format {
	return format.Format{
		Name: "files", Sniff: isPicture, Single: true, Loose: true, Files: true, ByName: true, Python: "files",
		Words: "pictures without class folders", Names: format.Names{Key: Key},
	}
}

// TableFormat describes the format of tables, in which each row is a sample.
func TableFormat() format.Format {
	return format.Format{Name: "table", Sniff: Sniff, Single: true, Rows: format.RowsName, Python: "Table"}
}

// isPicture says whether a file is a picture by its name.
func isPicture(name string, _ []byte) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(folder.Extensions(), func(ext string) bool { return strings.HasSuffix(name, ext) })
}
