//go:build cgo && stoker_libwebp

package kernel

/*
#cgo LDFLAGS: -lwebp -lm -lpthread
#cgo noescape stk_webp
#cgo nocallback stk_webp
#include <stdint.h>
#include <webp/decode.h>

// stk_webp decodes a bitstream whose size the caller has read into w*h*3 bytes
// of RGB and returns libwebp's status, or -1 where the header was misread.
static int stk_webp(uint8_t *dst, const uint8_t *src, size_t n, int w, int h) {
	WebPDecoderConfig c;
	if (!WebPInitDecoderConfig(&c)) {
		return -1;
	}
	VP8StatusCode status = WebPGetFeatures(src, n, &c.input);
	if (status != VP8_STATUS_OK) {
		return status;
	}
	if (c.input.width != w || c.input.height != h || c.input.has_animation) {
		return -1;
	}
	c.output.colorspace = MODE_RGB;
	c.output.is_external_memory = 1;
	c.output.u.RGBA.rgba = dst;
	c.output.u.RGBA.stride = 3 * w;
	c.output.u.RGBA.size = (size_t)3 * w * h;
	status = WebPDecode(src, n, &c);
	WebPFreeDecBuffer(&c.output);
	return status;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// HasLibwebp says that libwebp is built in: build tag stoker_libwebp. Where it is not,
// golang.org/x/image decodes.
const HasLibwebp = true

func libwebpVersion() string {
	v := C.WebPGetDecoderVersion()
	return fmt.Sprintf("libwebp %d.%d.%d", v>>16, v>>8&255, v&255)
}

func webp(dst, stream []byte, i WebPInfo) error {
	status := C.stk_webp(
		(*C.uint8_t)(unsafe.SliceData(dst)),
		(*C.uint8_t)(unsafe.SliceData(stream)), C.size_t(len(stream)),
		C.int(i.W), C.int(i.H))
	switch status {
	case C.VP8_STATUS_OK:
		return nil
	case C.VP8_STATUS_OUT_OF_MEMORY:
		return errors.New("kernel: WebP: out of memory")
	case C.VP8_STATUS_UNSUPPORTED_FEATURE:
		return UnsupportedError("WebP: not supported: a feature that libwebp does not know")
	case C.VP8_STATUS_SUSPENDED, C.VP8_STATUS_NOT_ENOUGH_DATA:
		return FormatError("WebP: the compressed pixels end before the last row")
	}
	return FormatError(fmt.Sprintf("WebP: the compressed pixels are damaged (libwebp status %d)", status))
}
