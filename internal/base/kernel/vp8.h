// Lossy WebP: VP8's key frames (RFC 6386). What vp8.c, vp8_avx2.c and the Go side share.
#ifndef STK_VP8_H
#define STK_VP8_H

#include <stddef.h>
#include <stdint.h>

// What stk_vp8 returns: CUT where the data ends early, BAD where it is not VP8. ODD: a partition
// begins with 255, which no encoder of booleans writes, and of which decoders make different
// things. So that pixels are libwebp's, it has to decode that.
enum { STK_VP8_OK, STK_VP8_CUT, STK_VP8_BAD, STK_VP8_MEMORY, STK_VP8_ODD };

// stk_vp8 decodes a key frame, whose header says w x h, to w*h*3 bytes of RGB. Pixels are
// libwebp's, its upsampling of chroma included.
int stk_vp8(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h, int level);

// stk_vp8_level is what the processor has: 1 where vp8_avx2.c runs.
int stk_vp8_level(void);

int stk_vp8_base(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h);
#ifdef __x86_64__
int stk_vp8_avx2(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h);
#endif

#endif
