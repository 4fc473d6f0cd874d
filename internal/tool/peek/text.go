package peek

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// WriteText writes a sample, or one field of it, for people: numbers and texts as they
// are, arrays as type, shape and nested lists, and of other bytes the number and the
// first ones. Unless all is set, long values are cut, and … marks the cut.
func (d *Dataset) WriteText(ctx context.Context, w io.Writer, id int64, field string, all bool) error {
	var fields []string
	if field != "" {
		fields = []string{field}
	}
	line, err := d.Line(ctx, id)
	if err != nil {
		return err
	}
	if err := d.read.Read(ctx, id, fields, &d.sample); err != nil {
		return err
	}
	if field != "" {
		_, err := w.Write(append(d.appendText(nil, &d.sample.Fields[0], all), '\n'))
		return err
	}
	head := fmt.Sprintf("sample %d", id)
	if line.Key != "" {
		head += ", " + errs.Name(line.Key)
	}
	if _, err := fmt.Fprintf(w, "%s, %s, offset %d, %s\n", head, errs.Name(line.File), line.Offset, show.Size(line.Bytes)); err != nil {
		return err
	}
	for i := range d.sample.Fields {
		f := &d.sample.Fields[i]
		if format.Hidden(f.Name) {
			continue
		}
		text := append([]byte(errs.Name(f.Name)), ": "...)
		if _, err := w.Write(append(d.appendText(text, f, all), '\n')); err != nil {
			return err
		}
	}
	return nil
}

// Limits of a value that is not shown whole.
const (
	shownElems = 1000 // arrays of more are cut
	shownEdge  = 3    // numbers kept at each end of a cut axis
	shownRunes = 1000 // of a text
	shownBytes = 16   // of what is neither
)

func (d *Dataset) appendText(dst []byte, f *format.Field, all bool) []byte {
	if f.IsInt {
		return strconv.AppendInt(dst, f.Int, 10)
	}
	typed, _ := d.ds.(format.Typed)
	if a, ok := arrayOf(f, typed); ok {
		dst = fmt.Appendf(dst, "%s %s\n", a.dtype, strings.ReplaceAll(fmt.Sprint([]int(a.shape)), " ", ", "))
		l := list{array: a, dst: dst, begin: len(dst), cut: !all && a.shape.Elems() > shownElems}
		l.append(0, 0)
		return l.dst
	}
	if text := f.Data; utf8.Valid(text) {
		for n, at := range runeStarts(text) {
			if n == shownRunes && !all {
				return append(append(dst, text[:at]...), "…"...)
			}
		}
		return append(dst, text...)
	}
	dst = append(dst, show.Size(int64(len(f.Data)))...)
	dst = append(dst, " of bytes: "...)
	if all {
		return hex.AppendEncode(dst, f.Data)
	}
	return append(hex.AppendEncode(dst, f.Data[:min(shownBytes, len(f.Data))]), "…"...)
}

// runeStarts yields the number and the offset of every character.
func runeStarts(text []byte) func(yield func(n, at int) bool) {
	return func(yield func(n, at int) bool) {
		n := 0
		for at := range string(text) {
			if !yield(n, at) {
				return
			}
			n++
		}
	}
}

// array is numbers, little-endian, in C order.
type array struct {
	dtype mem.DType
	shape mem.Shape
	elems []byte
}

// arrayOf is the array in a field, described by its format or, for a stored .npy file,
// by its own header; false: it is not an array.
func arrayOf(f *format.Field, typed format.Typed) (array, bool) {
	if typed != nil {
		if t, ok := typed.Type(f.Name); ok && t.DType != mem.Object {
			a := array{t.DType, append(mem.Shape{}, t.Shape...), f.Data}
			if size := t.Shape.Elems() * t.DType.Size(); t.Ragged && size > 0 {
				a.shape = append(mem.Shape{len(f.Data) / size}, t.Shape...)
			}
			return a, a.shape.Elems()*a.dtype.Size() == len(f.Data)
		}
	}
	if !npy.Sniff("", f.Data) {
		return array{}, false
	}
	h, err := npy.ParseHeader(f.Data)
	if err != nil || h.Bytes != int64(len(f.Data))-h.Off {
		return array{}, false
	}
	a := array{h.DType, mem.Shape{}, f.Data[h.Off:]}
	if h.Swapped {
		a.elems = make([]byte, h.Bytes)
		format.Swap(a.elems, f.Data[h.Off:], h.DType.Size())
	}
	for _, n := range h.Shape {
		a.shape = append(a.shape, int(n))
	}
	return a, true
}

// list writes an array as nested lists: one line per row of numbers, broken between
// numbers if it gets long, and indented by its depth.
type list struct {
	array
	dst   []byte
	begin int // of the line in dst
	cut   bool
}

// lineBytes is the approximate length of a line.
const lineBytes = 100

// append writes the part of the array below axis that begins at element at.
func (l *list) append(axis, at int) {
	if axis == len(l.shape) {
		l.number(l.elems[at*l.dtype.Size():])
		return
	}
	n, inner := l.shape[axis], l.shape[axis+1:].Elems()
	if n*inner == 0 { // however many empty lists that would be
		l.dst = append(l.dst, "[]"...)
		return
	}
	l.dst = append(l.dst, '[')
	for i := 0; i < n; i++ {
		if i > 0 {
			l.dst = append(l.dst, ',')
			if axis+1 < len(l.shape) || len(l.dst)-l.begin > lineBytes {
				l.line(axis + 1)
			} else {
				l.dst = append(l.dst, ' ')
			}
		}
		if l.cut && i == shownEdge && n > 2*shownEdge {
			l.dst = append(l.dst, "…"...)
			i = n - shownEdge - 1
			continue
		}
		l.append(axis+1, at+i*inner)
	}
	l.dst = append(l.dst, ']')
}

func (l *list) line(deep int) {
	l.dst = append(l.dst, '\n')
	l.begin = len(l.dst)
	for range deep {
		l.dst = append(l.dst, ' ')
	}
}

// number writes the first element of p, floats with enough digits to tell them from
// their neighbours, NaN and infinities as Python's json writes them.
func (l *list) number(p []byte) {
	le := binary.LittleEndian
	switch l.dtype {
	case mem.Bool:
		l.dst = strconv.AppendBool(l.dst, p[0] != 0)
	case mem.Uint8:
		l.dst = strconv.AppendUint(l.dst, uint64(p[0]), 10)
	case mem.Uint16:
		l.dst = strconv.AppendUint(l.dst, uint64(le.Uint16(p)), 10)
	case mem.Uint32:
		l.dst = strconv.AppendUint(l.dst, uint64(le.Uint32(p)), 10)
	case mem.Uint64:
		l.dst = strconv.AppendUint(l.dst, le.Uint64(p), 10)
	case mem.Int8:
		l.dst = strconv.AppendInt(l.dst, int64(int8(p[0])), 10)
	case mem.Int16:
		l.dst = strconv.AppendInt(l.dst, int64(int16(le.Uint16(p))), 10)
	case mem.Int32:
		l.dst = strconv.AppendInt(l.dst, int64(int32(le.Uint32(p))), 10)
	case mem.Int64:
		l.dst = strconv.AppendInt(l.dst, int64(le.Uint64(p)), 10)
	case mem.Float16:
		l.float(float64(kernel.Float16.Of(le.Uint16(p))), 5, 64) // 11 bits: 5 digits tell them apart
	case mem.BFloat16:
		l.float(float64(math.Float32frombits(uint32(le.Uint16(p))<<16)), 4, 64) // 8 bits
	case mem.Float32:
		l.float(float64(math.Float32frombits(le.Uint32(p))), -1, 32)
	case mem.Float64:
		l.float(math.Float64frombits(le.Uint64(p)), -1, 64)
	}
}

func (l *list) float(v float64, digits, bits int) {
	switch {
	case math.IsNaN(v):
		l.dst = append(l.dst, "NaN"...)
	case math.IsInf(v, 1):
		l.dst = append(l.dst, "Infinity"...)
	case math.IsInf(v, -1):
		l.dst = append(l.dst, "-Infinity"...)
	default:
		l.dst = strconv.AppendFloat(l.dst, v, 'g', digits, bits)
	}
}
