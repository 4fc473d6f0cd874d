// Package lines reads text: every line of a JSONL file is a sample, and every other
// text file is one, whole.
//
// The fields of a line are the keys of its object, strings as their text and everything
// else as JSON, and "json", the line itself; a text file has "text". Empty lines are
// not samples. The contents of a line are checked when it is read.
//
// No byte of a text is replaced: one that is not UTF-8 stays as it is, and half a
// surrogate pair (\ud800) becomes the three bytes that UTF-8 would use for it. Decoding
// a field as text refuses both.
package lines

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The fields that need no key.
const (
	JSON = "json" // of a JSONL file: the line
	Text = "text" // of another: all of it
)

// Options of text.
type Options struct {
	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

// Sniff says whether a file is text by its name.
func Sniff(name string) bool {
	switch strings.ToLower(path.Ext(source.Unquery(name))) {
	case ".txt", ".text", ".md":
		return true
	}
	return isJSONL(name)
}

func isJSONL(name string) bool {
	ext := strings.ToLower(path.Ext(source.Unquery(name)))
	return ext == ".jsonl" || ext == ".ndjson"
}

// Dataset is an open list of text files; safe for concurrent use.
type Dataset struct {
	x     *index.Index
	first []int64 // of files: first sample; and one more
	jsonl []bool  // of files
	size  []int32 // of samples, bytes
	gap   []int32 // of samples: bytes of nothing before it, since the one before
	mark  []int64 // of every stride-th sample: where it begins in its file
}

var _ format.Stored = (*Dataset)(nil)

// Open opens text files in this order, indexing them where no index still holds.
// Errors: config, not_found, unreadable, empty, unsupported (a line of 2 GiB),
// changed (a file is being written to).
func Open(ctx context.Context, src source.Source, paths []string, opt Options) (*Dataset, error) {
	if len(paths) == 0 {
		return nil, errs.New(errs.Config, "the list of text files is empty")
	}
	paths, err := format.Absolute(paths)
	if err != nil {
		return nil, err
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "lines", Paths: paths,
		Store: opt.Store, Progress: opt.Progress,
		Valid: valid,
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, paths, b, opt.Progress)
		},
	})
	if err != nil {
		return nil, err
	}
	d := &Dataset{x: x, first: x.Int64s(fileFirst), size: x.Int32s(sampleSize), gap: x.Int32s(sampleGap), mark: x.Int64s(sampleMark)}
	for f := range x.Files() {
		d.jsonl = append(d.jsonl, isJSONL(string(x.AppendPath(f, nil))))
	}
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

// locate is the file of a sample, and where in it the sample begins.
func (d *Dataset) locate(id int64) (file int, off int64) {
	file, exact := slices.BinarySearch(d.first, id)
	if !exact {
		file--
	}
	for d.first[file+1] == id { // files without a sample
		file++
	}
	from := max(id/stride*stride, d.first[file])
	if from == id/stride*stride {
		off = d.mark[id/stride]
	} else {
		off = int64(d.gap[from])
	}
	for i := from; i < id; i++ {
		off += int64(d.size[i]) + int64(d.gap[i+1])
	}
	return file, off
}

// Extents is format.Stored's.
func (d *Dataset) Extents(id int64, _ []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(len(d.size)) {
		return dst
	}
	file, off := d.locate(id)
	return append(dst, format.Extent{File: file, Off: off, Len: int64(d.size[id]), Whole: !d.jsonl[file]})
}

// Size is the bytes of the sample as it is stored, whatever the field.
func (d *Dataset) Size(id int64, _ string) int64 { return int64(d.size[id]) }

// Parse is format.Stored's.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(len(d.size)) || len(raw) != 1 || len(raw[0]) != int(d.size[id]) {
		return errs.New(errs.Bug, "there is no sample %d of these bytes, the dataset has %d", id, len(d.size))
	}
	s.Begin(id)
	file, off := d.locate(id)
	if !d.jsonl[file] {
		return d.text(id, file, fields, raw[0], s)
	}
	if fields == nil {
		fields = []string{JSON}
	}
	checked := false
	for _, wanted := range fields {
		f := format.Field{Name: JSON, Data: raw[0], File: file, Off: off}
		if wanted != JSON {
			if !checked {
				if err := object(raw[0]); err != nil {
					return errs.New(errs.Damaged, "the line is not a JSON object").At(d.where(id, file, off)).Because(err).
						Try("write one object per line")
				}
				checked = true
			}
			if err := d.value(id, wanted, raw[0], &f, s); err != nil {
				return err
			}
		}
		s.Fields = append(s.Fields, f)
	}
	return nil
}

// object says why a line is not one.
func object(line []byte) error {
	if err := jsontext.Valid(line); err != nil {
		return err
	}
	if bytes.TrimSpace(line)[0] != '{' {
		return errors.New("it does not begin with {")
	}
	return nil
}

// text gives the fields of a text file.
func (d *Dataset) text(id int64, file int, fields []string, raw []byte, s *format.Sample) error {
	if fields == nil {
		fields = []string{Text}
	}
	for _, f := range fields {
		if !slices.Contains(strings.Split(f, ";"), Text) {
			at := d.where(id, file, -1)
			at.Field = f
			return errs.New(errs.MissingField, "a text file has no field %q; it has %q", f, Text).At(at).Try("ask for %q", Text)
		}
		s.Fields = append(s.Fields, format.Field{Name: Text, Data: raw, File: file})
	}
	return nil
}

// value fills in a field from a line, which is a JSON object. Of a key that comes
// twice the last value counts, as in Python.
func (d *Dataset) value(id int64, wanted string, line []byte, f *format.Field, s *format.Sample) error {
	for name := range strings.SplitSeq(wanted, ";") {
		if name == JSON {
			return nil
		}
		v := find(line, name)
		if v == nil {
			continue
		}
		f.Name, f.Unpacked = name, true
		if v[0] != '"' {
			f.Data, f.JSON = v, true
			return nil
		}
		text, plain := jsontext.Plain(v)
		if !plain {
			text = jsontext.Unquote(s.Room(len(v))[:0], v)
		}
		f.Data = text
		return nil
	}
	return d.missing(id, wanted, line, f)
}

// find returns the value of a key, or nil if the line does not have it.
func find(line []byte, name string) (value []byte) {
	var room [64]byte
	for key, v := range jsontext.Members(line) {
		text, plain := jsontext.Plain(key)
		if !plain {
			text = jsontext.Unquote(room[:0], key)
		}
		if string(text) == name {
			value = v
		}
	}
	return value
}

func (d *Dataset) missing(id int64, wanted string, line []byte, f *format.Field) error {
	var have []string
	for key := range jsontext.Members(line) {
		have = append(have, string(jsontext.Unquote(nil, key)))
	}
	slices.Sort(have)
	have = slices.Compact(have)
	at := d.where(id, f.File, f.Off)
	at.Field = wanted
	e := errs.New(errs.MissingField, "the line has no key %q; it has %s", wanted, strings.Join(have, ", ")).At(at)
	if near := errs.Nearest(wanted, have); near != "" {
		return e.Try("did you mean %q?", near)
	}
	return e.Try("ask for one of these keys, or %q for the line itself", JSON)
}

func (d *Dataset) where(id int64, file int, off int64) errs.Where {
	return errs.Where{File: string(d.x.AppendPath(file, nil)), Offset: errs.Known(off), Sample: errs.Known(id)}
}

// Format describes the format.
func Format() format.Format {
	return format.Format{
		Name: "lines", Named: true, Sniff: func(name string, _ []byte) bool { return Sniff(name) }, List: listed, ByName: true, Python: "LinesDataset",
		Names: format.Names{Text: Text},
		Open: func(ctx context.Context, o format.Opening) (format.Dataset, error) {
			return Open(ctx, o.Source, o.Paths, Options{Progress: o.Progress})
		},
	}
}

// listed is List, with an error if the folder has no such files.
func listed(ctx context.Context, src source.Source, dir string) ([]string, error) {
	paths, err := List(ctx, src, dir)
	if err == nil && len(paths) == 0 {
		err = errs.New(errs.Empty, "there is no text file in this folder").At(errs.Where{File: dir}).
			Try("text files end in .txt, .text, .md, .jsonl or .ndjson")
	}
	return paths, err
}
