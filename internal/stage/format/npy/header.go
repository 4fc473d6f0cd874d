package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Magic is what every .npy file begins with.
const Magic = "\x93NUMPY"

// maxHeader bounds the text of a header; NumPy itself refuses what is longer
// than 10,000 unless told otherwise.
const maxHeader = 1 << 16

// maxDims is NumPy's limit of dimensions since its version 2.
const maxDims = 64

// Header is what a .npy file says of its array (NumPy's NEP 1, versions 1 to 3).
// The array is numeric and in C order; all else is refused.
type Header struct {
	DType   mem.DType
	Swapped bool    // elements are of more than one byte, and big-endian
	Shape   []int64 // no dimension is negative
	Off     int64   // of the first element, bytes
	Bytes   int64   // of all elements
}

// HeaderLen is the bytes that a header takes, from its first 12.
func HeaderLen(b []byte) (int64, error) {
	switch {
	case len(b) < 12 || string(b[:len(Magic)]) != Magic:
		return 0, errs.New(errs.Damaged, "it does not begin as a .npy file does").
			Try("write it with numpy.save(path, array); np.array.tofile writes bare numbers without a header")
	case b[6] == 1:
		return 10 + int64(binary.LittleEndian.Uint16(b[8:])), nil
	case b[6] != 2 && b[6] != 3:
		return 0, errs.New(errs.Unsupported, "it is of version %d.%d of the .npy format; 1 to 3 are known", b[6], b[7]).Try("save it again with numpy.save")
	}
	n := int64(binary.LittleEndian.Uint32(b[8:]))
	if n > maxHeader {
		return 0, errs.New(errs.Damaged, "its header claims %d bytes; the limit is %d", n, maxHeader).Try("write the file again")
	}
	return 12 + n, nil
}

// ParseHeader reads a whole header, of HeaderLen bytes or more. Errors are without
// a place, with code damaged or unsupported.
func ParseHeader(b []byte) (Header, error) {
	n, err := HeaderLen(b)
	if err != nil {
		return Header{}, err
	}
	if n > int64(len(b)) {
		return Header{}, errs.New(errs.Damaged, "it ends inside its header, of %d bytes", n).Try("write the file again")
	}
	from := 10
	if b[6] > 1 {
		from = 12
	}
	text := string(b[from:n])
	p := literal{text: text}
	d, err := p.header()
	if err != nil {
		return Header{}, errs.New(errs.Damaged, "its header is not a dictionary of descr, fortran_order and shape: %s", clip(text)).Because(err).Try("write the file again")
	}
	h := Header{Shape: d.shape, Off: n}
	if h.DType, h.Swapped, err = dtype(d.descr, d.structured); err != nil {
		return Header{}, err
	}
	if d.fortran && !flat(d.shape) {
		return Header{}, errs.New(errs.Unsupported, "the array is in Fortran order, so a sample is spread over the whole file").
			Try("save it in C order: numpy.save(path, numpy.ascontiguousarray(array))")
	}
	if h.Bytes, err = product(d.shape, int64(h.DType.Size())); err != nil {
		return Header{}, err
	}
	return h, nil
}

// flat says whether Fortran order and C order are the same.
func flat(shape []int64) bool {
	wide := 0
	for _, n := range shape {
		if n > 1 {
			wide++
		}
	}
	return wide <= 1
}

// product is the bytes of an array of that shape.
func product(shape []int64, size int64) (int64, error) {
	for _, n := range shape {
		if n == 0 {
			return 0, nil
		}
	}
	for _, n := range shape {
		if size > math.MaxInt64/n {
			return 0, errs.New(errs.Damaged, "its shape %s has more elements than can be counted", shown(shape)).Try("write the file again")
		}
		size *= n
	}
	return size, nil
}

// kinds are the element types that can be read, as NumPy writes them after the byte
// order.
var kinds = [...]struct {
	name string
	as   mem.DType
}{
	{"b1", mem.Bool},
	{"u1", mem.Uint8},
	{"u2", mem.Uint16},
	{"u4", mem.Uint32},
	{"u8", mem.Uint64},
	{"i1", mem.Int8},
	{"i2", mem.Int16},
	{"i4", mem.Int32},
	{"i8", mem.Int64},
	{"f2", mem.Float16},
	{"f4", mem.Float32},
	{"f8", mem.Float64},
}

func dtype(descr string, structured bool) (t mem.DType, swapped bool, err error) {
	refuse := func(what, hint string) (mem.DType, bool, error) {
		return 0, false, errs.New(errs.Unsupported, "its elements are %s (dtype %s)", what, clip(descr)).Try("%s", hint)
	}
	if structured {
		return refuse("structures", "save each column as an array of its own: numpy.savez(path, **{name: array[name] for name in array.dtype.names})")
	}
	order, kind := "", descr
	if descr != "" && strings.Contains("<>|=", descr[:1]) {
		order, kind = descr[:1], descr[1:]
	}
	for _, k := range kinds {
		if k.name != kind {
			continue
		}
		return k.as, order == ">" && k.as.Size() > 1, nil
	}
	switch {
	case kind == "":
		return 0, false, errs.New(errs.Damaged, "its header names no dtype").Try("write the file again")
	case kind[0] == 'O':
		return refuse("Python objects, which are stored as a pickle, and unpickling runs whatever code its writer chose",
			"save the numbers as an array of one shape and a numeric dtype; arrays of different lengths go into one long array and one of offsets")
	case kind[0] == 'U', kind[0] == 'S', kind[0] == 'a':
		return refuse("text", "save numbers (such as the index of each text in a list), or the texts as .txt members of tar shards")
	case kind[0] == 'c':
		return refuse("complex numbers", "save the real and the imaginary part: array.view(\"f4\") or array.view(\"f8\") has both in its last axis")
	case kind[0] == 'M', kind[0] == 'm':
		return refuse("times", "save them as numbers: array.astype(\"int64\")")
	case kind[0] == 'V':
		return refuse("raw bytes", "save them as array.view(\"uint8\"); bfloat16 is written this way, and is kept as array.view(\"uint16\") or .astype(\"float32\")")
	}
	return refuse("of a kind that is not read", "save them as one of bool, uint8 to uint64, int8 to int64, float16, float32 or float64")
}

// dict is the three entries of a header.
type dict struct {
	descr      string
	structured bool
	fortran    bool
	shape      []int64
}

// literal reads the Python literal of a header, in any order and spacing.
type literal struct {
	text string
	at   int
}

var errLiteral = errors.New("it is not a Python literal")

func (p *literal) header() (d dict, err error) {
	if strings.IndexByte(p.text, 0) >= 0 {
		return d, errors.New("it contains a zero byte")
	}
	if !utf8.ValidString(p.text) || !p.take('{') {
		return d, errLiteral
	}
	seen := map[string]bool{}
	for !p.take('}') {
		key, ok := p.str()
		if !ok || seen[key] || !p.take(':') {
			return d, errLiteral
		}
		seen[key] = true
		switch key {
		case "descr":
			if d.descr, ok = p.str(); !ok {
				d.structured = true
				d.descr, ok = p.list()
			}
		case "fortran_order":
			d.fortran, ok = p.boolean()
		case "shape":
			d.shape, ok = p.tuple()
		default:
			return d, fmt.Errorf("the key %q is not known", clip(key))
		}
		if !ok {
			return d, fmt.Errorf("cannot read the value of %q", key)
		}
		if !p.take(',') && p.peek() != '}' {
			return d, errLiteral
		}
	}
	if len(seen) != 3 || p.peek() != 0 {
		return d, errLiteral
	}
	return d, nil
}

// peek returns the next character that is not a space, or 0 if there is none.
func (p *literal) peek() byte {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *literal) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.at++
	return true
}

// str reads a string without escapes: dtypes and keys do not contain any.
func (p *literal) str() (string, bool) {
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		return "", false
	}
	text, _, ok := strings.Cut(p.text[p.at+1:], string(quote))
	if !ok || strings.ContainsAny(text, "\\\n") {
		return "", false
	}
	p.at += len(text) + 2
	return text, true
}

// list returns a bracketed list as it is written.
func (p *literal) list() (string, bool) {
	if p.peek() != '[' {
		return "", false
	}
	depth := 0
	for i := p.at; i < len(p.text); i++ {
		switch p.text[i] {
		case '[':
			depth++
		case ']':
			depth--
		}
		if depth == 0 {
			text := p.text[p.at : i+1]
			p.at = i + 1
			return text, true
		}
	}
	return "", false
}

func (p *literal) boolean() (value, ok bool) {
	p.peek()
	word, value := "True", true
	if !strings.HasPrefix(p.text[p.at:], word) {
		word, value = "False", false
	}
	if !strings.HasPrefix(p.text[p.at:], word) {
		return false, false
	}
	p.at += len(word)
	return value, true
}

func (p *literal) tuple() ([]int64, bool) {
	if !p.take('(') {
		return nil, false
	}
	shape := []int64{}
	for !p.take(')') {
		p.peek()
		from := p.at
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		n, err := strconv.ParseInt(p.text[from:p.at], 10, 64)
		if err != nil || len(shape) == maxDims {
			return nil, false
		}
		p.take('L') // Python 2
		shape = append(shape, n)
		if !p.take(',') && p.peek() != ')' {
			return nil, false
		}
	}
	return shape, true
}

// shown is a shape as Python writes it.
func shown(shape []int64) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, n := range shape {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.FormatInt(n, 10))
	}
	if len(shape) == 1 {
		b.WriteByte(',')
	}
	b.WriteByte(')')
	return b.String()
}

// clip is the beginning of a text of somebody else's, quoted.
func clip(s string) string {
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return strconv.Quote(strings.TrimSpace(s))
}
