//go:build cgo

package kernel

/*
#include <stddef.h>
#include <stdint.h>
#cgo noescape stk_widen
#cgo nocallback stk_widen
void stk_widen(uint8_t *dst, const uint8_t *src, size_t n, int kind);
*/
import "C"

import "unsafe"

func widen(dst, src []byte, from Int, bytes int) {
	kind := from.Bytes<<8 | bytes
	if from.Signed {
		kind |= 1 << 4
	}
	C.stk_widen((*C.uint8_t)(unsafe.SliceData(dst)), (*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)/from.Bytes), C.int(kind))
}
