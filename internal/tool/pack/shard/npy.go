package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Npy is one .npy file for each field of a shard: the arrays of its samples
// behind each other, with the sample as first axis, as numpy.load(mmap_mode="r")
// takes it. Every sample has the fields, types and shapes that NewNpy was told.
// Keys are not kept.
type Npy struct {
	fields []Field
}

// NewNpy is the output of samples like this one.
func NewNpy(like *Sample) (*Npy, error) {
	n := &Npy{}
	for _, f := range like.Fields {
		if f.DType == mem.Object {
			return nil, misfit(f.Name, "field %q holds encoded bytes, and an array has numbers", f.Name).
				Try("decode pictures with --decode, or choose the fields that are numbers with --fields")
		}
		for i := range n.fields {
			if SafeName(n.fields[i].Name) == SafeName(f.Name) {
				return nil, twice(&n.fields[i], &f, SafeName(f.Name))
			}
		}
		n.fields = append(n.fields, Field{Name: strings.Clone(f.Name), DType: f.DType, Shape: slices.Clone(f.Shape)})
	}
	if len(n.fields) == 0 {
		return nil, misfit("", "the samples have no field to write")
	}
	return n, nil
}

// Files is Output's.
func (n *Npy) Files() []File {
	var out []File
	for _, f := range n.fields {
		out = append(out, File{Field: SafeName(f.Name), End: ".npy", Plain: true, Head: func(samples int64) []byte {
			return npyHeader(f.DType, append(mem.Shape{int(samples)}, f.Shape...))
		}})
	}
	return out
}

// Encode is Output's.
func (n *Npy) Encode(s *Sample, parts [][]byte) error {
	if len(s.Fields) != len(n.fields) {
		return misfit("", "the sample has %d fields, and the first one had %d", len(s.Fields), len(n.fields))
	}
	for i := range s.Fields {
		f, like := &s.Fields[i], &n.fields[i]
		if f.Name != like.Name || f.DType != like.DType || !slices.Equal(f.Shape, like.Shape) {
			return misfit(f.Name, "field %q is %s %v, and that of the first sample is %s %v; the rows of an array are alike",
				f.Name, f.DType, []int(f.Shape), like.DType, []int(like.Shape)).
				Try("give pictures one size with --resize and --crop, or write tar, which holds any")
		}
		parts[i] = append(parts[i], f.Data...)
	}
	return nil
}

// npyHeader is format version 1.0 of NumPy's NEP 1: magic, version, length of
// the text as 2 bytes, and the text, filled up with blanks and a newline so that
// the data begins at a multiple of 64.
func npyHeader(d mem.DType, shape mem.Shape) []byte {
	var dims strings.Builder
	for i, n := range shape {
		if i > 0 {
			dims.WriteString(", ")
		}
		fmt.Fprint(&dims, n)
	}
	if len(shape) == 1 {
		dims.WriteByte(',')
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr(d), dims.String())
	const before = 10
	text += strings.Repeat(" ", 63-(before+len(text))%64) + "\n"
	return append([]byte{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, byte(len(text)), byte(len(text) >> 8)}, text...)
}

// descr is NumPy's name of a type.
func descr(d mem.DType) string {
	switch d {
	case mem.Uint8:
		return "|u1"
	case mem.Int8:
		return "|i1"
	case mem.Bool:
		return "|b1"
	case mem.Int16:
		return "<i2"
	case mem.Int32:
		return "<i4"
	case mem.Int64:
		return "<i8"
	case mem.Uint16:
		return "<u2"
	case mem.Uint32:
		return "<u4"
	case mem.Uint64:
		return "<u8"
	case mem.Float16:
		return "<f2"
	case mem.Float32:
		return "<f4"
	}
	return "<f8"
}
