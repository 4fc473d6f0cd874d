package parquet

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
	magic          = "PAR1"
	magicEncrypted = "PARE"
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

// chunk is one column of one row group as the footer tells it.
type chunk struct {
	codec      int64
	values     int64
	nulls      int64   // as its statistics have it; -1: not said
	levels     []int64 // values of each definition level; nil: not said
	packed     int64   // bytes of all its pages with their headers
	data, dict int64   // offsets; dict 0: not said
	at, length int64   // of its offset index; length 0: none
}

// group is one row group.
type group struct {
	rows   int64
	chunks []chunk // one a column
}

// footer is what the end of a file tells.
type footer struct {
	nodes   []node
	columns []column
	groups  []group
	rows    int64
	hf      []byte // HuggingFace's description of the features, JSON
	arrow   []byte // the Arrow schema, base64
	end     int64  // offset of the footer: all pages are before it
}

// damagedAt is the error of bytes that are not what they should be.
func damagedAt(obj source.Info, off int64, why string, a ...any) *errs.Error {
	return errs.New(errs.Damaged, why, a...).At(errs.Where{Shard: obj.Name, Offset: errs.Known(off)}).
		Try("write or fetch the file again; a Parquet file that was cut has lost its end, without which it can not be read")
}

// readFooter reads the end of a file, and its first bytes.
//
//	"PAR1"  pages ...  footer  length of the footer, 4 bytes  "PAR1"
func readFooter(ctx context.Context, src source.Source, obj source.Info) (*footer, error) {
	if obj.Size < 12 {
		return nil, damagedAt(obj, 0, "%d bytes are no Parquet file: it begins and ends with PAR1", obj.Size)
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
	case string(tail[4:]) == magicEncrypted:
		return nil, errs.New(errs.Unsupported, "the Parquet file is encrypted").
			At(errs.Where{Shard: obj.Name, Offset: errs.Known(obj.Size - 4)}).Try("write it again without encryption")
	case string(head) != magic:
		return nil, damagedAt(obj, 0, "the file does not begin with PAR1")
	case string(tail[4:]) != magic:
		return nil, damagedAt(obj, obj.Size-4, "the file does not end with PAR1")
	case n > obj.Size-12 || n > maxFooter:
		return nil, damagedAt(obj, obj.Size-8, "a footer of %d bytes does not fit into a file of %d", n, obj.Size)
	}
	raw, err := format.Read(ctx, src, obj, obj.Size-8-n, n)
	if err != nil {
		return nil, err
	}
	f := &footer{end: obj.Size - 8 - n}
	if err := f.parse(raw); err != nil {
		if e, ok := err.(*errs.Error); ok { //nolint:errorlint // made here, never wrapped
			return nil, e.At(errs.Where{Shard: obj.Name, Offset: errs.Known(f.end), Field: e.Where.Field})
		}
		return nil, damagedAt(obj, f.end, "the footer can not be read").Because(err)
	}
	return f, nil
}

// parse reads a FileMetaData.
func (f *footer) parse(raw []byte) error {
	t := &thrift{p: raw}
	var bad error
	t.fields(0, func(id int64, typ byte) bool {
		switch {
		case id == 2 && typ == thriftList && f.nodes == nil:
			t.list(0, thriftStruct, func() {
				if len(f.nodes) >= 4*maxColumns {
					t.fail(errThrift)
					return
				}
				f.nodes = append(f.nodes, t.node())
			})
			if t.err == nil {
				f.columns, bad = columns(f.nodes)
			}
		case id == 3 && isInt(typ):
			f.rows = t.int()
		case id == 4 && typ == thriftList && f.columns != nil && f.groups == nil:
			t.list(0, thriftStruct, func() {
				if bad == nil {
					bad = f.group(t)
				}
				if bad != nil {
					t.fail(errThrift)
				}
			})
		case id == 5 && typ == thriftList:
			t.list(0, thriftStruct, func() { f.keyValue(t) })
		case id == 8 && typ == thriftStruct:
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
	case t.err != nil:
		return t.err
	case f.columns == nil:
		return fmt.Errorf("it has no schema")
	}
	sum := int64(0)
	for _, g := range f.groups {
		if sum += g.rows; sum < 0 || g.rows < 0 {
			return fmt.Errorf("a row group of %d rows", g.rows)
		}
	}
	if sum != f.rows {
		return fmt.Errorf("its row groups have %d rows, and the file %d", sum, f.rows)
	}
	return nil
}

// node reads a SchemaElement.
func (t *thrift) node() node {
	n := node{physical: -1, converted: -1}
	t.fields(1, func(id int64, typ byte) bool {
		switch {
		case id == 4 && typ == thriftBinary:
			n.name = string(t.bytes())
		case id == 10 && typ == thriftStruct:
			t.logical(&n)
		case !isInt(typ):
			return false
		case id == 1:
			n.physical = t.int()
		case id == 2:
			n.width = t.int()
		case id == 3:
			n.repeats = t.int()
		case id == 5:
			n.children = t.int()
		case id == 6:
			n.converted = t.int()
		default:
			return false
		}
		return true
	})
	return n
}

func (t *thrift) logical(n *node) {
	t.fields(2, func(id int64, typ byte) bool {
		n.logical = id
		if id != logicalInteger || typ != thriftStruct {
			return false
		}
		t.fields(3, func(id int64, typ byte) bool {
			switch {
			case id == 1 && typ == thriftByte:
				n.bits = int64(t.byte())
			case id == 2 && typ == thriftFalse:
				n.unsigned = true
			default:
				return false
			}
			return true
		})
		return true
	})
}

func (f *footer) keyValue(t *thrift) {
	var key, value []byte
	t.fields(1, func(id int64, typ byte) bool {
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
		f.arrow = value
	}
}

// group reads a RowGroup.
func (f *footer) group(t *thrift) error {
	g := group{rows: -1}
	var bad error
	t.fields(1, func(id int64, typ byte) bool {
		switch {
		case id == 1 && typ == thriftList && g.chunks == nil:
			t.list(1, thriftStruct, func() {
				if bad == nil && len(g.chunks) < len(f.columns) {
					var c chunk
					if c, bad = t.chunk(&f.columns[len(g.chunks)]); bad == nil {
						g.chunks = append(g.chunks, c)
						return
					}
				}
				if bad == nil {
					bad = fmt.Errorf("row group %d has more columns than the schema, which has %d", len(f.groups), len(f.columns))
				}
				t.fail(bad)
			})
		case id == 3 && isInt(typ):
			g.rows = t.int()
		default:
			return false
		}
		return true
	})
	switch {
	case bad != nil:
		return bad
	case t.err != nil:
		return t.err
	case len(g.chunks) != len(f.columns):
		return fmt.Errorf("row group %d has %d columns, and the schema %d", len(f.groups), len(g.chunks), len(f.columns))
	case g.rows < 0:
		return fmt.Errorf("row group %d does not say how many rows it has", len(f.groups))
	}
	f.groups = append(f.groups, g)
	return nil
}

// chunk reads a ColumnChunk of col.
func (t *thrift) chunk(col *column) (chunk, error) {
	c := chunk{nulls: -1}
	var bad error
	told := false
	t.fields(2, func(id int64, typ byte) bool {
		switch {
		case id == 1 && typ == thriftBinary:
			if file := t.bytes(); len(file) > 0 {
				bad = errs.New(errs.Unsupported, "column %q lies in another file (%q)", col.name, file).
					Try("such files come from a _metadata summary: give the files themselves")
			}
		case id == 3 && typ == thriftStruct:
			told = true
			bad = t.chunkMeta(&c, col)
		case id == 4 && isInt(typ):
			c.at = t.int()
		case id == 5 && isInt(typ):
			c.length = t.int()
		case id == 8 && typ == thriftStruct:
			bad = errs.New(errs.Unsupported, "column %q is encrypted", col.name).Try("write the file again without encryption")
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
	case t.err != nil:
		return c, t.err
	case !told:
		return c, fmt.Errorf("column %q has no description", col.name)
	}
	return c, nil
}

// chunkMeta reads a ColumnMetaData.
func (t *thrift) chunkMeta(c *chunk, col *column) error {
	physical, parts := int64(-1), make([]string, 0, 8)
	t.fields(3, func(id int64, typ byte) bool {
		switch {
		case id == 3 && typ == thriftList:
			t.list(3, thriftBinary, func() { parts = append(parts, string(t.bytes())) })
		case id == 12 && typ == thriftStruct:
			t.fields(4, func(id int64, typ byte) bool {
				if id != 3 || !isInt(typ) {
					return false
				}
				c.nulls = t.int()
				return true
			})
		case id == 16 && typ == thriftStruct:
			t.fields(4, func(id int64, typ byte) bool {
				if id != 3 || typ != thriftList {
					return false
				}
				c.levels = nil
				t.list(5, thriftI64, func() { c.levels = append(c.levels, t.int()) })
				return true
			})
		case !isInt(typ):
			return false
		case id == 1:
			physical = t.int()
		case id == 4:
			c.codec = t.int()
		case id == 5:
			c.values = t.int()
		case id == 7:
			c.packed = t.int()
		case id == 9:
			c.data = t.int()
		case id == 11:
			c.dict = t.int()
		default:
			return false
		}
		return true
	})
	switch {
	case t.err != nil:
		return t.err
	case physical != int64(col.physical) || strings.Join(parts, "\x00") != strings.Join(col.path, "\x00"):
		return fmt.Errorf("what it says of column %q is of %q", strings.Join(col.path, "."), strings.Join(parts, "."))
	}
	return nil
}

// start is where the pages of a chunk begin.
func (c *chunk) start() int64 {
	if c.dict > 0 && c.dict < c.data {
		return c.dict
	}
	return c.data
}
