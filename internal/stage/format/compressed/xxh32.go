package compressed

import (
	"encoding/binary"
	"math/bits"
)

// xxh32 is XXH32 with the seed 0, which LZ4 frames use (Collet, the xxHash
// specification 0.1.1): four lanes over stripes of 16 bytes, then what is left.
type xxh32 struct {
	lane [4]uint32
	rest [16]byte
	have int
	n    uint64
}

const (
	prime1 = 2654435761
	prime2 = 2246822519
	prime3 = 3266489917
	prime4 = 668265263
	prime5 = 374761393
)

func newXXH32() xxh32 {
	p := uint32(prime1)
	return xxh32{lane: [4]uint32{p + prime2, prime2, 0, -p}}
}

func sum32(p []byte) uint32 {
	x := newXXH32()
	x.write(p)
	return x.sum()
}

func (x *xxh32) write(p []byte) {
	x.n += uint64(len(p))
	if x.have > 0 {
		k := copy(x.rest[x.have:], p)
		x.have, p = x.have+k, p[k:]
		if x.have < 16 {
			return
		}
		x.stripes(x.rest[:])
	}
	whole := len(p) &^ 15
	x.stripes(p[:whole])
	x.have = copy(x.rest[:], p[whole:])
}

func (x *xxh32) stripes(p []byte) {
	a, b, c, d := x.lane[0], x.lane[1], x.lane[2], x.lane[3]
	for ; len(p) >= 16; p = p[16:] {
		a = bits.RotateLeft32(a+binary.LittleEndian.Uint32(p)*prime2, 13) * prime1
		b = bits.RotateLeft32(b+binary.LittleEndian.Uint32(p[4:])*prime2, 13) * prime1
		c = bits.RotateLeft32(c+binary.LittleEndian.Uint32(p[8:])*prime2, 13) * prime1
		d = bits.RotateLeft32(d+binary.LittleEndian.Uint32(p[12:])*prime2, 13) * prime1
	}
	x.lane = [4]uint32{a, b, c, d}
}

func (x *xxh32) sum() uint32 {
	h := uint32(prime5)
	if x.n >= 16 {
		h = bits.RotateLeft32(x.lane[0], 1) + bits.RotateLeft32(x.lane[1], 7) + bits.RotateLeft32(x.lane[2], 12) + bits.RotateLeft32(x.lane[3], 18)
	}
	h += uint32(x.n)
	p := x.rest[:x.have]
	for ; len(p) >= 4; p = p[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(p)*prime3, 17) * prime4
	}
	for _, c := range p {
		h = bits.RotateLeft32(h+uint32(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>15) * prime2
	h = (h ^ h>>13) * prime3
	return h ^ h>>16
}
