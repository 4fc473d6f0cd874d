//go:build cgo

package kernel

/*
#cgo noescape stk_mix
#cgo nocallback stk_mix
#include "mix.h"
*/
import "C"

import (
	"sync"
	"unsafe"
)

// mixLevel is the level of a target for mixUpAt: -1 for the twin, 0 for any processor, 1 for AVX2.
func mixLevel(target string) int {
	switch target {
	case "go":
		return -1
	case "base":
		return 0
	}
	return bestMix()
}

// bestMix is asked once: CPUID is slow in virtual machines.
var bestMix = sync.OnceValue(func() int { return int(C.stk_mix_level()) })

func mixUpAt(data []byte, size int, of Float, rows []int32, lambda float64, level int) {
	if level < 0 {
		mixUpGo(data, size, of, rows, lambda)
		return
	}
	C.stk_mix(unsafe.Pointer(unsafe.SliceData(data)), C.size_t(size/of.Size()), C.int(of), (*C.int32_t)(unsafe.SliceData(rows)),
		C.size_t(len(rows)), C.double(lambda), C.double(1-lambda), C.int(level))
}
