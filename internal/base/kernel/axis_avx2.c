// An axis's weights in AVX2, which higher targets use too: four outputs side by side.
// The operations of an output are the plain code's, in its order, so all bits are
// equal.
#include "stk.h"

#ifdef __x86_64__
#pragma GCC target("avx2")
#pragma GCC optimize("O3", "fp-contract=off")
#include <immintrin.h>

// keys is the cubic of axis.c.
static inline __m256d keys(__m256d x) {
#define K(v) _mm256_set1_pd(v)
  const __m256d near = _mm256_add_pd(_mm256_mul_pd(_mm256_mul_pd(_mm256_sub_pd(_mm256_mul_pd(K(1.5), x), K(2.5)), x), x), K(1));
  const __m256d line = _mm256_add_pd(_mm256_mul_pd(K(-0.5), x), K(2.5));
  const __m256d far = _mm256_add_pd(_mm256_mul_pd(_mm256_sub_pd(_mm256_mul_pd(line, x), K(4)), x), K(2));
  const __m256d in = _mm256_and_pd(far, _mm256_cmp_pd(x, K(2), _CMP_LT_OQ));
  return _mm256_blendv_pd(in, near, _mm256_cmp_pd(x, K(1), _CMP_LT_OQ));
#undef K
}

static inline double weigh_taps(const stk_filter *f, int i, int n, double *w, int32_t *start, int32_t *cnt,
                                const int most_taps, const int cubic) {
  const __m256d scale = _mm256_set1_pd(f->scale), support = _mm256_set1_pd(f->support), inv = _mm256_set1_pd(f->inv);
  const __m256d first = _mm256_set1_pd(f->at);
  const __m256d half = _mm256_set1_pd(0.5), one = _mm256_set1_pd(1), zero = _mm256_setzero_pd();
  const __m256d sign = _mm256_set1_pd(-0.0);
  const __m128i last = _mm_set1_epi32(i + n - 1), in = _mm_set1_epi32(f->in), taps = _mm_set1_epi32(most_taps);
  __m256d most = zero;
  for (int x = 0; x < n; x += SIDE, w += (size_t)SIDE * most_taps) {
    const __m128i at = _mm_min_epi32(_mm_add_epi32(_mm_set1_epi32(i + x), _mm_setr_epi32(0, 1, 2, 3)), last);
    const __m256d center = _mm256_add_pd(_mm256_mul_pd(scale, _mm256_add_pd(_mm256_cvtepi32_pd(at), half)), first);
    __m128i a = _mm256_cvttpd_epi32(_mm256_add_pd(_mm256_sub_pd(center, support), half));
    __m128i c = _mm256_cvttpd_epi32(_mm256_add_pd(_mm256_add_pd(center, support), half));
    a = _mm_max_epi32(a, _mm_setzero_si128());
    c = _mm_min_epi32(_mm_max_epi32(_mm_sub_epi32(_mm_min_epi32(c, in), a), _mm_setzero_si128()), taps);
    _mm_storeu_si128((__m128i *)(start + x), a);
    _mm_storeu_si128((__m128i *)(cnt + x), c);
    const __m256d end = _mm256_cvtepi32_pd(_mm_add_epi32(a, c));
    __m256d sum = zero, tap = _mm256_cvtepi32_pd(a);
    for (int j = 0; j < most_taps; j++) {
      __m256d d = _mm256_mul_pd(_mm256_add_pd(_mm256_sub_pd(tap, center), half), inv);
      d = _mm256_andnot_pd(sign, d);
      d = cubic ? keys(d) : _mm256_max_pd(_mm256_sub_pd(one, d), zero);
      d = _mm256_and_pd(d, _mm256_cmp_pd(tap, end, _CMP_LT_OQ));
      sum = _mm256_add_pd(sum, d);
      _mm256_storeu_pd(w + SIDE * j, d);
      tap = _mm256_add_pd(tap, one);
    }
    sum = _mm256_blendv_pd(sum, one, _mm256_cmp_pd(sum, zero, _CMP_EQ_OQ));
    for (int j = 0; j < most_taps; j++) {
      const __m256d v = _mm256_div_pd(_mm256_loadu_pd(w + SIDE * j), sum);
      most = _mm256_max_pd(most, v);
      _mm256_storeu_pd(w + SIDE * j, v);
    }
  }
  double m[4];
  _mm256_storeu_pd(m, most);
  for (int l = 1; l < 4; l++) m[0] = m[l] > m[0] ? m[l] : m[0];
  return m[0];
}

double stk_avx2_weigh(const stk_filter *f, int i, int n, double *w, int32_t *start, int32_t *cnt) {
  if (f->cubic) return weigh_taps(f, i, n, w, start, cnt, f->taps, 1);
  switch (f->taps) {
  case 3: return weigh_taps(f, i, n, w, start, cnt, 3, 0);
  case 4: return weigh_taps(f, i, n, w, start, cnt, 4, 0);
  }
  return weigh_taps(f, i, n, w, start, cnt, f->taps, 0);
}

static inline int32_t greatest(__m128i x) {
  x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

// fix4: at most four taps, of a triangle: no weight is negative. The weights of an output are one 64-bit number; leading
// zero weights are shifted out of it.
static inline void fix4(stk_lane *l, const stk_filter *f, stk_axis *a, const double *w, const int taps) {
  const __m256d one = _mm256_set1_pd(1 << a->prec), half = _mm256_set1_pd(0.5);
  const __m128i zero = _mm_setzero_si128(), four = _mm_set1_epi32(4);
  __m128i lo = _mm_set1_epi32(f->in), hi = zero, worst = zero, most = zero;
  uint64_t *d = stk_grow(l, &a->b_w, (size_t)a->n * 8 + 8 * SIDE);
  a->w = (int16_t *)d;
  for (int x = 0; x < a->n; x += SIDE, w += SIDE * taps, d += SIDE) {
    __m128i q[4] = {zero, zero, zero, zero}, first = four, end = zero, sum = zero;
    for (int j = taps; j-- > 0;) {
      const __m256d v = _mm256_loadu_pd(w + SIDE * j);
      q[j] = _mm256_cvttpd_epi32(_mm256_add_pd(half, _mm256_mul_pd(v, one)));
      const __m128i none = _mm_cmpeq_epi32(q[j], zero);
      first = _mm_blendv_epi8(_mm_set1_epi32(j), first, none);
      end = _mm_max_epi32(end, _mm_andnot_si128(none, _mm_set1_epi32(j + 1)));
      sum = _mm_add_epi32(sum, q[j]);
    }
    first = _mm_andnot_si128(_mm_cmpeq_epi32(end, zero), first);
    const __m128i start = _mm_add_epi32(_mm_loadu_si128((__m128i *)(a->start + x)), first);
    const __m128i cnt = _mm_max_epi32(_mm_sub_epi32(end, first), _mm_set1_epi32(1));
    _mm_storeu_si128((__m128i *)(a->start + x), start);
    _mm_storeu_si128((__m128i *)(a->cnt + x), cnt);
    lo = _mm_min_epi32(lo, start);
    hi = _mm_max_epi32(hi, _mm_add_epi32(start, cnt));
    worst = _mm_max_epi32(worst, sum);
    most = _mm_max_epi32(most, cnt);
    const __m128i even = _mm_or_si128(q[0], _mm_slli_epi32(q[1], 16));
    const __m128i odd = _mm_or_si128(q[2], _mm_slli_epi32(q[3], 16));
    const __m128i bits = _mm_slli_epi32(first, 4);
    const __m128i a01 = _mm_srlv_epi64(_mm_unpacklo_epi32(even, odd), _mm_unpacklo_epi32(bits, zero));
    const __m128i a23 = _mm_srlv_epi64(_mm_unpackhi_epi32(even, odd), _mm_unpackhi_epi32(bits, zero));
    _mm_storeu_si128((__m128i *)d, a01);
    _mm_storeu_si128((__m128i *)d + 1, a23);
  }
  a->k = greatest(most) > 2 ? 4 : 2;
  if (a->k == 2) {
    uint32_t *pair = (uint32_t *)a->w;
    for (int x = 1; x < a->n; x++) pair[x] = pair[2 * x];
  }
  const __m128i low = _mm_sub_epi32(zero, lo);
  stk_axis_bound(a, -greatest(low), greatest(hi), 0, greatest(worst));
}

void stk_avx2_fix(stk_lane *l, const stk_filter *f, stk_axis *a, const double *w) {
  switch (f->taps) {
  case 3: fix4(l, f, a, w, 3); return;
  case 4: fix4(l, f, a, w, 4); return;
  }
  stk_axis_fix(l, f, a, w);
}
#endif
