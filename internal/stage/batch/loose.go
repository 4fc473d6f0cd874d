package batch

import (
	"encoding/binary"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Loose is the rows of one field whose rows are unequal, on their way into the
// slot. Each row has one writer; Pack comes after all of them.
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

// Row is room of n bytes for row r.
func (c *Loose) Row(r, n int) []byte {
	c.Rows[r] = mem.Sized(c.Rows[r], n)
	return c.Rows[r]
}

// Trim lets go of rows that are too long to be kept for another batch. What they held is gone.
func (c *Loose) Trim() {
	for i := range c.Rows {
		mem.Trim(&c.Rows[i])
	}
}

// Copy makes row to what row from is.
func (c *Loose) Copy(to, from int) {
	copy(c.Row(to, len(c.Rows[from])), c.Rows[from])
	c.Shapes[to] = append(c.Shapes[to][:0], c.Shapes[from]...)
}

// longest is the bytes of the longest row.
func (c *Loose) longest() int64 {
	n := 0
	for _, r := range c.Rows {
		n = max(n, len(r))
	}
	return int64(n)
}

// Pad is how samples are made equal in their first axis: by steps that hold one
// value.
type Pad struct {
	To       int    // steps; 0: those of the longest sample of the batch
	Multiple int    // the longest, rounded up to a multiple of so many steps; 0: not
	Value    []byte // one element
	Truncate bool   // longer samples than To lose their end; else they are an error
}

// Steps is what n steps of the longest sample become.
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
	for n := copy(dst, p.Value); n < len(dst); n *= 2 { // doubles what is there
		copy(dst[n:], dst[:n])
	}
}

// steps is the length of a padded column: steps of every row.
func (f Field) steps(c *Loose) int64 { return f.Pad.Steps(c.longest() / max(f.step(), 1)) }

// Need is the bytes that the rows of a column take in the slot.
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

// Pack writes the rows at offset at of the slot, and returns where they end.
// Padded rows come out equal. Of others the column's table gets the offsets: of
// ragged arrays in steps, of the rest in bytes.
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
