// Package meta reads what a Parquet file says of itself: the Thrift structs of its footer,
// the schema in them, flattened to columns, and what Arrow and HuggingFace add to it. It
// reads no page.
package meta

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	Magic          = "PAR1"
	MagicEncrypted = "PARE"
	maxFooter      = 512 << 20
	maxColumns     = 1 << 16
)

// node is one element of a schema, which the file has flattened depth first.
type node struct {
	name      string
	physical  int64 // -1: a group
	width     int64 // of a fixed-length byte array, bytes
	repeats   int64 // 0 required, 1 optional, 2 repeated
	children  int64
	converted int64 // -1: none
	logical   int64 // field of the union LogicalType; 0: none
	bits      int64 // of a logical integer
	unsigned  bool
}

// Chunk is one column of one row group as the footer tells it.
type Chunk struct {
	Codec      int64
	Values     int64
	Nulls      int64   // as its statistics have it; -1: not said
	Levels     []int64 // values of each definition level; nil: not said
	Packed     int64   // bytes of all its pages with their headers
	data, dict int64   // offsets; dict 0: not said
	At, Length int64   // of its offset index; length 0: none
}

// Group is one row group.
type Group struct {
	Rows   int64
	Chunks []Chunk // one a column
}

// Footer is what the end of a file tells.
type Footer struct {
	nodes   []node
	Columns []Column
	Groups  []Group
	rows    int64
	hf      []byte // HuggingFace's description of the features, JSON
	Arrow   []byte // the Arrow schema, base64
	End     int64  // offset of the footer: all pages are before it
}

// DamagedAt is the error of bytes that are not what they should be.
func DamagedAt(obj source.Info, off int64, why string, a ...any) *errs.Error {
	return errs.New(errs.Damaged, why, a...).At(errs.Where{Shard: obj.Name, Offset: errs.Known(off)}).
		Try("write or fetch the file again; a Parquet file that was cut has lost its end, without which it cannot be read")
}

// ReadFooter reads the end of a file, and its first bytes.
//
//	"PAR1"  pages ...  footer  length of the footer, 4 bytes  "PAR1"
func ReadFooter(ctx context.Context, src source.Source, obj source.Info) (*Footer, error) {
	if obj.Size < 12 {
		return nil, DamagedAt(obj, 0, "%d bytes are not a Parquet file: it begins and ends with PAR1", obj.Size)
	}
	head, err := format.Read(ctx, src, obj, 0, 4)
	if err != nil {
		return nil, err
	}
	tail, err := format.Read(ctx, src, obj, obj.Size-8, 8)
	if err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	switch {
	case string(tail[4:]) == MagicEncrypted:
		return nil, errs.New(errs.Unsupported, "the Parquet file is encrypted").
			At(errs.Where{Shard: obj.Name, Offset: errs.Known(obj.Size - 4)}).Try("write it again without encryption")
	case string(head) != Magic:
		return nil, DamagedAt(obj, 0, "the file does not begin with PAR1")
	case string(tail[4:]) != Magic:
		return nil, DamagedAt(obj, obj.Size-4, "the file does not end with PAR1")
	case n > obj.Size-12 || n > maxFooter:
		return nil, DamagedAt(obj, obj.Size-8, "a footer of %d bytes does not fit into a file of %d", n, obj.Size)
	}
	raw, err := format.Read(ctx, src, obj, obj.Size-8-n, n)
	if err != nil {
		return nil, err
	}
	f := &Footer{End: obj.Size - 8 - n}
	if err := f.parse(raw); err != nil {
		if e, ok := err.(*errs.Error); ok { //nolint:errorlint // made here, never wrapped
			return nil, e.At(errs.Where{Shard: obj.Name, Offset: errs.Known(f.End), Field: e.Where.Field})
		}
		return nil, DamagedAt(obj, f.End, "the footer cannot be read").Because(err)
	}
	return f, nil
}

// parse reads a FileMetaData.
func (f *Footer) parse(raw []byte) error {
	t := &Thrift{P: raw}
	var bad error
	t.Fields(0, func(id int64, typ byte) bool {
		switch {
		case id == 2 && typ == ThriftList && f.nodes == nil:
			t.List(0, ThriftStruct, func() {
				if len(f.nodes) >= 4*maxColumns {
					t.fail(errThrift)
					return
				}
				f.nodes = append(f.nodes, t.node())
			})
			if t.Err == nil {
				f.Columns, bad = columns(f.nodes)
			}
		case id == 3 && IsInt(typ):
			f.rows = t.Int()
		case id == 4 && typ == ThriftList && f.Columns != nil && f.Groups == nil:
			t.List(0, ThriftStruct, func() {
				if bad == nil {
					bad = f.group(t)
				}
				if bad != nil {
					t.fail(errThrift)
				}
			})
		case id == 5 && typ == ThriftList:
			t.List(0, ThriftStruct, func() { f.keyValue(t) })
		case id == 8 && typ == ThriftStruct:
			bad = errs.New(errs.Unsupported, "the Parquet file is encrypted").Try("write it again without encryption")
		default:
			return false
		}
		if bad != nil {
			t.fail(bad)
		}
		return true
	})
	switch {
	case bad != nil:
		return bad
	case t.Err != nil:
		return t.Err
	case f.Columns == nil:
		return fmt.Errorf("it has no schema")
	}
	sum := int64(0)
	for _, g := range f.Groups {
		if sum += g.Rows; sum < 0 || g.Rows < 0 {
			return fmt.Errorf("a row group of %d rows", g.Rows)
		}
	}
	if sum != f.rows {
		return fmt.Errorf("its row groups have %d rows, but the file %d", sum, f.rows)
	}
	return nil
}

// node reads a SchemaElement.
func (t *Thrift) node() node {
	n := node{physical: -1, converted: -1}
	t.Fields(1, func(id int64, typ byte) bool {
		switch {
		case id == 4 && typ == thriftBinary:
			n.name = string(t.bytes())
		case id == 10 && typ == ThriftStruct:
			t.logical(&n)
		case !IsInt(typ):
			return false
		case id == 1:
			n.physical = t.Int()
		case id == 2:
			n.width = t.Int()
		case id == 3:
			n.repeats = t.Int()
		case id == 5:
			n.children = t.Int()
		case id == 6:
			n.converted = t.Int()
		default:
			return false
		}
		return true
	})
	return n
}

func (t *Thrift) logical(n *node) {
	t.Fields(2, func(id int64, typ byte) bool {
		n.logical = id
		if id != logicalInteger || typ != ThriftStruct {
			return false
		}
		t.Fields(3, func(id int64, typ byte) bool {
			switch {
			case id == 1 && typ == thriftByte:
				n.bits = int64(t.byte())
			case id == 2 && typ == ThriftFalse:
				n.unsigned = true
			default:
				return false
			}
			return true
		})
		return true
	})
}

func (f *Footer) keyValue(t *Thrift) {
	var key, value []byte
	t.Fields(1, func(id int64, typ byte) bool {
		switch {
		case id == 1 && typ == thriftBinary:
			key = t.bytes()
		case id == 2 && typ == thriftBinary:
			value = t.bytes()
		default:
			return false
		}
		return true
	})
	switch string(key) {
	case "huggingface":
		f.hf = value
	case "ARROW:schema":
		f.Arrow = value
	}
}

// group reads a RowGroup.
func (f *Footer) group(t *Thrift) error {
	g := Group{Rows: -1}
	var bad error
	t.Fields(1, func(id int64, typ byte) bool {
		switch {
		case id == 1 && typ == ThriftList && g.Chunks == nil:
			t.List(1, ThriftStruct, func() {
				if bad == nil && len(g.Chunks) < len(f.Columns) {
					var c Chunk
					if c, bad = t.chunk(&f.Columns[len(g.Chunks)]); bad == nil {
						g.Chunks = append(g.Chunks, c)
						return
					}
				}
				if bad == nil {
					bad = fmt.Errorf("row group %d has more columns than the schema, which has %d", len(f.Groups), len(f.Columns))
				}
				t.fail(bad)
			})
		case id == 3 && IsInt(typ):
			g.Rows = t.Int()
		default:
			return false
		}
		return true
	})
	switch {
	case bad != nil:
		return bad
	case t.Err != nil:
		return t.Err
	case len(g.Chunks) != len(f.Columns):
		return fmt.Errorf("row group %d has %d columns, but the schema %d", len(f.Groups), len(g.Chunks), len(f.Columns))
	case g.Rows < 0:
		return fmt.Errorf("row group %d does not say how many rows it has", len(f.Groups))
	}
	f.Groups = append(f.Groups, g)
	return nil
}

// chunk reads a ColumnChunk of col.
func (t *Thrift) chunk(col *Column) (Chunk, error) {
	c := Chunk{Nulls: -1}
	var bad error
	told := false
	t.Fields(2, func(id int64, typ byte) bool {
		switch {
		case id == 1 && typ == thriftBinary:
			if file := t.bytes(); len(file) > 0 {
				bad = errs.New(errs.Unsupported, "column %q is in another file (%q)", col.Name, file).
					Try("such files come from a _metadata summary: give the files themselves")
			}
		case id == 3 && typ == ThriftStruct:
			told = true
			bad = t.chunkMeta(&c, col)
		case id == 4 && IsInt(typ):
			c.At = t.Int()
		case id == 5 && IsInt(typ):
			c.Length = t.Int()
		case id == 8 && typ == ThriftStruct:
			bad = errs.New(errs.Unsupported, "column %q is encrypted", col.Name).Try("write the file again without encryption")
		default:
			return false
		}
		if bad != nil {
			t.fail(bad)
		}
		return true
	})
	switch {
	case bad != nil:
		return c, bad
	case t.Err != nil:
		return c, t.Err
	case !told:
		return c, fmt.Errorf("column %q has no description", col.Name)
	}
	return c, nil
}

// chunkMeta reads a ColumnMetaData.
func (t *Thrift) chunkMeta(c *Chunk, col *Column) error {
	physical, parts := int64(-1), make([]string, 0, 8)
	t.Fields(3, func(id int64, typ byte) bool {
		switch {
		case id == 3 && typ == ThriftList:
			t.List(3, thriftBinary, func() { parts = append(parts, string(t.bytes())) })
		case id == 12 && typ == ThriftStruct:
			t.Fields(4, func(id int64, typ byte) bool {
				if id != 3 || !IsInt(typ) {
					return false
				}
				c.Nulls = t.Int()
				return true
			})
		case id == 16 && typ == ThriftStruct:
			t.Fields(4, func(id int64, typ byte) bool {
				if id != 3 || typ != ThriftList {
					return false
				}
				c.Levels = nil
				t.List(5, thriftI64, func() { c.Levels = append(c.Levels, t.Int()) })
				return true
			})
		case !IsInt(typ):
			return false
		case id == 1:
			physical = t.Int()
		case id == 4:
			c.Codec = t.Int()
		case id == 5:
			c.Values = t.Int()
		case id == 7:
			c.Packed = t.Int()
		case id == 9:
			c.data = t.Int()
		case id == 11:
			c.dict = t.Int()
		default:
			return false
		}
		return true
	})
	switch {
	case t.Err != nil:
		return t.Err
	case physical != int64(col.Physical) || strings.Join(parts, "\x00") != strings.Join(col.Path, "\x00"):
		return fmt.Errorf("the metadata of column %q is that of %q", strings.Join(col.Path, "."), strings.Join(parts, "."))
	}
	return nil
}

// Start is where the pages of a chunk begin.
func (c *Chunk) Start() int64 {
	if c.dict > 0 && c.dict < c.data {
		return c.dict
	}
	return c.data
}
