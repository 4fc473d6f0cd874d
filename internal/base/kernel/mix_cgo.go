//go:build cgo

package kernel

/*
#include <stddef.h>
#include <stdint.h>
#cgo noescape stk_mix_f32
#cgo nocallback stk_mix_f32
#cgo noescape stk_mix_f64
#cgo nocallback stk_mix_f64
void stk_mix_f32(float *data, size_t size, const int32_t *rows, size_t count, float k, float r);
void stk_mix_f64(double *data, size_t size, const int32_t *rows, size_t count, double k, double r);
*/
import "C"

import "unsafe"

func mixUp(data []byte, size, bytes int, rows []int32, lambda, rest float64) {
	at, list := unsafe.Pointer(unsafe.SliceData(data)), (*C.int32_t)(unsafe.SliceData(rows))
	if bytes == 4 {
		C.stk_mix_f32((*C.float)(at), C.size_t(size/4), list, C.size_t(len(rows)), C.float(lambda), C.float(rest))
		return
	}
	C.stk_mix_f64((*C.double)(at), C.size_t(size/8), list, C.size_t(len(rows)), C.double(lambda), C.double(rest))
}
