package files

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// kindOf returns the format that a table is written in, by its name or, for Parquet, its
// first bytes; "" means that it is none of those that are read.
func kindOf(name string, head []byte) string {
	switch strings.ToLower(path.Ext(source.Unquery(name))) {
	case ".csv":
		return "csv"
	case ".tsv", ".tab":
		return "tsv"
	case ".jsonl", ".ndjson", ".jsonlines":
		return "jsonl"
	}
	if head != nil && parquet.Sniff(name, head) {
		return "parquet"
	}
	return ""
}

// read reads a whole table.
func read(ctx context.Context, src source.Source, obj source.Info) (*table, error) {
	head := make([]byte, min(obj.Size, 4))
	if err := src.ReadAt(ctx, obj, head, 0); err != nil {
		return nil, err
	}
	t := newTable(obj.Name, obj.Size)
	feed := &feed{ctx: ctx, src: src, obj: obj, limit: obj.Size}
	var err error
	switch kind := kindOf(obj.Name, head); kind {
	case "csv", "tsv":
		err = t.readCSV(feed, kind == "tsv")
	case "jsonl":
		err = t.readJSONL(feed)
	case "parquet":
		err = t.readParquet(ctx, src, obj)
	default:
		return nil, t.fail(errs.Config, -1, "%q does not have the name of a table", path.Base(obj.Name)).
			Try("manifests and tables end in .csv, .tsv, .jsonl or .parquet")
	}
	if err != nil {
		return nil, err
	}
	if t.rows == 0 {
		return nil, t.fail(errs.Empty, -1, "the table has no row").Try("the first line of a CSV file has the names of the columns, and each line after it is a sample")
	}
	return t, nil
}

// feed is a file as a stream that ends early where a row becomes too long.
type feed struct {
	ctx   context.Context
	src   source.Source
	obj   source.Info
	off   int64
	limit int64 // offset that may not be read beyond
	buf   []byte
}

var errRow = fmt.Errorf("a row of more than %d MiB", maxRow>>20)

func (f *feed) Read(p []byte) (int, error) {
	if len(f.buf) == 0 {
		n := min(f.obj.Size-f.off, 256<<10)
		if n <= 0 {
			return 0, io.EOF
		}
		if f.off > f.limit {
			return 0, errRow
		}
		f.buf = make([]byte, n)
		if err := f.src.ReadAt(f.ctx, f.obj, f.buf, f.off); err != nil {
			return 0, err
		}
		f.off += n
	}
	n := copy(p, f.buf)
	f.buf = f.buf[n:]
	return n, nil
}

// readCSV reads comma-separated values (RFC 4180); the first row has the names.
func (t *table) readCSV(f *feed, tabs bool) error {
	in := bufio.NewReaderSize(f, 64<<10)
	start := int64(0)
	if bom, _ := in.Peek(3); string(bom) == "\ufeff" {
		start, _ = 3, discard(in, 3)
	}
	r := csv.NewReader(in)
	r.ReuseRecord = true
	if line, _ := in.Peek(4096); tabs {
		r.Comma = '\t'
	} else {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		r.Comma = comma(line)
	}
	var order []int
	for {
		at := start + r.InputOffset()
		f.limit = at + maxRow
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return t.csvError(err, at, len(order))
		}
		line, _ := r.FieldPos(0)
		for i, v := range row {
			if !utf8.ValidString(v) {
				return t.fail(errs.Damaged, at, "line %d is not UTF-8", line).Try("write the table as UTF-8 (iconv -f latin1 -t utf8, or -f utf-16 if it begins with the bytes ff fe)")
			}
			if order == nil || i >= len(order) {
				continue
			}
			t.cols[order[i]].add(v, looks(v))
		}
		if order != nil {
			t.end(int64(line))
			continue
		}
		if order, err = t.header(row, at); err != nil {
			return err
		}
	}
}

func discard(in *bufio.Reader, n int) error {
	_, err := in.Discard(n)
	return err
}

// comma is what separates the names of a CSV file's first line.
func comma(line []byte) rune {
	for _, c := range ",;\t" {
		if bytes.ContainsRune(line, c) {
			return c
		}
	}
	return ','
}

func (t *table) header(row []string, at int64) ([]int, error) {
	order := make([]int, 0, len(row))
	for i, name := range row {
		name = strings.TrimSpace(name)
		if _, twice := t.no[name]; twice || name == "" {
			if name == "" && i == 0 && len(row) > 1 { // pandas writes its row numbers so
				name = "index"
			} else {
				return nil, t.fail(errs.Damaged, at, "the first line names column %d %q, which is empty or a name that came before", i+1, name).
					Try("the first line of a CSV file has the names of the columns, such as path,label")
			}
		}
		n, err := t.column(name)
		if err != nil {
			return nil, err
		}
		order = append(order, n)
	}
	return order, nil
}

func (t *table) csvError(err error, at int64, columns int) error {
	var p *csv.ParseError
	switch {
	case errors.Is(err, errRow):
		return t.fail(errs.Damaged, at, "the row at byte %d does not end within %d MiB", at, maxRow>>20).
			Try("look for a quote (\") that is not closed")
	case !errors.As(err, &p):
		return err
	case errors.Is(err, csv.ErrFieldCount):
		return t.fail(errs.Damaged, at, "line %d has another number of cells than the first, which has %d", p.StartLine, columns).
			Try("cells that hold commas need quotes around them")
	}
	return t.fail(errs.Damaged, at, "line %d is not valid CSV: %v", p.Line, p.Err).Try("cells that hold quotes need quotes around them and each quote doubled")
}

// readJSONL reads one JSON object a line.
func (t *table) readJSONL(f *feed) error {
	f.limit = f.obj.Size
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), maxRow)
	at := int64(0)
	lines.Split(func(data []byte, eof bool) (int, []byte, error) {
		n, line, err := bufio.ScanLines(data, eof)
		at += int64(n)
		return n, line, err
	})
	for line := int64(1); ; line++ {
		begin := at
		if !lines.Scan() {
			break
		}
		text := bytes.TrimSpace(bytes.TrimPrefix(lines.Bytes(), []byte("\ufeff")))
		if len(text) == 0 {
			continue
		}
		if !utf8.Valid(text) {
			return t.fail(errs.Damaged, begin, "line %d is not UTF-8", line).Try("write the table as UTF-8")
		}
		if err := t.object(text); err != nil {
			if e, ok := err.(*errs.Error); ok { //nolint:errorlint // made by this package
				return e
			}
			return t.fail(errs.Damaged, begin, "line %d is not a JSON object: %v", line, err).Try("each line is one object, such as {\"path\": \"a.jpg\", \"label\": 3}")
		}
		t.end(line)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return t.fail(errs.Damaged, at, "the line at byte %d does not end within %d MiB", at, maxRow>>20).Try("each line is one object")
	} else if err != nil {
		return err
	}
	return nil
}

// object adds the cells of one row, which is UTF-8. Half a surrogate pair is refused
// in a key; in a text it stays, as bytes that are not UTF-8: who asks for text is
// told.
func (t *table) object(text []byte) error {
	if err := jsontext.Valid(text); err != nil {
		return err
	}
	if text[0] != '{' {
		return errors.New("it does not begin with {")
	}
	for key, raw := range jsontext.Members(text) {
		var name string
		if err := jsontext.Unmarshal(key, &name); err != nil {
			return fmt.Errorf("the key %s: %w", key, err)
		}
		i, err := t.column(name)
		if err != nil {
			return err
		}
		if len(t.cols[i].kinds) > t.rows {
			return fmt.Errorf("the key %q comes twice", name)
		}
		if err := t.cols[i].addJSON(raw); err != nil {
			return err
		}
	}
	return nil
}

// addJSON adds one value; lists and objects stay the JSON they are.
func (c *cells) addJSON(raw []byte) error {
	switch {
	case string(raw) == "null":
		c.add("", cellNull)
	case string(raw) == "true" || string(raw) == "false":
		c.add(string(raw), cellBool)
	case raw[0] == '"':
		c.add(string(jsontext.Unquote(nil, raw)), cellText)
	case raw[0] == '{' || raw[0] == '[':
		c.add(string(raw), cellText)
	default:
		kind := byte(cellFloat)
		if !bytes.ContainsAny(raw, ".eENI") {
			kind = size(string(raw))
		} else if _, err := strconv.ParseFloat(string(raw), 64); err != nil {
			return fmt.Errorf("the number %s is too large", raw)
		}
		c.add(string(raw), kind)
	}
	return nil
}
