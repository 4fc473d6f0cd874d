//go:build cgo

package kernel

/*
#cgo noescape stk_vp8
#cgo nocallback stk_vp8
#include "vp8.h"
*/
import "C"

import (
	"os"
	"unsafe"
)

// lossy decodes VP8 with our own C or, if the twin was requested, with that.
func lossy(dst, stream []byte, i WebPInfo) error {
	target := os.Getenv(kernelEnv)
	if target == names[0] {
		return webpTwin(dst, stream, i)
	}
	level := 0
	if rank(target) > rank("base") {
		level = lossyLevel()
	}
	return lossyAt(dst, stream, i, level)
}

// lossyLevel is the best level of this processor for lossyAt: 0, or 1 for AVX2.
func lossyLevel() int { return int(C.stk_vp8_level()) }

func lossyAt(dst, stream []byte, i WebPInfo, level int) error {
	switch C.stk_vp8((*C.uint8_t)(unsafe.SliceData(dst)), (*C.uint8_t)(unsafe.SliceData(stream)), C.size_t(len(stream)),
		C.int(i.W), C.int(i.H), C.int(level)) {
	case C.STK_VP8_OK:
		return nil
	case C.STK_VP8_MEMORY:
		return ErrMemory
	case C.STK_VP8_ODD:
		return webp(dst, stream, i)
	case C.STK_VP8_CUT:
		return FormatError("WebP: the compressed pixels end before the last row")
	}
	return FormatError("WebP: the compressed pixels are damaged")
}
