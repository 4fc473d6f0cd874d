// Package folder is a folder of images with one folder per class in it, by
// exactly the rules of torchvision's ImageFolder: the classes are the sorted
// names of the folders directly in the root; the samples of a class are the
// files at any depth below it whose path ends in one of the extensions, folder
// by folder in the sorted order of the folders' paths, sorted within each; links
// are followed; hidden files and folders count like all others; a class without
// a sample is an error unless AllowEmpty. Sorted is as Python sorts.
//
// Three things differ, because there ImageFolder gives a wrong dataset without a
// word: a folder that cannot be listed is an error (ImageFolder goes on without
// it), and so is a link that leads back to a folder above it (ImageFolder takes
// the same images some forty times). A pipe, a socket or a device with the name of an
// image is left out, and counted in a notice (ImageFolder takes it for a sample, and
// waits for the writer of a pipe for ever).
//
// What an image is, its bytes say when it is decoded: an empty file called
// x.jpg is a sample, and a damaged one.
package folder

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Extensions are those of torchvision's ImageFolder.
func Extensions() []string {
	return []string{".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}
}

// The fields of a sample.
const (
	Image = "image"    // the file
	Label = "label"    // the number of its class
	Key   = format.Key // its path below the root
)

// Options of a folder; the zero value is ImageFolder's behaviour.
type Options struct {
	// Extensions that files end in to be samples, lower or upper case; nil:
	// Extensions().
	Extensions []string
	// AllowEmpty accepts classes without a sample.
	AllowEmpty bool

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

// text is the options that decide what the index holds.
func (o Options) text() string {
	ext := o.Extensions
	if len(ext) == 0 {
		ext = Extensions()
	}
	lower := make([]string, len(ext))
	for i, e := range ext {
		lower[i] = strings.ToLower(e)
	}
	b, _ := json.Marshal(map[string]any{"extensions": lower, "allow_empty": o.AllowEmpty})
	return string(b)
}

// Dataset is an open folder; safe for concurrent use.
type Dataset struct {
	x     *index.Index
	sizes []int64
	class []int32
	keys  index.Strings
}

var _ format.Stored = (*Dataset)(nil)

// Open opens the folder at root, indexing it if there is no current index of it. Every
// folder's time is compared at every Open; a file that was rewritten within an
// unchanged folder is detected when it is read, by its size and time. Errors:
// not_found, config (root is not a folder), empty, unreadable, changed (it is being
// written to).
func Open(ctx context.Context, src source.Source, root string, opt Options) (*Dataset, error) {
	root, err := absolute(root)
	if err != nil {
		return nil, err
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "folder", Options: opt.text(), Paths: []string{root},
		Store: opt.Store, Progress: opt.Progress,
		Valid: func(x *index.Index) bool { return x.Meta().Root == root && valid(x) },
		Fresh: func(x *index.Index) bool { return fresh(ctx, src, root, x) },
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, root, opt, b)
		},
	})
	if err != nil {
		return nil, err
	}
	return &Dataset{x: x, sizes: x.Int64s(index.FileSize), class: x.Int32s(index.SampleClass), keys: x.Strings(index.FileName)}, nil
}

// absolute is the path by which the index is kept.
func absolute(root string) (string, error) {
	if root == "" {
		return "", errs.New(errs.Config, "the path of the dataset is empty").Try("give the folder that holds one folder per class")
	}
	return source.Abs(root)
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

// Extents is format.Stored's.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(len(d.sizes)) || !wants(fields, Image) {
		return dst
	}
	return append(dst, format.Extent{File: int(id), Len: d.sizes[id], Whole: true})
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if the sample has no such field, or has a number there.
func (d *Dataset) Size(id int64, field string) int64 {
	switch resolve(field) {
	case Image:
		return d.sizes[id]
	case Key:
		return int64(len(d.keys.At(int(id))))
	}
	return -1
}

func wants(fields []string, name string) bool {
	if fields == nil {
		return true
	}
	for _, f := range fields {
		if resolve(f) == name {
			return true
		}
	}
	return false
}

// resolve is the first alternative of a wanted field that a folder has, or "".
func resolve(field string) string {
	for field != "" {
		var alt string
		alt, field, _ = strings.Cut(field, ";")
		switch alt {
		case Image, Label, Key:
			return alt
		}
	}
	return ""
}

// Parse is format.Stored's.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(len(d.sizes)) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, len(d.sizes))
	}
	s.ID, s.Fields = id, s.Fields[:0]
	if fields == nil {
		fields = all
	}
	for _, f := range fields {
		switch resolve(f) {
		case Image:
			if len(raw) != 1 || int64(len(raw[0])) != d.sizes[id] {
				return d.wrong(id, raw)
			}
			s.Fields = append(s.Fields, format.Field{Name: Image, Data: raw[0], File: int(id)})
		case Label:
			s.Fields = append(s.Fields, format.Field{Name: Label, Int: int64(d.class[id]), IsInt: true, File: -1})
		case Key:
			s.Fields = append(s.Fields, format.Field{Name: Key, Data: d.keys.At(int(id)), File: -1})
		default:
			return d.missing(id, f)
		}
	}
	return nil
}

var all = []string{Image, Label, Key}

func (d *Dataset) where(id int64) errs.Where {
	return errs.Where{File: string(d.x.AppendPath(int(id), nil)), Sample: errs.Known(id)}
}

func (d *Dataset) missing(id int64, field string) error {
	at := d.where(id)
	at.Field = field
	e := errs.New(errs.MissingField, "a sample of a folder has no field %q; it has %s", field, strings.Join(all, ", ")).At(at)
	if near := errs.Nearest(field, all); near != "" {
		return e.Try("did you mean %q?", near)
	}
	return e.Try("take %q for the picture and %q for the number of its class", Image, Label)
}

func (d *Dataset) wrong(id int64, raw [][]byte) error {
	n := -1
	if len(raw) == 1 {
		n = len(raw[0])
	}
	return errs.New(errs.Bug, "%d extents (%d bytes) were passed in for a file of %d bytes", len(raw), n, d.sizes[id]).At(d.where(id))
}

// Check says whether samples have these fields, before the first one is read.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		if resolve(f) != "" {
			continue
		}
		e := errs.From(d.missing(0, f))
		e.Code, e.Where = errs.Config, errs.Where{File: d.x.Meta().Root, Field: f}
		return e
	}
	return nil
}

// Format describes the format.
func Format() format.Format {
	return format.Format{
		Name: "folder", Root: true, Files: true, ByName: true, Python: "ImageFolder",
		Words: "a folder with one folder of pictures per class", Names: format.Names{Key: Key},
	}
}

// Decode is how a field's bytes are decoded.
func (d *Dataset) Decode(field string) string {
	switch field {
	case Image:
		return "rgb"
	case Label:
		return "int"
	}
	return ""
}
