package parquet

import (
	"encoding/binary"
	"unsafe"
)

// A block is one page, decoded, in one run of bytes, as format.Blocks keeps it:
//
//	header   blockHead uint32
//	rows     for lists: for each row that begins in the page, and one more, the
//	         number of its first value, uint32. Values before the first row's
//	         belong to the end of a list that began in an earlier page.
//	nulls    if there are any: one byte per row, 1: it has no value; 2: its list
//	         has a null in it; for lists one byte more, for the values before
//	         the first row
//	values   by form
//
// Values of one size are stored one after the other, with a zero in place of each
// missing one; values of other columns have a pair of offset and length (uint32)
// each, into the block or, where the page is not compressed, into the page as it was
// read; or they are numbers (uint32) in the chunk's dictionary, which is a block
// itself.
const (
	blockRows   = iota // number of rows that begin in the page
	blockValues        // number of values, or of rows where there are no lists
	blockForm
	blockStarts // offset of rows; 0: no lists
	blockNulls  // offset of nulls; 0: none
	blockData   // offset of values
	blockWidth  // bytes of one, where all have the same
	_
	blockHead // length of the header
)

// Forms of the values.
const (
	formFixed  = iota
	formPairs  // into the block
	formViews  // into the page
	formNumber // in the dictionary
)

type block []byte

func (b block) get(what int) int { return int(binary.LittleEndian.Uint32(b[4*what:])) }

func (b block) u32(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }

// words sees part of a block as uint32s. at is a multiple of 4, and the machine
// little-endian, as all that stoker runs on are.
func (b block) words(at, n int) []uint32 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(&b[at])), n)
}

// null says what is missing of row i: 0 nothing, 1 the value, 2 an item of its
// list.
func (b block) null(i int) byte {
	if at := b.get(blockNulls); at != 0 {
		return b[at+i]
	}
	return 0
}

// value is value i. page is the page as it was read, dict the block of the
// dictionary.
func (b block) value(i int, page []byte, dict block) []byte {
	data := b.get(blockData)
	switch b.get(blockForm) {
	case formFixed:
		w := b.get(blockWidth)
		return b[data+i*w : data+(i+1)*w : data+(i+1)*w]
	case formNumber:
		return dict.value(b.u32(data+4*i), nil, nil)
	}
	off, n := b.u32(data+8*i), b.u32(data+8*i+4)
	if b.get(blockForm) == formPairs {
		page = b
	}
	return page[off : off+n : off+n]
}

// items is the values of a list of numbers: from to to.
func (b block) items(from, to int) []byte {
	data, w := b.get(blockData), b.get(blockWidth)
	return b[data+from*w : data+to*w : data+to*w]
}
