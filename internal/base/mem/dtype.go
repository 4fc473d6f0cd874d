// Package mem is about memory: element types, shapes, counted buffers, and budgets
// for them.
package mem

// DType is the type of one element of a field.
type DType uint8

// The element types, by NumPy's names, and ml_dtypes' bfloat16.
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
	BFloat16 // of pictures; neither stored nor cast to
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
	{"bfloat16", 2},
}

// String returns the name of the type.
func (d DType) String() string { return dtypes[d].name }

// Size is the size of one element in bytes; 0 for Object.
func (d DType) Size() int { return dtypes[d].size }

// ParseDType returns the type with this name; false if there is none.
func ParseDType(name string) (DType, bool) {
	for d := range dtypes {
		if dtypes[d].name == name {
			return DType(d), true
		}
	}
	return 0, false
}

// DTypes returns the names of all types that values may be stored in or cast to.
func DTypes() []string {
	var names []string
	for _, d := range dtypes[Uint8:BFloat16] {
		names = append(names, d.name)
	}
	return names
}

// Float reports whether elements are floating-point numbers.
func (d DType) Float() bool { return d == Float16 || d == Float32 || d == Float64 || d == BFloat16 }

// Int reports whether elements are integers, and whether they are signed.
func (d DType) Int() (is, signed bool) {
	switch d {
	case Uint8, Uint16, Uint32, Uint64:
		return true, false
	case Int8, Int16, Int32, Int64:
		return true, true
	}
	return false, false
}

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
