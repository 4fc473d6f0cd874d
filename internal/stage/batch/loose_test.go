package batch

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Ragged rows are stored one after the other, offsets counting steps; padded ones
// side by side, each filled up with the value; and a view shows a part of another column,
// of which no byte is stored twice.
func TestUnequalArrays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]mem.DType{mem.Uint8, mem.Int16, mem.Float32, mem.Int64}).Draw(t, "dtype")
		inner := mem.Shape(rapid.SliceOfN(rapid.IntRange(1, 3), 0, 2).Draw(t, "inner"))
		step := inner.Elems() * d.Size()
		value := rapid.SliceOfN(rapid.Byte(), d.Size(), d.Size()).Draw(t, "value")
		multiple := rapid.IntRange(0, 5).Draw(t, "multiple")
		rows := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 12).Draw(t, "rows")
		l := NewLayout([]Field{
			{Name: "r", DType: d, Shape: inner, Loose: true, Form: Ragged},
			{Name: "p", DType: d, Shape: inner, Loose: true, Form: Padded, Pad: Pad{Multiple: multiple, Value: value}},
		}, 12)
		var c Loose
		c.Reset(len(rows))
		longest := 0
		for i, n := range rows {
			copy(c.Row(i, n*step), bytes.Repeat([]byte{byte(i + 1)}, n*step))
			longest = max(longest, n)
		}
		for multiple > 0 && longest%multiple > 0 {
			longest++
		}
		slot := bytes.Repeat([]byte{0xEE}, int(l.Bytes()+l.Need(0, &c)+l.Need(1, &c)))
		end := l.Pack(slot, 0, &c, l.Bytes())
		if l.Pack(slot, 1, &c, end) != int64(len(slot)) {
			t.Fatal("the columns do not take what they need")
		}
		at := int64(0)
		for i, n := range rows {
			if got := int64(binary.LittleEndian.Uint64(slot[l.Off(0)+8*int64(i):])); got != at {
				t.Fatalf("row %d begins at %d, want %d", i, got, at)
			}
			from := l.Bytes() + at*int64(step)
			if got := slot[from : from+int64(n*step)]; !bytes.Equal(got, c.Rows[i]) {
				t.Fatalf("row %d is %x", i, got)
			}
			at += int64(n)
			padded := append(bytes.Clone(c.Rows[i]), bytes.Repeat(value, (longest-n)*inner.Elems())...)
			from = end + int64(i*longest*step)
			if got := slot[from : from+int64(longest*step)]; !bytes.Equal(got, padded) {
				t.Fatalf("padded row %d is %x, want %x", i, got, padded)
			}
		}
		if shape := l.Padded(1, &c); shape[0] != longest || len(shape) != len(inner)+1 {
			t.Fatalf("padded to %v, want %d steps", shape, longest)
		}
	})
}

// A view is a column of its own, without gaps, as large as what it shows.
func TestViewsOfAColumn(t *testing.T) {
	l := NewLayout([]Field{
		{Name: "y", DType: mem.Int16, Shape: mem.Shape{5, 3}, From: 1, To: 5},
		{Name: "x", DType: mem.Int16, Shape: mem.Shape{5, 3}, From: 0, To: 4, Of: 1},
		{Name: "all", DType: mem.Int16, Shape: mem.Shape{5, 3}, From: 0, To: 5, Of: 1},
		{Name: "next", DType: mem.Uint8},
	}, 2)
	slot := make([]byte, l.Bytes())
	for i, want := range []struct {
		off   int64
		steps int
	}{{0, 4}, {64, 4}, {128, 5}} {
		if off, seen := l.Off(i), l.Fields[i].Seen(); off != want.off || seen[0] != want.steps || len(l.Row(slot, i, 1)) != want.steps*6 {
			t.Errorf("%s at %d, shape %v, rows of %d bytes; want %+v", l.Fields[i].Name, off, seen, len(l.Row(slot, i, 1)), want)
		}
	}
	for i := range 3 {
		copy(l.Row(slot, i, 0), bytes.Repeat([]byte{7}, 30))
	}
	l.CopyRow(slot, 1, 0)
	for i := range 3 {
		if row := l.Row(slot, i, 1); !bytes.Equal(row, bytes.Repeat([]byte{7}, len(row))) {
			t.Errorf("a copied row of %s: %x", l.Fields[i].Name, row)
		}
	}
}
