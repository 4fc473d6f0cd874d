package index

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/jsontext"
)

const (
	magic         = "STOKERIX"
	layoutVersion = 1
	headerLen     = 64
	maxMetaLen    = 16 << 20
)

type kind string

const (
	kindInt64   kind = "int64"
	kindInt32   kind = "int32"
	kindBytes   kind = "bytes"
	kindStrings kind = "strings"
)

// column is one entry of the table of columns in meta.
type column struct {
	Name string `json:"name"`
	Kind kind   `json:"kind"`
	Rows int64  `json:"rows"`
	Off  int64  `json:"off"`  // of the first part, bytes from the start of the file
	Text int64  `json:"text"` // strings: length of the text, bytes
}

// Meta is what an index says of itself.
type Meta struct {
	Format  string   `json:"format"`            // "folder", "tar"
	Root    string   `json:"root"`              // absolute folder that file names are relative to; "": they are absolute
	Options string   `json:"options,omitempty"` // of the format, as it wrote them into the Key
	Fields  []string `json:"fields,omitempty"`  // names of fields that samples have
	Samples int64    `json:"samples"`
	Digest  string   `json:"digest"`
	Skipped int64    `json:"skipped,omitempty"` // members that hold no samples by the rules of the format
	// Note is what a user should know of the dataset ("tokens at the ends of files
	// belong to no window"); "" as a rule.
	Note string `json:"note,omitempty"`
}

// metaFile is Meta as it is written. The names in it may have any bytes.
type metaFile struct {
	Meta
	Root    jsontext.Name   `json:"root"`
	Fields  []jsontext.Name `json:"fields,omitempty"`
	Columns []column        `json:"columns"`
}

func newMetaFile(m Meta, columns []column) metaFile {
	return metaFile{Meta: m, Root: jsontext.Name(m.Root), Fields: jsontext.Names(m.Fields), Columns: columns}
}

// size is the length of all parts of the column in bytes, or -1 where the
// numbers make no sense.
func (c column) size() int64 {
	if c.Rows < 0 || c.Text < 0 || c.Rows > math.MaxInt64/16 || c.Text > math.MaxInt64/4 {
		return -1
	}
	switch c.Kind {
	case kindInt64:
		return c.Rows * 8
	case kindInt32:
		return c.Rows * 4
	case kindBytes:
		return c.Rows
	case kindStrings:
		return (c.Rows+1)*8 + c.Text
	}
	return -1
}

func align8(n int64) int64 { return (n + 7) &^ 7 }

func header(fileLen, metaLen int64, body uint64) [headerLen]byte {
	var h [headerLen]byte
	copy(h[:], magic)
	binary.LittleEndian.PutUint32(h[8:], layoutVersion)
	binary.LittleEndian.PutUint64(h[16:], uint64(fileLen))
	binary.LittleEndian.PutUint64(h[24:], uint64(metaLen))
	binary.LittleEndian.PutUint64(h[32:], body)
	binary.LittleEndian.PutUint64(h[56:], xxhash.Sum64(h[:56]))
	return h
}

// checkHeader says what is wrong with the first bytes of a file of size bytes.
func checkHeader(h []byte, size int64) error {
	switch {
	case len(h) < headerLen:
		return fmt.Errorf("%d bytes are too few for a header", len(h))
	case string(h[:8]) != magic:
		return fmt.Errorf("it does not begin with %q", magic)
	case binary.LittleEndian.Uint64(h[56:]) != xxhash.Sum64(h[:56]):
		return fmt.Errorf("the checksum of its header is wrong")
	case binary.LittleEndian.Uint32(h[8:]) != layoutVersion:
		return fmt.Errorf("layout version %d, not %d", binary.LittleEndian.Uint32(h[8:]), layoutVersion)
	case binary.LittleEndian.Uint64(h[16:]) != uint64(size):
		return fmt.Errorf("%d bytes long, not %d", size, binary.LittleEndian.Uint64(h[16:]))
	}
	return nil
}

// parse checks a whole file and returns its meta and columns as views of data.
// It never panics, whatever data holds.
func parse(data []byte) (metaFile, map[string]part, error) {
	var m metaFile
	if err := checkHeader(data[:min(len(data), headerLen)], int64(len(data))); err != nil {
		return m, nil, err
	}
	h := data[:headerLen]
	if binary.LittleEndian.Uint64(h[32:]) != xxhash.Sum64(data[headerLen:]) {
		return m, nil, fmt.Errorf("the checksum of its contents is wrong")
	}
	metaLen := binary.LittleEndian.Uint64(h[24:])
	if metaLen > maxMetaLen || metaLen > uint64(len(data)-headerLen) {
		return m, nil, fmt.Errorf("meta of %d bytes does not fit", metaLen)
	}
	if err := json.Unmarshal(data[headerLen:headerLen+metaLen], &m); err != nil {
		return m, nil, fmt.Errorf("meta: %w", err)
	}
	m.Meta.Root, m.Meta.Fields = string(m.Root), jsontext.Texts(m.Fields)
	parts := make(map[string]part, len(m.Columns))
	for _, c := range m.Columns {
		p, err := c.view(data)
		if err != nil {
			return m, nil, fmt.Errorf("column %q: %w", c.Name, err)
		}
		if _, twice := parts[c.Name]; twice {
			return m, nil, fmt.Errorf("column %q: it is there twice", c.Name)
		}
		parts[c.Name] = p
	}
	return m, parts, nil
}

// part is a checked view of one column.
type part struct {
	column
	data []byte // numbers, or offsets
	text []byte // strings only
}

func (c column) view(data []byte) (part, error) {
	n := c.size()
	if n < 0 || c.Off < headerLen || c.Off%8 != 0 || c.Off > int64(len(data)) || n > int64(len(data))-c.Off {
		return part{}, fmt.Errorf("%s, %d rows at %d do not fit into %d bytes", c.Kind, c.Rows, c.Off, len(data))
	}
	p := part{column: c, data: data[c.Off : c.Off+n : c.Off+n]}
	if c.Kind != kindStrings {
		return p, nil
	}
	cut := (c.Rows + 1) * 8
	p.data, p.text = p.data[:cut:cut], p.data[cut:]
	off := int64s(p.data)
	if off[0] != 0 || off[c.Rows] != c.Text {
		return part{}, fmt.Errorf("its offsets run from %d to %d, not from 0 to %d", off[0], off[c.Rows], c.Text)
	}
	last := int64(0)
	for i, o := range off {
		if o < last {
			return part{}, fmt.Errorf("row %d ends before it begins", i-1)
		}
		last = o
	}
	return p, nil
}

// int64s and int32s see aligned little-endian bytes as numbers. Every machine
// that stoker is built for is little-endian.
func int64s(b []byte) []int64 {
	if len(b) < 8 {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

func int32s(b []byte) []int32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
