package batch

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// No two rows of any columns share a byte, all are in the slot, and rows are
// aligned to their elements.
func TestRowsDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fields []Field
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			d := rapid.SampledFrom([]mem.DType{mem.Uint8, mem.Int64, mem.Float32, mem.Object}).Draw(t, "dtype")
			f := Field{Name: "f", DType: d, Loose: d == mem.Object}
			if !f.Loose {
				f.Shape = rapid.SliceOfN(rapid.IntRange(1, 9), 0, 3).Draw(t, "shape")
			}
			fields = append(fields, f)
		}
		rows := rapid.IntRange(1, 70).Draw(t, "rows")
		l := NewLayout(fields, rows)
		slot := make([]byte, l.Bytes())
		for i, f := range l.Fields {
			if f.Loose {
				continue
			}
			if l.Off(i)%int64(f.DType.Size()) != 0 {
				t.Fatalf("column %d begins at %d", i, l.Off(i))
			}
			for r := range rows {
				for j, b := range l.Row(slot, i, r) {
					if b != 0 {
						t.Fatalf("column %d row %d byte %d is shared", i, r, j)
					}
					l.Row(slot, i, r)[j] = 1
				}
			}
		}
	})
}

func TestPackKeepsUnequalRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 50), 1, 20).Draw(t, "rows")
		l := NewLayout([]Field{{Name: "text", DType: mem.Object, Loose: true}}, 20)
		var c Loose
		c.Reset(len(rows))
		for i, r := range rows {
			c.Rows[i] = append(c.Rows[i], r...)
		}
		slot := make([]byte, l.Bytes()+l.Need(0, &c))
		if end := l.Pack(slot, 0, &c, l.Bytes()); end != int64(len(slot)) {
			t.Fatalf("laid out to %d, want %d", end, len(slot))
		}
		at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(slot[l.Off(0)+8*int64(i):])) }
		for i, r := range rows {
			if got := slot[l.Bytes()+at(i) : l.Bytes()+at(i+1)]; !bytes.Equal(got, r) {
				t.Fatalf("row %d is %q, want %q", i, got, r)
			}
		}
	})
}
