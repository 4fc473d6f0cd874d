// Colours in AVX2.
#include "stk.h"

#ifdef __x86_64__
#pragma GCC target("avx2")
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math", "no-math-errno", "finite-math-only", "no-signed-zeros")
#include <immintrin.h>
#include "colours.h"

// table looks 32 bytes up at a time, in sixteen tables of 16 entries. pshufb takes the low
// half of a byte, and gives 0 where its top bit is set. 16 is taken off for each table, so
// that the bytes that belong to it are 0 to 15; adding 112 with saturation sets the top bit
// of all others.
static void table(const uint8_t *in, uint8_t *out, int n, const uint8_t *t) {
  __m256i part[16];
  for (int i = 0; i < 16; i++) part[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(t + 16 * i)));
  const __m256i up = _mm256_set1_epi8(112), one = _mm256_set1_epi8(16);
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i x = _mm256_loadu_si256((const __m256i *)(in + i)), y = _mm256_setzero_si256();
    for (int k = 0; k < 16; k++) {
      y = _mm256_or_si256(y, _mm256_shuffle_epi8(part[k], _mm256_adds_epu8(x, up)));
      x = _mm256_sub_epi8(x, one);
    }
    _mm256_storeu_si256((__m256i *)(out + i), y);
  }
  for (; i < n; i++) out[i] = t[in[i]];
}

static inline __m256i whole(__m256i sum) {
  return _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(1e-4f)));
}

static inline __m256i luma16(const uint8_t *r, const uint8_t *g, const uint8_t *b) {
  const __m256i rg = _mm256_set1_epi32(STK_FLAT_G << 16 | STK_FLAT_R), b0 = _mm256_set1_epi32(STK_FLAT_B);
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)r));
  const __m256i y = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)g));
  const __m256i z = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)b)), none = _mm256_setzero_si256();
  const __m256i lo = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(x, y), rg),
                                      _mm256_madd_epi16(_mm256_unpacklo_epi16(z, none), b0));
  const __m256i hi = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(x, y), rg),
                                      _mm256_madd_epi16(_mm256_unpackhi_epi16(z, none), b0));
  return _mm256_packs_epi32(whole(lo), whole(hi));
}

static void flat_luma(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *y, int n) {
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i x = _mm256_packus_epi16(luma16(r + i, g + i, b + i), luma16(r + i + 16, g + i + 16, b + i + 16));
    _mm256_storeu_si256((__m256i *)(y + i), _mm256_permute4x64_epi64(x, 0xd8));
  }
  stk_colours_base.flat_luma(r + i, g + i, b + i, y + i, n - i);
}

typedef __m256i vec;
enum { LANES = 16 };
#define SPREAD(x) _mm256_set1_epi16(x)
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, x) _mm256_storeu_si256((__m256i *)(p), x)
#define ADD(x, y) _mm256_add_epi16(x, y)
#define MULTIPLY(x, y) _mm256_mulhi_epu16(x, y)
#define SHIFT(x, n) _mm256_srli_epi16(x, n)
#define NARROW(p, x, y) _mm256_storeu_si256((__m256i *)(p), _mm256_permute4x64_epi64(_mm256_packus_epi16(x, y), 0xd8))
#include "blur.h"

#include "noise.h"
#define STK_COLOURS stk_colours_avx2
#include "colour.h"
#endif
