package transform

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/decode"
)

// blob is bytes that are delivered unchanged; check rejects invalid ones, nil
// accepts all.
type blob struct {
	check func(value []byte) error
}

func validText(value []byte) error {
	if utf8.Valid(value) { // avoids the copy that Text makes
		return nil
	}
	_, err := decode.Text(value)
	return failed("cannot read the text", err)
}

func validJSON(value []byte) error {
	if err := decode.JSON(value); err != nil {
		return failed("cannot read the JSON", err)
	}
	return nil
}

func (b blob) begin(_ *Program, l *Lane, value []byte, _ rng.Key) (mem.Shape, *errs.Error) {
	if b.check != nil {
		if err := b.check(value); err != nil {
			return nil, errs.From(err)
		}
	}
	l.dims[0] = len(value)
	return l.dims[:1:1], nil
}

func (blob) size(_ *Program, l *Lane) int { return len(l.value) }

func (blob) finish(_ *Program, l *Lane, dst []byte) *errs.Error {
	copy(dst, l.value)
	return nil
}

// number is a number written as text: read returns its bits, in the type
// Program.from.
type number struct {
	read func(value []byte) (uint64, error)
}

func readInt(value []byte) (uint64, error) {
	n, err := decode.Int(value)
	return uint64(n), err
}

func readFloat(value []byte) (uint64, error) {
	f, err := decode.Float(value)
	return math.Float64bits(f), err
}

func (n number) begin(_ *Program, l *Lane, value []byte, _ rng.Key) (mem.Shape, *errs.Error) {
	bits, err := n.read(value)
	if err != nil {
		return nil, failed("cannot read the number", err)
	}
	l.number = bits
	return l.dims[:0:0], nil
}

func (number) size(p *Program, _ *Lane) int { return p.dtype.Size() }

func (number) finish(p *Program, l *Lane, dst []byte) *errs.Error {
	binary.LittleEndian.PutUint64(l.bits[:], l.number)
	return p.cast(dst, l.bits[:])
}

// As is the program of a number (int, float) with another type of result.
func (p *Program) As(to mem.DType) (*Program, error) {
	if _, ok := p.kind.(number); !ok {
		return nil, errs.New(errs.Config, "dtype needs numbers or arrays, but this field is %s", p.of).Try("leave dtype out")
	}
	if err := decode.Castable(p.from, to); err != nil {
		return nil, err
	}
	out := *p
	if out.dtype = to; to != p.from {
		out.digest = digest(fmt.Appendf(nil, "stoker number 1\n%s %s\n", p.digest, to))
	}
	return &out, nil
}

// Int writes a number from the index as this program delivers numbers.
func (p *Program) Int(dst []byte, n int64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	if err := decode.Cast(dst, b[:], mem.Int64, p.dtype); err != nil {
		return failed("cannot convert the number", err)
	}
	return nil
}
