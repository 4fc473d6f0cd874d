package pages

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
	BlockRows   = iota // number of rows that begin in the page
	BlockValues        // number of values, or of rows where there are no lists
	BlockForm
	BlockStarts // offset of rows; 0: no lists
	blockNulls  // offset of nulls; 0: none
	BlockData   // offset of values
	blockWidth  // bytes of one, where all have the same
	_
	BlockHead // length of the header
)

// Forms of the values.
const (
	formFixed  = iota
	formPairs  // into the block
	FormViews  // into the page
	formNumber // in the dictionary
)

// Block is described above.
type Block []byte

// Get is one number of the header.
func (b Block) Get(what int) int { return int(binary.LittleEndian.Uint32(b[4*what:])) }

// U32 is the number that is stored at byte at.
func (b Block) U32(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }

// words sees part of a block as uint32s. at is a multiple of 4, and the machine
// little-endian, as all that stoker runs on are.
func (b Block) words(at, n int) []uint32 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(&b[at])), n)
}

// Null says what is missing of row i: 0 nothing, 1 the value, 2 an item of its
// list.
func (b Block) Null(i int) byte {
	if at := b.Get(blockNulls); at != 0 {
		return b[at+i]
	}
	return 0
}

// Value is value i. page is the page as it was read, dict the block of the
// dictionary.
func (b Block) Value(i int, page []byte, dict Block) []byte {
	data := b.Get(BlockData)
	switch b.Get(BlockForm) {
	case formFixed:
		w := b.Get(blockWidth)
		return b[data+i*w : data+(i+1)*w : data+(i+1)*w]
	case formNumber:
		return dict.Value(b.U32(data+4*i), nil, nil)
	}
	off, n := b.U32(data+8*i), b.U32(data+8*i+4)
	if b.Get(BlockForm) == formPairs {
		page = b
	}
	return page[off : off+n : off+n]
}

// Items is the values of a list of numbers: from to to.
func (b Block) Items(from, to int) []byte {
	data, w := b.Get(BlockData), b.Get(blockWidth)
	return b[data+from*w : data+to*w : data+to*w]
}
