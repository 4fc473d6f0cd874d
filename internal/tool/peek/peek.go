// Package peek shows single samples of a dataset: their list, where they are
// stored, and the bytes of one.
package peek

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Dataset is an open dataset; for one goroutine.
type Dataset struct {
	all    *dataset.Collection
	ds     format.Stored
	read   *format.Reader
	sample format.Sample
}

// Open opens a dataset.
func Open(ctx context.Context, d spec.Dataset, opt dataset.Options) (*Dataset, error) {
	opt.Stored = true
	all, err := dataset.Open(ctx, spec.Spec{Dataset: d}, opt)
	if err != nil {
		return nil, err
	}
	if all.Dataset() == nil {
		all.Close()
		return nil, errs.New(errs.Config, "a synthetic dataset has no stored samples")
	}
	return &Dataset{all: all, ds: all.Dataset(), read: format.NewReader(all.Dataset(), all.Source())}, nil
}

// Close closes the dataset.
func (d *Dataset) Close() { d.all.Close() }

// Stored is the dataset as its format provides it.
func (d *Dataset) Stored() format.Stored { return d.ds }

// Source is where it is stored.
func (d *Dataset) Source() source.Source { return d.all.Source() }

// Format is the name of its format.
func (d *Dataset) Format() string { return d.all.Format() }

// Files says whether each sample is read from a file of its own.
func (d *Dataset) Files() bool { return d.all.Parts[0].Format().Files }

// Len is the number of samples.
func (d *Dataset) Len() int64 { return d.ds.Index().Len() }

// Line is one sample as it is listed.
type Line struct {
	ID     int64   `json:"id"`
	Key    string  `json:"key,omitempty"`
	File   string  `json:"file"`
	Offset int64   `json:"offset"` // of its first byte in File
	Bytes  int64   `json:"bytes"`  // that are stored
	Fields []Value `json:"fields,omitempty"`
}

// Value is one field of a sample. At most one of Int, Text and DType is set; if none is,
// only the length is known.
type Value struct {
	Name  string  `json:"name"`
	Bytes int64   `json:"bytes"`
	DType string  `json:"dtype,omitempty"`
	Shape []int   `json:"shape,omitempty"`
	Int   *int64  `json:"int,omitempty"`
	Text  *string `json:"text,omitempty"`
}

// Line is where sample id is stored, from the index alone.
func (d *Dataset) Line(ctx context.Context, id int64) (Line, error) {
	line := Line{ID: id}
	for i, e := range d.ds.Extents(id, nil, nil) {
		if i == 0 {
			line.File, line.Offset = string(d.ds.Index().AppendPath(e.File, nil)), e.Off
		}
		line.Bytes += e.Len
	}
	line.Key = d.key(ctx, id)
	return line, nil
}

// key is the format's name for the sample; "": it has none.
func (d *Dataset) key(ctx context.Context, id int64) string {
	if err := d.read.Read(ctx, id, []string{"__key__"}, &d.sample); err != nil || len(d.sample.Fields) != 1 {
		return ""
	}
	return string(d.sample.Fields[0].Data)
}

// Describe reads a sample and says what is in it.
func (d *Dataset) Describe(ctx context.Context, id int64) (Line, error) {
	line, err := d.Line(ctx, id)
	if err != nil {
		return line, err
	}
	if err := d.read.Read(ctx, id, nil, &d.sample); err != nil {
		return line, err
	}
	typed, _ := d.ds.(format.Typed)
	for i := range d.sample.Fields {
		f := &d.sample.Fields[i]
		if format.Hidden(f.Name) {
			continue
		}
		line.Fields = append(line.Fields, value(f, typed))
	}
	return line, nil
}

// shownText is the longest text, in bytes, that is shown; of a longer one, only the
// length is.
const shownText = 4096

func value(f *format.Field, typed format.Typed) Value {
	v := Value{Name: f.Name, Bytes: int64(len(f.Data))}
	if f.IsInt {
		n := f.Int
		v.Int = &n
		return v
	}
	if a, ok := arrayOf(f, typed); ok {
		v.DType, v.Shape = a.dtype.String(), a.shape
		return v
	}
	if len(f.Data) <= shownText && utf8.Valid(f.Data) {
		text := string(f.Data)
		v.Text = &text
	}
	return v
}

// Find is the id of a sample given by its number or its key. The key is written
// unchanged or as it is listed, which is quoted if a character cannot be printed.
func (d *Dataset) Find(ctx context.Context, name string) (int64, error) {
	id, err := strconv.ParseInt(name, 10, 64)
	if err == nil && id >= 0 && id < d.Len() {
		return id, nil
	}
	for id := range d.Len() {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if key := d.key(ctx, id); key != "" && (key == name || errs.Name(key) == name) {
			return id, nil
		}
	}
	return 0, errs.New(errs.NotFound, "there is no sample %q among %d", name, d.Len()).
		Try("give a number from 0 to %d, or a key as `stoker ls` lists them", d.Len()-1)
}

// Write writes the stored bytes of one field of a sample; a number as text.
func (d *Dataset) Write(ctx context.Context, w io.Writer, id int64, field string) error {
	if err := d.read.Read(ctx, id, []string{field}, &d.sample); err != nil {
		return err
	}
	f := &d.sample.Fields[0]
	if f.IsInt {
		return json.NewEncoder(w).Encode(f.Int)
	}
	_, err := w.Write(f.Data)
	return err
}
