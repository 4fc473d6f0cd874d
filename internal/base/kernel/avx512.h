// AVX-512 for the files that use it. With STK_SIMDE, SIMDe's plain C in its place, so that
// a processor without AVX-512 can test them (make test-avx512).
#ifndef STK_AVX512_H
#define STK_AVX512_H

#ifdef STK_SIMDE
#pragma GCC target("avx2")
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
// SIMDe 0.7.4 gives this one an argument too many.
#undef _mm512_maskz_multishift_epi64_epi8
#define _mm512_maskz_multishift_epi64_epi8 simde_mm512_maskz_multishift_epi64_epi8
// Those that it lacks.
#define STK_MASKED(name, vec, mask, type)                              \
  static inline void name(void *p, mask k, vec v) {                    \
    type t[sizeof v / sizeof(type)];                                   \
    __builtin_memcpy(t, &v, sizeof v);                                 \
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)                  \
      if (k >> i & 1) ((type *)p)[i] = t[i];                           \
  }
STK_MASKED(stk_mask_storeu_512, __m512i, __mmask64, uint8_t)
STK_MASKED(stk_mask_storeu_256, __m256i, __mmask32, uint8_t)
STK_MASKED(stk_mask_storeu_128, __m128i, __mmask16, uint8_t)
STK_MASKED(stk_mask_storeu_ps, __m512, __mmask16, float)
#define _mm512_mask_storeu_ps stk_mask_storeu_ps
static inline __m512i stk_mulhi_epu16(__m512i x, __m512i y) {
  uint16_t a[32], b[32];
  __builtin_memcpy(a, &x, sizeof a);
  __builtin_memcpy(b, &y, sizeof b);
  for (int i = 0; i < 32; i++) a[i] = (uint16_t)((uint32_t)a[i] * b[i] >> 16);
  __builtin_memcpy(&x, a, sizeof a);
  return x;
}
#define _mm512_mulhi_epu16(x, y) stk_mulhi_epu16(x, y)
typedef uint8_t stk_bytes16 __attribute__((vector_size(16)));
#define _mm512_cvtepu8_epi32(x) ((__m512i)__builtin_convertvector((stk_bytes16)(x), __v16si))
static inline int stk_reduce(__m512i x, int sign) {
  int32_t t[16], most;
  __builtin_memcpy(t, &x, sizeof t);
  most = t[0];
  for (int i = 1; i < 16; i++)
    if (sign * t[i] > sign * most) most = t[i];
  return most;
}
#define _mm512_reduce_max_epi32(x) stk_reduce(x, 1)
#define _mm512_reduce_min_epi32(x) stk_reduce(x, -1)
#define _mm512_cvtepi32_ps(x) ((__m512)__builtin_convertvector((__v16si)(x), __v16sf))
#define _mm512_mask_storeu_epi8 stk_mask_storeu_512
#define _mm256_mask_storeu_epi8 stk_mask_storeu_256
#define _mm_mask_storeu_epi8 stk_mask_storeu_128
#else
#pragma GCC target("avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")
#endif
#include <immintrin.h>
#endif
