//go:build cgo && stoker_libjpeg

package kernel

/*
#cgo LDFLAGS: -ljpeg -lm
#include <stdlib.h>
#include "stk.h"
*/
import "C"

import "unsafe"

// JCS_RGB and JCS_YCCK of jpeglib.h.
const (
	spaceRGB  = 2
	spaceYCCK = 5
)

// HasLibjpeg reports whether libjpeg-turbo is built in, by the build tag stoker_libjpeg.
// An engine that is linked statically contains it; another one needs the system's at run
// time.
const HasLibjpeg = true

func libjpegVersion() string { return C.GoString(C.stk_libjpeg_version()) }

func encode(p Pixels, o encodeOptions) ([]byte, error) {
	hs, vs, err := o.check(&p)
	if err != nil {
		return nil, err
	}
	flags, space := 0, 0
	for _, f := range []struct {
		on  bool
		bit int
	}{{o.progressive, C.STK_PROGRESSIVE}, {o.optimize, C.STK_OPTIMIZE}, {o.separate, C.STK_SEPARATE}, {o.arithmetic, C.STK_ARITHMETIC}} {
		if f.on {
			flags |= f.bit
		}
	}
	switch {
	case o.ycck:
		space = spaceYCCK
	case o.rgb:
		space = spaceRGB
	}
	var out *C.uint8_t
	var n C.ulong
	var msg [C.STK_MSG]C.char
	code := C.stk_encode((*C.uint8_t)(unsafe.SliceData(p.Pix)), C.int(p.W), C.int(p.H), C.int(p.C), C.int(o.quality),
		C.int(hs), C.int(vs), C.int(o.restart), C.int(flags), C.int(space), &out, &n, &msg[0])
	defer C.free(unsafe.Pointer(out))
	if code != C.STK_OK {
		return nil, FormatError(C.GoString(&msg[0]))
	}
	return C.GoBytes(unsafe.Pointer(out), C.int(n)), nil
}
