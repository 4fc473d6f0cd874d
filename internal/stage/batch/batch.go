// Package batch lays samples out as one batch: where each field of each row
// is in a slot, and how rows of unequal length are stored one after the other.
//
// A slot is one run of memory:
//
//	columns of fixed size, each at a multiple of 4 KiB if it is large, 64 bytes
//	if it is small; among them, for every field of unequal rows, its table of
//	Rows+1 offsets
//	the bytes of the fields of unequal rows, in the order of rows
//
// Samples of fixed size are decoded straight into their place in the slot; no
// byte of theirs is copied again before the consumer reads it. Unequal rows are
// collected by their lanes and put into the slot when the batch closes.
package batch

import (
	"encoding/binary"
	"slices"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// The columns that every batch has besides its fields.
const (
	IDs   = "__ids__"   // int64: sample ids
	Valid = "__valid__" // bool: false for padding and for skipped samples
)

// The columns that a batch of runs has too. Its rows are runs: those of samples, and
// the unused end of each row of tokens, with id -1.
const (
	PositionIDs = "__position_ids__" // int32: the position of every token in its sample
	SeqLens     = "__seqlens__"      // int32: tokens of each run
)

// Form is how the samples of an array are stored in a column.
type Form uint8

// The forms.
const (
	Dense  Form = iota // all have one shape
	Padded             // made equal in their first axis
	Ragged             // one after the other, with their offsets
)

func (f Form) String() string { return [...]string{"dense", "padded", "ragged"}[f] }

// Field is one column of a batch.
type Field struct {
	Name  string
	DType mem.DType
	Shape mem.Shape // of one sample, in memory
	// Loose says that the samples' shapes or lengths differ. Shape is then nil, or,
	// for an array, the shape of one step along its first axis.
	Loose bool
	Form  Form
	// Placed says that the column is a whole batch, which whoever made it has written
	// after the fixed columns; there are no rows.
	Placed bool
	// For Padded: how, and the number of the column that has the samples' lengths
	// (int64). If Pad.To is set, rows have one shape and are not Loose.
	Pad     Pad
	Lengths int
	// Steps is the number of the column that has what is left to be done to the samples,
	// which are pictures; 0: there is none.
	Steps int
	// Sent is the number of the column that says how a row is made of what is sent of its
	// picture instead, which the column after it has; 0: there is none.
	Sent int
	// From and To are the part of a sample's first axis that the column has; 0, 0:
	// all of it.
	From, To int
	// RunBytes is the size of a column of runs, which the samples of a batch share:
	// its rows have Shape, and there are as many as fit. 0: one row per sample.
	RunBytes int64
	// Of is 1 + the number of an earlier column that has another part of the same
	// stored values; 0: there is none.
	Of int
}

// size is the size of one row in bytes.
func (f Field) size() int64 {
	switch {
	case f.Loose && f.Form == Padded, f.Placed:
		return 0
	case f.Loose:
		return 8 // an offset
	}
	return int64(f.Seen().Elems()) * int64(f.DType.Size())
}

// step is the size in bytes of one step along the first axis of an array whose
// samples differ in it.
func (f Field) step() int64 { return int64(f.Shape.Elems() * f.DType.Size()) }

// Seen is the shape of one sample in the batch; for a view, of its part. Each view
// has its own rows, in C order without gaps. Views of one buffer would save a copy
// in the CPU cache, but their rows would have gaps, and the view(-1) of a training
// loop fails on such tensors.
func (f Field) Seen() mem.Shape {
	if f.To == 0 {
		return f.Shape
	}
	return append(mem.Shape{f.To - f.From}, f.Shape[1:]...)
}

// Layout says where the columns of a batch of up to Rows samples are. It is
// immutable. The last two columns are IDs and Valid.
type Layout struct {
	Fields []Field
	Rows   int
	off    []int64
	fixed  int64
}

// A slot is laid out alike on every machine. Where the kernel's pages are larger than
// pageBytes, columns share them, which nothing minds: a slot is mapped as a whole.
const (
	pageBytes = 4096
	lineBytes = 64
)

func align(n, to int64) int64 { return (n + to - 1) / to * to }

// NewLayout lays out fields for batches of up to rows samples.
func NewLayout(fields []Field, rows int) *Layout {
	l := &Layout{Rows: rows}
	l.Fields = append(l.Fields, fields...)
	l.Fields = append(l.Fields, Field{Name: IDs, DType: mem.Int64}, Field{Name: Valid, DType: mem.Bool})
	var at int64
	for _, f := range l.Fields {
		n := f.size() * int64(rows)
		switch {
		case f.RunBytes > 0:
			n = f.RunBytes
		case f.Loose && n > 0:
			n += 8
		}
		if n >= pageBytes {
			at = align(at, pageBytes)
		} else {
			at = align(at, lineBytes)
		}
		l.off = append(l.off, at)
		at += n
	}
	l.fixed = align(at, pageBytes)
	return l
}

// Bytes is the size of a slot without unequal rows: a multiple of 4 KiB.
func (l *Layout) Bytes() int64 { return l.fixed }

// Off is the offset in bytes of a column in the slot.
func (l *Layout) Off(field int) int64 { return l.off[field] }

// Row is the memory of one row of a column of fixed size.
func (l *Layout) Row(slot []byte, field, row int) []byte {
	n := l.Fields[field].size()
	at := l.off[field] + int64(row)*n
	return slot[at : at+n : at+n]
}

// Column is the memory of a column of runs.
func (l *Layout) Column(slot []byte, field int) []byte {
	at := l.off[field]
	return slot[at : at+l.Fields[field].RunBytes : at+l.Fields[field].RunBytes]
}

// Stamp writes a row's id and whether it is valid.
func (l *Layout) Stamp(slot []byte, row int, id int64, valid bool) {
	n := len(l.Fields)
	binary.LittleEndian.PutUint64(l.Row(slot, n-2, row), uint64(id))
	b := byte(0)
	if valid {
		b = 1
	}
	l.Row(slot, n-1, row)[0] = b
}

// CopyRow copies a row's fixed columns, except for id and validity.
func (l *Layout) CopyRow(slot []byte, to, from int) {
	for i := range l.Fields[:len(l.Fields)-Marks] {
		if f := &l.Fields[i]; !f.Loose && !f.Placed && f.RunBytes == 0 {
			copy(l.Row(slot, i, to), l.Row(slot, i, from))
		}
	}
}

// Marks is the number of fields at the end of a layout that the loader fills: the ids, and
// whether rows are valid.
const Marks = 2

// Slot is the memory of one batch. It is free, being filled, ready or leased, and
// has one owner at any time; only the owner may write to it.
type Slot struct {
	ID  int
	Mem []byte
	// Fresh is set until the consumer has been told of this memory.
	Fresh bool
	FD    int // descriptor of the memory; -1: none

	poisoned bool
}

// poison is what poisoned memory is full of.
const poison = 0xA5

// Poison overwrites the slot, in tests: arrays over it that should be gone show it, and
// Sound whoever writes to it before it is used again.
func (s *Slot) Poison() {
	for i := range s.Mem {
		s.Mem[i] = poison
	}
	s.poisoned = true
}

// Sound reports whether nothing was written to the slot since Poison, and ends that.
func (s *Slot) Sound() bool {
	was := s.poisoned
	s.poisoned = false
	return !was || !slices.ContainsFunc(s.Mem, func(b byte) bool { return b != poison })
}

// Arena allocates slots. Safe for concurrent use. Its errors have code memory.
type Arena interface {
	Alloc(bytes int64) (*Slot, error)
	Free(s *Slot)
}

// Heap is the Arena of a consumer in this process.
type Heap struct{}

// Alloc makes a slot on the Go heap.
func (Heap) Alloc(bytes int64) (*Slot, error) { return &Slot{Mem: make([]byte, bytes), FD: -1}, nil }

// Free leaves the memory to the garbage collector.
func (Heap) Free(*Slot) {}
