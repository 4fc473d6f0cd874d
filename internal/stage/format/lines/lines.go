// Package lines is text: every line of a JSONL file is a sample, and every other
// text file is one, whole.
//
// The fields of a line are the keys of its object, strings as their text and
// everything else as JSON, and "json", the line itself; a text file has "text".
// Lines that are empty are none. What a line holds is looked at when it is read.
package lines

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/errs"
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
	switch strings.ToLower(filepath.Ext(name)) {
	case ".txt", ".text", ".md":
		return true
	}
	return isJSONL(name)
}

func isJSONL(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
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

var _ format.Dataset = (*Dataset)(nil)

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
	store := index.DefaultStore()
	if opt.Store != nil {
		store = *opt.Store
	}
	key := index.Key{Format: "lines", Paths: paths}
	x, err := store.Load(ctx, index.Plan{
		Key:   key,
		Fresh: func(x *index.Index) bool { return valid(x) && format.Fresh(ctx, src, paths, x) },
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, paths, b, opt.Progress)
		},
		Beside:   format.Beside(ctx, src, key),
		Progress: opt.Progress,
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

// Index is format.Dataset's.
func (d *Dataset) Index() *index.Index { return d.x }

// Close closes the index; no sample may be in use.
func (d *Dataset) Close() error { return d.x.Close() }

// place is the file of a sample, and where in it the sample begins.
func (d *Dataset) place(id int64) (file int, off int64) {
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

// Extents is format.Dataset's.
func (d *Dataset) Extents(id int64, _ []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(len(d.size)) {
		return dst
	}
	file, off := d.place(id)
	return append(dst, format.Extent{File: file, Off: off, Len: int64(d.size[id]), Whole: !d.jsonl[file]})
}

// Size is the bytes of the sample as it is stored, whatever the field.
func (d *Dataset) Size(id int64, _ string) int64 { return int64(d.size[id]) }

// Parse is format.Dataset's.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(len(d.size)) || len(raw) != 1 || len(raw[0]) != int(d.size[id]) {
		return errs.New(errs.Bug, "there is no sample %d of these bytes, the dataset has %d", id, len(d.size))
	}
	s.Begin(id)
	file, off := d.place(id)
	if !d.jsonl[file] {
		return d.text(id, file, fields, raw[0], s)
	}
	if fields == nil {
		fields = []string{JSON}
	}
	var object map[string]json.RawMessage
	for _, wanted := range fields {
		f := format.Field{Name: JSON, Data: raw[0], File: file, Off: off}
		if wanted != JSON {
			if object == nil {
				if err := json.Unmarshal(raw[0], &object); err != nil {
					return errs.New(errs.Damaged, "the line is no JSON object").At(d.where(id, file, off)).Because(err).
						Try("every line of a JSONL file is one object")
				}
			}
			if err := d.value(id, wanted, object, &f, s); err != nil {
				return err
			}
		}
		s.Fields = append(s.Fields, f)
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

// value fills in a field from a line's object.
func (d *Dataset) value(id int64, wanted string, object map[string]json.RawMessage, f *format.Field, s *format.Sample) error {
	for name := range strings.SplitSeq(wanted, ";") {
		v, there := object[name]
		if name == JSON {
			return nil
		}
		if !there {
			continue
		}
		f.Name, f.Unpacked = name, true
		var text string
		if len(v) > 0 && v[0] == '"' && json.Unmarshal(v, &text) == nil {
			f.Data = unsafe.Slice(unsafe.StringData(text), len(text))
		} else {
			f.Data, f.JSON = v, true
		}
		return nil
	}
	var have []string
	for name := range object {
		have = append(have, name)
	}
	slices.Sort(have)
	at := d.where(id, f.File, f.Off)
	at.Field = wanted
	e := errs.New(errs.MissingField, "the line has no key %q; it has %s", wanted, strings.Join(have, ", ")).At(at)
	if near := errs.Nearest(wanted, have); near != "" {
		return e.Try("did you mean %q?", near)
	}
	return e.Try("ask for one of the keys there are, or %q for the line itself", JSON)
}

func (d *Dataset) where(id int64, file int, off int64) errs.Where {
	return errs.Where{File: string(d.x.AppendPath(file, nil)), Offset: off, Sample: id}
}
