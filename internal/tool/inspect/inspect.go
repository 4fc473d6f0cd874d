// Package inspect says what is in a dataset: its format, counts, fields, classes
// and sizes, and which samples are damaged.
//
// What the index knows is exact. The rest is read from samples, either a keyed
// choice of them, the same every time, or all: by default the headers and end
// marks of their pictures are checked, which finds files that are cut off, empty
// or something else; decoding everything finds the rest.
package inspect

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/entries"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// DefaultCheck is how many samples are read unless Config says otherwise.
const DefaultCheck = 1000

// Config is one inspection.
type Config struct {
	Dataset spec.Dataset
	Formats []dataset.Format // nil: dataset.Formats()
	Sources []source.Scheme  // nil: dataset.Sources
	Check   int64            // samples that are read; 0: DefaultCheck; less than 0: none
	All     bool             // read and decode all of them
	Decode  bool             // decode those that are read
	// Share, between 0 and 1, is the share of the dataset to read instead of Check.
	Share float64

	// Opened is called with the dataset before a sample is read; it may be nil.
	Opened func(ds format.Stored) error

	// Also is called with every sample that could be read, from several goroutines
	// at once; its error is damage of that sample. It may be nil.
	Also func(id int64, s *format.Sample) error

	// Each is called with every field that is in order, from several goroutines at
	// once; its error is damage of the sample. It may be nil.
	Each func(f Seen) error

	Indexing func(done, total int64, what string) // may be nil
	Progress func(done, total int64)              // of reading; may be nil
}

// Seen is one field of one sample; Field is valid until Each returns.
type Seen struct {
	ID            int64
	Field         *format.Field
	Kind          string // as Field.Kind of the Report
	Width, Height int64  // of an image
}

// Range is the sizes of many things.
type Range struct {
	Min    int64 `json:"min"`
	Median int64 `json:"median"`
	Max    int64 `json:"max"`
}

// Field describes one stored name.
type Field struct {
	Name    string           `json:"name"`
	Kind    string           `json:"kind"`             // image, number, text, json, array or bytes
	DType   string           `json:"dtype,omitempty"`  // of an array
	Shape   []int            `json:"shape,omitempty"`  // of an array; -1: differs from sample to sample
	Present int64            `json:"present"`          // in so many of the checked samples
	Formats map[string]int64 `json:"images,omitempty"` // JPEG, PNG, ...
	// Decoders counts, by kernel.Way, the JPEGs that each decoder decoded, if they were
	// decoded.
	Decoders map[string]int64 `json:"decoders,omitempty"`
	Bytes    *Range           `json:"bytes,omitempty"`
	Pixels   *Range           `json:"pixels,omitempty"`
	Width    *Range           `json:"width,omitempty"`
	Height   *Range           `json:"height,omitempty"`
	Values   *Range           `json:"values,omitempty"` // of whole numbers
}

// Class is one class and its samples.
type Class struct {
	Name    string `json:"name"`
	Samples int64  `json:"samples"`
}

// Entries are the entry points of JPEGs that are kept, as their store counts them. Which
// samples have them only the samples' bytes tell, in formats such as TFRecord and Parquet.
type Entries struct {
	Pictures int64 `json:"pictures"` // replaced records, and those of files that changed since, count too
	Bytes    int64 `json:"bytes"`    // of the cache folder's files, and of the one beside the data if it is used
}

// Report is what was found.
type Report struct {
	Path    []string `json:"path"`
	Format  string   `json:"format"`
	Digest  string   `json:"digest"`
	Samples int64    `json:"samples"`
	Files   int64    `json:"files"`
	Bytes   int64    `json:"bytes"`   // of all files
	Skipped int64    `json:"skipped"` // members of shards that are not data
	Fields  []Field  `json:"fields"`
	Classes []Class  `json:"classes,omitempty"` // in the order of their labels
	Entries *Entries `json:"entries,omitempty"` // nil: there are none

	Checked int64         `json:"checked"`
	Decoded bool          `json:"decoded"` // else headers and end marks
	Damaged int64         `json:"damaged"`
	Damage  []*wire.Error `json:"damage,omitempty"` // by sample, the first maxDamage
	// Trailing counts samples with a complete JPEG whose data continue after its last
	// block, if pictures were decoded. That is not damage.
	Trailing int64         `json:"trailing"`
	GoOn     []*wire.Error `json:"trailing_samples,omitempty"` // by sample, the first maxDamage
	// Broken are the ids of all damaged samples, in ascending order.
	Broken []int64 `json:"-"`

	Objects []format.Object `json:"objects,omitempty"` // of an HDF5 file
	Notes   []string        `json:"notes,omitempty"`
	Python  string          `json:"python"` // lines to paste

	stored    []string // names of what the samples have
	first     string   // name of the first stored file
	kind      format.Format
	delivered []dataset.Column // what a loader makes of them unasked
}

// maxDamage is how much damage is described in full.
const maxDamage = 1000

// maxNumbered is how many classes without names are counted: larger numbers are ids, not
// classes.
const maxNumbered = 1 << 16

// Run inspects a dataset. The report describes damage; an error means that the dataset
// could not be inspected.
func Run(ctx context.Context, c Config) (*Report, error) {
	c.Dataset = c.Dataset.Hidden()
	l, err := dataset.Open(ctx, spec.Spec{Dataset: c.Dataset}, dataset.Options{Formats: c.Formats, Sources: c.Sources, Progress: c.Indexing, Stored: true})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if l.Dataset() == nil {
		return nil, errs.New(errs.Config, "a synthetic dataset has nothing to inspect")
	}
	if c.Opened != nil {
		if err := c.Opened(l.Dataset()); err != nil {
			return nil, err
		}
	}
	r := fromIndex(c, l)
	if r.Objects, err = objects(ctx, l); err != nil {
		return nil, err
	}
	if err := r.check(ctx, c, l.Dataset(), c.choice(l.Len())); err != nil {
		return nil, err
	}
	d := c.Dataset
	if r.kind.Rows != format.RowsHold {
		d = r.namesFiles(ctx, c, l)
	}
	r.Python = pythonLines(d, l.Parts[0], r)
	return r, nil
}

// fromIndex is the part of the report that needs no sample.
func fromIndex(c Config, l *dataset.Collection) *Report {
	x := l.Dataset().Index()
	r := &Report{
		Path: c.Dataset.Path, Format: l.Format(), Digest: l.Digest(), Samples: l.Len(),
		Files: int64(x.Files()), Skipped: x.Meta().Skipped, Decoded: c.All || c.Decode, Notes: l.Notes(),
		stored: x.Meta().Fields, delivered: l.Columns(), kind: l.Parts[0].Format(),
	}
	if c.Dataset.Manifest != "" {
		r.Path = []string{c.Dataset.Manifest}
	}
	for f := range x.Files() {
		size, _ := x.Stamp(f)
		r.Bytes += size
	}
	if x.Files() > 0 {
		r.first = string(x.Name(0))
	}
	if n, bytes := entries.Stored(x, format.LocalBesidePath); n > 0 {
		r.Entries = &Entries{n, bytes}
	}
	for _, name := range x.Classes() {
		r.Classes = append(r.Classes, Class{Name: name})
	}
	labels := x.Int32s(index.SampleClass)
	if len(labels) > 0 && len(r.Classes) == 0 { // numbers without names
		n := int(slices.Max(labels)) + 1
		if n > maxNumbered {
			n, labels = 0, nil
		}
		for i := range n {
			r.Classes = append(r.Classes, Class{Name: strconv.Itoa(i)})
		}
	}
	for _, class := range labels {
		r.Classes[class].Samples++
	}
	return r
}

// choice is the samples to read, in the order of storage.
func (c Config) choice(n int64) []int64 {
	want := c.Check
	if want == 0 {
		want = DefaultCheck
	}
	if c.Share > 0 {
		want = max(1, int64(math.Ceil(float64(n)*c.Share)))
	}
	if c.All || want > n {
		want = n
	}
	want = max(want, 0)
	ids := make([]int64, want)
	if want == n {
		for i := range ids {
			ids[i] = int64(i)
		}
		return ids
	}
	plan, err := order.New(n, order.Policy{Shuffle: order.Full})
	if err != nil {
		return nil // n > 0, and the policy is known
	}
	e := plan.Epoch(0)
	for i := range ids {
		ids[i] = e.At(int64(i))
	}
	slices.Sort(ids)
	return ids
}

// Err is the error with which a command ends if there is damage; nil if there is none.
func (r *Report) Err() error {
	if r.Damaged == 0 {
		return nil
	}
	e := errs.New(errs.Damaged, "%s", show.Of(r.Damaged, r.Checked, "checked", "damaged"))
	return e.Try(`repair or remove them, or train with on_bad="skip" or "replace"`)
}

// tally is the figures of one field.
type tally struct {
	kind                         string
	typ                          format.Type // of an array
	present                      int64
	formats, decoders            map[string]int64
	bytes, width, height, pixels []int64
	values                       []int64
}

func (t *tally) field(name string) Field {
	f := Field{
		Name: name, Kind: t.kind, Present: t.present, Formats: t.formats, Decoders: t.decoders, Bytes: rangeOf(t.bytes),
		Pixels: rangeOf(t.pixels), Width: rangeOf(t.width), Height: rangeOf(t.height), Values: rangeOf(t.values),
	}
	if t.kind == "array" {
		f.DType, f.Shape = t.typ.DType.String(), t.typ.Shape
		if t.typ.Ragged {
			f.Shape = append([]int{-1}, t.typ.Shape...)
		}
	}
	return f
}

func rangeOf(v []int64) *Range {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	return &Range{v[0], v[len(v)/2], v[len(v)-1]}
}

// fields are the tallies, pictures first, then by name.
func fields(all map[string]*tally) []Field {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		image := func(n string) int {
			if all[n].kind == "image" {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(image(a), image(b)), cmp.Compare(a, b))
	})
	out := []Field{}
	for _, n := range names {
		out = append(out, all[n].field(n))
	}
	return out
}
