package shard

import (
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// Npy is one .npy file for each field of a shard: the arrays of its samples one
// after the other, with the sample as first axis, for numpy.load(mmap_mode="r").
// Every sample has the fields, types and shapes of NewNpy's sample. Keys are not
// stored.
type Npy struct {
	fields []Field
}

// NewNpy returns the output for samples like this one.
func NewNpy(like *Sample) (*Npy, error) {
	n := &Npy{}
	for _, f := range like.Fields {
		if f.DType == mem.Object {
			return nil, misfit(f.Name, "field %q has encoded bytes, but an array needs numbers", f.Name).
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

// Files implements Output.
func (n *Npy) Files() []File {
	var out []File
	for _, f := range n.fields {
		out = append(out, File{Field: SafeName(f.Name), End: ".npy", Plain: true, Head: func(samples int64) []byte {
			return format.NPY(f.DType, append(mem.Shape{int(samples)}, f.Shape...), nil)
		}})
	}
	return out
}

// Encode implements Output.
func (n *Npy) Encode(s *Sample, parts [][]byte) error {
	if len(s.Fields) != len(n.fields) {
		return misfit("", "the sample has %s, but the first one had %d", errs.Many(len(s.Fields), "field"), len(n.fields))
	}
	for i := range s.Fields {
		f, like := &s.Fields[i], &n.fields[i]
		if f.Name != like.Name || f.DType != like.DType || !slices.Equal(f.Shape, like.Shape) {
			return misfit(f.Name, "field %q is %s %v, but that of the first sample is %s %v; all rows of an array have one type and shape",
				f.Name, f.DType, []int(f.Shape), like.DType, []int(like.Shape)).
				Try("give pictures one size with --resize and --crop, or write tar, which accepts any")
		}
		parts[i] = append(parts[i], f.Data...)
	}
	return nil
}
