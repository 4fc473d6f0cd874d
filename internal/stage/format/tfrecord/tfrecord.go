// Package tfrecord reads TFRecord files, plain or compressed as a whole (gzip, as
// TensorFlow writes them; zstd and LZ4 too). Every record is a sample:
//
//	length  8  little-endian
//	check   4  masked CRC-32C of the length
//	payload    length bytes
//	check   4  masked CRC-32C of the payload
//
// where masked is the CRC rotated right by 15 bits, plus 0xa282ead8. Lengths are
// checked when a file is indexed, payloads when a sample is read. A file that is cut
// between two records cannot be told from a whole one, because the format has no end
// mark. A file of 0 bytes is what TensorFlow writes for no records; Notes names such
// files.
//
// The payload as stored is the field "data". If the first one is a tf.train.Example,
// all are read once, and its features are fields too:
//
//	bytes_list  of one value: its bytes. Of more: refused when it is wanted
//	int64_list  int64 numbers: one if every sample has one, k if every sample has k,
//	            else as many as there are
//	float_list  float32 numbers, likewise
//
// A list of numbers that a sample lacks is empty if the count differs between samples
// anyway, as in tf.io.VarLenFeature. A tf.train.SequenceExample has only its payload as
// a field. A feature whose name is not UTF-8 is not a field: nothing could ask for it,
// protocol buffers do not allow it, and TensorFlow does not parse such an Example.
// Notes names it.
package tfrecord

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/compressed"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The payload of a record. A feature that is called data takes the first name.
const (
	Data    = "data"
	Payload = "__data__"
)

// Options of TFRecord files.
type Options struct {
	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

// Dataset is an open list of files; safe for concurrent use.
type Dataset struct {
	x          *index.Index
	compressed *compressed.Table // nil: no file is
	start      []int64           // of samples: of the record in its file, unpacked
	first      []int64           // of files, and one more: number of the first sample
	sizes      []int64           // of files, unpacked
	fields     []feature         // in the order of their names
	names      []string          // what a sample has where everything is wanted
	all        int64             // samples that are Examples
	odd        []string          // quoted: names of features that are not fields
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// sharded is what TensorFlow calls the parts of a dataset.
var sharded = regexp.MustCompile(`-\d{5}-of-\d{5}$`)

// Sniff says whether a file of that name which begins with head is a TFRecord
// file. The check of the first length is proof; of a compressed file the name has to
// tell.
func Sniff(name string, head []byte) bool {
	if len(head) >= headLen {
		if _, ok := length(head); ok {
			return true
		}
	}
	if compressed.Sniff(head) == compressed.Plain {
		return false
	}
	name = unpackedName(strings.ToLower(name))
	for _, ext := range []string{".tfrecord", ".tfrecords", ".tfrec"} {
		if strings.HasSuffix(name, ext) || strings.Contains(name, ext+"-") && sharded.MatchString(name) {
			return true
		}
	}
	return sharded.MatchString(name)
}

// unpackedName is a name without what says how the file is compressed.
func unpackedName(name string) string {
	for _, ext := range []string{".gz", ".gzip", ".zst", ".lz4"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// Open opens files in this order (pattern.Expand makes the list of what a user
// wrote), indexing them where no index holds. The size and time of every file are
// compared at every Open and at every read. Errors: not_found, config,
// unreadable, damaged (also a compressed file of 0 bytes), unsupported, empty (no sample
// in any file), changed.
func Open(ctx context.Context, src source.Source, files []string, opt Options) (*Dataset, error) {
	if len(files) == 0 {
		return nil, errs.New(errs.Config, "the list of TFRecord files is empty").Try("give at least one, or a pattern such as train-*.tfrecord")
	}
	paths, err := format.Absolute(files)
	if err != nil {
		return nil, err
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "tfrecord", Options: `{"version":2}`, Paths: paths,
		Store: opt.Store, Progress: opt.Progress,
		Valid: valid,
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, paths, b, opt.Progress)
		},
	})
	if err != nil {
		return nil, err
	}
	return open(x), nil
}

func open(x *index.Index) *Dataset {
	d := &Dataset{
		x: x, compressed: compressed.Open(x), start: x.Int64s(sampleStart), first: x.Int64s(fileFirst),
		fields: features(x), names: x.Meta().Fields,
	}
	if all := x.Int64s(exampleCount); len(all) == 1 {
		d.all = all[0]
	}
	for odd, i := x.Strings(featureOdd), 0; i < odd.Len(); i++ {
		d.odd = append(d.odd, string(odd.At(i)))
	}
	for i := range x.Files() {
		size, _ := x.Stamp(i)
		if d.compressed != nil {
			size = d.compressed.Size(i)
		}
		d.sizes = append(d.sizes, size)
	}
	return d
}

// Plain says that Parse does little more than point into what was read: no file is
// compressed. Checksums, and numbers made of varints, cost less than a lane would.
func (d *Dataset) Plain() bool { return d.compressed == nil }

// shownFiles is how many names a note has.
const shownFiles = 10

// Notes are what a user should know of the files.
func (d *Dataset) Notes() (notes []string) {
	var empty []string
	for i := range d.x.Files() {
		if size, _ := d.x.Stamp(i); size == 0 {
			empty = append(empty, path.Base(string(d.x.AppendPath(i, nil))))
		}
	}
	if n := len(empty); n > 0 {
		shown := strings.Join(empty[:min(n, shownFiles)], ", ")
		if n > shownFiles {
			shown += " and others"
		}
		notes = append(notes, fmt.Sprintf("%d of %d files have 0 bytes, and count as no records: %s; TensorFlow writes such files, and copies that failed leave them",
			n, d.x.Files(), shown))
	}
	if d.odd != nil {
		notes = append(notes, fmt.Sprintf("features whose names are not UTF-8 are left out: %s; the field %q has the records whole", strings.Join(d.odd, ", "), d.whole()))
	}
	return notes
}

// whole is what the payload of a record is called.
func (d *Dataset) whole() string {
	if d.findString(Data) != nil {
		return Payload
	}
	return Data
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

// Format describes the format.
func Format() format.Format {
	return format.Format{
		Name: "tfrecord", Sniff: Sniff, Endings: []string{".tfrecord", ".tfrecords", ".tfrec"}, Arrays: true, Python: "TFRecordDataset",
		Names: format.Names{Key: "key", Record: Data},
		Open: func(ctx context.Context, o format.Opening) (format.Dataset, error) {
			return Open(ctx, o.Source, o.Paths, Options{Progress: o.Progress})
		},
	}
}

// ShapeOf returns the feature that holds the shape of a field's raw array, as stoker
// pack writes it, or "" if there is none.
func (d *Dataset) ShapeOf(field string) string {
	shape := field + "/shape"
	if !slices.Contains(d.x.Meta().Fields, shape) {
		return ""
	}
	return shape
}
