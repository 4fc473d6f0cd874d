package compressed

import (
	"errors"
	"math/bits"
)

// A table turns the next bits of a deflate stream into one symbol. Codes of up to root
// bits are found at once; for longer ones the first root bits lead to a table of their
// own, after the first. An entry is
//
//	31-16  literal: the byte; length, distance: the least of the range; link: where
//	       the further table begins
//	15-12  isLiteral, isLink, isEnd, isBad
//	11-8   bits of the code (link: bits of the further table)
//	7-0    bits of the code and of the number after it, which is added to the least
const (
	isLiteral = 1 << 15
	isLink    = 1 << 14
	isEnd     = 1 << 13
	isBad     = 1 << 12
	isRare    = isLink | isEnd | isBad

	litRoot  = 10
	distRoot = 8
	// A complete code of 286 symbols of up to 15 bits takes at most 1,334 entries
	// with a root of 10 bits, one of 30 symbols 402 with a root of 8 (zlib's
	// examples/enough.c, Mark Adler). build checks it all the same.
	litRoom  = 2048
	distRoom = 512

	maxLits  = 286
	maxDists = 30
	maxCode  = 15
)

var errCode = errors.New("a code that is over-subscribed or incomplete")

// litSymbols and distSymbols are the entries of symbols before they have a code (RFC
// 1951, 3.2.5); the low byte is the bits of the number after the code.
var (
	litSymbols  = makeLits()
	distSymbols = makeDists()
)

func makeLits() (t [288]uint32) {
	for i := range 256 {
		t[i] = uint32(i)<<16 | isLiteral
	}
	t[256] = isEnd
	base := uint32(3)
	for i := uint32(0); i < 28; i++ {
		extra := uint32(0)
		if i >= 8 {
			extra = i/4 - 1
		}
		t[257+i] = base<<16 | extra
		base += 1 << extra
	}
	t[285], t[286], t[287] = 258<<16, isBad, isBad
	return t
}

func makeDists() (t [32]uint32) {
	base := uint32(1)
	for i := uint32(0); i < maxDists; i++ {
		extra := uint32(0)
		if i >= 4 {
			extra = i/2 - 1
		}
		t[i] = base<<16 | extra
		base += 1 << extra
	}
	t[30], t[31] = isBad, isBad
	return t
}

// build makes a table from the lengths of the codes of symbols; a length of 0 means
// that the symbol does not occur. As in zlib, a code may be incomplete only if it has
// one symbol, of one bit, or no symbols.
func build(table []uint32, root uint, lens []uint8, symbols []uint32) error {
	var count [maxCode + 1]int
	for _, l := range lens {
		count[l]++
	}
	count[0] = 0
	left, most := 1, uint(0)
	for l := 1; l <= maxCode; l++ {
		if left = 2*left - count[l]; left < 0 {
			return errCode
		}
		if count[l] > 0 {
			most = uint(l)
		}
	}
	if left > 0 && (most > 1 || count[1] > 1) {
		return errCode
	}
	for i := range table[:1<<root] {
		table[i] = isBad
	}
	var code [maxCode + 2]uint
	for l := 1; l <= maxCode; l++ {
		code[l+1] = (code[l] + uint(count[l])) << 1
	}
	free := 1 << root // where the next further table begins
	for l := uint(1); l <= most; l++ {
		for s, have := range lens {
			if uint(have) != l {
				continue
			}
			at := uint(bits.Reverse16(uint16(code[l])) >> (16 - l))
			code[l]++
			if l <= root {
				fill(table[:1<<root], at, l, symbols[s])
				count[l]--
				continue
			}
			link := &table[at&(1<<root-1)]
			if *link&isLink == 0 {
				width := subWidth(&count, l, root)
				if free+1<<width > len(table) {
					return errCode
				}
				*link = uint32(free)<<16 | isLink | uint32(width)<<8 | uint32(root)
				for i := range table[free : free+1<<width] {
					table[free+i] = isBad
				}
				free += 1 << width
			}
			from, width := int(*link>>16), *link>>8&15
			if l-root > uint(width) {
				return errCode
			}
			fill(table[from:from+1<<width], at>>root, l-root, symbols[s])
			count[l]--
		}
	}
	return nil
}

// fill puts a symbol at every place whose low bits are its code.
func fill(table []uint32, at, width uint, symbol uint32) {
	e := symbol + uint32(width)<<8 + uint32(width)
	for ; at < uint(len(table)); at += 1 << width {
		table[at] = e
	}
}

// subWidth is the bits that a further table needs whose first code has l bits:
// codes are handed out in order, so that those which follow fill it up. count is
// of the codes that are not handed out yet.
func subWidth(count *[maxCode + 1]int, l, root uint) uint {
	width := l - root
	left := 1 << width
	for width+root < maxCode {
		if left -= count[width+root]; left <= 0 {
			break
		}
		width++
		left <<= 1
	}
	return width
}
