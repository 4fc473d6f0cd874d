package format

import (
	"encoding/binary"
	"math/bits"
)

// Swap copies numbers of size bytes, each the other way round; bytes after the
// last whole number stay as they are in dst. dst may be src.
func Swap(dst, src []byte, size int) {
	le := binary.LittleEndian
	n := len(src) - len(src)%size
	switch src, dst = src[:n], dst[:n]; size {
	case 2:
		for i := 0; i < n; i += 2 {
			le.PutUint16(dst[i:], bits.ReverseBytes16(le.Uint16(src[i:])))
		}
	case 4:
		for i := 0; i < n; i += 4 {
			le.PutUint32(dst[i:], bits.ReverseBytes32(le.Uint32(src[i:])))
		}
	case 8:
		for i := 0; i < n; i += 8 {
			le.PutUint64(dst[i:], bits.ReverseBytes64(le.Uint64(src[i:])))
		}
	default:
		for i := 0; i < n; i += size {
			for a, b := i, i+size-1; a <= b; a, b = a+1, b-1 {
				dst[a], dst[b] = src[b], src[a]
			}
		}
	}
}
