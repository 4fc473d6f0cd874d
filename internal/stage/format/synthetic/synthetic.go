// Package synthetic is a dataset that is not stored: every sample is the same picture,
// ready-made, so that what a loader costs besides reading and decoding can be seen.
package synthetic

import (
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// Image is the name of the only field.
const Image = "image"

// Dataset is so many samples of one picture; safe for concurrent use.
type Dataset struct {
	n       int64
	shape   mem.Shape
	picture []byte
}

var _ format.Ready = (*Dataset)(nil)

// New makes n samples of a shape, of bytes.
func New(n int64, shape []int) (*Dataset, error) {
	size := 1
	for _, axis := range shape {
		if axis <= 0 || size > 1<<30/axis {
			return nil, errs.New(errs.Config, "a synthetic sample cannot have the shape %v", shape).Try("give sizes above 0, of at most 1 GiB together")
		}
		size *= axis
	}
	d := &Dataset{n: n, shape: slices.Clone(shape), picture: make([]byte, size)}
	for i := range d.picture {
		d.picture[i] = byte(i * 31)
	}
	return d, nil
}

// Format describes the format.
func Format() format.Format { return format.Format{Name: "synthetic", Made: true} }

// Len is format.Dataset's.
func (d *Dataset) Len() int64 { return d.n }

// Digest is format.Dataset's. It is part of saved states, and tells neither size nor
// shape.
func (d *Dataset) Digest() string { return "synthetic" }

// Classes is format.Dataset's.
func (d *Dataset) Classes() []string { return nil }

// Ready is format.Ready's.
func (d *Dataset) Ready() []format.ReadyField {
	return []format.ReadyField{{Name: Image, DType: mem.Uint8, Shape: d.shape}}
}

// Parse is format.Samples'.
func (d *Dataset) Parse(id int64, fields []string, _ [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(d.n) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, d.n)
	}
	s.Begin(id)
	for _, f := range fields {
		if f != Image {
			return errs.New(errs.MissingField, "a synthetic sample has no field %q; it has %s", f, Image)
		}
	}
	for range max(len(fields), 1) {
		s.Fields = append(s.Fields, format.Field{Name: Image, Data: d.picture, File: -1})
	}
	return nil
}
