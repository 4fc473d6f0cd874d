// AVX2 (Haswell, Zen and later).
//
// Horizontal, three channels: two output pixels at a time, one in each half of
// a register. A 16-byte load at a pixel's first tap holds five source pixels;
// pshufb brings two taps of each channel side by side as 16-bit numbers (the
// fourth lane is wasted), pmaddwd applies both weights. One channel: four
// output pixels in each half, by a shuffle table.
#include "stk.h"

#ifdef __x86_64__
#pragma GCC target("avx2")
#pragma GCC optimize("O3", "fp-contract=off")
#include <immintrin.h>
#include <string.h>

// Weights: four outputs side by side; within an output every operation is the
// plain one's, in its order, so all bits are.
static inline double weigh_taps(const stk_filter *f, int i, int n, double *w, int32_t *start, int32_t *cnt,
                                const int most_taps) {
  const __m256d scale = _mm256_set1_pd(f->scale), support = _mm256_set1_pd(f->support), inv = _mm256_set1_pd(f->inv);
  const __m256d half = _mm256_set1_pd(0.5), one = _mm256_set1_pd(1), zero = _mm256_setzero_pd();
  const __m256d sign = _mm256_set1_pd(-0.0);
  const __m128i last = _mm_set1_epi32(i + n - 1), in = _mm_set1_epi32(f->in), taps = _mm_set1_epi32(most_taps);
  __m256d most = zero;
  for (int x = 0; x < n; x += SIDE, w += (size_t)SIDE * most_taps) {
    const __m128i at = _mm_min_epi32(_mm_add_epi32(_mm_set1_epi32(i + x), _mm_setr_epi32(0, 1, 2, 3)), last);
    const __m256d center = _mm256_mul_pd(scale, _mm256_add_pd(_mm256_cvtepi32_pd(at), half));
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
      d = _mm256_max_pd(_mm256_sub_pd(one, _mm256_andnot_pd(sign, d)), zero);
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
  switch (f->taps) {
  case 3: return weigh_taps(f, i, n, w, start, cnt, 3);
  case 4: return weigh_taps(f, i, n, w, start, cnt, 4);
  }
  return weigh_taps(f, i, n, w, start, cnt, f->taps);
}

static inline int32_t greatest(__m128i x) {
  x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

// fix4: at most four taps. The weights of an output are one number of 64 bits; those of
// zero before the first are shifted out of it.
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
    const __m128i even = _mm_or_si128(q[0], _mm_slli_epi32(q[1], 16)), odd = _mm_or_si128(q[2], _mm_slli_epi32(q[3], 16));
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
  stk_axis_bound(a, -greatest(low), greatest(hi), greatest(worst));
}

void stk_avx2_fix(stk_lane *l, const stk_filter *f, stk_axis *a, const double *w) {
  switch (f->taps) {
  case 3: fix4(l, f, a, w, 3); return;
  case 4: fix4(l, f, a, w, 4); return;
  }
  stk_axis_fix(l, f, a, w);
}

typedef struct {
  __m256i half, down, up;
} consts;

static inline consts consts_of(int prec, const int big) {
  return (consts){_mm256_set1_epi32(1 << prec >> 1), _mm256_set1_epi32(prec),
                  _mm256_set1_epi32(big ? prec - 16 : 16 - prec)};
}

// join puts the results of two rows into the halves of each lane.
static inline __m256i join(__m256i a, __m256i b, const consts *k, const int big) {
  a = _mm256_srlv_epi32(a, k->down);
  b = big ? _mm256_srlv_epi32(b, k->up) : _mm256_sllv_epi32(b, k->up);
  return _mm256_blend_epi16(a, b, 0xaa);
}

static inline __m256i load2(const uint8_t *a, const uint8_t *b) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                 _mm_loadu_si128((const __m128i *)b), 1);
}

#define TAPS(a) \
  _mm256_setr_epi8(a, -1, a + 3, -1, a + 1, -1, a + 4, -1, a + 2, -1, a + 5, -1, -1, -1, -1, -1, a, -1, a + 3, -1, \
                   a + 1, -1, a + 4, -1, a + 2, -1, a + 5, -1, -1, -1, -1, -1)

static inline __m256i h_sum(const uint8_t *p, const int32_t *off, const __m256i *w, const int pairs, __m256i a) {
  const __m256i first = TAPS(0), second = TAPS(6);
  for (int q = 0; q < pairs; q += 2) {
    const __m256i s = load2(p + off[0] + 6 * q, p + off[1] + 6 * q);
    a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_shuffle_epi8(s, first), w[q]));
    if (q + 1 < pairs) a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_shuffle_epi8(s, second), w[q + 1]));
  }
  return a;
}

static inline void h_rows(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi, const int pairs,
                          const int big) {
  const consts k = consts_of(h->prec, big);
  const __m256i dense = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
  const int32_t *off = h->off;
  const __m256i *w = (const __m256i *)h->coef;
  const uint8_t *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
  for (int g = 0; g < h->groups; g++, off += 2, w += pairs, lo += 6, hi += 6) {
    __m256i a = join(h_sum(r0, off, w, pairs, k.half), h_sum(r1, off, w, pairs, k.half), &k, big);
    __m256i b = join(h_sum(r2, off, w, pairs, k.half), h_sum(r3, off, w, pairs, k.half), &k, big);
    _mm256_storeu_si256((__m256i *)lo, _mm256_permutevar8x32_epi32(a, dense));
    _mm256_storeu_si256((__m256i *)hi, _mm256_permutevar8x32_epi32(b, dense));
  }
}

#define ROWS const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi
static void h_1(ROWS) { h_rows(h, row, lo, hi, 1, 0); }
static void h_2(ROWS) { h_rows(h, row, lo, hi, 2, 0); }
static void h_3(ROWS) { h_rows(h, row, lo, hi, 3, 0); }
static void h_4(ROWS) { h_rows(h, row, lo, hi, 4, 0); }
static void h_n(ROWS) { h_rows(h, row, lo, hi, h->pairs, 0); }
static void h_big(ROWS) { h_rows(h, row, lo, hi, h->pairs, 1); }

// One channel: the first tap of every lane lies within 15 bytes of its half's base.
static inline void h_gray(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi, const int big) {
  const consts k = consts_of(h->prec, big);
  const int32_t *off = h->off;
  const __m256i *w = (const __m256i *)h->coef, *idx = (const __m256i *)h->idx;
  for (int g = 0; g < h->groups; g++, off += 2, w += h->pairs) {
    __m256i a[4] = {k.half, k.half, k.half, k.half};
    for (int p = 0; p < h->pairs; p++)
      for (int r = 0; r < 4; r++) {
        const __m256i s = load2(row[r] + off[0] + 2 * p, row[r] + off[1] + 2 * p);
        a[r] = _mm256_add_epi32(a[r], _mm256_madd_epi16(_mm256_shuffle_epi8(s, idx[g]), w[p]));
      }
    _mm256_storeu_si256((__m256i *)lo + g, join(a[0], a[1], &k, big));
    _mm256_storeu_si256((__m256i *)hi + g, join(a[2], a[3], &k, big));
  }
}

static void h_gray_n(ROWS) { h_gray(h, row, lo, hi, 0); }
static void h_gray_big(ROWS) { h_gray(h, row, lo, hi, 1); }

static void prep_rgb(stk_lane *l, stk_hplan *h) {
  const stk_axis *a = h->axis;
  h->groups = (a->n + 1) / 2;
  h->off = stk_grow(l, &h->b_off, (size_t)h->groups * 8);
  h->coef = stk_grow(l, &h->b_coef, (size_t)h->groups * h->pairs * 32);
  uint32_t *c = (uint32_t *)h->coef;
  for (int x = 0; x < 2 * h->groups; x++) {
    const int at = x < a->n ? x : a->n - 1;
    const uint32_t *w = (const uint32_t *)(a->w + (size_t)at * a->k);
    h->off[x] = a->start[at] * 3;
    uint32_t *d = c + (size_t)(x / 2) * h->pairs * 8 + (x & 1) * 4;
    for (int p = 0; p < h->pairs; p++, d += 8) d[0] = d[1] = d[2] = d[3] = w[p];
  }
  static stk_hfunc *const runs[] = {h_1, h_2, h_3, h_4};
  h->run = h->prec > 16 ? h_big : h->pairs <= 4 ? runs[h->pairs - 1] : h_n;
}

// prep_gray reports whether the shuffles suffice.
static int prep_gray(stk_lane *l, stk_hplan *h) {
  const stk_axis *a = h->axis;
  h->groups = (a->n + 7) / 8;
  h->off = stk_grow(l, &h->b_off, (size_t)h->groups * 8);
  h->idx = stk_grow(l, &h->b_idx, (size_t)h->groups * 32);
  h->coef = stk_grow(l, &h->b_coef, (size_t)h->groups * h->pairs * 32);
  memset(h->coef, 0, (size_t)h->groups * h->pairs * 32);
  uint32_t *idx = (uint32_t *)h->idx, *c = (uint32_t *)h->coef;
  for (int x = 0; x < 8 * h->groups; x += 4) {
    const int first = x < a->n ? x : a->n - 1, last = x + 3 < a->n ? x + 3 : a->n - 1;
    const int base = a->start[first] < a->start[last] ? a->start[first] : a->start[last];
    h->off[x / 4] = base;
    for (int i = x; i < x + 4; i++) {
      const int at = i < a->n ? i : last, d = a->start[at] - base;
      if (d + 1 > 15) return 0;
      idx[i] = 0x80008000u | (uint32_t)d | (uint32_t)(d + 1) << 16;
      const uint32_t *w = (const uint32_t *)(a->w + (size_t)at * a->k);
      for (int p = 0; p < h->pairs && i < a->n; p++) c[((size_t)(i / 8) * h->pairs + p) * 8 + i % 8] = w[p];
    }
  }
  h->run = h->prec > 16 ? h_gray_big : h_gray_n;
  return 1;
}

void stk_avx2_hprep(stk_lane *l, stk_hplan *h) {
  h->pairs = h->axis->k / 2;
  if (h->c == 3)
    prep_rgb(l, h);
  else if (!prep_gray(l, h))
    stk_base_hprep(l, h);
}

typedef struct {
  const uint32_t *pair[STK_PAIRS];
  __m256i w[STK_PAIRS], half, down;
} rows;

static inline void rows_of(rows *r, const uint32_t *const *pair, const uint32_t *wp, int npair, int prec) {
  for (int p = 0; p < npair; p++) {
    r->pair[p] = pair[p];
    r->w[p] = _mm256_set1_epi32((int)wp[p]);
  }
  r->half = _mm256_set1_epi32(1 << prec >> 1);
  r->down = _mm256_set1_epi32(prec);
}

static inline __m256i v_sum(const rows *r, const int npair, int e) {
  __m256i a = r->half;
  for (int p = 0; p < npair; p++)
    a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_load_si256((const __m256i *)(r->pair[p] + e)), r->w[p]));
  return _mm256_srlv_epi32(a, r->down);
}

static inline void v_rows(uint8_t *out, STK_VERTICAL) {
  rows r;
  rows_of(&r, pair, wp, npair, prec);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int e = 0; e < n; e += 32) {
    const __m256i a = _mm256_packs_epi32(v_sum(&r, npair, e), v_sum(&r, npair, e + 8));
    const __m256i b = _mm256_packs_epi32(v_sum(&r, npair, e + 16), v_sum(&r, npair, e + 24));
    const __m256i x = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order);
    if (n - e >= 32) {
      _mm256_storeu_si256((__m256i *)(out + e), x);
    } else {
      uint8_t t[32];
      _mm256_storeu_si256((__m256i *)t, x);
      memcpy(out + e, t, n - e);
    }
  }
}

#define BY_NUMBER(rows, ...)                               \
  switch (npair) {                                         \
  case 1: rows(__VA_ARGS__, pair, wp, 1, n, prec); return; \
  case 2: rows(__VA_ARGS__, pair, wp, 2, n, prec); return; \
  case 3: rows(__VA_ARGS__, pair, wp, 3, n, prec); return; \
  }                                                        \
  rows(__VA_ARGS__, pair, wp, npair, n, prec)

static void v(uint8_t *out, STK_VERTICAL) {
  if (npair > STK_PAIRS) {
    stk_base.v(out, pair, wp, npair, n, prec);
    return;
  }
  BY_NUMBER(v_rows, out);
}

static inline __m256 affine(__m256i x, __m256 scale, __m256 bias) {
  return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(x), scale), bias);
}

static inline void put8(float *out, int left, __m256 x) {
  if (left >= 8) {
    _mm256_storeu_ps(out, x);
  } else {
    float t[8];
    _mm256_storeu_ps(t, x);
    memcpy(out, t, left * sizeof *t);
  }
}

// Of 24 elements in three registers, lane i of register m has channel (2m + i) % 3: each
// channel of 8 pixels is a blend of all three, in another order.
static inline void float_planes_rows(float *const out[3], const float *scale, const float *bias, STK_VERTICAL) {
  rows r;
  rows_of(&r, pair, wp, npair, prec);
  float *d[3] = {out[0], out[1], out[2]};
  const __m256i order[3] = {_mm256_setr_epi32(0, 3, 6, 1, 4, 7, 2, 5), _mm256_setr_epi32(1, 4, 7, 2, 5, 0, 3, 6),
                            _mm256_setr_epi32(2, 5, 0, 3, 6, 1, 4, 7)};
  __m256 s[3], b[3];
  for (int c = 0; c < 3; c++) {
    s[c] = _mm256_set1_ps(scale[c]);
    b[c] = _mm256_set1_ps(bias[c]);
  }
  enum { L0 = 0x49, L1 = 0x92, L2 = 0x24 };  // lanes 0 3 6; 1 4 7; 2 5
  for (int e = 0, x = 0; e < n; e += 24, x += 8) {
    const __m256i p = v_sum(&r, npair, e), q = v_sum(&r, npair, e + 8), t = v_sum(&r, npair, e + 16);
    const __m256i c[3] = {_mm256_blend_epi32(_mm256_blend_epi32(p, q, L1), t, L2),
                          _mm256_blend_epi32(_mm256_blend_epi32(p, q, L2), t, L0),
                          _mm256_blend_epi32(_mm256_blend_epi32(p, q, L0), t, L1)};
    for (int k = 0; k < 3; k++)
      put8(d[k] + x, n / 3 - x, affine(_mm256_permutevar8x32_epi32(c[k], order[k]), s[k], b[k]));
  }
}

static inline void floats_rows(float *out, const float *scale, const float *bias, STK_VERTICAL) {
  rows r;
  rows_of(&r, pair, wp, npair, prec);
  float s[24], b[24];
  for (int i = 0; i < 24; i++) {
    s[i] = scale[i % 3];
    b[i] = bias[i % 3];
  }
  for (int e = 0; e < n; e += 24)
    for (int i = 0; i < 24 && e + i < n; i += 8)
      put8(out + e + i, n - e - i, affine(v_sum(&r, npair, e + i), _mm256_loadu_ps(s + i), _mm256_loadu_ps(b + i)));
}

static void v_float_planes(float *const out[3], const float *scale, const float *bias, STK_VERTICAL) {
  BY_NUMBER(float_planes_rows, out, scale, bias);
}

static void v_floats(float *out, const float *scale, const float *bias, STK_VERTICAL) {
  BY_NUMBER(floats_rows, out, scale, bias);
}

// gather3 collects channel c of 16 pixels from 48 bytes.
static inline __m128i gather3(__m128i x, __m128i y, __m128i z, const __m128i *at) {
  return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x, at[0]), _mm_shuffle_epi8(y, at[1])), _mm_shuffle_epi8(z, at[2]));
}

static inline void channel_tables(__m128i at[3][3]) {
  for (int c = 0; c < 3; c++)
    for (int part = 0; part < 3; part++) {
      int8_t t[16];
      for (int i = 0; i < 16; i++) {
        const int b = 3 * i + c - 16 * part;
        t[i] = (int8_t)(b >= 0 && b < 16 ? b : -1);
      }
      at[c][part] = _mm_loadu_si128((const __m128i *)t);
    }
}

static void planes(const uint8_t *rgb, uint8_t *r, uint8_t *g, uint8_t *b, int n) {
  __m128i at[3][3];
  channel_tables(at);
  int i = 0;
  for (; i + 16 <= n; i += 16, rgb += 48) {
    const __m128i x = _mm_loadu_si128((const __m128i *)rgb), y = _mm_loadu_si128((const __m128i *)(rgb + 16));
    const __m128i z = _mm_loadu_si128((const __m128i *)(rgb + 32));
    _mm_storeu_si128((__m128i *)(r + i), gather3(x, y, z, at[0]));
    _mm_storeu_si128((__m128i *)(g + i), gather3(x, y, z, at[1]));
    _mm_storeu_si128((__m128i *)(b + i), gather3(x, y, z, at[2]));
  }
  stk_base.planes(rgb, r + i, g + i, b + i, n - i);
}

static inline __m256 widen(const uint8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

static void f32(const uint8_t *in, float *out, int n, float scale, float bias) {
  const __m256 s = _mm256_set1_ps(scale), b = _mm256_set1_ps(bias);
  int i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_mul_ps(widen(in + i), s), b));
  stk_base.f32(in + i, out + i, n - i, scale, bias);
}

static void f32_rgb(const uint8_t *in, float *out, int n, const float *scale, const float *bias) {
  float s[24], b[24];
  for (int i = 0; i < 24; i++) {
    s[i] = scale[i % 3];
    b[i] = bias[i % 3];
  }
  int i = 0;
  for (; i + 8 <= n; i += 8, in += 24, out += 24)
    for (int k = 0; k < 24; k += 8)
      _mm256_storeu_ps(out + k, _mm256_add_ps(_mm256_mul_ps(widen(in + k), _mm256_loadu_ps(s + k)), _mm256_loadu_ps(b + k)));
  stk_base.f32_rgb(in, out, n - i, scale, bias);
}

// luma: weights of 16 bits do not fit pmaddwd's sign, so green's is split in two.
static void luma(const uint8_t *rgb, uint8_t *out, int n) {
  __m128i at[3][3];
  channel_tables(at);
  const __m256i rg = _mm256_set1_epi32(19595 | 19235 << 16), gb = _mm256_set1_epi32(19235 | 7471 << 16);
  const __m256i half = _mm256_set1_epi32(32768);
  int i = 0;
  for (; i + 16 <= n; i += 16, rgb += 48) {
    const __m128i x = _mm_loadu_si128((const __m128i *)rgb), y = _mm_loadu_si128((const __m128i *)(rgb + 16));
    const __m128i z = _mm_loadu_si128((const __m128i *)(rgb + 32));
    const __m256i r = _mm256_cvtepu8_epi16(gather3(x, y, z, at[0])), g = _mm256_cvtepu8_epi16(gather3(x, y, z, at[1]));
    const __m256i b = _mm256_cvtepu8_epi16(gather3(x, y, z, at[2]));
    __m256i lo = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(r, g), rg),
                                  _mm256_madd_epi16(_mm256_unpacklo_epi16(g, b), gb));
    __m256i hi = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(r, g), rg),
                                  _mm256_madd_epi16(_mm256_unpackhi_epi16(g, b), gb));
    lo = _mm256_srli_epi32(_mm256_add_epi32(lo, half), 16);
    hi = _mm256_srli_epi32(_mm256_add_epi32(hi, half), 16);
    const __m256i w = _mm256_packs_epi32(lo, hi);  // in order within each half
    const __m128i o = _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    _mm_storeu_si128((__m128i *)(out + i), o);
  }
  stk_base.luma(rgb, out + i, n - i);
}

// mirror takes five pixels, 15 bytes, at a time.
static void mirror(const uint8_t *in, uint8_t *out, int n, int c) {
  if (c == 1) {
    stk_base.mirror(in, out, n, c);
    return;
  }
  const __m128i back = _mm_setr_epi8(12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2, -1);
  int left = n;
  for (; left >= 6; left -= 5, out += 15) {
    const __m128i p = _mm_loadu_si128((const __m128i *)(in + 3 * (left - 5)));
    _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(p, back));
  }
  stk_base.mirror(in, out, left, c);
}

const stk_target stk_avx2 = {"avx2", stk_avx2_weigh, stk_avx2_fix, stk_avx2_hprep, v, NULL, v_float_planes, v_floats, planes, f32,
                              f32_rgb, luma, mirror, &stk_samples_avx2};
#endif
