package tree

import (
	"fmt"
	"strings"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Class is how an element is stored.
type Class uint8

// The classes of types. Those that stoker does not read are Refused, and Why says
// why.
const (
	Refused  Class = iota
	Number         // DType, and Swapped where it is big-endian
	Text           // Size bytes, padded
	Opaque         // Size bytes, as they are
	VLen           // a reference to any number of Base
	VLenText       // a reference to any number of bytes
)

// Padding of texts of a fixed size.
const (
	PadZero  = 0 // ends with the first zero, which is always there
	PadZeros = 1 // filled with zeros
	PadSpace = 2 // filled with spaces
)

// Type is that of a dataset or attribute.
type Type struct {
	Class   Class     `json:"class"`
	Size    int64     `json:"size"` // of an element as it is stored, bytes: Dims counted
	DType   mem.DType `json:"dtype"`
	Swapped bool      `json:"swapped,omitempty"`
	Pad     uint8     `json:"pad,omitempty"`
	Dims    []int64   `json:"dims,omitempty"` // of an array type: every element is an array
	Base    *Type     `json:"base,omitempty"` // of VLen
	Name    string    `json:"name"`           // for people
	Why     string    `json:"why,omitempty"`
}

// maxTypeSize bounds an element; HDF5 keeps its size in four bytes.
const maxTypeSize = 1 << 30

// datatype reads a type; deep is how many types it is nested in.
func (f *File) datatype(c *cursor, deep int) (Type, error) {
	start := c.here()
	head := c.u32()
	class, version, bits := head&15, head>>4&15, head>>8
	t := Type{Size: int64(c.u32())}
	if c.short || version < 1 || version > 5 || t.Size < 1 || t.Size > maxTypeSize || deep > 8 {
		return t, f.Damaged(start, "a type of class %d, version %d and %d bytes", class, version, t.Size)
	}
	var err error
	switch class {
	case 0:
		t.integer(bits, c.u16(), c.u16())
	case 1:
		t.float(bits, c)
	case 3:
		t.Class, t.Pad, t.Name = Text, uint8(bits&15), fmt.Sprintf("string of %d bytes", t.Size)
		if t.Pad > PadSpace {
			return t, f.Damaged(start, "a text with the unknown padding %d", t.Pad)
		}
	case 4:
		c.skip(4)
		t.refuse("bit fields", "bit field")
	case 5:
		t.Class, t.Name = Opaque, fmt.Sprintf("opaque of %d bytes", t.Size)
		c.skip(int(bits & 0xFF)) // a tag, which is filled up
	case 6:
		t.refuse("compound types", fmt.Sprintf("compound of %d members", bits&0xFFFF))
		c.at = len(c.b) // what follows is of the members
	case 7:
		t.refuse("references", "reference")
	case 8:
		err = f.enum(&t, c, bits, version, deep)
	case 9:
		err = f.vlen(&t, c, bits, deep)
	case 10:
		err = f.array(&t, c, version, deep)
	default:
		t.refuse(fmt.Sprintf("types of class %d", class), fmt.Sprintf("class %d", class))
	}
	if err == nil && c.short {
		err = f.Damaged(start, "the description of a type ends too early")
	}
	return t, err
}

func (t *Type) refuse(why, name string) {
	t.Class, t.Name, t.Why = Refused, name, why+" are not read"
}

// prefixed is the name of a number with its byte order, where it is big-endian.
func (t *Type) prefixed() string {
	if t.Swapped {
		return "big-endian " + t.DType.String()
	}
	return t.DType.String()
}

func (t *Type) integer(bits uint32, offset, precision uint16) {
	signed := bits&8 != 0
	kinds := map[int64][2]mem.DType{1: {mem.Uint8, mem.Int8}, 2: {mem.Uint16, mem.Int16}, 4: {mem.Uint32, mem.Int32}, 8: {mem.Uint64, mem.Int64}}
	k, ok := kinds[t.Size]
	if !ok || offset != 0 || int64(precision) != 8*t.Size {
		t.refuse("integers that do not fill 1, 2, 4 or 8 bytes", fmt.Sprintf("integer of %d bits in %d bytes", precision, t.Size))
		return
	}
	t.Class, t.Swapped, t.DType = Number, bits&1 != 0 && t.Size > 1, k[0]
	if signed {
		t.DType = k[1]
	}
	t.Name = t.prefixed()
}

// float accepts IEEE 754 only: its parts say which.
func (t *Type) float(bits uint32, c *cursor) {
	offset, precision := c.u16(), c.u16()
	exponentAt, exponentLen, mantissaAt, mantissaLen := c.u8(), c.u8(), c.u8(), c.u8()
	bias := c.u32()
	type parts struct {
		bits                                 uint16
		exponentAt, exponentLen, mantissaLen uint8
		bias                                 uint32
	}
	got := parts{precision, exponentAt, exponentLen, mantissaLen, bias}
	for d, want := range map[mem.DType]parts{
		mem.Float16: {16, 10, 5, 10, 15}, mem.Float32: {32, 23, 8, 23, 127}, mem.Float64: {64, 52, 11, 52, 1023},
	} {
		if got == want && offset == 0 && mantissaAt == 0 && bits&0x40 == 0 && t.Size == int64(d.Size()) {
			t.Class, t.DType, t.Swapped = Number, d, bits&1 != 0
			t.Name = t.prefixed()
			return
		}
	}
	t.refuse("floats that are not of IEEE 754 with 16, 32 or 64 bits", fmt.Sprintf("float of %d bits with an exponent of %d", precision, exponentLen))
}

// enum is its integers; h5py writes bool as one of FALSE and TRUE.
func (f *File) enum(t *Type, c *cursor, bits, version uint32, deep int) error {
	base, err := f.datatype(c, deep+1)
	if err != nil {
		return err
	}
	names := make([]string, 0, 2)
	n := int(bits & 0xFFFF)
	for range n {
		at := c.at
		name := c.text()
		if version < 3 {
			c.skip((at - c.at) & 7) // names are filled up to eight bytes
		}
		if names = append(names, name); c.short {
			return nil
		}
	}
	values := c.bytes(n * int(base.Size))
	size := t.Size
	if *t = base; base.Size != size || base.Class != Number {
		t.refuse("enumerations of a type that is not an integer", "enumeration")
		return nil
	}
	if n == 2 && base.Size == 1 && strings.EqualFold(names[0], "FALSE") && strings.EqualFold(names[1], "TRUE") && string(values) == "\x00\x01" {
		t.DType, t.Name = mem.Bool, "bool"
		return nil
	}
	t.Name = fmt.Sprintf("enumeration of %s", base.Name)
	return nil
}

func (f *File) vlen(t *Type, c *cursor, bits uint32, deep int) error {
	base, err := f.datatype(c, deep+1)
	if err != nil {
		return err
	}
	switch {
	case t.Size != referenceLen:
		return f.Damaged(c.off, "a reference of %d bytes", t.Size)
	case bits&15 == 1:
		t.Class, t.Name = VLenText, "string"
	case base.Class == Number && base.Dims == nil:
		t.Class, t.Base, t.Name = VLen, &base, "variable length of "+base.Name
	default:
		t.refuse("variable lengths of a type that is not a number", "variable length of "+base.Name)
	}
	return nil
}

// array is a number with dimensions of its own, which come after those of its
// dataset.
func (f *File) array(t *Type, c *cursor, version uint32, deep int) error {
	n := int(c.u8())
	if version < 3 {
		c.skip(3)
	}
	var dims []int64
	size := int64(1)
	for range n {
		d := int64(c.u32())
		if dims = append(dims, d); d < 1 || size > maxTypeSize/d {
			return f.Damaged(c.off, "an array type of %v", dims)
		}
		size *= d
	}
	if version < 3 {
		c.skip(4 * n)
	}
	base, err := f.datatype(c, deep+1)
	if err != nil {
		return err
	}
	whole := t.Size
	if size *= base.Size; size != whole {
		return f.Damaged(c.off, "an array type of %d bytes, whose elements have %d", whole, size)
	}
	*t = base
	t.Size, t.Dims, t.Name = whole, append(dims, base.Dims...), fmt.Sprintf("%s %v", base.Name, dims)
	if base.Class != Number {
		t.refuse("arrays of a type that is not a number", t.Name)
	}
	return nil
}
