package stoker

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// Batch is the samples of one step. Its memory is reused for a later batch: the
// batch, and every slice taken from it, is valid until the loop body that received
// it ends. A body that passes the batch on calls Retain, and its last user calls
// Release. Retained batches take memory of Deliver.Memory; retaining all of them
// gives an error with code Held, not a hang.
type Batch struct {
	Epoch    int64
	Step     int64 // counted from the start of the epoch, in a resumed pass too
	Position int64 // places of the epoch that all ranks have received, including this batch
	Rows     int   // samples; for a batch of runs (BatchSpec.Pack), runs
	// Bad are the samples of this step that could not be delivered.
	Bad []BadSample

	l    *Loader
	in   *loader.Batch
	refs atomic.Int32
}

// The columns that a batch of runs has too (BatchSpec.Pack). Its fields of bytes are
// dense rows of Pack tokens. All other columns have one row per run: one for every
// sample or piece of a sample, in the order of the rows, and one with id -1 for the
// unused end of a row. Batch.Rows counts runs.
const (
	PositionIDs = batch.PositionIDs // the position of every token in its sample
	SeqLens     = batch.SeqLens     // tokens of every run
)

// BadSample is a sample that was not delivered as ordered, because of Err: Put is
// the id of its replacement (-1: a copy of a good row, marked as not valid).
type BadSample = compose.Bad

// Tensor is a column of a batch: a view of its memory.
type Tensor[T any] struct {
	Data  []T   // in C order
	Shape []int // rows first
}

// Row is one sample of the column.
func (t Tensor[T]) Row(i int) []T {
	n := mem.Shape(t.Shape[1:]).Elems()
	return t.Data[i*n : (i+1)*n : (i+1)*n]
}

// RaggedTensor is a column of arrays that differ in the length of their first axis,
// stored one after the other.
type RaggedTensor[T any] struct {
	Values  []T
	Offsets []int64 // rows + 1: where each array begins, in steps of the first axis
	Shape   []int   // of one step; empty if arrays have one dimension
}

// Row is one sample of the column.
func (t RaggedTensor[T]) Row(i int) []T {
	n := int64(mem.Shape(t.Shape).Elems())
	return t.Values[t.Offsets[i]*n : t.Offsets[i+1]*n : t.Offsets[i+1]*n]
}

// Number is the Go types of elements. There is none for float16 and bfloat16: see Bits.
type Number interface {
	bool | uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | float32 | float64 | Bits
}

// Bits is a float16 as stored in memory (IEEE 754 binary16), or a bfloat16: the upper half
// of a float32.
type Bits uint16

// Array returns a column of arrays or numbers of any type. Padded arrays are as
// long as the longest of the batch, and their lengths are in the column
// NAME_lengths.
func Array[T Number](b *Batch, name string) (Tensor[T], error) {
	return typed[T](b, name, dtypeOf[T]())
}

// Ragged returns a column of arrays that differ in length.
func Ragged[T Number](b *Batch, name string) (RaggedTensor[T], error) {
	dtype := dtypeOf[T]()
	col, err := b.column(name, dtype)
	if err != nil {
		return RaggedTensor[T]{}, err
	}
	if col.Kind != "ragged" {
		return RaggedTensor[T]{}, errs.New(errs.Config, "field %q is not ragged", name).Try("%s", accessor(dtype.String(), name))
	}
	slot := b.in.Slot.Mem
	offsets := see[int64](slot[col.Off:], b.Rows+1)
	n := int(offsets[b.Rows]) * mem.Shape(col.Shape).Elems()
	return RaggedTensor[T]{Values: see[T](slot[col.Data:], n), Offsets: offsets, Shape: slices.Clone(col.Shape)}, nil
}

// dtypeOf is the element type that corresponds to a Go type.
func dtypeOf[T Number]() mem.DType {
	switch any(*new(T)).(type) {
	case bool:
		return mem.Bool
	case uint8:
		return mem.Uint8
	case uint16:
		return mem.Uint16
	case uint32:
		return mem.Uint32
	case uint64:
		return mem.Uint64
	case int8:
		return mem.Int8
	case int16:
		return mem.Int16
	case int32:
		return mem.Int32
	case int64:
		return mem.Int64
	case float32:
		return mem.Float32
	case float64:
		return mem.Float64
	}
	return mem.Float16
}

// see returns n elements of a slot, which are aligned to their size.
func see[T any](raw []byte, n int) []T {
	raw = raw[:n*int(unsafe.Sizeof(*new(T)))]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(raw))), n)
}

func newBatch(l *Loader, in *loader.Batch) *Batch {
	b := &Batch{Epoch: in.Epoch, Step: in.Step, Position: in.Position, Rows: in.Rows, Bad: in.Bad, l: l, in: in}
	b.refs.Store(1)
	return b
}

// Retain keeps the batch valid until the matching call of Release.
func (b *Batch) Retain() { b.refs.Add(1) }

// Release ends a Retain. Extra calls are harmless, except that the memory may be
// reused before the loop body ends.
func (b *Batch) Release() {
	if b.refs.Add(-1) == 0 {
		b.in.Release()
	}
}

// IDs returns the numbers of the samples in the dataset.
func (b *Batch) IDs() []int64 {
	t, _ := view[int64](b, batch.IDs, nil)
	return t.Data
}

// Valid reports which rows count: not those that fill up the end of an epoch, and
// not those that replace skipped samples.
func (b *Batch) Valid() []bool {
	t, _ := view[bool](b, batch.Valid, nil)
	return t.Data
}

// Uint8 returns a column of bytes: pictures, NHWC.
func (b *Batch) Uint8(name string) (Tensor[uint8], error) { return typed[uint8](b, name, mem.Uint8) }

// Float32 returns a column of floats: pictures, NCHW unless the Field's Layout is
// nhwc.
func (b *Batch) Float32(name string) (Tensor[float32], error) {
	return typed[float32](b, name, mem.Float32)
}

// Int32 returns one of the columns of a batch of runs: PositionIDs, SeqLens.
func (b *Batch) Int32(name string) (Tensor[int32], error) { return typed[int32](b, name, mem.Int32) }

// Int64 returns a column of whole numbers: labels.
func (b *Batch) Int64(name string) (Tensor[int64], error) { return typed[int64](b, name, mem.Int64) }

// Float64 returns a column of numbers decoded as float.
func (b *Batch) Float64(name string) (Tensor[float64], error) {
	return typed[float64](b, name, mem.Float64)
}

// Bytes returns the rows of a column of bytes, text or json.
func (b *Batch) Bytes(name string) ([][]byte, error) {
	col, err := b.column(name, mem.Object)
	if err != nil {
		return nil, err
	}
	slot := b.in.Slot.Mem
	rows := make([][]byte, b.Rows)
	for i := range rows {
		from := binary.LittleEndian.Uint64(slot[col.Off+8*int64(i):])
		to := binary.LittleEndian.Uint64(slot[col.Off+8*int64(i)+8:])
		rows[i] = slot[uint64(col.Data)+from : uint64(col.Data)+to : uint64(col.Data)+to]
	}
	return rows, nil
}

func typed[T any](b *Batch, name string, want mem.DType) (Tensor[T], error) {
	col, err := b.column(name, want)
	if err != nil {
		return Tensor[T]{}, err
	}
	return view[T](b, name, col)
}

// view returns a column's memory as elements. Columns are aligned to 64 bytes.
func view[T any](b *Batch, name string, col *batch.Column) (Tensor[T], error) {
	if b.refs.Load() <= 0 {
		return Tensor[T]{}, released()
	}
	if col == nil {
		col = b.find(name)
	}
	rows := b.Rows
	if col.Rows > 0 { // of runs: fewer, longer rows
		rows = col.Rows
	}
	if col.Kind == "ragged" {
		return Tensor[T]{}, errs.New(errs.Config, "field %q is ragged: its samples differ in length", name).
			Try("stoker.Ragged(batch, %q) gives values and offsets; a Field with Batch padded is dense", name)
	}
	t := Tensor[T]{Shape: append([]int{rows}, col.Shape...)}
	t.Data = see[T](b.in.Slot.Mem[col.Off:], mem.Shape(t.Shape).Elems())
	return t, nil
}

func (b *Batch) find(name string) *batch.Column {
	for i := range b.in.Columns {
		if b.in.Columns[i].Name == name {
			return &b.in.Columns[i]
		}
	}
	return nil
}

// column returns the column with this name, if it has the wanted type.
func (b *Batch) column(name string, want mem.DType) (*batch.Column, error) {
	if b.refs.Load() <= 0 {
		return nil, released()
	}
	var names []string
	for _, f := range b.l.fields {
		if f.Name != name {
			names = append(names, f.Name)
			continue
		}
		bits := want == mem.Float16 && f.DType == mem.BFloat16.String()
		if f.DType != want.String() && !bits {
			return nil, errs.New(errs.Config, "field %q holds %s, not %s", name, f.DType, want).Try("%s", accessor(f.DType, name))
		}
		return b.find(name), nil
	}
	e := errs.New(errs.Config, "batches have no field %q", name)
	if near := errs.Nearest(name, names); near != "" {
		return nil, e.Try("did you mean %q?", near)
	}
	return nil, e.Try("there are %s", strings.Join(names, ", "))
}

// accessor is the call that reads a column of this type.
func accessor(dtype, name string) string {
	if dtype == "float16" || dtype == "bfloat16" {
		return fmt.Sprintf("stoker.Array[stoker.Bits](batch, %q)", name)
	}
	method := map[string]string{"uint8": "Uint8", "int32": "Int32", "float32": "Float32", "int64": "Int64", "float64": "Float64", "object": "Bytes"}[dtype]
	if method == "" {
		return fmt.Sprintf("stoker.Array[%s](batch, %q)", dtype, name)
	}
	return fmt.Sprintf("batch.%s(%q)", method, name)
}

func released() error {
	return errs.New(errs.Config, "the batch was released: its memory may hold another batch").
		Try("call Retain in the loop body that receives it, and Release when you are done")
}
