// Lossy WebP: VP8's key frames (RFC 6386). What vp8.c, vp8_avx2.c and the Go side share.
#ifndef STK_VP8_H
#define STK_VP8_H

#include <stddef.h>
#include <stdint.h>

// The results of stk_vp8: CUT if the data ends early, BAD if it is not VP8. ODD: a
// partition begins with 255, which no encoder of booleans writes, and about which
// decoders disagree; so that pixels are libwebp's, libwebp must decode that.
enum { STK_VP8_OK, STK_VP8_CUT, STK_VP8_BAD, STK_VP8_MEMORY, STK_VP8_ODD };

// stk_vp8 decodes a key frame, whose header says w x h, to w*h*3 bytes of RGB. Pixels are
// libwebp's, its upsampling of chroma included.
int stk_vp8(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h, int level);

// stk_vp8_level is the level of the processor: 1 if vp8_avx2.c runs.
int stk_vp8_level(void);

int stk_vp8_base(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h);
#ifdef __x86_64__
int stk_vp8_avx2(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h);
#endif

#endif
