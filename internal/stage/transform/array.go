package transform

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/decode"
)

// Array is a field whose values are arrays, or numbers: what is stored, and what
// it becomes.
type Array struct {
	From  mem.DType // of the elements stored
	To    mem.DType // delivered; Object: as stored
	Shape mem.Shape // of one sample; where Ragged is set without its first axis
	// Ragged says that samples differ in the length of their first axis.
	Ragged bool
}

// CompileArray makes the program of such a field. Its Begin takes the elements as
// they are stored, little-endian and in C order, and gives the shape of the
// sample; Finish writes them. Kind is "array", or "number" for scalars.
func CompileArray(a Array) (*Program, error) {
	if a.To == mem.Object {
		a.To = a.From
	}
	if err := decode.Castable(a.From, a.To); err != nil {
		return nil, err
	}
	p := &Program{codec: codecArray, kind: "array", dtype: a.To, array: a, step: a.From.Size()}
	for _, n := range a.Shape {
		if n < 0 || n > 0 && p.step > maxStep/n {
			return nil, errs.New(errs.Unsupported, "samples of shape %v are too large", a.Shape)
		}
		p.step *= n
	}
	if len(a.Shape) == 0 && !a.Ragged {
		p.kind = "number"
	}
	if a.Ragged && p.step == 0 {
		return nil, errs.New(errs.Unsupported, "samples of shape %v hold nothing, and their length can not be told", a.Shape)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "stoker array 1\n%s %s %v %t\n", a.From, a.To, []int(a.Shape), a.Ragged))
	p.digest = hex.EncodeToString(sum[:16])
	return p, nil
}

// maxStep bounds the bytes of one sample, or of one step along a ragged axis.
const maxStep = 1 << 40

// Stored is the type of an array's elements as they are stored.
func (p *Program) Stored() mem.DType { return p.array.From }

// beginArray gives the number of dimensions, of which l.shape has the sizes.
func (p *Program) beginArray(l *Lane, encoded []byte) (mem.Shape, *errs.Error) {
	a := &p.array
	if !a.Ragged {
		if len(encoded) != p.step {
			return nil, failed("the array can not be read", kernel.FormatError(fmt.Sprintf("%d bytes are no %s of shape %v", len(encoded), a.From, a.Shape)))
		}
		return a.Shape, nil
	}
	if len(encoded)%p.step != 0 {
		return nil, failed("the array can not be read", kernel.FormatError(fmt.Sprintf("%d bytes are no whole number of steps of %d bytes (%s of shape %v)", len(encoded), p.step, a.From, a.Shape)))
	}
	l.shape = append(append(l.shape[:0], len(encoded)/p.step), a.Shape...)
	return l.shape, nil
}

// Elements writes elements as they are stored as those that are delivered: a part
// of a sample, for packs. Errors are as Finish's.
func (p *Program) Elements(dst, stored []byte) error {
	if err := decode.Cast(dst, stored, p.array.From, p.dtype); err != nil {
		return failed("the numbers can not be converted", err)
	}
	return nil
}

// As is the program of a number (int, float), with its result as another type.
func (p *Program) As(to mem.DType) (*Program, error) {
	if p.kind != "number" {
		return nil, errs.New(errs.Config, "dtype is for numbers and arrays, and this field holds %s", p.kind).Try("leave dtype out")
	}
	if err := decode.Castable(p.dtype, to); err != nil {
		return nil, err
	}
	out := *p
	out.array = Array{From: p.dtype, To: to}
	out.dtype = to
	if to != p.dtype {
		sum := sha256.Sum256(fmt.Appendf(nil, "stoker number 1\n%s %s\n", p.digest, to))
		out.digest = hex.EncodeToString(sum[:16])
	}
	return &out, nil
}

// Int writes a number that an index holds as this program delivers numbers.
func (p *Program) Int(dst []byte, n int64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	if err := decode.Cast(dst, b[:], mem.Int64, p.dtype); err != nil {
		return failed("the number can not be converted", err)
	}
	return nil
}
