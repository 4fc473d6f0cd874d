package transform

import (
	"bytes"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Header is how a value describes itself: an array in C order whose elements begin
// at Off.
type Header struct {
	DType   mem.DType
	Swapped bool    // elements have more than one byte and are big-endian
	Shape   []int64 // no dimension is negative
	Off     int64   // of the first element, bytes
	Bytes   int64   // of all elements
}

// Described is a way of storing arrays in which each value has its own type and
// shape, which are not known before it is read. All samples must match the first
// one; if Ragged, the first axis may differ.
type Described struct {
	Name string // of the kind of value, for errors: ".npy"
	Read func(value []byte) (Header, error)
	Swap func(dst, src []byte, size int) // makes big-endian elements of size bytes little-endian

	raw    []byte // header of the first value: an equal one is not read again
	dtype  mem.DType
	shape  mem.Shape
	ragged bool
	swap   bool
}

// like is d for values that match this one.
func (d Described) like(value []byte) (*Described, error) {
	h, err := d.Read(value)
	if err != nil {
		return nil, err
	}
	if h.Bytes != int64(len(value))-h.Off {
		return nil, d.wrongLength(h, value)
	}
	d.raw, d.dtype, d.swap, d.shape = bytes.Clone(value[:h.Off]), h.DType, h.Swapped, mem.Shape{}
	for _, n := range h.Shape {
		d.shape = append(d.shape, int(n))
	}
	return &d, nil
}

func (d *Described) wrongLength(h Header, value []byte) error {
	return errs.New(errs.Damaged, "cannot read the %s array", d.Name).
		Because(kernel.FormatError(fmt.Sprintf("its header declares %d bytes of elements, but there are %d", h.Bytes, int64(len(value))-h.Off))).
		Try("write it again, or skip such samples with on_bad=\"skip\"")
}

// elements is what a value has after its header, which must match the first one;
// only the byte order may differ.
func (d *Described) elements(value []byte) (elements []byte, swap bool, err error) {
	if !d.ragged && bytes.HasPrefix(value, d.raw) {
		return value[len(d.raw):], d.swap, nil // its length is checked against the shape
	}
	h, err := d.Read(value)
	if err != nil {
		return nil, false, err
	}
	same := h.DType == d.dtype && len(h.Shape) == len(d.shape)
	for i := 0; same && i < len(d.shape); i++ {
		same = int(h.Shape[i]) == d.shape[i] || i == 0 && d.ragged
	}
	if !same {
		hint := "give all samples one shape and type, or skip others with on_bad=\"skip\""
		if !d.ragged && h.DType == d.dtype && len(h.Shape) == len(d.shape) && len(d.shape) > 0 {
			hint = "batch=\"padded\" or \"ragged\" takes samples that differ in their first axis; on_bad=\"skip\" skips others"
		}
		return nil, false, errs.New(errs.Damaged, "the array is %s of shape %v, but that of the first sample is %s of shape %v", h.DType, h.Shape, d.dtype, []int(d.shape)).Try("%s", hint)
	}
	if h.Bytes != int64(len(value))-h.Off {
		return nil, false, d.wrongLength(h, value)
	}
	return value[h.Off:], h.Swapped, nil
}

// open returns the elements of a value without its header, in the byte order of
// this machine. The stored bytes are not modified.
func (p *Program) open(l *Lane, value []byte) ([]byte, error) {
	if p.says == nil {
		return value, nil
	}
	elements, swap, err := p.says.elements(value)
	if err != nil || !swap {
		return elements, err
	}
	mem.Trim(&l.swapped)
	if cap(l.swapped) < len(elements) {
		l.swapped = make([]byte, len(elements))
	}
	l.swapped = l.swapped[:len(elements)]
	p.says.Swap(l.swapped, elements, p.says.dtype.Size())
	return l.swapped, nil
}
