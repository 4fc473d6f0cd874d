package lmdb

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
)

// What is stored in the file (LMDB 0.9, data version 1, a machine of 64 bits and
// little-endian):
//
//	page     0 8 its number · 8 2 unused · 10 2 kind · 12 2 end of the pointers
//	         14 2 begin of the nodes (12 4 number of pages, where it overflows)
//	         16   pointers, 2 bytes each, to nodes, in the order of the keys
//	meta     pages 0 and 1, of which the younger one counts: 16 4 magic ·
//	         20 4 version · 24 8 · 32 8 · 40 48 database of free pages, whose pad
//	         is the length of a page · 88 48 the unnamed database ·
//	         136 8 last page · 144 8 transaction
//	database 0 4 pad · 4 2 flags · 6 2 depth · 8 8 branches · 16 8 leaves ·
//	         24 8 overflowing pages · 32 8 keys · 40 8 root, all ones: none
//	node     0 2 low · 2 2 high · 4 2 flags · 6 2 length of the key · key · value
//	         of a leaf: low and high are the length of the value; of a branch: low,
//	         high and flags are the number of a page
const (
	magic       = 0xBEEFC0DE
	dataVersion = 1
	headLen     = 16  // of a page
	metaLen     = 152 // with the head of its page
	databaseLen = 48
	nodeLen     = 8
	maxDepth    = 32
	noPage      = ^uint64(0)

	minPage, maxPage = 512, 64 << 10
)

// Kinds of pages.
const (
	isBranch   = 0x01
	isLeaf     = 0x02
	isOverflow = 0x04
	isMeta     = 0x08
	kindMask   = 0xFFEF // all but dirty, which a writer may leave behind
)

// Flags of a node.
const (
	nodeBig  = 0x01 // the value is the number of a page that overflows
	nodeSub  = 0x02 // the value is a database
	nodeDups = 0x04
)

// Flags of a database.
const (
	reverseKey = 0x02
	dupSort    = 0x04
	integerKey = 0x08
)

var le = binary.LittleEndian

// database is the root of one tree.
type database struct {
	flags   uint16
	depth   int
	entries uint64
	root    uint64
}

func parseDatabase(b []byte) database {
	return database{flags: le.Uint16(b[4:]), depth: int(le.Uint16(b[6:])), entries: le.Uint64(b[32:]), root: le.Uint64(b[40:])}
}

// meta is what a meta page says; ok is false if it is not one.
type meta struct {
	version  uint32
	pageSize int64
	main     database
	txn      uint64
}

func parseMeta(b []byte) (m meta, ok bool) {
	if len(b) < metaLen || le.Uint16(b[10:])&isMeta == 0 || le.Uint32(b[16:]) != magic {
		return meta{}, false
	}
	m = meta{version: le.Uint32(b[20:]), pageSize: int64(le.Uint32(b[40:])), main: parseDatabase(b[88:]), txn: le.Uint64(b[144:])}
	return m, true
}

// node is one entry of a page; the slices are views of it.
type node struct {
	at    int // in its page
	flags uint16
	key   []byte
	size  int64  // of the value (leaf)
	data  []byte // of a leaf: the value, or where it overflows the number of its page
	child uint64 // of a branch
}

// nodes is how many nodes a page has; its pointers are within it. -1: that is
// impossible.
func nodes(page []byte) int {
	end := int(le.Uint16(page[12:]))
	if end < headLen || end > len(page) || end&1 != 0 {
		return -1
	}
	return (end - headLen) / 2
}

// nodeAt is node i of a page; false if it is not within the page.
func nodeAt(page []byte, i int, leaf bool) (n node, ok bool) {
	at := int(le.Uint16(page[headLen+2*i:]))
	if at < int(le.Uint16(page[12:])) || at > len(page)-nodeLen {
		return node{}, false
	}
	p := page[at:]
	low, flags, keyLen := le.Uint32(p), le.Uint16(p[4:]), int(le.Uint16(p[6:]))
	if keyLen > len(p)-nodeLen {
		return node{}, false
	}
	n = node{at: at, flags: flags, key: p[nodeLen : nodeLen+keyLen]}
	if !leaf {
		n.flags, n.child = 0, uint64(low)|uint64(flags)<<32
		return n, true
	}
	n.size = int64(low)
	stored := n.size
	if flags&nodeBig != 0 {
		stored = 8
	}
	rest := p[nodeLen+keyLen:]
	if stored > int64(len(rest)) {
		return node{}, false
	}
	n.data = rest[:stored]
	return n, true
}

// overflows is how many pages a value of that size takes.
func overflows(size, pageSize int64) int64 { return (headLen-1+size)/pageSize + 1 }

// compare is the order of keys in a database with these flags.
func compare(flags uint16, a, b []byte) int {
	switch {
	case flags&integerKey != 0:
		return cmp.Compare(integer(a), integer(b))
	case flags&reverseKey != 0:
		a, b = slices.Clone(a), slices.Clone(b)
		slices.Reverse(a)
		slices.Reverse(b)
	}
	return bytes.Compare(a, b)
}

// integer is a key of four or eight bytes.
func integer(key []byte) uint64 {
	if len(key) == 4 {
		return uint64(le.Uint32(key))
	}
	return le.Uint64(key)
}

// appendKey appends a key as the field shows it.
func appendKey(dst []byte, flags uint16, key []byte) []byte {
	if flags&integerKey != 0 {
		return strconv.AppendUint(dst, integer(key), 10)
	}
	return append(dst, key...)
}
