// MixUp of numbers of 16 bits in AVX2, with the conversions of float16 in F16C.
#ifdef __x86_64__
#pragma GCC target("avx2,f16c")
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math")
#endif
#include "mix.h"

#include <immintrin.h>

static inline __m256 wide8(__m128i h) { return _mm256_cvtph_ps(h); }
static inline __m128i narrow8(__m256 v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }

BLEND(tail, uint16_t, float, stk_of_float16, stk_float16)

static void blend_f16(uint16_t *restrict own, const uint16_t *restrict before, size_t n, float k, float r) {
  const __m256 k8 = _mm256_set1_ps(k), r8 = _mm256_set1_ps(r);
  size_t j = 0;
  for (; j + 8 <= n; j += 8) {
    const __m256 was = wide8(_mm_loadu_si128((const __m128i *)(before + j))), now = wide8(_mm_loadu_si128((const __m128i *)(own + j)));
    const __m256 a = wide8(narrow8(_mm256_mul_ps(was, r8))), b = wide8(narrow8(_mm256_mul_ps(now, k8)));
    _mm_storeu_si128((__m128i *)(own + j), narrow8(_mm256_add_ps(a, b)));
  }
  blend_tail(own + j, before + j, n - j, k, r);
}

BLEND(bf16, uint16_t, float, stk_of_bfloat16, stk_bfloat16)

MIX(stk_mix_f16_avx2, f16, uint16_t, float)
MIX(stk_mix_bf16_avx2, bf16, uint16_t, float)
#endif
