package batch

import (
	"encoding/binary"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Loose is the rows of one field whose rows are unequal, before they are copied
// into the slot. Each row has one writer; Pack comes after all of them.
type Loose struct {
	Rows   [][]byte    // reused from batch to batch
	Shapes []mem.Shape // of images; nil for other kinds
}

// Reset makes room for n rows.
func (c *Loose) Reset(n int) {
	for len(c.Rows) < n {
		c.Rows = append(c.Rows, nil)
		c.Shapes = append(c.Shapes, nil)
	}
	c.Rows, c.Shapes = c.Rows[:n], c.Shapes[:n]
	for i := range c.Rows {
		c.Rows[i] = c.Rows[i][:0]
	}
}

// Row returns n bytes of room for row r.
func (c *Loose) Row(r, n int) []byte {
	c.Rows[r] = mem.Sized(c.Rows[r], n)
	return c.Rows[r]
}

// Trim frees rows that are too long to be kept for another batch. Their contents
// are lost.
func (c *Loose) Trim() {
	for i := range c.Rows {
		mem.Trim(&c.Rows[i])
	}
}

// Copy makes row to equal to row from.
func (c *Loose) Copy(to, from int) {
	copy(c.Row(to, len(c.Rows[from])), c.Rows[from])
	c.Shapes[to] = append(c.Shapes[to][:0], c.Shapes[from]...)
}

// longest is the size of the longest row in bytes.
func (c *Loose) longest() int64 {
	n := 0
	for _, r := range c.Rows {
		n = max(n, len(r))
	}
	return int64(n)
}

// Pad is how samples are made equal in their first axis: with steps of one value.
type Pad struct {
	To       int    // steps; 0: as many as the longest sample of the batch has
	Multiple int    // rounds the longest up to a multiple of this many steps; 0: does not
	Value    []byte // one element
	Truncate bool   // samples longer than To lose their end; otherwise they are an error
}

// Steps is the padded length, in steps, if the longest sample has n.
func (p Pad) Steps(n int64) int64 {
	if p.To > 0 {
		n = int64(p.To)
	}
	if m := int64(p.Multiple); m > 0 {
		n = (n + m - 1) / m * m
	}
	return n
}

// Fill writes the value from end to end.
func (p Pad) Fill(dst []byte) {
	same := true
	for _, b := range p.Value[1:] {
		same = same && b == p.Value[0]
	}
	if same && p.Value[0] == 0 {
		clear(dst)
		return
	}
	for n := copy(dst, p.Value); n < len(dst); n *= 2 { // doubles the filled part
		copy(dst[n:], dst[:n])
	}
}

// steps is the length of a padded column: the steps of every row.
func (f Field) steps(c *Loose) int64 { return f.Pad.Steps(c.longest() / max(f.step(), 1)) }

// Need is the size in bytes that the rows of a column take in the slot.
func (l *Layout) Need(field int, c *Loose) int64 {
	f := &l.Fields[field]
	if f.Form == Padded {
		return int64(len(c.Rows)) * f.steps(c) * f.step()
	}
	var n int64
	for _, r := range c.Rows {
		n += int64(len(r))
	}
	return n
}

// Pack writes the rows at offset at of the slot, and returns where they end. Padded
// rows become equal. For others the column's table gets the offsets: in steps for
// ragged arrays, in bytes otherwise.
func (l *Layout) Pack(slot []byte, field int, c *Loose, at int64) int64 {
	f := &l.Fields[field]
	if f.Form == Padded {
		return f.pad(slot, c, at)
	}
	unit := uint64(1)
	if f.Form == Ragged {
		unit = uint64(f.step())
	}
	table := slot[l.off[field]:]
	end := at
	for i, r := range c.Rows {
		binary.LittleEndian.PutUint64(table[8*i:], uint64(end-at)/unit)
		end += int64(copy(slot[end:], r))
	}
	binary.LittleEndian.PutUint64(table[8*len(c.Rows):], uint64(end-at)/unit)
	return end
}

func (f Field) pad(slot []byte, c *Loose, at int64) int64 {
	row := f.steps(c) * f.step()
	for _, r := range c.Rows {
		n := int64(copy(slot[at:at+row], r))
		f.Pad.Fill(slot[at+n : at+row])
		at += row
	}
	return at
}

// Padded is the shape of one row of a padded column.
func (l *Layout) Padded(field int, c *Loose) mem.Shape {
	f := &l.Fields[field]
	return append(mem.Shape{int(f.steps(c))}, f.Shape...)
}
