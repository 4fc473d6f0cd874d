// A JPEG's samples and pixels in AVX-512, in registers of 256 bits: two blocks, and 32 pixels.
// Those of 512 took a few percent more of all, although their own part is shorter: the
// decoding around them runs at a lower clock for a while after each use.
#include "reduced.h"

#ifdef __x86_64__
#pragma GCC optimize("O3")
#include "avx512.h"
#ifndef STK_SIMDE
#pragma GCC target("prefer-vector-width=256")
#endif

#include "jpeg_256.h"

// The sources of the bytes of 32 interleaved pixels: red (0..31) and green (32..63),
// and blue for bytes that are 2 mod 3. Bytes are in the order that packing leaves: in
// each 128 bits eight of the first 16 pixels, then eight of the others.
typedef struct {
  uint8_t rg[3][32], b[3][32];
} order;

#define PACKED(p) ((p) % 16 / 8 * 16 + (p) / 16 * 8 + (p) % 8)
#define RG(k) (uint8_t)((k) % 3 == 1 ? 32 + PACKED((k) / 3) : PACKED((k) / 3))
#define B_(k) (uint8_t) PACKED((k) / 3)
#define EIGHT(f, k) f(k), f((k) + 1), f((k) + 2), f((k) + 3), f((k) + 4), f((k) + 5), f((k) + 6), f((k) + 7)
#define ALL(f, k) EIGHT(f, k), EIGHT(f, (k) + 8), EIGHT(f, (k) + 16), EIGHT(f, (k) + 24)
static const order packed = {{{ALL(RG, 0)}, {ALL(RG, 32)}, {ALL(RG, 64)}}, {{ALL(B_, 0)}, {ALL(B_, 32)}, {ALL(B_, 64)}}};
static const uint32_t blue[3] = {0x24924924, 0x49249249, 0x92492492};

// rgb stores 32 pixels at a time, and of the last group only the existing ones.
static void rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n) {
  for (int i = 0; i < n; i += 32) {
    V p[2][3];
    sixteen(y + i, cb + i, cr + i, p[0]);
    sixteen(y + i + 16, cb + i + 16, cr + i + 16, p[1]);
    const V r = _mm256_packus_epi16(p[0][0], p[1][0]), g = _mm256_packus_epi16(p[0][1], p[1][1]);
    const V b = _mm256_packus_epi16(p[0][2], p[1][2]);
    const int bytes = 3 * (n - i);
    uint8_t *o = out + 3 * i;
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++) {
      V s = _mm256_permutex2var_epi8(r, v_load(packed.rg[k]), g);
      s = _mm256_mask_permutexvar_epi8(s, blue[k], v_load(packed.b[k]), b);
      const int left = bytes - 32 * k;
      if (left >= 32)
        v_store(o + 32 * k, s);
      else if (left > 0)
        _mm256_mask_storeu_epi8(o + 32 * k, ~UINT32_C(0) >> (32 - left), s);
    }
  }
}

static void merge(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *out, int n) {
  stk_samples_avx2.merge(r, g, b, out, n);
}

const stk_samples stk_samples_avx512 = {dct, dct4, dct2, h2, v2, h2v2, rgb, merge};
#endif
