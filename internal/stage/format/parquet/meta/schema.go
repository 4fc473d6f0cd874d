package meta

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Physical types, as files number them.
const (
	PhysBool = iota
	PhysInt32
	PhysInt64
	physInt96
	physFloat
	physDouble
	PhysBytes
	PhysFixed
)

// Logical types (fields of the union LogicalType) and the older converted types.
const (
	logicalString  = 1
	logicalMap     = 2
	logicalList    = 3
	logicalDecimal = 5
	logicalInteger = 10
	logicalFloat16 = 15
	logicalVariant = 16

	convertedUTF8     = 0
	convertedMap      = 1
	convertedMapOf    = 2
	convertedList     = 3
	convertedDecimal  = 5
	convertedUint8    = 11
	convertedInt8     = 15
	convertedInterval = 21
)

// Column is one leaf of the schema: what a field is made of.
type Column struct {
	Name     string   // as users call it: "label", "image", "a.b"
	Path     []string // as the schema has it
	Physical int
	Width    int // bytes of one stored value; 0: they differ (or bits, for booleans)
	DType    mem.DType
	Def, Rep int // highest levels
	ListDef  int // definition level from which on a list has an item; rep == 1
	Fixed    int // items of each list; 0: they differ
	Text     bool
	Side     bool // the path beside an encoded picture
	Why      string
}

// List says whether a sample has a list of values.
func (c *Column) List() bool { return c.Rep == 1 }

// columns are the leaves of a schema in stored order. Every leaf has a unique name;
// those that cannot be read have a reason.
//
// A leaf's name is its path without what only marks a list (a LIST group, its
// repeated group, its element); and of a struct of nothing but bytes and path,
// as HuggingFace's datasets write images and sounds, the bytes have the struct's
// own name.
func columns(nodes []node) ([]Column, error) {
	if len(nodes) == 0 || nodes[0].physical >= 0 {
		return nil, fmt.Errorf("its schema has no root")
	}
	w := walker{nodes: nodes}
	if err := w.group(nodes[0], 1, Column{}, nil); err != nil {
		return nil, err
	}
	switch {
	case w.next != len(nodes):
		return nil, fmt.Errorf("its schema has %d elements too many", len(nodes)-w.next)
	case len(w.out) == 0:
		return nil, fmt.Errorf("its schema has no column")
	}
	seen := make(map[string]bool, len(w.out))
	for _, c := range w.out {
		if seen[c.Name] {
			return nil, errs.New(errs.Unsupported, "two columns are called %q", c.Name).Try("give every column a name of its own")
		}
		seen[c.Name] = true
	}
	return w.out, nil
}

// walker walks a flattened schema.
type walker struct {
	nodes []node
	next  int
	out   []Column
}

// take is the next node, with the levels it adds to up.
func (w *walker) take(depth int, up Column) (node, Column, error) {
	if w.next >= len(w.nodes) || depth > maxDepth {
		return node{}, up, fmt.Errorf("its schema is cut or too deep")
	}
	n := w.nodes[w.next]
	w.next++
	up.Path = append(slices.Clone(up.Path), n.name)
	switch n.repeats {
	case 0:
	case 1:
		up.Def++
	case 2:
		up.Def++
		up.Rep++
		up.ListDef = up.Def
	default:
		return n, up, fmt.Errorf("element %q of its schema has the unknown repetition %d", n.name, n.repeats)
	}
	return n, up, nil
}

// group walks the children of n. names are those of the groups around.
func (w *walker) group(n node, depth int, up Column, names []string) error {
	if depth == 1 {
		w.next = 1
	}
	if n.children < 0 || n.children > int64(len(w.nodes)-w.next) {
		return fmt.Errorf("element %q of its schema has %d children", n.name, n.children)
	}
	encoded := w.encoded(n)
	for range n.children {
		child, c, err := w.take(depth, up)
		if err != nil {
			return err
		}
		under := append(slices.Clone(names), child.name)
		if encoded && child.name == "bytes" {
			under = names
		}
		c.Side = encoded && child.name == "path"
		if err := w.any(child, depth, c, under); err != nil {
			return err
		}
	}
	return nil
}

// encoded says whether n is the struct of an encoded picture or sound.
func (w *walker) encoded(n node) bool {
	if n.children != 2 || w.next == 1 || w.next+2 > len(w.nodes) {
		return false
	}
	a, b := w.nodes[w.next], w.nodes[w.next+1]
	if a.name == "path" {
		a, b = b, a
	}
	return a.name == "bytes" && b.name == "path" && a.physical == PhysBytes && b.physical == PhysBytes
}

// any walks one element under the name of names.
func (w *walker) any(n node, depth int, c Column, names []string) error {
	switch {
	case n.physical >= 0:
		return w.leaf(n, c, names)
	case n.logical == logicalMap || n.converted == convertedMap || n.converted == convertedMapOf:
		c.Why = "a map"
	case n.logical == logicalVariant:
		c.Why = "a variant"
	case (n.logical == logicalList || n.converted == convertedList) && n.children == 1:
		return w.list(depth, c, names)
	}
	return w.group(n, depth+1, c, names)
}

// list walks what a LIST group holds: a repeated group around the element, or,
// as older writers have it, the repeated element itself.
func (w *walker) list(depth int, up Column, names []string) error {
	n, c, err := w.take(depth+1, up)
	if err != nil {
		return err
	}
	if n.physical >= 0 || n.children != 1 || n.name == "array" || strings.HasSuffix(n.name, "_tuple") {
		return w.any(n, depth+1, c, names)
	}
	element, c, err := w.take(depth+2, c)
	if err != nil {
		return err
	}
	return w.any(element, depth+2, c, names)
}

func (w *walker) leaf(n node, c Column, names []string) error {
	if n.children > 0 || n.physical > PhysFixed || len(w.out) >= maxColumns || c.Def > 200 {
		return fmt.Errorf("element %q of its schema makes no sense", n.name)
	}
	c.Name, c.Physical = strings.Join(names, "."), int(n.physical)
	c.Text = n.physical == PhysBytes && (n.logical == logicalString || n.logical == 0 && n.converted == convertedUTF8)
	decimal := n.logical == logicalDecimal || n.converted == convertedDecimal
	switch n.physical {
	case PhysBool:
		c.DType = mem.Bool
	case PhysInt32:
		c.Width, c.DType = 4, integer(n, mem.Int32)
	case PhysInt64:
		c.Width, c.DType = 8, integer(n, mem.Int64)
	case physInt96:
		c.Width = 12
		c.because("INT96, the old form of a timestamp; write it as a timestamp of microseconds")
	case physFloat:
		c.Width, c.DType = 4, mem.Float32
	case physDouble:
		c.Width, c.DType = 8, mem.Float64
	case PhysFixed:
		if n.width < 1 || n.width > 1<<24 {
			return fmt.Errorf("element %q of its schema has values of %d bytes", n.name, n.width)
		}
		c.Width = int(n.width)
		if n.logical == logicalFloat16 && n.width == 2 {
			c.DType = mem.Float16
		}
	}
	switch {
	case decimal:
		c.because("a decimal; write it as float64, or as an integer of the smallest unit")
	case c.Rep > 1:
		c.because("lists in lists; write the values flat, and their shape beside them")
	case c.Rep == 1 && c.DType == mem.Object:
		c.because("a list of texts or bytes; write one text per row, as JSON for example")
	}
	w.out = append(w.out, c)
	return nil
}

// because notes the first reason why a column cannot be read.
func (c *Column) because(why string) {
	if c.Why == "" {
		c.Why = why
	}
}

// integer is the type of a logical integer that is stored in a wider one.
func integer(n node, wide mem.DType) mem.DType {
	bits, unsigned := n.bits, n.unsigned
	if c := n.converted; n.logical != logicalInteger && c >= convertedUint8 && c < convertedInt8+4 {
		bits, unsigned = 8<<((c-convertedUint8)%4), c < convertedInt8
	}
	size := int64(wide.Size()) * 8
	switch {
	case bits == 8 && unsigned:
		return mem.Uint8
	case bits == 8:
		return mem.Int8
	case bits == 16 && unsigned:
		return mem.Uint16
	case bits == 16:
		return mem.Int16
	case unsigned && size == 32:
		return mem.Uint32
	case unsigned:
		return mem.Uint64
	}
	return wide
}

// Feature is what HuggingFace's datasets say of a column.
type Feature struct {
	Type    string          `json:"_type"`
	Names   []string        `json:"names"`
	Length  int             `json:"length"`
	Feature json.RawMessage `json:"feature"`
}

// Features are those of a file, by name; nil if it says nothing. Names of classes that
// are not Unicode are an error: two of them could become one.
func (f *Footer) Features() (map[string]Feature, error) {
	var doc struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if len(f.hf) == 0 || json.Unmarshal(f.hf, &doc) != nil {
		return nil, nil
	}
	if err := jsontext.Check(f.hf); err != nil {
		return nil, errs.New(errs.Damaged, "the description of the features (huggingface) contains text that is not Unicode").Because(err).
			Try("write the file again")
	}
	out := make(map[string]Feature)
	for name, raw := range doc.Info.Features {
		var one Feature
		if json.Unmarshal(raw, &one) == nil {
			out[name] = one
		}
	}
	return out, nil
}
