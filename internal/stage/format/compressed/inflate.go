package compressed

import (
	"encoding/binary"

	"github.com/stoker-data/stoker/internal/base/errs"
)

const (
	windowBytes = 32 << 10 // that a match of deflate may reach back
	// slackBytes is how far beyond its limit symbols writes: two literals, or a
	// match of 258 that is copied by 8.
	slackBytes = 512
)

// inflate unpacks deflate streams (RFC 1951). Go's decompressors, and those of others,
// neither say where a block begins nor stop inside one; this one can be resumed at any
// symbol, given the 32 KiB before it and the codes of its block.
//
// The unpacked bytes are out[start:w]; out[low:start] is what came before and can be
// reached back to.
type inflate struct {
	feed
	b uint64 // the next n bits, lowest first
	n uint   // 8*p-n is the bit of in that comes next

	out           []byte
	low, start, w int
	marks         []bool // of out[start-windowBytes:start]: what is copied from there; nil: nobody asks

	last     bool // the block is the last one of its stream
	lit      [litRoom]uint32
	dist     [distRoom]uint32
	lens     [maxLits + maxDists + 4]uint8
	nlit     int // lens of literals and lengths; the rest are distances
	ndist    int
	lenTable [128]uint32
}

// bit is the offset in the file of the next bit, in bits.
func (z *inflate) bit() int64 { return z.pos()*8 - int64(z.n) }

// bad is an error at the bit that comes next.
func (z *inflate) bad(format string, a ...any) *errs.Error {
	return z.damaged(z.bit()/8, format, a...)
}

// over says whether bits were taken that are not there.
func (z *inflate) over() bool { return z.bit() > (z.base+int64(z.end))*8 }

// load makes n 56 at least. After Giesen, "Reading bits in far too many ways, part
// 2" (2018), variant 4: bits beyond n are those of in[p], and come again.
func (z *inflate) load() error {
	if err := z.loadable(); err != nil {
		return err
	}
	z.b |= binary.LittleEndian.Uint64(z.in[z.p:]) << z.n
	z.p += int(63-z.n) >> 3
	z.n |= 56
	return nil
}

// bits takes the next k bits, 32 at most.
func (z *inflate) bits(k uint) (uint64, error) {
	if z.n < k {
		if err := z.load(); err != nil {
			return 0, err
		}
	}
	v := z.b & (1<<k - 1)
	z.b >>= k
	z.n -= k
	if z.over() {
		return 0, z.cut()
	}
	return v, nil
}

// align gives back the bits that were loaded, but for those of a byte that was
// begun, which are nothing.
func (z *inflate) align() {
	z.p -= int(z.n / 8)
	z.b, z.n = 0, 0
}

// seek goes to a bit of the byte that comes next.
func (z *inflate) seek(bit uint) error {
	_, err := z.bits(bit)
	return err
}

// header reads the head of a block. A stored one is unpacked at once, up to
// limit, and ended is true.
func (z *inflate) header(limit int) (ended bool, err error) {
	v, err := z.bits(3)
	if err != nil {
		return false, err
	}
	z.last = v&1 != 0
	switch v >> 1 {
	case 0:
		return true, z.stored(limit)
	case 1:
		return false, z.fixed()
	case 2:
		return false, z.dynamic()
	}
	return false, z.bad("a deflate block of an unknown type")
}

// stored copies a block that is not compressed.
func (z *inflate) stored(limit int) error {
	z.align()
	h, err := z.peek(4)
	if err != nil {
		return err
	}
	if len(h) < 4 {
		return z.cut()
	}
	n, not := binary.LittleEndian.Uint16(h), binary.LittleEndian.Uint16(h[2:])
	if n != ^not {
		return z.bad("the length of a stored deflate block is damaged")
	}
	z.p += 4
	for left := int(n); left > 0; {
		p, err := z.peek(1)
		if err != nil {
			return err
		}
		if len(p) == 0 {
			return z.cut()
		}
		if left > limit-z.w {
			return z.bad("a stored deflate block of %d bytes is longer than it was", n)
		}
		k := copy(z.out[z.w:z.w+left], z.in[z.p:z.end])
		z.w, z.p, left = z.w+k, z.p+k, left-k
	}
	return nil
}

// fixed takes the codes of RFC 1951, 3.2.6.
func (z *inflate) fixed() error {
	z.nlit, z.ndist = 0, 0
	return z.tables()
}

// tables makes the tables of lens; of no lens, those that are fixed.
func (z *inflate) tables() error {
	if z.nlit == 0 {
		var lens [288 + 32]uint8
		for i := range 288 {
			switch {
			case i < 144:
				lens[i] = 8
			case i < 256:
				lens[i] = 9
			case i < 280:
				lens[i] = 7
			default:
				lens[i] = 8
			}
		}
		for i := range 32 {
			lens[288+i] = 5
		}
		_ = build(z.lit[:], litRoot, lens[:288], litSymbols[:])
		_ = build(z.dist[:], distRoot, lens[288:], distSymbols[:])
		return nil
	}
	if err := build(z.lit[:], litRoot, z.lens[:z.nlit], litSymbols[:]); err != nil {
		return err
	}
	return build(z.dist[:], distRoot, z.lens[z.nlit:z.nlit+z.ndist], distSymbols[:])
}

// dynamic reads the codes of a block (RFC 1951, 3.2.7).
func (z *inflate) dynamic() error {
	v, err := z.bits(14)
	if err != nil {
		return err
	}
	nlit, ndist, nlen := int(v&31)+257, int(v>>5&31)+1, int(v>>10)+4
	if nlit > maxLits || ndist > maxDists {
		return z.bad("a deflate block of %d and %d codes", nlit, ndist)
	}
	var lens [19]uint8
	for i := range nlen {
		v, err := z.bits(3)
		if err != nil {
			return err
		}
		lens["\x10\x11\x12\x00\x08\x07\x09\x06\x0a\x05\x0b\x04\x0c\x03\x0d\x02\x0e\x01\x0f"[i]] = uint8(v)
	}
	var symbols [19]uint32
	for i := range symbols {
		symbols[i] = uint32(i) << 16
	}
	if err := build(z.lenTable[:], 7, lens[:], symbols[:]); err != nil {
		return z.bad("the codes of a deflate block are damaged").Because(err)
	}
	if err := z.lengths(nlit + ndist); err != nil {
		return err
	}
	z.nlit, z.ndist = nlit, ndist
	if z.lens[256] == 0 {
		return z.bad("a deflate block that has no end code")
	}
	if err := z.tables(); err != nil {
		return z.bad("the codes of a deflate block are damaged").Because(err)
	}
	return nil
}

// lengths reads the n lengths of codes, which are compressed themselves.
func (z *inflate) lengths(n int) error {
	for i := 0; i < n; {
		if z.n < 14 {
			if err := z.load(); err != nil {
				return err
			}
		}
		e := z.lenTable[z.b&127]
		if e&isBad != 0 {
			return z.bad("the codes of a deflate block are damaged")
		}
		z.b >>= e & 63
		z.n -= uint(e & 63)
		symbol := e >> 16
		if symbol < 16 {
			z.lens[i] = uint8(symbol)
			i++
			continue
		}
		value, width, least := uint8(0), uint(3), 3
		switch symbol {
		case 16:
			if i == 0 {
				return z.bad("the codes of a deflate block are damaged")
			}
			value, width = z.lens[i-1], 2
		case 18:
			width, least = 7, 11
		}
		v, err := z.bits(width)
		if err != nil {
			return err
		}
		k := least + int(v)
		if k > n-i {
			return z.bad("the codes of a deflate block are damaged")
		}
		for ; k > 0; k-- {
			z.lens[i] = value
			i++
		}
	}
	if z.over() {
		return z.cut()
	}
	return nil
}

// symbols unpacks a block until it ends or w is limit or more. Where it stops
// depends on the limit and on what is unpacked from start on, and on nothing else.
func (z *inflate) symbols(limit int) (ended bool, err error) {
	in, p, b, n := z.in, z.p, z.b, z.n
	out, w := z.out, z.w
	lit, dist := &z.lit, &z.dist
	leave := func() { z.p, z.b, z.n, z.w = p, b, n, w }
	for w < limit {
		if p+8 > len(in) {
			z.p, z.b, z.n, z.w = p, b, n, w
			if err := z.loadable(); err != nil {
				return false, err
			}
			in, p = z.in, z.p
		}
		// As load does it.
		b |= binary.LittleEndian.Uint64(in[p:]) << (n & 63)
		p += int(63-n) >> 3
		n |= 56

		// 56 bits are three literals of 15, or a length and a distance (20 and 28).
		e := lit[b&(1<<litRoot-1)]
		if e&isLiteral != 0 {
			b >>= e & 63
			n -= uint(e & 63)
			out[w] = byte(e >> 16)
			w++
			if e = lit[b&(1<<litRoot-1)]; e&isLiteral == 0 {
				continue
			}
			b >>= e & 63
			n -= uint(e & 63)
			out[w] = byte(e >> 16)
			w++
			if e = lit[b&(1<<litRoot-1)]; e&isLiteral == 0 {
				continue
			}
			b >>= e & 63
			n -= uint(e & 63)
			out[w] = byte(e >> 16)
			w++
			continue
		}
		if e&isRare != 0 {
			if e&isLink != 0 {
				b >>= litRoot
				n -= litRoot
				e = lit[(e>>16+uint32(b)&(1<<(e>>8&15)-1))&(litRoom-1)]
			}
			if e&isBad != 0 {
				leave()
				return false, z.bad("a code that a deflate block does not have")
			}
			if e&(isEnd|isLiteral) != 0 {
				b >>= e & 63
				n -= uint(e & 63)
				if e&isEnd != 0 {
					leave()
					if z.over() {
						return false, z.cut()
					}
					return true, nil
				}
				out[w] = byte(e >> 16)
				w++
				continue
			}
		}
		length := int(e>>16) + int(b&(1<<(e&63)-1)>>(e>>8&15))
		b >>= e & 63
		n -= uint(e & 63)
		d := dist[b&(1<<distRoot-1)]
		if d&isRare != 0 {
			if d&isLink != 0 {
				b >>= distRoot
				n -= distRoot
				d = dist[(d>>16+uint32(b)&(1<<(d>>8&15)-1))&(distRoom-1)]
			}
			if d&isBad != 0 {
				leave()
				return false, z.bad("a code that a deflate block does not have")
			}
		}
		distance := int(d>>16) + int(b&(1<<(d&63)-1)>>(d>>8&15))
		b >>= d & 63
		n -= uint(d & 63)
		if distance > w-z.start && !z.before(w, distance, length) {
			leave()
			return false, z.bad("a match of a deflate block that reaches back before its beginning")
		}
		end, from := w+length, w-distance
		switch {
		case distance >= 8:
			for ; w < end; w, from = w+8, from+8 {
				binary.LittleEndian.PutUint64(out[w:], binary.LittleEndian.Uint64(out[from:]))
			}
		default:
			for ; w < end; w, from = w+1, from+1 {
				out[w] = out[from]
			}
		}
		w = end
	}
	leave()
	if z.over() {
		return false, z.cut()
	}
	return false, nil
}

// before takes note of a match that begins before start; false: there is nothing.
func (z *inflate) before(w, distance, length int) bool {
	from := w - distance
	if from < z.low {
		return false
	}
	if z.marks != nil {
		for i := from; i < min(from+length, z.start); i++ {
			z.marks[i-(z.start-windowBytes)] = true
		}
	}
	return true
}
