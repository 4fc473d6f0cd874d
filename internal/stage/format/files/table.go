package files

import (
	"math"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/index"
)

// What a cell holds, by its own looks.
const (
	cellNull    = iota
	cellText    // anything else
	cellEmpty   // of a CSV file, which has no other way to say nothing
	cellMissing // of a CSV file, a word such as NA: a missing value among numbers, a text among texts
	cellInt
	cellUint // a whole number from 2^63 to 2^64-1
	cellHuge // a whole number that fits neither int64 nor uint64
	cellFloat
	cellBool
	cellKinds // how many there are
)

const (
	maxColumns = 4096
	maxRow     = 4 << 20 // bytes of one row of a text file
)

// cells is one column as it was read.
type cells struct {
	name  string
	text  index.Texts
	kinds []byte
}

// table is the rows of a manifest as they were read.
type table struct {
	path  string
	bytes int64 // of the file
	cols  []*cells
	no    map[string]int
	lines []int64 // where each row begins, where lines mean something
	rows  int
}

func newTable(path string, bytes int64) *table {
	return &table{path: path, bytes: bytes, no: make(map[string]int)}
}

// column is the number of a column, which is made if need be: what went before it
// is null there.
func (t *table) column(name string) (int, error) {
	if i, ok := t.no[name]; ok {
		return i, nil
	}
	// Columns that most rows lack are made of nothing: no more of that than there
	// are bytes in the file.
	if len(t.cols) >= maxColumns || int64(t.rows)*int64(len(t.cols)+1) > 2*t.bytes+1<<20 {
		return 0, t.fail(errs.Unsupported, -1, "there are more than %d columns, or most of them are empty", len(t.cols)).
			Try("write one JSON text in a column instead of a column for each key")
	}
	c := &cells{name: name}
	for range t.rows {
		c.add("", cellNull)
	}
	t.no[name] = len(t.cols)
	t.cols = append(t.cols, c)
	return len(t.cols) - 1, nil
}

func (c *cells) add(v string, kind byte) {
	c.text.AppendString(v)
	c.kinds = append(c.kinds, kind)
}

// end ends a row: columns that it does not have are null.
func (t *table) end(line int64) {
	t.rows++
	t.lines = append(t.lines, line)
	for _, c := range t.cols {
		if len(c.kinds) < t.rows {
			c.add("", cellNull)
		}
	}
}

// row names a row as a user finds it.
func (t *table) row(i int) string {
	if t.lines[i] > 0 {
		return "line " + strconv.FormatInt(t.lines[i], 10)
	}
	return "row " + strconv.Itoa(i)
}

// fail is an error in the table, with the offset in bytes where that is known.
func (t *table) fail(code errs.Code, off int64, format string, a ...any) *errs.Error {
	return errs.New(code, format, a...).At(errs.Where{File: t.path, Offset: errs.Known(off)})
}

// looks is what a cell of a CSV file looks like. A number with leading zeros is a name.
// Words are numbers or missing values if they are for pandas.read_csv.
func looks(s string) byte {
	if s == "" {
		return cellEmpty
	}
	digits, dots, other := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits++
		case c == '.':
			dots++
		case c == '-' && i == 0:
		case c == 'e' || c == 'E' || c == '-' || c == '+':
			other++
		default:
			return word(s)
		}
	}
	switch {
	case digits == 0:
		return cellText
	case dots == 0 && other == 0:
		return whole(s)
	}
	if _, err := strconv.ParseFloat(s, 64); err != nil {
		return cellText
	}
	return cellFloat
}

// whole is the kind of a cell of digits, perhaps after a minus sign.
func whole(s string) byte {
	if digits := strings.TrimPrefix(s, "-"); len(digits) > 1 && digits[0] == '0' {
		return cellText
	}
	return size(s)
}

// size is the kind of a whole number, by the smallest type that holds it.
func size(s string) byte {
	if _, err := strconv.ParseInt(s, 10, 64); err == nil {
		return cellInt
	}
	if _, err := strconv.ParseUint(s, 10, 64); err == nil {
		return cellUint
	}
	return cellHuge
}

// word is the kind of a cell with a character that no decimal number has.
func word(s string) byte {
	switch s {
	case "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "null", "NULL", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN":
		return cellMissing
	case "nan", "NaN", "-nan", "-NaN":
		return cellFloat
	}
	if s[0] == '+' || s[0] == '-' {
		s = s[1:]
	}
	if strings.EqualFold(s, "inf") || strings.EqualFold(s, "infinity") {
		return cellFloat
	}
	return cellText
}

// float is the value of a number, of any kind; one that is too large is infinite.
func float(s string) float64 {
	if strings.HasSuffix(strings.ToLower(s), "nan") {
		return math.NaN() // strconv does not accept a sign before it
	}
	f, _ := strconv.ParseFloat(s, 64) // s has the kind of a number
	return f
}

// has is which kinds of cells a column has.
func (c *cells) has() (kinds [cellKinds]bool) {
	for _, k := range c.kinds {
		kinds[k] = true
	}
	return kinds
}
