package mds

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// kind is what the bytes of a column are.
type kind string

const (
	asIs    kind = "bytes"   // encoded bytes or text, as stored
	fixed   kind = "fixed"   // elements of one type and shape
	dynamic kind = "dynamic" // elements after their shape, and their type where it is not fixed
	pixels  kind = "pil"     // a Pillow picture after its size and mode
	refused kind = "refused"
)

// column is one column, and what its samples have in common.
type column struct {
	Name     string
	Encoding string
	Size     int64 // bytes of the stored value; 0: it is stored in each sample
	Kind     kind
	Why      string    // it is refused
	HasType  bool      // of dynamic arrays: the type is not stored with the values
	DType    mem.DType // Object: encoded bytes
	Shape    []int     // of fixed arrays, and of dynamic ones where it never differs
	Ragged   bool      // the first axis differs, and Shape lacks it
	Mixed    bool      // of dynamic arrays: more differs than the first axis
}

// typ is what users of the column get.
func (c *column) typ() format.Type {
	if c.Mixed || c.DType == mem.Object {
		return format.Type{DType: mem.Object}
	}
	return format.Type{DType: c.DType, Shape: mem.Shape(c.Shape), Ragged: c.Ragged}
}

// scalars are the encodings of one number; int is 64 bits.
var scalars = map[string]mem.DType{
	"int": mem.Int64, "uint8": mem.Uint8, "uint16": mem.Uint16, "uint32": mem.Uint32, "uint64": mem.Uint64,
	"int8": mem.Int8, "int16": mem.Int16, "int32": mem.Int32, "int64": mem.Int64,
	"float16": mem.Float16, "float32": mem.Float32, "float64": mem.Float64,
}

// arrayTypes are the numbers by which dynamic arrays name their types.
var arrayTypes = map[byte]mem.DType{
	8: mem.Uint8, 9: mem.Int8, 16: mem.Uint16, 17: mem.Int16, 18: mem.Float16, 32: mem.Uint32, 33: mem.Int32, 34: mem.Float32,
	64: mem.Uint64, 65: mem.Int64, 66: mem.Float64,
}

// newColumn returns the column that index.json describes, or what is wrong with it.
// size is the one in index.json; nil means that there is none.
func newColumn(name, encoding string, size *int64) (column, string) {
	c := column{Name: name, Encoding: encoding, Kind: asIs}
	base, args, _ := strings.Cut(encoding, ":")
	dtype, scalar := scalars[encoding]
	switch {
	case scalar:
		c.Kind, c.DType, c.Shape, c.Size = fixed, dtype, []int{}, int64(dtype.Size())
	case base == "ndarray":
		if wrong := c.array(args); wrong != "" {
			return c, wrong
		}
	case encoding == "pil":
		c.Kind = pixels
	case slices.Contains([]string{"bytes", "str", "jpeg", "png", "json", "str_int", "str_float", "str_decimal"}, encoding):
	case encoding == "pkl":
		c.refuse("reading a pickle runs code that its writer chose; write the column as json, ndarray or bytes")
	case encoding == "jpeg_array", encoding == "jpegarray", base == "list[pil]", base == "list[jpeg]", base == "list[png]":
		c.refuse("it holds several pictures per sample, but a field is one; write one column for each picture")
	default:
		c.refuse("stoker does not know this encoding; write the column as bytes, json or ndarray")
		c.Size = -1 // as index.json says
	}
	switch {
	case size == nil || *size == 0:
		if c.Size > 0 {
			return c, "has no size, and " + encoding + " always has " + strconv.FormatInt(c.Size, 10) + " bytes"
		}
		c.Size = 0
	case *size < 0 || *size > math.MaxUint32, c.Size >= 0 && *size != c.Size:
		return c, "has a size of " + strconv.FormatInt(*size, 10) + " bytes, but " + encoding + " has none"
	default:
		c.Size = *size
	}
	return c, ""
}

func (c *column) refuse(why string) { c.Kind, c.Why = refused, why }

// array parses what follows "ndarray:", which is type and shape.
func (c *column) array(args string) string {
	c.Kind = dynamic
	if args == "" {
		return ""
	}
	name, dims, shaped := strings.Cut(args, ":")
	for _, d := range arrayTypes {
		if d.String() == name {
			c.DType, c.HasType = d, true
		}
	}
	if !c.HasType {
		return "has the encoding " + c.Encoding + ", which is not a type of array"
	}
	if !shaped {
		return ""
	}
	total := int64(c.DType.Size())
	for dim := range strings.SplitSeq(dims, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(dim))
		if err != nil || n < 1 || int64(n) > math.MaxUint32/total {
			return "has the encoding " + c.Encoding + ", whose shape is not valid"
		}
		total *= int64(n)
		c.Shape = append(c.Shape, n)
	}
	c.Kind, c.Size = fixed, total
	return ""
}

// maxDims is the most axes that the byte of a dynamic array can count.
const maxDims = 63

// maxArrayHead is the most bytes before the elements of a dynamic array.
const maxArrayHead = 2 + 8*maxDims

// arrayHead is what is stored before the elements of a dynamic array.
type arrayHead struct {
	dtype mem.DType
	ndim  int
	shape [maxDims]int
	at    int64 // bytes before the elements
}

// head reads the type and shape before the elements of a dynamic array of size
// bytes, of which v is the beginning, and checks them against that size.
func (c *column) head(v []byte, size int64) (h arrayHead, wrong string) {
	h.dtype = c.DType
	at := 0
	if !c.HasType {
		if len(v) < 1 {
			return h, "it is too short for the type of an array"
		}
		if h.dtype = arrayTypes[v[0]]; h.dtype == mem.Object {
			return h, "its array has a type of number " + strconv.Itoa(int(v[0])) + ", which is unknown"
		}
		at = 1
	}
	if len(v) < at+1 {
		return h, "it is too short for the shape of an array"
	}
	width := 1 << (v[at] & 3)
	h.ndim = int(v[at] >> 2)
	at++
	if h.ndim == 0 || len(v) < at+h.ndim*width {
		return h, "it is too short for the " + strconv.Itoa(h.ndim) + " axes of its array"
	}
	total := int64(h.dtype.Size())
	for i := range h.ndim {
		var wide [8]byte
		copy(wide[:], v[at:at+width])
		n := binary.LittleEndian.Uint64(wide[:])
		at += width
		if n == 0 || n > math.MaxInt64/uint64(total) {
			return h, "its array has an impossible shape"
		}
		total *= int64(n)
		h.shape[i] = int(n)
	}
	if h.at = int64(at); total != size-h.at {
		return h, "its array should take " + strconv.FormatInt(total, 10) + " bytes and has " + strconv.FormatInt(size-h.at, 10)
	}
	return h, ""
}

// meet widens the type of a dynamic column to fit the array of one more sample; first
// means that it is the first one.
func (c *column) meet(h arrayHead, first bool) {
	shape := h.shape[:h.ndim]
	have := c.Shape
	switch {
	case first:
		c.DType, c.Shape = h.dtype, slices.Clone(shape)
		return
	case c.Mixed:
		return
	case c.Ragged:
		c.Mixed = h.dtype != c.DType || !slices.Equal(shape[1:], have)
	case h.dtype == c.DType && slices.Equal(shape, have):
		return
	case h.dtype == c.DType && len(shape) == len(have) && slices.Equal(shape[1:], have[1:]):
		c.Shape, c.Ragged = have[1:], true
	default:
		c.Mixed = true
	}
	if c.Mixed {
		c.Shape, c.Ragged = nil, false
	}
}

// fits says whether an array is of the type that was found at indexing.
func (c *column) fits(h *arrayHead) bool {
	shape := h.shape[:h.ndim]
	switch {
	case c.Mixed:
		return true
	case h.dtype != c.DType:
		return false
	case c.Ragged:
		return slices.Equal(shape[1:], c.Shape)
	}
	return slices.Equal(shape, c.Shape)
}

// pilHead is the bytes before the pixels of a Pillow picture: width, height and
// length of the mode, then the mode.
const pilHead = 12

// picture is a stored Pillow picture as PNM.
func picture(v []byte) ([]byte, *errs.Error) {
	if len(v) < pilHead {
		return nil, errs.New(errs.Damaged, "a Pillow picture of %d bytes is too short for its size", len(v))
	}
	w, h, n := binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[4:]), binary.LittleEndian.Uint32(v[8:])
	if int64(n) > int64(len(v)-pilHead) {
		return nil, errs.New(errs.Damaged, "the mode of a Pillow picture takes %d bytes of the %d there are", n, len(v)-pilHead)
	}
	mode, data := string(v[pilHead:pilHead+n]), v[pilHead+n:]
	channels, known := map[string]int{"RGB": 3, "L": 1}[mode]
	if !known {
		return nil, errs.New(errs.Unsupported, "a Pillow picture has the mode %.16q; RGB and L can be read", mode).
			Try("write the column as png, or convert the pictures to RGB")
	}
	// w*h does not overflow: both are below 2^32.
	if w == 0 || h == 0 || uint64(w)*uint64(h) != uint64(len(data)/channels) || len(data)%channels != 0 {
		return nil, errs.New(errs.Damaged, "a Pillow picture of %d x %d pixels has %d bytes", w, h, len(data))
	}
	return format.PNM(int(w), int(h), channels, data), nil
}
