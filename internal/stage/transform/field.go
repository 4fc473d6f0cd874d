package transform

import (
	"fmt"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Want is what a Spec asks for one field.
type Want struct {
	Decode string // a codec of Compile, array, or the name of a Described; "": as stored
	Ops    []Op
	Layout string
	DType  string // for numbers and arrays, by NumPy's name; "": as stored
	Ragged bool   // samples that have their own type and shape may differ in their first axis
}

// Stored is what is known about the values of a field before one of them is read.
type Stored struct {
	Array  bool // they are arrays of the type and shape below; otherwise encoded bytes
	DType  mem.DType
	Shape  mem.Shape // without the first axis if Ragged
	Ragged bool

	// Described are the ways of storing arrays in which values have their own type
	// and shape, by their names in Want.Decode.
	Described map[string]Described
	// First calls like with values of the field until one call returns no error.
	First func(like func(value []byte) error) error
}

// Pictured reports whether a field is an array that is treated as a picture:
// decoded bytes, HWC, requested as rgb or gray or with transforms.
func (w *Want) Pictured(s *Stored) bool {
	if !s.Array || s.DType != mem.Uint8 || s.Ragged || len(s.Shape) != 3 || s.Shape[2] != 1 && s.Shape[2] != 3 {
		return false
	}
	switch w.Decode {
	case "rgb":
		return s.Shape[2] == 3
	case "gray":
		return s.Shape[2] == 1
	}
	return len(w.Ops) > 0 || w.Layout != ""
}

// CompileField makes the program of a field, of the kind that follows from what is
// wanted and what is stored.
func CompileField(w Want, s Stored) (*Program, error) {
	if w.Pictured(&s) {
		return compilePixels(w, s.Shape)
	}
	if d, ok := s.Described[w.Decode]; ok {
		return compileDescribed(w, s, d)
	}
	if w.Decode == "" {
		w.Decode = "bytes"
		if s.Array {
			w.Decode = "array"
		}
	}
	a := Array{From: s.DType, Shape: s.Shape, Ragged: s.Ragged}
	number := s.Array && len(s.Shape) == 0 && !s.Ragged
	switch w.Decode {
	case "array":
		if !s.Array {
			return nil, errs.New(errs.Config, "it is stored as bytes of a file, not as an array").
				Try("decode it as rgb, text, json, int, float or npy, or leave it as bytes")
		}
		return compileArray(w, a)
	case "int", "float":
		if !s.Array {
			return compileValue(w)
		}
		if !number {
			return nil, errs.New(errs.Config, "it is stored as an array of %s, but %s needs one number", s.DType, w.Decode).Try("leave decode out, or cast with dtype")
		}
		a.To = mem.Int64
		if w.Decode == "float" {
			a.To = mem.Float64
		}
		return compileArray(w, a)
	case "bytes":
		return compileValue(w)
	}
	switch {
	case !s.Array, s.DType == mem.Uint8 && s.Ragged && len(s.Shape) == 0:
		return compileValue(w) // arrays of bytes may be files too, as in HDF5
	case len(w.Ops) > 0:
		return nil, errs.New(errs.Config, "it is stored as %s, but transforms need pictures", s.described()).
			Try("leave its transform out; dtype casts numbers")
	}
	return nil, errs.New(errs.Config, "it is stored as an array of %s, which needs no decoding as %s", s.DType, w.Decode).Try("leave decode out")
}

// described is a stored array in words.
func (s *Stored) described() string {
	switch {
	case s.Ragged:
		return fmt.Sprintf("arrays of %s of many lengths", s.DType)
	case len(s.Shape) == 0:
		return fmt.Sprintf("a number, %s", s.DType)
	}
	return fmt.Sprintf("an array of %s of shape %v", s.DType, []int(s.Shape))
}

// compileDescribed follows the first value that can be read.
func compileDescribed(w Want, s Stored, d Described) (p *Program, err error) {
	if s.Array {
		return nil, errs.New(errs.Config, "it is stored as an array of %s, not as a %s file", s.DType, d.Name).Try("leave decode out")
	}
	var says *Described
	if err := s.First(func(value []byte) (err error) {
		says, err = d.like(value)
		return err
	}); err != nil {
		return nil, err
	}
	seen := Stored{Array: true, DType: says.dtype, Shape: says.shape}
	switch {
	case len(w.Ops) > 0 && w.Pictured(&seen):
		p, err = compilePixels(w, seen.Shape)
	case w.Ragged && len(seen.Shape) > 0:
		says.ragged = true
		p, err = compileArray(w, Array{From: seen.DType, Shape: seen.Shape[1:], Ragged: true})
	default:
		p, err = compileArray(w, Array{From: seen.DType, Shape: seen.Shape})
	}
	if err != nil {
		return nil, err
	}
	p.says = says
	return p, nil
}

func compileArray(w Want, a Array) (*Program, error) {
	if len(w.Ops) > 0 || w.Layout != "" {
		return nil, errs.New(errs.Config, "transforms and layout need pictures, but this field is an array").
			Try("leave them out, or decode pictures as rgb or gray")
	}
	if w.DType != "" {
		to, err := DTypeOf(w.DType)
		if err != nil {
			return nil, err
		}
		a.To = to
	}
	return CompileArray(a)
}

// compileValue is Compile, with a dtype for numbers.
func compileValue(w Want) (*Program, error) {
	p, err := Compile(w.Decode, w.Ops, w.Layout)
	if err != nil || w.DType == "" {
		return p, err
	}
	to, err := DTypeOf(w.DType)
	if err != nil {
		return nil, err
	}
	return p.As(to)
}

// compilePixels makes the program of pictures that are stored decoded.
func compilePixels(w Want, shape mem.Shape) (*Program, error) {
	if w.DType != "" {
		return nil, errs.New(errs.Config, "batch, view and dtype need arrays, but this field is a picture").Try("leave them out, or leave out transforms, layout and decode")
	}
	return CompilePixels(shape, w.Ops, w.Layout)
}

// CompilePixels makes the program of a field whose samples are decoded pictures:
// uint8, HWC, all of one shape.
func CompilePixels(stored mem.Shape, ops []Op, layout string) (*Program, error) {
	codec, gray := "rgb", stored[2] == 1
	if gray {
		codec = "gray"
	}
	p, err := Compile(codec, ops, layout)
	if err != nil {
		return nil, err
	}
	k := &picture{gray: gray, stored: size{stored[1], stored[0]}}
	p.kind = k
	if !p.at.sized() && len(p.steps) == 0 {
		p.at.size = k.stored
	}
	p.digest = p.fingerprint()
	return p, nil
}

// DTypeOf is the type with this name. Types other than numbers are rejected, with
// what to write instead.
func DTypeOf(name string) (mem.DType, error) {
	d, ok := mem.ParseDType(name)
	if ok && d != mem.Object && d != mem.BFloat16 {
		return d, nil
	}
	if d == mem.BFloat16 {
		return d, errs.New(errs.Config, "dtype cannot be bfloat16, which is for pictures").Try("use float32, and convert it in the training loop")
	}
	e := errs.New(errs.Config, "unknown dtype %q", name)
	if near := errs.Nearest(name, mem.DTypes()); near != "" {
		return d, e.Try("did you mean %q?", near)
	}
	return d, e.Try("there are %s", strings.Join(mem.DTypes(), ", "))
}
