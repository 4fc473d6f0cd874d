package kernel

import (
	"encoding/binary"
	"fmt"
)

// Int is a kind of integer in memory, little-endian.
type Int struct {
	Bytes  int // 1, 2 or 4
	Signed bool
}

// Widen writes the integers of src into dst with more bytes each; signed ones keep
// their sign. dst has as many integers as src and must not overlap it; both may be
// at any address.
func Widen(dst, src []byte, from Int, bytes int) error {
	switch {
	case from.Bytes != 1 && from.Bytes != 2 && from.Bytes != 4, bytes != 2 && bytes != 4 && bytes != 8, bytes <= from.Bytes:
		return JobError(fmt.Sprintf("cannot widen integers of %d bytes to %d", from.Bytes, bytes))
	case len(src)%from.Bytes != 0, len(dst)/bytes != len(src)/from.Bytes, len(dst)%bytes != 0:
		return JobError(fmt.Sprintf("%d bytes of %d each do not fill %d bytes of %d each", len(src), from.Bytes, len(dst), bytes))
	}
	widen(dst, src, from, bytes)
	return nil
}

// widenGo is the twin. Tokens have a loop of their own, because where there is no
// C compiler this is what runs.
func widenGo(dst, src []byte, from Int, bytes int) {
	if from == (Int{Bytes: 2}) && bytes == 8 {
		for ; len(src) >= 2 && len(dst) >= 8; src, dst = src[2:], dst[8:] {
			binary.LittleEndian.PutUint64(dst, uint64(binary.LittleEndian.Uint16(src)))
		}
		return
	}
	for ; len(src) > 0; src, dst = src[from.Bytes:], dst[bytes:] {
		fill := byte(0)
		if from.Signed && src[from.Bytes-1] >= 0x80 {
			fill = 0xff
		}
		copy(dst, src[:from.Bytes])
		for i := from.Bytes; i < bytes; i++ {
			dst[i] = fill
		}
	}
}
