// Package mem is memory that is counted: element types, shapes, page-aligned
// buffers under a budget, and a leak check for tests.
package mem

// DType is the type of one element of a field.
type DType uint8

// The element types, by NumPy's names.
const (
	Object DType = iota // variable-length bytes: text, json, bytes, keys
	Uint8
	Bool
	Int64
	Float32
	Float64
	Int32
	Int8
	Int16
	Uint16
	Uint32
	Uint64
	Float16
)

var dtypes = [...]struct {
	name string
	size int
}{
	{"object", 0},
	{"uint8", 1},
	{"bool", 1},
	{"int64", 8},
	{"float32", 4},
	{"float64", 8},
	{"int32", 4},
	{"int8", 1},
	{"int16", 2},
	{"uint16", 2},
	{"uint32", 4},
	{"uint64", 8},
	{"float16", 2},
}

// String is NumPy's name of the type.
func (d DType) String() string { return dtypes[d].name }

// Size is the bytes of one element; 0 for Object.
func (d DType) Size() int { return dtypes[d].size }

// Shape is the shape of one sample of a field, outermost first.
type Shape []int

// Elems is the number of elements; 1 for a scalar (an empty shape).
func (s Shape) Elems() int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}
