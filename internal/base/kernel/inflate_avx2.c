// inflate_loop.h with shifts that leave flags and other registers alone (BMI2), and sums in
// AVX2: Haswell, Zen and later.
#ifdef __x86_64__
#pragma GCC target("avx2,bmi,bmi2")
#pragma GCC optimize("O3")
#define FAST stk_inflate_fast_avx2
#include "inflate_loop.h"

#include <immintrin.h>

static inline uint32_t total(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return (uint32_t)_mm_cvtsi128_si32(s);
}

// For 32 bytes, psadbw makes the sum, and pmaddubsw and pmaddwd the sum weighted by
// 32 to 1. The sums before each 32 bytes count 32 times; before adds them up.
uint32_t stk_adler32_avx2(uint32_t sum, const uint8_t *p, size_t n) {
  const __m256i weight = _mm256_setr_epi8(32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11,
                                          10, 9, 8, 7, 6, 5, 4, 3, 2, 1);
  const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi16(1);
  uint32_t a = sum & 0xffff, b = sum >> 16;
  while (n) {
    size_t k = n < 5536 ? n : 5536; // 173 times 32
    n -= k;
    b += a * (uint32_t)(k & ~(size_t)31);
    __m256i all = zero, before = zero, steps = zero;
    for (; k >= 32; k -= 32, p += 32) {
      const __m256i v = _mm256_loadu_si256((const __m256i *)p);
      before = _mm256_add_epi32(before, all);
      all = _mm256_add_epi32(all, _mm256_sad_epu8(v, zero));
      steps = _mm256_add_epi32(steps, _mm256_madd_epi16(_mm256_maddubs_epi16(v, weight), one));
    }
    a += total(all);
    b += 32 * total(before) + total(steps);
    for (; k; k--) b += a += *p++;
    a %= 65521;
    b %= 65521;
  }
  return b << 16 | a;
}
#endif
