// Package toy is a format for tests: files of numbers, 8 bytes each, after a mark.
// It shows what a format needs, using exported names only.
package toy

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Mark is the first 8 bytes of a file.
const Mark = "TOYFILE1"

// Number is the only field.
const Number = "number"

// fileFirst is a column of the index: the first sample of each file, and one more
// entry.
const fileFirst = "file.first"

// Format describes the format.
func Format() format.Format {
	return format.Format{
		Name:  "toy",
		Sniff: func(_ string, head []byte) bool { return strings.HasPrefix(string(head), Mark) },
		Open: func(ctx context.Context, o format.Opening) (format.Dataset, error) {
			return Open(ctx, o.Source, o.Paths)
		},
	}
}

// Dataset is a set of open files. Safe for concurrent use.
type Dataset struct {
	x     *index.Index
	first []int64
}

var _ format.Stored = (*Dataset)(nil)

// Open opens files, and indexes them if there is no valid index.
func Open(ctx context.Context, src source.Source, paths []string) (*Dataset, error) {
	paths, err := format.Absolute(paths)
	if err != nil {
		return nil, err
	}
	x, err := index.DefaultStore().Load(ctx, index.Plan{
		Key: index.Key{Format: "toy", Paths: paths},
		Fresh: func(x *index.Index) bool {
			return len(x.Int64s(fileFirst)) == x.Files()+1 && format.Fresh(ctx, src, paths, x)
		},
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error { return build(ctx, src, paths, b) },
	})
	if err != nil {
		return nil, err
	}
	return &Dataset{x: x, first: x.Int64s(fileFirst)}, nil
}

func build(ctx context.Context, src source.Source, paths []string, b *index.Builder) error {
	objs, err := format.Stat(ctx, src, paths, "toy file")
	if err != nil {
		return err
	}
	first := []int64{0}
	for _, o := range objs {
		if o.Size < 8 || o.Size%8 != 0 {
			return errs.New(errs.Damaged, "a toy file of %d bytes does not have whole numbers", o.Size).
				At(errs.Where{Shard: o.Name}).Try("write it again")
		}
		first = append(first, first[len(first)-1]+o.Size/8-1)
	}
	format.Describe(b, objs)
	b.Int64s(fileFirst, first, index.Identity)
	b.Meta.Samples, b.Meta.Fields = first[len(first)-1], []string{Number}
	return nil
}

// Len implements format.Dataset.
func (d *Dataset) Len() int64 { return d.x.Len() }

// Digest implements format.Dataset.
func (d *Dataset) Digest() string { return d.x.Digest() }

// Classes implements format.Dataset.
func (d *Dataset) Classes() []string { return nil }

// Index implements format.Stored.
func (d *Dataset) Index() *index.Index { return d.x }

// Extents implements format.Stored.
func (d *Dataset) Extents(id int64, _ []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(d.Len()) {
		return dst
	}
	file := 0
	for d.first[file+1] <= id {
		file++
	}
	return append(dst, format.Extent{File: file, Off: 8 * (1 + id - d.first[file]), Len: 8})
}

// Parse implements format.Samples.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if len(raw) != 1 || len(raw[0]) != 8 {
		return errs.New(errs.Bug, "sample %d was given the wrong bytes", id)
	}
	s.Begin(id)
	if fields == nil {
		fields = []string{Number}
	}
	for _, name := range fields {
		if name != Number {
			return errs.New(errs.MissingField, "there is no field %q; there is %s", name, Number)
		}
		s.Fields = append(s.Fields, format.Field{Name: Number, Int: int64(binary.LittleEndian.Uint64(raw[0])), IsInt: true, File: -1})
	}
	return nil
}
