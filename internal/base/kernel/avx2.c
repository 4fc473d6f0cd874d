// AVX2 (Haswell, Zen and later).
//
// Horizontal: eight elements of the output at a time, four in each half of a
// register, which has 16 source bytes. pshufb brings two taps of each side by
// side as 16-bit numbers, by a table, and pmaddwd applies both weights. Where
// pictures shrink so much that 16 bytes do not hold the taps of two neighbours,
// each half has one pixel, and its fourth lane is wasted.
#include "stk.h"

#ifdef __x86_64__
#pragma GCC target("avx2")
#pragma GCC optimize("O3", "fp-contract=off")
#include <immintrin.h>
#include <string.h>

typedef struct {
  __m256i half, down, up, most;
} consts;

static inline consts consts_of(int prec, const int big) {
  return (consts){_mm256_set1_epi32(1 << prec >> 1), _mm256_set1_epi32(prec),
                  _mm256_set1_epi32(big ? prec - 16 : 16 - prec), _mm256_set1_epi32((256 << prec) - 1)};
}

// within clamps a sum to those of the bytes 0 to 255.
static inline __m256i within(__m256i sum, __m256i most) {
  return _mm256_min_epi32(_mm256_max_epi32(sum, _mm256_setzero_si256()), most);
}

// join puts the results of two rows into the halves of each lane.
static inline __m256i join(__m256i a, __m256i b, const consts *k, const int big, const int clamp) {
  if (clamp) {
    a = within(a, k->most);
    b = within(b, k->most);
  }
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
                          const int big, const int clamp) {
  const consts k = consts_of(h->prec, big);
  const __m256i dense = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
  const int32_t *off = h->off;
  const __m256i *w = (const __m256i *)h->coef;
  const uint8_t *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
  for (int g = 0; g < h->groups; g++, off += 2, w += pairs, lo += 6, hi += 6) {
    __m256i a = join(h_sum(r0, off, w, pairs, k.half), h_sum(r1, off, w, pairs, k.half), &k, big, clamp);
    __m256i b = join(h_sum(r2, off, w, pairs, k.half), h_sum(r3, off, w, pairs, k.half), &k, big, clamp);
    _mm256_storeu_si256((__m256i *)lo, _mm256_permutevar8x32_epi32(a, dense));
    _mm256_storeu_si256((__m256i *)hi, _mm256_permutevar8x32_epi32(b, dense));
  }
}

#define ROWS const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi
static void h_1(ROWS) { h_rows(h, row, lo, hi, 1, 0, 0); }
static void h_2(ROWS) { h_rows(h, row, lo, hi, 2, 0, 0); }
static void h_3(ROWS) { h_rows(h, row, lo, hi, 3, 0, 0); }
static void h_4(ROWS) { h_rows(h, row, lo, hi, 4, 0, 0); }
static void h_n(ROWS) { h_rows(h, row, lo, hi, h->pairs, 0, 0); }
static void h_big(ROWS) { h_rows(h, row, lo, hi, h->pairs, 1, 1); }
static void h_clamp(ROWS) { h_rows(h, row, lo, hi, h->pairs, 0, 1); }

// Eight elements at a time, of any pixel and channel: the first two taps of each are
// within the 16 bytes from the base of its half. shared: so are all other taps.
static inline void h_dense(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi, const int c,
                           const int pairs, const int shared, const int big, const int clamp) {
  const consts k = consts_of(h->prec, big);
  const __m256i step = _mm256_set1_epi8((char)(2 * c));
  const int32_t *off = h->off;
  const __m256i *w = (const __m256i *)h->coef, *idx = (const __m256i *)h->idx;
  const uint8_t *const src[4] = {row[0], row[1], row[2], row[3]};
  const int groups = h->groups;
  for (int g = 0; g < groups; g++, off += 2, w += pairs) {
    __m256i a[4];
    for (int r = 0; r < 4; r++) {
      const uint8_t *p = src[r] + off[0], *q = src[r] + off[1];
      __m256i s = load2(p, q), at = idx[g];
      a[r] = _mm256_add_epi32(k.half, _mm256_madd_epi16(_mm256_shuffle_epi8(s, at), w[0]));
      for (int t = 1; t < pairs; t++) {
        if (shared)
          at = _mm256_add_epi8(at, step);
        else
          s = load2(p + 2 * c * t, q + 2 * c * t);
        a[r] = _mm256_add_epi32(a[r], _mm256_madd_epi16(_mm256_shuffle_epi8(s, at), w[t]));
      }
    }
    _mm256_storeu_si256((__m256i *)lo + g, join(a[0], a[1], &k, big, clamp));
    _mm256_storeu_si256((__m256i *)hi + g, join(a[2], a[3], &k, big, clamp));
  }
}

static void h_dense_1(ROWS) { h_dense(h, row, lo, hi, 3, 1, 1, 0, 0); }
static void h_dense_2(ROWS) { h_dense(h, row, lo, hi, 3, 2, 1, 0, 0); }
static void h_apart_2(ROWS) { h_dense(h, row, lo, hi, 3, 2, 0, 0, 0); }
static void h_apart_3(ROWS) { h_dense(h, row, lo, hi, 3, 3, 0, 0, 0); }
static void h_apart_n(ROWS) { h_dense(h, row, lo, hi, 3, h->pairs, 0, 0, 0); }
static void h_apart_clamp_3(ROWS) { h_dense(h, row, lo, hi, 3, 3, 0, 0, 1); }
static void h_apart_clamp_4(ROWS) { h_dense(h, row, lo, hi, 3, 4, 0, 0, 1); }
static void h_apart_clamp(ROWS) { h_dense(h, row, lo, hi, 3, h->pairs, 0, 0, 1); }
static void h_apart_big(ROWS) { h_dense(h, row, lo, hi, 3, h->pairs, 0, 1, 1); }
static void h_gray_2(ROWS) { h_dense(h, row, lo, hi, 1, 2, 0, 0, 0); }
static void h_gray_n(ROWS) { h_dense(h, row, lo, hi, 1, h->pairs, 0, 0, 0); }
static void h_gray_clamp(ROWS) { h_dense(h, row, lo, hi, 1, h->pairs, 0, 0, 1); }
static void h_gray_big(ROWS) { h_dense(h, row, lo, hi, 1, h->pairs, 0, 1, 1); }

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
  h->run = h->prec > 16 ? h_big : h->clamp ? h_clamp : h->pairs <= 4 ? runs[h->pairs - 1] : h_n;
}

// least is the smallest dword of each half, copied to all of its lanes.
static inline __m256i least(__m256i x) {
  x = _mm256_min_epi32(x, _mm256_shuffle_epi32(x, 0x4e));
  return _mm256_min_epi32(x, _mm256_shuffle_epi32(x, 0xb1));
}

// prep_dense reports whether the shuffles suffice. Lanes past the last pixel read
// where that one does.
static int prep_dense(stk_lane *l, stk_hplan *h) {
  static const uint8_t pixel[24] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7};
  static const uint8_t channel[24] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
  const stk_axis *a = h->axis;
  const int c = h->c, pairs = h->pairs;
  h->groups = (h->elems + 7) / 8;
  h->off = stk_grow(l, &h->b_off, ((size_t)h->groups + 2) * 8);
  h->idx = stk_grow(l, &h->b_idx, ((size_t)h->groups + 2) * 32);
  h->coef = stk_grow(l, &h->b_coef, ((size_t)h->groups + 2) * pairs * 32);
  __m256i *idx = (__m256i *)h->idx, *coef = (__m256i *)h->coef, far = _mm256_setzero_si256();
  int32_t *off = h->off;
  for (int x = 0; x < a->n; x += 8, idx += c, coef += (size_t)c * pairs, off += 2 * c) {
    const __m256i start = _mm256_loadu_si256((const __m256i *)(a->start + x)), last = _mm256_set1_epi32(a->n - 1 - x);
    __m256i of[3];
    for (int m = 0; m < c; m++) {
      of[m] = c == 1 ? _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
                     : _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(pixel + 8 * m)));
      of[m] = _mm256_min_epi32(of[m], last);
      __m256i at = _mm256_permutevar8x32_epi32(start, of[m]);
      if (c == 3)
        at = _mm256_add_epi32(_mm256_add_epi32(at, _mm256_slli_epi32(at, 1)),
                              _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(channel + 8 * m))));
      const __m256i base = least(at);
      off[2 * m] = _mm256_extract_epi32(base, 0);
      off[2 * m + 1] = _mm256_extract_epi32(base, 4);
      at = _mm256_sub_epi32(at, base);
      far = _mm256_max_epi32(far, at);
      const __m256i next = _mm256_slli_epi32(_mm256_add_epi32(at, _mm256_set1_epi32(c)), 16);
      idx[m] = _mm256_or_si256(_mm256_or_si256(at, next), _mm256_set1_epi32((int)0x80008000));
    }
    for (int p = 0; p < pairs; p++) {
      uint32_t w[8];
      for (int i = 0; i < 8; i++) memcpy(&w[i], a->w + (size_t)(x + i < a->n ? x + i : a->n - 1) * a->k + 2 * p, 4);
      const __m256i all = _mm256_loadu_si256((const __m256i *)w);
      for (int m = 0; m < c; m++) coef[(size_t)m * pairs + p] = _mm256_permutevar8x32_epi32(all, of[m]);
    }
  }
  int32_t most[8];
  _mm256_storeu_si256((__m256i *)most, far);
  for (int i = 1; i < 8; i++) most[0] = most[i] > most[0] ? most[i] : most[0];
  const int reach = most[0] + c;  // of the first two taps
  if (reach > 15) return 0;
  if (h->prec > 16)
    h->run = c == 3 ? h_apart_big : h_gray_big;
  else if (h->clamp)
    h->run = c == 1 ? h_gray_clamp : pairs == 3 ? h_apart_clamp_3 : pairs == 4 ? h_apart_clamp_4 : h_apart_clamp;
  else if (c == 1)
    h->run = pairs == 2 ? h_gray_2 : h_gray_n;
  else if (pairs == 2)
    h->run = reach + 2 * c <= 15 ? h_dense_2 : h_apart_2;
  else
    h->run = pairs == 1 ? h_dense_1 : pairs == 3 ? h_apart_3 : h_apart_n;
  return 1;
}

void stk_avx2_hprep(stk_lane *l, stk_hplan *h) {
  h->pairs = h->axis->k / 2;
  if (prep_dense(l, h)) return;
  if (h->c == 3)
    prep_rgb(l, h);
  else
    stk_base_hprep(l, h);
}

typedef struct {
  const uint32_t *pair[STK_PAIRS];
  __m256i w[STK_PAIRS], half, down, most;
} rows;

static inline void rows_of(rows *r, const uint32_t *const *pair, const uint32_t *wp, int npair, int prec) {
  for (int p = 0; p < npair; p++) {
    r->pair[p] = pair[p];
    r->w[p] = _mm256_set1_epi32((int)wp[p]);
  }
  r->half = _mm256_set1_epi32(1 << prec >> 1);
  r->down = _mm256_set1_epi32(prec);
  r->most = _mm256_set1_epi32((256 << prec) - 1);
}

static inline __m256i v_sum(const rows *r, const int npair, const int clamp, int e) {
  __m256i a = r->half;
  for (int p = 0; p < npair; p++)
    a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_load_si256((const __m256i *)(r->pair[p] + e)), r->w[p]));
  return _mm256_srlv_epi32(clamp ? within(a, r->most) : a, r->down);
}

static inline void v_rows(uint8_t *out, STK_VERTICAL) {
  rows r;
  rows_of(&r, pair, wp, npair, prec);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int e = 0; e < n; e += 32) {
    const __m256i a = _mm256_packs_epi32(v_sum(&r, npair, clamp, e), v_sum(&r, npair, clamp, e + 8));
    const __m256i b = _mm256_packs_epi32(v_sum(&r, npair, clamp, e + 16), v_sum(&r, npair, clamp, e + 24));
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

// A sum that is clamped has more rows, as a rule: no loop of its own for each number.
#define BY_NUMBER(rows, ...)                                  \
  if (clamp) {                                                \
    rows(__VA_ARGS__, pair, wp, npair, n, prec, 1);           \
    return;                                                   \
  }                                                           \
  switch (npair) {                                            \
  case 1: rows(__VA_ARGS__, pair, wp, 1, n, prec, 0); return; \
  case 2: rows(__VA_ARGS__, pair, wp, 2, n, prec, 0); return; \
  case 3: rows(__VA_ARGS__, pair, wp, 3, n, prec, 0); return; \
  }                                                           \
  rows(__VA_ARGS__, pair, wp, npair, n, prec, 0)

static void v(uint8_t *out, STK_VERTICAL) {
  if (npair > STK_PAIRS) {
    stk_base.v(out, pair, wp, npair, n, prec, clamp);
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

// With 24 elements in three registers, lane i of register m has channel (2m + i) % 3:
// each channel of 8 pixels is a blend of all three, in a different order.
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
    const __m256i p = v_sum(&r, npair, clamp, e), q = v_sum(&r, npair, clamp, e + 8), t = v_sum(&r, npair, clamp, e + 16);
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
      put8(out + e + i, n - e - i, affine(v_sum(&r, npair, clamp, e + i), _mm256_loadu_ps(s + i), _mm256_loadu_ps(b + i)));
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

// luma: 16-bit weights do not fit pmaddwd's signed operands, so green's is split in
// two.
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

const stk_target stk_avx2 = {"avx2", stk_avx2_weigh, stk_avx2_fix, stk_avx2_hprep, v, NULL, v_float_planes, v_floats,
                             planes, f32, f32_rgb, luma, mirror, &stk_samples_avx2, &stk_colours_avx2, stk_warp_avx2};
#endif
