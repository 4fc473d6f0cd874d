package parquet

import (
	"encoding/binary"
	"errors"
)

// Parquet's headers are Thrift structs in the compact protocol. They are read field
// by field, straight into what is kept of them, by a reader that trusts no number: a
// list cannot have more items than there are bytes left, and no item is made before
// its bytes have been seen. A general decoder makes its lists first, of whatever
// length the file claims.
//
//	struct:  fields, then 0
//	field:   id difference << 4 | type; difference 0: zigzag varint of the id follows
//	list:    count << 4 | type; count 15: varint of the count follows
//	integer: zigzag varint; binary: varint of the length, then the bytes
type thrift struct {
	p   []byte
	at  int
	err error // sticks: everything after it reads as zero
}

// The types of the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI64    = 6 // 4 to 6: i16, i32, i64
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// maxDepth of structs in each other; Parquet's own go to 7.
const maxDepth = 32

var (
	errShort  = errors.New("it ends too early") // it may be complete with more bytes
	errThrift = errors.New("it is no valid Thrift struct")
)

func (t *thrift) fail(err error) {
	if t.err == nil {
		t.err = err
	}
	t.at = len(t.p)
}

func (t *thrift) byte() byte {
	if t.at >= len(t.p) {
		t.fail(errShort)
		return 0
	}
	t.at++
	return t.p[t.at-1]
}

func (t *thrift) uvarint() uint64 {
	v, n := binary.Uvarint(t.p[t.at:])
	switch {
	case n > 0:
		t.at += n
		return v
	case n == 0:
		t.fail(errShort)
	default:
		t.fail(errThrift)
	}
	return 0
}

func (t *thrift) int() int64 {
	u := t.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (t *thrift) bytes() []byte {
	n := t.uvarint()
	if n > uint64(len(t.p)-t.at) {
		t.fail(errShort)
		return nil
	}
	t.at += int(n)
	return t.p[t.at-int(n) : t.at : t.at]
}

// list calls item for every item of type want; others, and all where item is nil,
// are skipped.
func (t *thrift) list(depth int, want byte, item func()) {
	head := t.byte()
	n, typ := uint64(head>>4), head&15
	if n == 15 {
		n = t.uvarint()
	}
	if n > uint64(len(t.p)-t.at) {
		t.fail(errShort)
		return
	}
	for range n {
		if t.err != nil {
			return
		}
		if item != nil && typ == want {
			item()
		} else {
			t.skipItem(depth+1, typ)
		}
	}
}

// fields calls f for every field of a struct. f reads its value and returns true, or
// returns false and leaves the value alone.
func (t *thrift) fields(depth int, f func(id int64, typ byte) bool) {
	if depth > maxDepth {
		t.fail(errThrift)
	}
	for id := int64(0); t.err == nil; {
		head := t.byte()
		if head == 0 {
			return
		}
		if diff := int64(head >> 4); diff != 0 {
			id += diff
		} else {
			id = t.int()
		}
		if t.err == nil && !f(id, head&15) {
			t.skip(depth+1, head&15)
		}
	}
}

// skip steps over the value of a field.
func (t *thrift) skip(depth int, typ byte) {
	if typ != thriftTrue && typ != thriftFalse { // the value is the type
		t.skipItem(depth, typ)
	}
}

func (t *thrift) skipItem(depth int, typ byte) {
	if depth > maxDepth {
		t.fail(errThrift)
		return
	}
	switch typ {
	case thriftTrue, thriftFalse, thriftByte:
		t.byte()
	case 4, 5, thriftI64:
		t.uvarint()
	case thriftDouble:
		if len(t.p)-t.at < 8 {
			t.fail(errShort)
			return
		}
		t.at += 8
	case thriftBinary:
		t.bytes()
	case thriftList, thriftSet:
		t.list(depth, 0, nil)
	case thriftMap:
		t.skipMap(depth)
	case thriftStruct:
		t.fields(depth, func(int64, byte) bool { return false })
	default:
		t.fail(errThrift)
	}
}

func (t *thrift) skipMap(depth int) {
	n := t.uvarint()
	if n == 0 {
		return
	}
	kinds := t.byte()
	if n > uint64(len(t.p)-t.at) {
		t.fail(errShort)
		return
	}
	for range n {
		if t.err != nil {
			return
		}
		t.skipItem(depth+1, kinds>>4)
		t.skipItem(depth+1, kinds&15)
	}
}

// size reads an integer that has to be within 0 to 2^31-1.
func (t *thrift) size() int {
	v := t.int()
	if v < 0 || v > 1<<31-1 {
		t.fail(errThrift)
		return 0
	}
	return int(v)
}

func isInt(typ byte) bool { return typ >= 4 && typ <= thriftI64 }
