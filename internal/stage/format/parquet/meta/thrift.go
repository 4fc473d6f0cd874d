package meta

import (
	"encoding/binary"
	"errors"
)

// Thrift reads structs in Thrift's compact protocol, of which Parquet's headers are made:
// field by field, straight into what is kept of them. It trusts no number: a list cannot have more items than there are bytes left, and no item is made before
// its bytes have been seen. A general decoder makes its lists first, of whatever
// length the file claims.
//
//	struct:  fields, then 0
//	field:   id difference << 4 | type; difference 0: zigzag varint of the id follows
//	list:    count << 4 | type; count 15: varint of the count follows
//	integer: zigzag varint; binary: varint of the length, then the bytes
type Thrift struct {
	P   []byte
	At  int   // what of P has been read
	Err error // sticks: everything after it reads as zero
}

// The types of the compact protocol.
const (
	thriftTrue   = 1
	ThriftFalse  = 2
	thriftByte   = 3
	thriftI64    = 6 // 4 to 6: i16, i32, i64
	thriftDouble = 7
	thriftBinary = 8
	ThriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	ThriftStruct = 12
)

// maxDepth of structs in each other; Parquet's own go to 7.
const maxDepth = 32

var (
	// ErrShort is the error of a struct that may be complete with more bytes.
	ErrShort  = errors.New("it ends too early")
	errThrift = errors.New("it is not a valid Thrift struct")
)

func (t *Thrift) fail(err error) {
	if t.Err == nil {
		t.Err = err
	}
	t.At = len(t.P)
}

func (t *Thrift) byte() byte {
	if t.At >= len(t.P) {
		t.fail(ErrShort)
		return 0
	}
	t.At++
	return t.P[t.At-1]
}

func (t *Thrift) uvarint() uint64 {
	v, n := binary.Uvarint(t.P[t.At:])
	switch {
	case n > 0:
		t.At += n
		return v
	case n == 0:
		t.fail(ErrShort)
	default:
		t.fail(errThrift)
	}
	return 0
}

// Int reads an integer.
func (t *Thrift) Int() int64 {
	u := t.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (t *Thrift) bytes() []byte {
	n := t.uvarint()
	if n > uint64(len(t.P)-t.At) {
		t.fail(ErrShort)
		return nil
	}
	t.At += int(n)
	return t.P[t.At-int(n) : t.At : t.At]
}

// List calls item for every item of type want; others, and all where item is nil,
// are skipped.
func (t *Thrift) List(depth int, want byte, item func()) {
	head := t.byte()
	n, typ := uint64(head>>4), head&15
	if n == 15 {
		n = t.uvarint()
	}
	if n > uint64(len(t.P)-t.At) {
		t.fail(ErrShort)
		return
	}
	for range n {
		if t.Err != nil {
			return
		}
		if item != nil && typ == want {
			item()
		} else {
			t.skipItem(depth+1, typ)
		}
	}
}

// Fields calls f for every field of a struct. f reads its value and returns true, or
// returns false and leaves the value alone.
func (t *Thrift) Fields(depth int, f func(id int64, typ byte) bool) {
	if depth > maxDepth {
		t.fail(errThrift)
	}
	for id := int64(0); t.Err == nil; {
		head := t.byte()
		if head == 0 {
			return
		}
		if diff := int64(head >> 4); diff != 0 {
			id += diff
		} else {
			id = t.Int()
		}
		if t.Err == nil && !f(id, head&15) {
			t.skip(depth+1, head&15)
		}
	}
}

// skip steps over the value of a field.
func (t *Thrift) skip(depth int, typ byte) {
	if typ != thriftTrue && typ != ThriftFalse { // the value is the type
		t.skipItem(depth, typ)
	}
}

func (t *Thrift) skipItem(depth int, typ byte) {
	if depth > maxDepth {
		t.fail(errThrift)
		return
	}
	switch typ {
	case thriftTrue, ThriftFalse, thriftByte:
		t.byte()
	case 4, 5, thriftI64:
		t.uvarint()
	case thriftDouble:
		if len(t.P)-t.At < 8 {
			t.fail(ErrShort)
			return
		}
		t.At += 8
	case thriftBinary:
		t.bytes()
	case ThriftList, thriftSet:
		t.List(depth, 0, nil)
	case thriftMap:
		t.skipMap(depth)
	case ThriftStruct:
		t.Fields(depth, func(int64, byte) bool { return false })
	default:
		t.fail(errThrift)
	}
}

func (t *Thrift) skipMap(depth int) {
	n := t.uvarint()
	if n == 0 {
		return
	}
	kinds := t.byte()
	if n > uint64(len(t.P)-t.At) {
		t.fail(ErrShort)
		return
	}
	for range n {
		if t.Err != nil {
			return
		}
		t.skipItem(depth+1, kinds>>4)
		t.skipItem(depth+1, kinds&15)
	}
}

// Size reads an integer that has to be within 0 to 2^31-1.
func (t *Thrift) Size() int {
	v := t.Int()
	if v < 0 || v > 1<<31-1 {
		t.fail(errThrift)
		return 0
	}
	return int(v)
}

// IsInt says whether a field is an integer.
func IsInt(typ byte) bool { return typ >= 4 && typ <= thriftI64 }
