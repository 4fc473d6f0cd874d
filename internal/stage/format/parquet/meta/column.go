package meta

import "github.com/stoker-data/stoker/internal/base/mem"

// ColumnInts is how many numbers Spec has.
const ColumnInts = 9

// Spec is the column as an index keeps it, its names apart.
func (c *Column) Spec() []int32 {
	flag := map[bool]int32{true: 1}
	return []int32{
		int32(c.Physical), int32(c.Width), int32(c.DType), int32(c.Def), int32(c.Rep), int32(c.ListDef), int32(c.Fixed), flag[c.Text], flag[c.Side],
	}
}

// Valid says whether the numbers of a column fit each other.
func (c *Column) Valid() bool {
	widths := [...]int{PhysBool: 0, PhysInt32: 4, PhysInt64: 8, physInt96: 12, physFloat: 4, physDouble: 8, PhysBytes: 0, PhysFixed: c.Width}
	if c.Physical < 0 || c.Physical >= len(widths) || c.Width != widths[c.Physical] || c.Width < 0 || c.Width > 1<<24 || c.DType > mem.Float16 ||
		c.Def < 0 || c.Def > 255 || c.Rep < 0 || c.Fixed < 0 || c.ListDef < 0 || c.ListDef > c.Def {
		return false
	}
	object := c.DType == mem.Object
	switch {
	case c.Why != "":
		return true
	case c.Rep > 1 || c.Rep == 1 && (object || c.ListDef < 1) || c.Physical == PhysFixed && c.Width < 1:
		return false
	case c.Physical == PhysBool:
		return c.DType == mem.Bool
	case c.Physical == PhysBytes:
		return object
	case c.Physical == PhysFixed:
		return object || c.DType == mem.Float16 && c.Width == 2
	}
	return !object && c.DType.Size() <= c.Width
}
