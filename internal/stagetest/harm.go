package stagetest

import "encoding/binary"

// Harmed is a copy of a file that is changed in a few places, for fuzz targets of
// formats whose files are long and have signatures: the mutated input is short, and
// gets past them. Every five bytes of harm are one change: three bytes of offset
// (modulo the length), and two that say what happens there:
//
//	0  the byte becomes the second one
//	1  the bits of the second one are flipped
//	2  eight bytes become a number: 2 to the power of the second byte's lower six
//	   bits, less 1 where the seventh is set
//	3  the second byte times eight bytes are copied from what is before them
//	4  the file ends here
func Harmed(data, harm []byte) []byte {
	out := append([]byte(nil), data...)
	for ; len(harm) >= 5 && len(out) > 0; harm = harm[5:] {
		at := int(harm[0]) | int(harm[1])<<8 | int(harm[2])<<16
		at %= len(out)
		v := harm[4]
		switch harm[3] % 5 {
		case 0:
			out[at] = v
		case 1:
			out[at] ^= v
		case 2:
			n := uint64(1)<<(v&63) - uint64(v>>6&1)
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], n)
			copy(out[at:], b[:])
		case 3:
			n := min(int(v)*8, at)
			copy(out[at:], out[at-n:at])
		case 4:
			out = out[:at]
		}
	}
	return out
}
