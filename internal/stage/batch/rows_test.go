package batch_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// Where the columns of usual batches begin: clients compute views from it, and the
// golden is what they see.
func TestLayoutOfUsualBatches(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		name   string
		rows   int
		fields []batch.Field
	}{
		{"pictures and labels", 256, []batch.Field{
			{Name: "image", DType: mem.Uint8, Shape: mem.Shape{224, 224, 3}}, {Name: "label", DType: mem.Int64},
		}},
		{"a small batch", 3, []batch.Field{{Name: "x", DType: mem.Float32, Shape: mem.Shape{5}}, {Name: "y", DType: mem.Uint8}}},
		{"text, ragged and padded arrays", 8, []batch.Field{
			{Name: "text", DType: mem.Object, Loose: true},
			{Name: "boxes", DType: mem.Float32, Shape: mem.Shape{4}, Loose: true, Form: batch.Ragged},
			{Name: "tokens", DType: mem.Int32, Loose: true, Form: batch.Padded, Pad: batch.Pad{Value: make([]byte, 4)}, Lengths: 3},
			{Name: "tokens_lengths", DType: mem.Int64},
		}},
		{"rows of runs", 4, []batch.Field{{Name: "tokens", DType: mem.Int32, Shape: mem.Shape{512}, RunBytes: 4 * 512 * 4}}},
	} {
		l := batch.NewLayout(c.fields, c.rows)
		fmt.Fprintf(&out, "%s: %d rows, %d bytes\n", c.name, c.rows, l.Bytes())
		for i, f := range l.Fields {
			kind := f.Form.String()
			if f.DType == mem.Object {
				kind = "object"
			}
			fmt.Fprintf(&out, "  %6d  %-14s %-7s %-6s %v\n", l.Off(i), f.Name, f.DType, kind, []int(f.Seen()))
		}
	}
	stagetest.Golden(t, "layouts.txt", []byte(out.String()))
}

// Every batch says of each row which sample it is and whether it is real; neither is
// touched when a good row is copied over a bad one, nor is any other row.
func TestStampAndCopyRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.IntRange(2, 20).Draw(t, "rows")
		size := rapid.IntRange(1, 3000).Draw(t, "size")
		l := batch.NewLayout([]batch.Field{
			{Name: "x", DType: mem.Uint8, Shape: mem.Shape{size}},
			{Name: "text", DType: mem.Object, Loose: true},
			{Name: "y", DType: mem.Int16},
		}, rows)
		slot := make([]byte, l.Bytes())
		ids, valid := make([]int64, rows), make([]bool, rows)
		for r := range rows {
			ids[r] = rapid.Int64Range(-1, 1<<40).Draw(t, "id")
			valid[r] = rapid.Bool().Draw(t, "valid")
			l.Stamp(slot, r, ids[r], valid[r])
			copy(l.Row(slot, 0, r), bytes.Repeat([]byte{byte(r + 1)}, size))
			copy(l.Row(slot, 2, r), []byte{byte(r), 9})
		}
		to, from := rapid.IntRange(0, rows-1).Draw(t, "to"), rapid.IntRange(0, rows-1).Draw(t, "from")
		l.CopyRow(slot, to, from)
		n := len(l.Fields)
		if l.Fields[n-2].Name != batch.IDs || l.Fields[n-1].Name != batch.Valid {
			t.Fatalf("the last columns are %s and %s", l.Fields[n-2].Name, l.Fields[n-1].Name)
		}
		for r := range rows {
			want := r
			if r == to {
				want = from
			}
			if x, y := l.Row(slot, 0, r), l.Row(slot, 2, r); x[0] != byte(want+1) || x[size-1] != byte(want+1) || y[0] != byte(want) {
				t.Fatalf("row %d holds row %d, want %d", r, x[0]-1, want)
			}
			id := int64(binary.LittleEndian.Uint64(l.Row(slot, n-2, r)))
			if ok := l.Row(slot, n-1, r)[0] == 1; id != ids[r] || ok != valid[r] {
				t.Fatalf("row %d is sample %d (%v), want %d (%v)", r, id, ok, ids[r], valid[r])
			}
		}
	})
}

// A row of a column of fixed size cannot be appended into its neighbour.
func TestRowsHaveNoSpareRoom(t *testing.T) {
	l := batch.NewLayout([]batch.Field{{Name: "x", DType: mem.Int32, Shape: mem.Shape{3}}, {Name: "p", DType: mem.Int32, Shape: mem.Shape{2}, RunBytes: 24}}, 2)
	slot := make([]byte, l.Bytes())
	for _, row := range [][]byte{l.Row(slot, 0, 0), l.Column(slot, 1)} {
		if cap(row) != len(row) {
			t.Errorf("a row of %d bytes has room for %d", len(row), cap(row))
		}
	}
	if n := len(l.Column(slot, 1)); n != 24 {
		t.Errorf("a column of runs of %d bytes", n)
	}
}

// Steps is the least length that holds n steps, is To where that is set, and is a
// multiple where one is asked for.
func TestStepsOfPadding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := batch.Pad{Multiple: rapid.IntRange(0, 70).Draw(t, "multiple")}
		n := rapid.Int64Range(0, 5000).Draw(t, "n")
		got := p.Steps(n)
		m := int64(max(p.Multiple, 1))
		if got%m != 0 || got < n || got-n >= m {
			t.Fatalf("%d steps, a multiple of %d: %d", n, p.Multiple, got)
		}
		p.To = rapid.IntRange(1, 5000).Draw(t, "to")
		if got := p.Steps(n); got%m != 0 || got < int64(p.To) || got-int64(p.To) >= m {
			t.Fatalf("padded to %d, a multiple of %d: %d", p.To, p.Multiple, got)
		}
	})
}

// Fill repeats the value over whatever was there.
func TestFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "size")
		value := rapid.SliceOfN(rapid.ByteRange(0, 2), size, size).Draw(t, "value")
		n := rapid.IntRange(0, 200).Draw(t, "elements")
		dst := bytes.Repeat([]byte{0xEE}, n*size+1)
		batch.Pad{Value: value}.Fill(dst[:n*size])
		if !bytes.Equal(dst, append(bytes.Repeat(value, n), 0xEE)) {
			t.Fatalf("%x", dst)
		}
	})
}

// The rows of a column are used again from batch to batch: what was in one is gone
// from the next, and a copied row is the row it was copied from.
func TestLooseRowsAreReused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c batch.Loose
		l := batch.NewLayout([]batch.Field{{Name: "text", DType: mem.Object, Loose: true}}, 8)
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			rows := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 8).Draw(t, "rows")
			c.Reset(len(rows))
			if n := l.Need(0, &c); n != 0 {
				t.Fatalf("%d bytes are left of the batch before", n)
			}
			for i, r := range rows {
				copy(c.Row(i, len(r)), r)
				c.Shapes[i] = append(c.Shapes[i][:0], i, len(r))
			}
			to, from := rapid.IntRange(0, len(rows)-1).Draw(t, "to"), rapid.IntRange(0, len(rows)-1).Draw(t, "from")
			c.Copy(to, from)
			for i, r := range rows {
				want, shape := r, i
				if i == to {
					want, shape = rows[from], from
				}
				if !bytes.Equal(c.Rows[i], want) || c.Shapes[i][0] != shape {
					t.Fatalf("row %d is %x of %v, want %x", i, c.Rows[i], c.Shapes[i], want)
				}
			}
			if rapid.Bool().Draw(t, "trim") {
				c.Trim()
			}
		}
	})
}

// A consumer in this process gets slots of the size that it asks for, and needs no
// descriptor.
func TestHeap(t *testing.T) {
	var a batch.Arena = batch.Heap{}
	s, err := a.Alloc(100)
	if err != nil || len(s.Mem) != 100 || s.FD != -1 {
		t.Errorf("%+v, %v", s, err)
	}
	a.Free(s)
}
