package files

import (
	"fmt"
	"strings"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// oddSize is how many numbers columnOdd has for each odd cell: the column, the row, its
// line (0: unknown), and how many rows have numbers.
//
// A text column in which nearly all cells are numbers is most often a column of numbers
// with a few wrong cells. The first of these is the column's odd cell.
const oddSize = 4

// rare is how many numbers there must be per other cell, for the column to be meant as
// numbers.
const rare = 10

// odd returns the first row whose cell makes a column of numbers text, and how many rows
// have numbers. row is -1 if the column is not text, or too many cells are texts, or the
// cell is a name made of digits, such as 0017: then the column is meant as text.
func (c *cells) odd(t mem.DType) (row, numbers int) {
	if t != mem.Object {
		return -1, 0
	}
	var of [cellKinds]int // cells of each kind
	for _, k := range c.kinds {
		of[k]++
	}
	is := func(k byte) bool { return k == cellText || k == cellBool }
	numbers = of[cellInt] + of[cellUint] + of[cellHuge] + of[cellFloat]
	others := of[cellText] + of[cellBool]
	switch {
	case others > 0:
	case of[cellHuge] > 0:
		is = func(k byte) bool { return k == cellHuge }
		others = of[cellHuge]
		numbers -= others
	case of[cellUint] > 0: // in a column with numbers below zero
		is = func(k byte) bool { return k == cellUint }
		others = of[cellUint]
		numbers -= others
	}
	if others == 0 || numbers < rare*others {
		return -1, 0
	}
	for row, k := range c.kinds {
		if is(k) {
			if k == cellText && strings.Trim(string(c.text.At(row)), "-0123456789") == "" {
				return -1, 0
			}
			return row, numbers
		}
	}
	return -1, 0
}

// addOdd adds the odd cell of field i, if there is one, to those of the other fields.
func (t *table) addOdd(odd []int64, i int, c *cells, dtype mem.DType) []int64 {
	row, numbers := c.odd(dtype)
	if row < 0 {
		return odd
	}
	return append(odd, int64(i), int64(row), t.lines[row], int64(numbers))
}

// validOdd reports whether the odd cells of an index exist.
func (d *Dataset) validOdd() bool {
	odd := d.x.Int64s(columnOdd)
	if len(odd)%oddSize != 0 {
		return false
	}
	for ; len(odd) > 0; odd = odd[oddSize:] {
		if uint64(odd[0]) >= uint64(len(d.cols)) || uint64(odd[1]) >= uint64(d.x.Len()) || d.cols[odd[0]].dtype != mem.Object {
			return false
		}
	}
	return true
}

// NotesFor says which of the wanted columns (nil: all) are text because of a few cells.
func (d *Dataset) NotesFor(fields []string) (notes []string) {
	for odd := d.x.Int64s(columnOdd); len(odd) > 0; odd = odd[oddSize:] {
		at, row, line := int(odd[0]), odd[1], odd[2]
		wanted := fields == nil
		for _, f := range fields {
			wanted = wanted || d.resolve(f) == at
		}
		if !wanted {
			continue
		}
		where := fmt.Sprintf("row %d", row)
		if line > 0 {
			where = fmt.Sprintf("line %d", line)
		}
		notes = append(notes, fmt.Sprintf("column %q is text, because %s has %s; %d rows have numbers: correct the cell, or leave it empty",
			d.cols[at].name, where, shown(d.cols[at].text.At(int(row))), odd[3]))
	}
	return notes
}

// shown quotes a cell, shortened.
func shown(cell []byte) string {
	const most = 40
	if len(cell) > most {
		cell = append(append(cell[:0:0], cell[:most]...), "..."...)
	}
	return fmt.Sprintf("%q", strings.ToValidUTF8(string(cell), "?"))
}
