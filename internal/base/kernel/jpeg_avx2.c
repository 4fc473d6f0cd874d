// A JPEG's samples and pixels in AVX2: two blocks, and 32 pixels, a register.
#include "reduced.h"

#ifdef __x86_64__
#pragma GCC target("avx2")
#pragma GCC optimize("O3")
#include <immintrin.h>

#include "jpeg_256.h"

// interleave stores 32 pixels. Of each sixteen, the three shuffles of a part bring its
// 16 of 48 bytes into their places.
static INLINE void interleave(V r, V g, V b, uint8_t *out) {
  const __m128i R0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
  const __m128i G0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
  const __m128i B0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
  const __m128i R1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
  const __m128i G1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
  const __m128i B1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
  const __m128i R2 = _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
  const __m128i G2 = _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
  const __m128i B2 = _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
#define PART(i)                                                                               \
  _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(r, _mm256_broadcastsi128_si256(R##i)),  \
                                  _mm256_shuffle_epi8(g, _mm256_broadcastsi128_si256(G##i))), \
                  _mm256_shuffle_epi8(b, _mm256_broadcastsi128_si256(B##i)))
  const V p0 = PART(0), p1 = PART(1), p2 = PART(2);
#undef PART
  v_store(out, _mm256_permute2x128_si256(p0, p1, 0x20));
  v_store(out + 32, _mm256_permute2x128_si256(p2, p0, 0x30));
  v_store(out + 64, _mm256_permute2x128_si256(p1, p2, 0x31));
}

static INLINE void thirty_two(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out) {
  V a[3], b[3], c[3];
  sixteen(y, cb, cr, a);
  sixteen(y + 16, cb + 16, cr + 16, b);
  for (int i = 0; i < 3; i++) c[i] = _mm256_permute4x64_epi64(_mm256_packus_epi16(a[i], b[i]), 0xd8);
  interleave(c[0], c[1], c[2], out);
}

static void rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n) {
  int i = 0;
  for (; i + 32 <= n; i += 32) thirty_two(y + i, cb + i, cr + i, out + 3 * i);
  if (i == n) return;
  uint8_t last[96];
  thirty_two(y + i, cb + i, cr + i, last);
  memcpy(out + 3 * i, last, 3 * (size_t)(n - i));
}

static void merge(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *out, int n) {
  int i = 0;
  for (; i + 32 <= n; i += 32) interleave(v_load(r + i), v_load(g + i), v_load(b + i), out + 3 * i);
  stk_samples_base.merge(r + i, g + i, b + i, out + 3 * i, n - i);
}

const stk_samples stk_samples_avx2 = {dct, dct4, dct2, h2, v2, h2v2, rgb, merge};
#endif
