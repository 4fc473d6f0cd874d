//go:build cgo

package kernel

/*
#cgo noescape stk_inflate_run
#cgo nocallback stk_inflate_run
#cgo noescape stk_adler32
#cgo nocallback stk_adler32
#cgo noescape stk_unfilter
#cgo nocallback stk_unfilter
#include "inflate.h"
size_t stk_unfilter(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t n, size_t rows, size_t back);
*/
import "C"

import "unsafe"

// inflateState is in Go's memory and holds no pointers.
type inflateState = C.stk_inflate

func inflateLevel(target string) int {
	switch rank(target) {
	case rank("go"):
		return inflateTwinLevel
	case rank("base"):
		return inflateBaseLevel
	}
	return inflateBaseLevel + int(C.stk_inflate_level())
}

func (z *Inflater) open() {
	s := &z.state
	s.in, s.out, s.bits, s.n, s.mode, s.last, s.left = 0, 0, 0, 0, 0, 0, 0
}

func (z *Inflater) used() int { return int(z.state.in) }

func (z *Inflater) run(dst []byte, at, limit int) (n int, end bool, err error) {
	z.state.out = C.uint64_t(at)
	code := C.stk_inflate_run(&z.state, (*C.uint8_t)(unsafe.SliceData(z.src)), C.size_t(len(z.src)),
		(*C.uint8_t)(unsafe.SliceData(dst)), C.size_t(len(dst)), C.size_t(limit), C.int(z.level-inflateBaseLevel))
	n = int(z.state.out)
	switch code {
	case C.STK_INFLATE_END:
		return n, true, nil
	case C.STK_INFLATE_MORE:
		return n, false, nil
	}
	return n, false, InflateError(code)
}

func (z *Inflater) adler32(sum uint32, p []byte) uint32 {
	if z.level == inflateTwinLevel {
		return adlerGo(sum, p)
	}
	return uint32(C.stk_adler32(C.uint32_t(sum), (*C.uint8_t)(unsafe.SliceData(p)), C.size_t(len(p)), C.int(z.level-inflateBaseLevel)))
}

func unfilter(dst, src, up []byte, n, rows, back int) int {
	return int(C.stk_unfilter((*C.uint8_t)(unsafe.SliceData(dst)), (*C.uint8_t)(unsafe.SliceData(src)), (*C.uint8_t)(unsafe.SliceData(up)),
		C.size_t(n), C.size_t(rows), C.size_t(back)))
}
