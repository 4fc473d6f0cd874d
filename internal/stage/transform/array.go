package transform

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/decode"
)

// Array is a field whose values are arrays or numbers: what is stored, and what it
// becomes.
type Array struct {
	From  mem.DType // of the elements stored
	To    mem.DType // delivered; Object: as stored
	Shape mem.Shape // of one sample; without the first axis if Ragged is set
	// Ragged says that samples may differ in the length of their first axis.
	Ragged bool
}

// array is the kind of program of an Array.
type array struct {
	Array
	step int // stored bytes of a sample, or of one step of a ragged one
}

// CompileArray makes the program of such a field. Its Begin takes the elements as
// they are stored, little-endian and in C order, and returns the shape of the
// sample; Finish writes them. Kind is "array", or "number" for scalars.
func CompileArray(a Array) (*Program, error) {
	if a.To == mem.Object {
		a.To = a.From
	}
	if err := decode.Castable(a.From, a.To); err != nil {
		return nil, err
	}
	k := &array{a, a.From.Size()}
	p := &Program{of: "array", kind: k, from: a.From, dtype: a.To}
	for _, n := range a.Shape {
		if n < 0 || n > 0 && k.step > maxStep/n {
			return nil, errs.New(errs.Unsupported, "samples of shape %v are too large", a.Shape)
		}
		k.step *= n
	}
	if len(a.Shape) == 0 && !a.Ragged {
		p.of = "number"
	}
	if a.Ragged && k.step == 0 {
		return nil, errs.New(errs.Unsupported, "samples of shape %v have no elements, so their length is unknown", a.Shape)
	}
	p.digest = digest(fmt.Appendf(nil, "stoker array 1\n%s %s %v %t\n", a.From, a.To, []int(a.Shape), a.Ragged))
	return p, nil
}

// maxStep bounds the bytes of one sample, or of one step along a ragged axis.
const maxStep = 1 << 40

// Array describes the values of the program; false if they are not arrays.
func (p *Program) Array() (Array, bool) {
	if k, ok := p.kind.(*array); ok {
		return k.Array, true
	}
	return Array{}, false
}

func (k *array) begin(_ *Program, l *Lane, value []byte, _ rng.Key) (mem.Shape, *errs.Error) {
	if !k.Ragged {
		if len(value) != k.step {
			return nil, failed("cannot read the array", kernel.FormatError(fmt.Sprintf("%d bytes are not %s of shape %v", len(value), k.From, k.Shape)))
		}
		return k.Shape, nil
	}
	if len(value)%k.step != 0 {
		return nil, failed("cannot read the array", kernel.FormatError(fmt.Sprintf("%d bytes are not a whole number of steps of %d bytes (%s of shape %v)", len(value), k.step, k.From, k.Shape)))
	}
	l.shape = append(append(l.shape[:0], len(value)/k.step), k.Shape...)
	return l.shape, nil
}

func (k *array) size(_ *Program, l *Lane) int {
	return len(l.value) / max(1, k.From.Size()) * k.To.Size()
}

func (k *array) finish(p *Program, l *Lane, dst []byte) *errs.Error { return p.cast(dst, l.value) }

// Part writes the elements [from, to) of the array begun last, or of the bytes,
// into dst. Any number of parts replaces Finish. Elements are counted over the
// whole array in C order.
func (p *Program) Part(l *Lane, dst []byte, from, to int) error {
	if l.program != p {
		return errs.New(errs.Bug, "transform: Part without a Begin of the same program")
	}
	if _, ok := p.kind.(blob); ok {
		copy(dst, l.value[from:to])
		return nil
	}
	size := p.from.Size()
	if err := p.cast(dst, l.value[from*size:to*size]); err != nil {
		return err
	}
	return nil
}

// cast converts stored elements to delivered ones.
func (p *Program) cast(dst, stored []byte) *errs.Error {
	if err := decode.Cast(dst, stored, p.from, p.dtype); err != nil {
		return failed("cannot convert the numbers", err)
	}
	return nil
}
