package tree

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Attribute is one attribute, for people.
type Attribute struct {
	Name  string
	Type  string
	Shape []int64
	Value string // the first few elements; "" where they cannot be shown
}

// shown is how many elements and how many bytes of a text are shown.
const (
	shownElems = 8
	shownText  = 200
)

// attributes reads those of an object, in the byte order of their names.
func (f *File) attributes(o *object) (out []Attribute, err error) {
	add := func(c *cursor) error {
		a, err := f.attribute(c)
		out = append(out, a)
		return err
	}
	for i := range o.all {
		if o.all[i].kind == msgAttribute {
			c := o.all[i].cursor
			if err := add(&c); err != nil {
				return nil, err
			}
		}
	}
	if c := o.first(msgAttributes); c != nil {
		c.skip(1)
		if flags := c.u8(); flags&1 != 0 {
			c.skip(2)
		}
		heap, names := c.u64(), c.u64()
		if c.short {
			return nil, f.Damaged(o.off, "an object does not say where its attributes are")
		}
		if heap != undefined {
			h, err := f.heap(heap)
			if err != nil {
				return nil, err
			}
			err = f.records(names, func(kind uint8, c *cursor) error {
				if kind != 8 {
					return f.Damaged(c.off, "a tree of kind %d where the names of attributes are", kind)
				}
				body, err := h.get(c)
				if err != nil && errs.CodeOf(err) == errs.Unsupported { // longer than 64 KiB
					out = append(out, Attribute{Name: "(one that is too long)"})
					return nil
				}
				if err != nil {
					return err
				}
				return add(body)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (f *File) attribute(c *cursor) (a Attribute, err error) {
	start := c.here()
	version, flags := c.u8(), c.u8()
	nameLen, typeLen, spaceLen := int(c.u16()), int(c.u16()), int(c.u16())
	pad := func(n int) int { return n }
	switch version {
	case 1:
		flags, pad = 0, func(n int) int { return (n + 7) &^ 7 }
	case 2:
	case 3:
		c.skip(1)
	default:
		return a, f.Damaged(start, "an attribute of version %d", version)
	}
	part := func(n int) *cursor {
		at := c.here()
		return &cursor{b: c.bytes(pad(n)), off: at}
	}
	a.Name, _, _ = strings.Cut(string(part(nameLen).b), "\x00")
	kind, space := part(typeLen), part(spaceLen)
	if c.short {
		return a, f.Damaged(start, "an attribute ends too early")
	}
	if flags&1 != 0 {
		named, err := f.shared(message{msgType, *kind})
		if err != nil {
			return a, err
		}
		kind = &named
	}
	t, err := f.datatype(kind, 0)
	if err != nil {
		return a, err
	}
	a.Type = t.Name
	if flags&2 != 0 {
		return a, nil
	}
	if a.Shape, _, err = f.space(space); err != nil {
		return a, err
	}
	n := bytesOf(a.Shape, 1)
	if n < 0 || n > int64(c.left())/t.Size {
		return a, f.Damaged(start, "the attribute %q has %v elements in %d bytes", a.Name, a.Shape, c.left())
	}
	a.Value = f.show(&t, c, n, len(a.Shape) == 0)
	return a, nil
}

// show writes the first elements.
func (f *File) show(t *Type, c *cursor, n int64, scalar bool) string {
	var parts []string
	for range min(n, shownElems) {
		s := f.showOne(t, c.bytes(int(t.Size)))
		if s == "" {
			return ""
		}
		parts = append(parts, s)
	}
	if scalar && len(parts) == 1 {
		return parts[0]
	}
	if n > shownElems {
		parts = append(parts, "...")
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func (f *File) showOne(t *Type, b []byte) string {
	switch {
	case t.Class == Number && t.Dims == nil:
		return number(t, b)
	case t.Class == Text:
		return strconv.Quote(string(Trim(b, t.Pad)))
	case t.Class == VLenText:
		v, err := f.Values(b, 1)
		if err != nil {
			return ""
		}
		if v[0].Off < 0 {
			return `""`
		}
		text, err := f.read(v[0].Off, min(v[0].Size, shownText))
		if err != nil {
			return ""
		}
		return strconv.Quote(string(text))
	}
	return ""
}

// number writes one number.
func number(t *Type, b []byte) string {
	var order binary.ByteOrder = binary.LittleEndian
	if t.Swapped {
		order = binary.BigEndian
	}
	var u uint64
	switch len(b) {
	case 1:
		u = uint64(b[0])
	case 2:
		u = uint64(order.Uint16(b))
	case 4:
		u = uint64(order.Uint32(b))
	case 8:
		u = order.Uint64(b)
	}
	switch t.DType {
	case mem.Bool:
		return strconv.FormatBool(u != 0)
	case mem.Int8:
		return strconv.Itoa(int(int8(u)))
	case mem.Int16:
		return strconv.Itoa(int(int16(u)))
	case mem.Int32:
		return strconv.Itoa(int(int32(u)))
	case mem.Int64:
		return strconv.FormatInt(int64(u), 10)
	case mem.Float32:
		return fmt.Sprint(math.Float32frombits(uint32(u)))
	case mem.Float64:
		return fmt.Sprint(math.Float64frombits(u))
	case mem.Float16:
		return fmt.Sprintf("float16 %#04x", u)
	}
	return strconv.FormatUint(u, 10)
}

// Trim takes the padding off a text of a fixed size.
func Trim(b []byte, pad uint8) []byte {
	if pad == PadZero {
		for i, x := range b {
			if x == 0 {
				return b[:i:i]
			}
		}
		return b
	}
	fill := byte(0)
	if pad == PadSpace {
		fill = ' '
	}
	n := len(b)
	for n > 0 && b[n-1] == fill {
		n--
	}
	return b[:n:n]
}
