//go:build cgo

package kernel

/*
#include <stddef.h>
#include <stdint.h>
#cgo noescape stk_copy_out
#cgo nocallback stk_copy_out
void stk_copy_out(uint8_t *dst, const uint8_t *src, size_t n);
*/
import "C"

import "unsafe"

// CopyOut copies src to dst, of equal length, for a reader on another core: the bytes do
// not go through this core's caches.
func CopyOut(dst, src []byte) {
	n := min(len(dst), len(src))
	C.stk_copy_out((*C.uint8_t)(unsafe.SliceData(dst)), (*C.uint8_t)(unsafe.SliceData(src)), C.size_t(n))
}
