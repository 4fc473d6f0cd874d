package tree

import (
	"cmp"
	"slices"

	"github.com/stoker-data/stoker/internal/stage/format"
)

// referenceLen is the bytes of a reference to a value of variable length: how
// many elements it has (4), the address of its collection (8), its number in
// there (4).
const referenceLen = 16

// headsLen is what is read of a collection at once: values are long as a rule, and
// only what is stored between them is wanted.
const headsLen = 4 << 10

// Value is where a value of variable length is stored; of an empty one Off is -1.
type Value struct{ Off, Size int64 }

type reference struct {
	count   uint64
	address uint64
	number  uint32
	row     int
}

// Values is where the values are stored that these references lead to; elem is the
// bytes of an element.
func (f *File) Values(refs []byte, elem int64) ([]Value, error) {
	out := make([]Value, len(refs)/referenceLen)
	var list []reference
	for i := range out {
		c := cursor{b: refs[i*referenceLen : (i+1)*referenceLen]}
		r := reference{count: uint64(c.u32()), address: c.u64(), number: c.u32(), row: i}
		if out[i].Off = -1; r.count == 0 && (r.address == 0 || r.address == undefined) {
			continue
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b reference) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.number, b.number), cmp.Compare(a.row, b.row))
	})
	var groups [][]reference
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[to].address == list[from].address {
			to++
		}
		groups = append(groups, list[from:to])
		from = to
	}
	err := format.EachOf(f.ctx, f.src, f.obj.Name, len(groups), func(i int) error { return f.collection(groups[i], elem, out) })
	return out, err
}

// collection finds the values of one collection, which is what refs is sorted for. It
// reads past f's windows: it is called concurrently.
func (f *File) collection(refs []reference, elem int64, out []Value) error {
	start, err := f.at(refs[0].address)
	if err != nil {
		return err
	}
	var b []byte
	from := start
	read := func(at int64, n int) (*cursor, error) {
		if at < from || at+int64(n) > from+int64(len(b)) {
			if from, err = at, nil; at > f.obj.Size {
				return nil, f.Damaged(f.obj.Size, "the file ends within a collection of values")
			}
			if b, err = format.Read(f.ctx, f.src, f.obj, at, min(headsLen, f.obj.Size-at)); err != nil {
				return nil, err
			}
		}
		c := &cursor{b: b, off: from, at: int(at - from)}
		if c.left() < n {
			return nil, f.Damaged(at, "the file ends within a collection of values")
		}
		return c, nil
	}
	c, err := read(start, 16)
	if err != nil {
		return err
	}
	mark, version := c.bytes(4), c.u8()
	c.skip(3)
	size := c.u64()
	if string(mark) != "GCOL" || version != 1 || size < 16 || size > uint64(f.obj.Size-start) {
		return f.Damaged(start, "no collection of values begins here: %q, version %d, %d bytes", mark, version, size)
	}
	end := start + int64(size)
	found := make(map[uint16]Value)
	for at := start + 16; at+16 <= end; {
		if c, err = read(at, 16); err != nil {
			return err
		}
		number := c.u16()
		c.skip(6)
		n := c.u64()
		if number == 0 {
			break // what is free
		}
		if n > uint64(end-at-16) {
			return f.Damaged(at, "value %d has %d bytes, and its collection ends at %d", number, n, end)
		}
		if _, twice := found[number]; twice {
			return f.Damaged(at, "value %d is there twice in its collection", number)
		}
		found[number] = Value{at + 16, int64(n)}
		at += 16 + (int64(n)+7)&^7
	}
	for _, r := range refs {
		v, ok := found[uint16(r.number)]
		if !ok || r.number > 0xFFFF {
			return f.Damaged(start, "value %d is not in its collection", r.number)
		}
		if n := int64(r.count) * elem; n != v.Size {
			return f.Damaged(v.Off-16, "a value has %d bytes, and should have %d", v.Size, n)
		}
		out[r.row] = v
	}
	return nil
}
