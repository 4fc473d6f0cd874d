package beton

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
)

const (
	version   = 2
	headerLen = 24
	fieldLen  = 1 + nameLen + argsLen
	nameLen   = 16
	argsLen   = 1024
	allocLen  = 24
	minPage   = 1 << 12 // FFCV writes at least 2 MiB
)

// header is the first bytes of a file.
type header struct {
	version int
	fields  int
	page    int64
	samples int64
	allocs  int64 // offset of the allocations
}

// parseHeader reads the first bytes of a file of size bytes, -1: not known, or
// says what is wrong with them.
func parseHeader(b []byte, size int64) (h header, wrong string) {
	if len(b) < headerLen {
		return h, fmt.Sprintf("the file has %d bytes, too few for its header", len(b))
	}
	h.version, h.fields, h.page = int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:])), int64(binary.LittleEndian.Uint32(b[4:]))
	samples, allocs := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	h.samples, h.allocs = int64(samples), int64(allocs)
	if h.version != version {
		return h, ""
	}
	switch {
	case h.fields == 0:
		return h, "its samples have no field"
	case h.page < minPage || h.page&(h.page-1) != 0:
		return h, fmt.Sprintf("its pages have %d bytes", h.page)
	case samples > math.MaxInt64/8:
		return h, fmt.Sprintf("it has %d samples", samples)
	case size < 0:
		return h, ""
	case allocs == 0:
		return h, "it was not written to its end: the offset of its allocations is missing"
	case allocs > uint64(size) || h.allocs < headerLen+int64(h.fields)*fieldLen:
		return h, fmt.Sprintf("its allocations should begin at byte %d of %d", allocs, size)
	case (size-h.allocs)%allocLen != 0:
		return h, fmt.Sprintf("its allocations take %d bytes, but each has %d", size-h.allocs, allocLen)
	}
	return h, ""
}

// kind is what a column is, by FFCV's numbers.
type kind int

const (
	float  kind = 0
	whole  kind = 1
	image  kind = 2
	blob   kind = 3
	array  kind = 4
	text   kind = 5 // JSON, and a zero byte
	tensor kind = 6
	custom kind = 255
)

func (k kind) String() string {
	names := map[kind]string{
		float: "FloatField", whole: "IntField", image: "RGBImageField", blob: "BytesField", array: "NDArrayField", text: "JSONField", tensor: "TorchTensorField",
	}
	return names[k]
}

// column is one field.
type column struct {
	Name string
	Kind kind
	At   int // offset in the row, bytes
	// Place, Head and Value number the columns of each sort in the index.
	Place, Head, Value int

	DType mem.DType // of arrays and numbers
	Shape []int
	Bytes int64  // of an array; -1: its type is not known
	Why   string // an array that is refused
	// Fixed says of pictures that all are raw, and of Shape.
	Fixed bool
}

func (c *column) number() bool  { return c.Kind == float || c.Kind == whole }
func (c *column) isArray() bool { return c.Kind == array || c.Kind == tensor }

// width and align are those of the column in a row, as NumPy lays out a struct:
// numbers at multiples of their size, packed structs anywhere.
func (c *column) width() (n, align int) {
	switch c.Kind {
	case image:
		return imageRow, 1
	case blob, text:
		return 16, 1
	}
	return 8, 8
}

// imageRow is mode u8 | width u16 | height u16 | place u64.
const imageRow = 13

// number counts the columns of each sort and numbers them.
func number(cols []column) (places, heads, values int) {
	for i := range cols {
		c := &cols[i]
		if c.number() {
			c.Value = values
			values++
			continue
		}
		c.Place = places
		places++
		if c.Kind == image {
			c.Head = heads
			heads++
		}
	}
	return places, heads, values
}

// layout gives every column its place in a row and returns the bytes of a row.
func layout(cols []column) int {
	at, most := 0, 1
	for i := range cols {
		n, align := cols[i].width()
		at = (at + align - 1) / align * align
		cols[i].At = at
		at += n
		most = max(most, align)
	}
	return (at + most - 1) / most * most
}

// problem is what is wrong with a file; unsupported: it is not damaged, but stoker
// cannot read it.
type problem struct {
	what        string
	unsupported bool
	hint        string
}

// parseField reads the description of one field.
func parseField(b []byte) (column, *problem) {
	name, _, _ := bytes.Cut(b[1:1+nameLen], []byte{0})
	c := column{Name: string(name), Kind: kind(b[0])}
	for _, r := range c.Name {
		if r < ' ' || r > '~' {
			return c, &problem{what: fmt.Sprintf("a field is called %q", c.Name)}
		}
	}
	switch {
	case c.Name == "":
		return c, &problem{what: "a field has no name"}
	case c.Kind == custom:
		return c, &problem{
			what: fmt.Sprintf("the field %q is of a custom class, whose layout the file does not describe", c.Name), unsupported: true,
			hint: "write the field as a BytesField or an NDArrayField",
		}
	case c.Kind.String() == "":
		return c, &problem{what: fmt.Sprintf("the field %q has the unknown type %d", c.Name, c.Kind)}
	case c.Kind == float:
		c.DType, c.Shape = mem.Float64, []int{}
	case c.Kind == whole:
		c.DType, c.Shape = mem.Int64, []int{}
	case c.isArray():
		if wrong := c.parseArray(b[1+nameLen:]); wrong != "" {
			return c, &problem{what: fmt.Sprintf("the field %q %s", c.Name, wrong)}
		}
	}
	return c, nil
}

// arrayDims and typeText are the arguments of an array: 32 axes, where unused ones
// are zero, the length of the text, and the text, NumPy's dtype.descr as JSON.
const (
	arrayDims = 32
	typeText  = 8 * (arrayDims + 1)
)

func (c *column) parseArray(args []byte) string {
	n := binary.LittleEndian.Uint64(args[8*arrayDims:])
	if n == 0 || n > argsLen-typeText {
		return fmt.Sprintf("has a type whose text has %d bytes", n)
	}
	var descr [][]any
	if err := jsontext.Unmarshal(args[typeText:typeText+n], &descr); err != nil || len(descr) == 0 {
		return fmt.Sprintf("has the type %.60q, which is not one", args[typeText:typeText+n])
	}
	last := arrayDims
	for last > 0 && binary.LittleEndian.Uint64(args[8*(last-1):]) == 0 {
		last--
	}
	elems := int64(1)
	c.Shape = []int{}
	for i := range last {
		dim := binary.LittleEndian.Uint64(args[8*i:])
		if dim > math.MaxInt32 || dim > 0 && elems > math.MaxInt32/int64(dim) {
			return "has a shape that is impossible: its arrays would be larger than a page"
		}
		elems *= int64(dim)
		c.Shape = append(c.Shape, int(dim))
	}
	name, _ := descr[0][min(1, len(descr[0])-1)].(string)
	c.DType = arrayType(name)
	if len(descr) != 1 || len(descr[0]) != 2 || c.DType == mem.Object {
		c.Bytes = -1
		c.Why = fmt.Sprintf("its arrays are of type %.60s; little-endian numbers can be read", args[typeText:typeText+n])
		return ""
	}
	c.Bytes = elems * int64(c.DType.Size())
	return ""
}

// arrayType is the type that NumPy writes like that; Object: a type that is not read.
func arrayType(text string) mem.DType {
	if len(text) != 3 || !strings.ContainsRune("<|", rune(text[0])) {
		return mem.Object
	}
	names := []string{"", "u1", "b1", "i8", "f4", "f8", "i4", "i1", "i2", "u2", "u4", "u8", "f2"}
	if i := slices.Index(names, text[1:]); i > 0 {
		return mem.DType(i)
	}
	return mem.Object
}
