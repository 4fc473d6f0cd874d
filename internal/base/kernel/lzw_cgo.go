//go:build cgo

package kernel

/*
#cgo noescape stk_lzw_decode
#cgo nocallback stk_lzw_decode
#cgo noescape stk_unpredict
#cgo nocallback stk_unpredict
#include "lzw.h"
*/
import "C"

import "unsafe"

const lzwInC = true

// lzwState is in Go's memory and holds no pointers.
type lzwState struct {
	table C.stk_lzw
	got   C.size_t
}

func (t *LZW) decode(dst, src []byte, bits int, tiff bool) (n, code int) {
	c := C.stk_lzw_decode(&t.state.table, (*C.uint8_t)(unsafe.SliceData(dst)), C.size_t(len(dst)), &t.state.got,
		(*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)), C.int(bits), C.int(flag(tiff)))
	return int(t.state.got), int(c)
}

func unpredict(block []byte, n, rows, back int) {
	C.stk_unpredict((*C.uint8_t)(unsafe.SliceData(block)), C.size_t(n), C.size_t(rows), C.size_t(back))
}
