// Lossy WebP: VP8's key frames (RFC 6386). What vp8.c, vp8_avx2.c and the Go side share.
#ifndef STK_VP8_H
#define STK_VP8_H

#include <stddef.h>
#include <stdint.h>

// What stk_vp8 returns: CUT where the data ends early, BAD where it is not VP8.
enum { STK_VP8_OK, STK_VP8_CUT, STK_VP8_BAD, STK_VP8_MEMORY };

// stk_vp8 decodes a key frame, whose header says w x h, to w*h*3 bytes of RGB. Pixels are
// libwebp's, its upsampling of chroma included.
int stk_vp8(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h, int level);

#ifdef __x86_64__
int stk_vp8_avx2(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h);
#endif

#endif
