package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// rowsOf reads a column of arrays as the wire describes it: the elements of every
// row, one after the other.
func rowsOf(b *Batch, c batch.Column, d mem.DType) (rows [][]byte) {
	slot, size := b.Slot.Mem, int64(d.Size())
	offset := func(r int) int64 { return int64(binary.LittleEndian.Uint64(slot[c.Off+8*int64(r):])) }
	for r := range b.Rows {
		elems := int64(mem.Shape(c.Shape).Elems())
		switch {
		case c.Kind == "ragged":
			rows = append(rows, slot[c.Data+offset(r)*elems*size:c.Data+offset(r+1)*elems*size])
		default:
			at := c.Off + int64(r)*elems*size
			rows = append(rows, slot[at:at+elems*size])
		}
	}
	return rows
}

// arrays is one pass over columns of arrays: by sample id, by column, its row.
func arrays(t testing.TB, l *Loader) map[int64]map[string][]byte {
	t.Helper()
	types := map[string]mem.DType{}
	for _, f := range l.Fields() {
		types[f.Name], _ = mem.ParseDType(f.DType)
	}
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	out := map[int64]map[string][]byte{}
	for {
		b, err := p.Next(context.Background(), 0)
		if err != nil {
			return out
		}
		n := len(b.Columns)
		ids := rowsOf(b, b.Columns[n-2], mem.Int64)
		valid := rowsOf(b, b.Columns[n-1], mem.Bool)
		for r := range b.Rows {
			if valid[r][0] == 0 {
				continue
			}
			id := int64(binary.LittleEndian.Uint64(ids[r]))
			out[id] = map[string][]byte{}
			for _, c := range b.Columns[:n-2] {
				if d := types[c.Name]; d != mem.Object {
					out[id][c.Name] = bytes.Clone(rowsOf(b, c, d)[r])
				}
			}
		}
		b.Release()
	}
}

func fieldsOf(t testing.TB, text string) (out []Field) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func arraySpec(fields []Field, paths ...string) Spec {
	return Spec{Dataset: Dataset{Path: paths}, Fields: fields, Batch: BatchSpec{Size: 3}, Workers: 2, Order: Order{Shuffle: order.Full}}
}

// documents is a shard of .npy members of shape (n, 2) and type int16, n by id, and
// those arrays.
func documents(t testing.TB, sizes ...int) (path string, rows [][]byte) {
	t.Helper()
	var members []member
	for i, n := range sizes {
		data := random(n*4, uint64(i))
		rows = append(rows, data)
		members = append(members, member{fmt.Sprintf("%03d.doc.npy", i), arrayFile(byte(1+i%3), "'<i2'", fmt.Sprintf("(%d, 2)", n), data)},
			member{fmt.Sprintf("%03d.cls", i), fmt.Appendf(nil, "%d", i%4)})
	}
	path = filepath.Join(t.TempDir(), "docs.tar")
	writeTar(t, path, members)
	return path, rows
}

var docSizes = []int{3, 0, 7, 1, 12, 5, 5, 2, 9, 4, 1, 6, 30, 2}
