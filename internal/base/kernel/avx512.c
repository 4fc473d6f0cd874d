// AVX-512 (BW, VL, VBMI, VNNI: Ice Lake, Zen 4 and later).
//
// Horizontal: 16 elements of the output at a time, whatever their pixel or
// channel. One load holds all source bytes that they need; vpermb brings four
// taps of each element side by side. A weight is 256 * high + low, both of 8
// bits with a sign, for vpdpbusd: the sum of the high parts, shifted left by 8,
// is where that of the low parts begins. Two taps are enlarged for vpdpwssd
// instead. vpmultishiftqb takes eight bits at prec from each sum and puts them
// where the pair row wants them.
//
//	vpermb      | t0 t1 t2 t3 | t0 t1 t2 t3 | ...     four taps of an element
//	vpdpbusd    | sum         | sum         | ...     one dword each
//	multishift  | r0  0 r1  0 | r0  0 r1  0 | ...     rows 2j and 2j+1
#include "stk.h"

#ifdef __x86_64__
#pragma GCC optimize("O3", "fp-contract=off")
#include "avx512.h"
#include <string.h>

enum { LANES = 16, WIDE = 64 };

static inline __m512i load(const void *p) { return _mm512_loadu_si512(p); }

// within clamps a sum to those of the bytes 0 to 255: most is (256 << prec) - 1.
static inline __m512i within(__m512i sum, __m512i most) {
  return _mm512_min_epi32(_mm512_max_epi32(sum, _mm512_setzero_si512()), most);
}

// eight_at is vpmultishiftqb's table that takes the eight bits at prec of each
// dword, whichever byte of the dword they go to.
static inline __m512i eight_at(int prec) {
  return _mm512_set1_epi64((int64_t)(UINT64_C(0x01010101) * prec | UINT64_C(0x01010101) * (32 + prec) << 32));
}

#define BYTE(n) (0x1111111111111111u << (n))

// join puts the results of two rows into the halves of each dword.
static inline __m512i join(__m512i a, __m512i b, __m512i at) {
  return _mm512_mask_multishift_epi64_epi8(_mm512_maskz_multishift_epi64_epi8(BYTE(0), at, a), BYTE(2), at, b);
}

static inline __m512i two_taps(const uint8_t *p, const uint8_t *t, __m512i half) {
  const __m512i both = _mm512_maskz_permutexvar_epi8(BYTE(0) | BYTE(2), load(t), load(p));
  return _mm512_dpwssd_epi32(half, both, load(t + WIDE));
}

// The table of a group: shuffle, high weights, low weights; once more for each four
// further taps.
static inline __m512i four_taps(const uint8_t *p, const uint8_t *t, __m512i half) {
  const __m512i x = _mm512_permutexvar_epi8(load(t), load(p));
  const __m512i high = _mm512_dpbusd_epi32(half, x, load(t + WIDE));
  return _mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), x, load(t + 2 * WIDE));
}

static inline __m512i eight_taps(const uint8_t *p, int further, const uint8_t *t, __m512i half) {
  const __m512i x = _mm512_permutexvar_epi8(load(t), load(p));
  const __m512i y = _mm512_permutexvar_epi8(load(t), load(p + further));
  __m512i sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(half, x, load(t + WIDE)), y, load(t + 3 * WIDE));
  sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), x, load(t + 2 * WIDE));
  return _mm512_dpbusd_epi32(sum, y, load(t + 4 * WIDE));
}

enum { ENTRY_2 = 2 * WIDE, ENTRY_4 = 3 * WIDE, ENTRY_8 = 5 * WIDE };

static inline void h_rows(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi, const int taps,
                          const int clamp) {
  const int entry = taps == 2 ? ENTRY_2 : taps == 4 ? ENTRY_4 : ENTRY_8, further = 4 * h->c;
  const __m512i half = _mm512_set1_epi32(taps == 2 ? 1 << h->prec >> 1 : 1 << h->prec >> 9);
  const __m512i at = eight_at(h->prec), most = _mm512_set1_epi32((256 << h->prec) - 1);
  const uint8_t *t = h->idx;
  const uint8_t *r[4] = {row[0], row[1], row[2], row[3]};
  for (int g = 0; g < h->groups; g++, t += entry, lo += LANES, hi += LANES) {
    const int32_t off = h->off[g];
    __m512i a[4];
    for (int i = 0; i < 4; i++) {
      a[i] = taps == 2   ? two_taps(r[i] + off, t, half)
             : taps == 4 ? four_taps(r[i] + off, t, half)
                         : eight_taps(r[i] + off, further, t, half);
      if (clamp) a[i] = within(a[i], most);
    }
    _mm512_store_si512(lo, join(a[0], a[1], at));
    _mm512_store_si512(hi, join(a[2], a[3], at));
  }
}

#define ROWS const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi
static void h_2(ROWS) { h_rows(h, row, lo, hi, 2, 0); }
static void h_4(ROWS) { h_rows(h, row, lo, hi, 4, 0); }
static void h_8(ROWS) { h_rows(h, row, lo, hi, 8, 0); }
static void h_clamp_2(ROWS) { h_rows(h, row, lo, hi, 2, 1); }
static void h_clamp_4(ROWS) { h_rows(h, row, lo, hi, 4, 1); }
static void h_clamp_8(ROWS) { h_rows(h, row, lo, hi, 8, 1); }

// weights16 returns four weights, from tap t on, of 16 outputs from x on: their high
// and low parts.
static inline void weights16(const stk_axis *a, int x, int t, __m512i *high, __m512i *low) {
  uint64_t w[16];
  const int n = a->n - x < 16 ? a->n - x : 16, left = a->k - t;
  for (int i = 0; i < n; i++) {
    memcpy(&w[i], a->w + (size_t)(x + i) * a->k + t, 8);
    if (left < 4) w[i] &= 0xffffffffu;
  }
  for (int i = n; i < 16; i++) w[i] = 0;
  const __m512i p = load(w), q = load(w + 8), up = _mm512_set1_epi16(128);
  const __m256i lp = _mm512_cvtepi16_epi8(p), lq = _mm512_cvtepi16_epi8(q);
  const __m256i hp = _mm512_cvtepi16_epi8(_mm512_srai_epi16(_mm512_add_epi16(p, up), 8));
  const __m256i hq = _mm512_cvtepi16_epi8(_mm512_srai_epi16(_mm512_add_epi16(q, up), 8));
  *low = _mm512_inserti64x4(_mm512_castsi256_si512(lp), lq, 1);
  *high = _mm512_inserti64x4(_mm512_castsi256_si512(hp), hq, 1);
}

static void hprep(stk_lane *l, stk_hplan *h) {
  static const uint8_t pixel[48] = {0,  0,  0,  1,  1,  1,  2,  2,  2,  3,  3,  3,  4,  4,  4,  5,
                                    5,  5,  6,  6,  6,  7,  7,  7,  8,  8,  8,  9,  9,  9,  10, 10,
                                    10, 11, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 15};
  const stk_axis *a = h->axis;
  const int c = h->c, taps = a->k == 2 ? 2 : a->k <= 4 ? 4 : 8;
  const int entry = taps == 2 ? ENTRY_2 : taps == 4 ? ENTRY_4 : ENTRY_8;
  // A larger weight has no signed 8-bit high part.
  if (a->k > 8 || (taps > 2 && a->most > 127 * 256 + 127)) {
    stk_avx2_hprep(l, h);
    return;
  }
  h->groups = (h->elems + LANES - 1) / LANES;
  h->off = stk_grow(l, &h->b_off, (size_t)h->groups * 4);
  uint8_t *t = h->idx = stk_grow(l, &h->b_idx, (size_t)h->groups * entry);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i spread = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
  const __m512i step = _mm512_set1_epi32(taps == 2 ? c << 16 : (3 * c) << 24 | (2 * c) << 16 | c << 8);
  __m512i w[4] = {0}, worst = _mm512_setzero_si512();
  for (int g = 0; g < h->groups; g++, t += entry) {
    const int m = c == 3 ? g % 3 : 0, x = c == 3 ? g / 3 * 16 : g * 16;
    // Lanes past the last pixel read where that one does.
    __m512i of = c == 3 ? _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(pixel + 16 * m))) : lane;
    const __m512i element = _mm512_add_epi32(lane, _mm512_set1_epi32(16 * m));
    const __m512i ch = _mm512_sub_epi32(element, _mm512_mullo_epi32(of, _mm512_set1_epi32(c)));
    of = _mm512_min_epi32(of, _mm512_set1_epi32(a->n - 1 - x));
    __m512i at = _mm512_mullo_epi32(_mm512_permutexvar_epi32(of, load(a->start + x)), _mm512_set1_epi32(c));
    if (c == 3) at = _mm512_add_epi32(at, ch);
    const int base = _mm512_reduce_min_epi32(at);
    h->off[g] = base;
    at = _mm512_sub_epi32(at, _mm512_set1_epi32(base));
    worst = _mm512_max_epi32(worst, at);
    _mm512_store_si512(t, _mm512_add_epi8(_mm512_shuffle_epi8(at, spread), step));
    if (taps == 2) {
      _mm512_store_si512(t + WIDE, _mm512_permutexvar_epi32(of, load(a->w + (size_t)x * 2)));
      continue;
    }
    if (m == 0) {
      weights16(a, x, 0, &w[0], &w[1]);
      if (taps == 8) weights16(a, x, 4, &w[2], &w[3]);
    }
    for (int p = 0; p < taps / 2; p++) _mm512_store_si512(t + WIDE * (1 + p), _mm512_permutexvar_epi32(of, w[p]));
  }
  const int span = _mm512_reduce_max_epi32(worst) + (taps == 2 ? 2 : 4) * c;
  if (span > WIDE) {
    stk_avx2_hprep(l, h);
    return;
  }
  if (h->clamp)
    h->run = taps == 2 ? h_clamp_2 : taps == 4 ? h_clamp_4 : h_clamp_8;
  else
    h->run = taps == 2 ? h_2 : taps == 4 ? h_4 : h_8;
}

// Vertical.

typedef struct {
  const uint32_t *pair[STK_PAIRS];
  __m512i w[STK_PAIRS], half, at, most;
} rows;

static inline void rows_of(rows *r, const uint32_t *const *pair, const uint32_t *wp, int npair, int prec) {
  for (int p = 0; p < npair; p++) {
    r->pair[p] = pair[p];
    r->w[p] = _mm512_set1_epi32((int)wp[p]);
  }
  r->half = _mm512_set1_epi32(1 << prec >> 1);
  r->at = eight_at(prec);
  r->most = _mm512_set1_epi32((256 << prec) - 1);
}

static inline __m512i v_sum(const rows *r, const int npair, const int clamp, int e) {
  __m512i a = r->half;
  for (int p = 0; p < npair; p++) a = _mm512_dpwssd_epi32(a, load(r->pair[p] + e), r->w[p]);
  return clamp ? within(a, r->most) : a;
}

// quad makes elements e to e+48 or e+64: byte q of dword i is element 16q + i.
static inline __m512i quad(const rows *r, const int npair, const int clamp, int e, const int q) {
  __m512i x = _mm512_maskz_multishift_epi64_epi8(BYTE(0), r->at, v_sum(r, npair, clamp, e));
  x = _mm512_mask_multishift_epi64_epi8(x, BYTE(1), r->at, v_sum(r, npair, clamp, e + 16));
  x = _mm512_mask_multishift_epi64_epi8(x, BYTE(2), r->at, v_sum(r, npair, clamp, e + 32));
  if (q == 4) x = _mm512_mask_multishift_epi64_epi8(x, BYTE(3), r->at, v_sum(r, npair, clamp, e + 48));
  return x;
}

// The position of element e in quad.
#define AT(e) (4 * ((e) & 15) + ((e) >> 4))
#define AT4(e, by) AT(e), AT((e) + (by)), AT((e) + 2 * (by)), AT((e) + 3 * (by))
#define AT16(e, by) AT4(e, by), AT4((e) + 4 * (by), by), AT4((e) + 8 * (by), by), AT4((e) + 12 * (by), by)

static const uint8_t in_order[64] = {AT16(0, 1), AT16(16, 1), AT16(32, 1), AT16(48, 1)};
static const uint8_t by_channel[64] = {AT16(0, 3), AT16(1, 3), AT16(2, 3)};
static const uint32_t channel[3][16] = {{AT16(0, 3)}, {AT16(1, 3)}, {AT16(2, 3)}};

static inline void v_rows(uint8_t *out, STK_VERTICAL) {
  rows r;
  rows_of(&r, pair, wp, npair, prec);
  const __m512i order = load(in_order);
  for (int e = 0; e < n; e += 64) {
    const __m512i x = _mm512_permutexvar_epi8(order, quad(&r, npair, clamp, e, 4));
    if (n - e >= 64)
      _mm512_storeu_si512(out + e, x);
    else
      _mm512_mask_storeu_epi8(out + e, ~UINT64_C(0) >> (64 - (n - e)), x);
  }
}

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
    stk_avx2.v(out, pair, wp, npair, n, prec, clamp);
    return;
  }
  BY_NUMBER(v_rows, out);
}

static inline __mmask16 first(int n) { return (__mmask16)((1u << n) - 1); }

static inline void put16(uint8_t *out, int left, __m128i x) {
  if (left >= 16)
    _mm_storeu_si128((__m128i *)out, x);
  else
    _mm_mask_storeu_epi8(out, first(left), x);
}

static inline void put_floats(float *out, int left, __m512 x) {
  if (left >= 16)
    _mm512_storeu_ps(out, x);
  else
    _mm512_mask_storeu_ps(out, first(left), x);
}

static inline void planes_rows(uint8_t *const out[3], STK_VERTICAL) {
  rows r;
  rows_of(&r, pair, wp, npair, prec);
  uint8_t *d[3] = {out[0], out[1], out[2]};
  const __m512i order = load(by_channel);
  for (int e = 0, x = 0; e < n; e += 48, x += 16) {
    const __m512i p = _mm512_permutexvar_epi8(order, quad(&r, npair, clamp, e, 3));
    put16(d[0] + x, n / 3 - x, _mm512_castsi512_si128(p));
    put16(d[1] + x, n / 3 - x, _mm512_extracti32x4_epi32(p, 1));
    put16(d[2] + x, n / 3 - x, _mm512_extracti32x4_epi32(p, 2));
  }
}

static void v_planes(uint8_t *const out[3], STK_VERTICAL) { BY_NUMBER(planes_rows, out); }

static inline __m512 affine(__m512i x, __m512 scale, __m512 bias) {
  return _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(x), scale), bias);
}

static inline void float_planes_rows(float *const out[3], const float *scale, const float *bias, STK_VERTICAL) {
  rows r;
  rows_of(&r, pair, wp, npair, prec);
  float *d[3] = {out[0], out[1], out[2]};
  __m512i order[3];
  __m512 s[3], b[3];
  for (int c = 0; c < 3; c++) {
    order[c] = load(channel[c]);
    s[c] = _mm512_set1_ps(scale[c]);
    b[c] = _mm512_set1_ps(bias[c]);
  }
  for (int e = 0, x = 0; e < n; e += 48, x += 16) {
    const __m512i q = quad(&r, npair, clamp, e, 3);
    for (int c = 0; c < 3; c++)
      put_floats(d[c] + x, n / 3 - x, affine(_mm512_maskz_permutexvar_epi8(BYTE(0), order[c], q), s[c], b[c]));
  }
}

static void v_float_planes(float *const out[3], const float *scale, const float *bias, STK_VERTICAL) {
  BY_NUMBER(float_planes_rows, out, scale, bias);
}

// Element e's scale is scale[e % 3].
static inline void floats_rows(float *out, const float *scale, const float *bias, STK_VERTICAL) {
  rows r;
  rows_of(&r, pair, wp, npair, prec);
  float s[48], b[48];
  for (int i = 0; i < 48; i++) {
    s[i] = scale[i % 3];
    b[i] = bias[i % 3];
  }
  const __m512i down = _mm512_set1_epi32(prec);
  for (int e = 0; e < n; e += 48)
    for (int i = 0; i < 48 && e + i < n; i += 16) {
      const __m512i x = _mm512_srlv_epi32(v_sum(&r, npair, clamp, e + i), down);
      put_floats(out + e + i, n - e - i, affine(x, _mm512_loadu_ps(s + i), _mm512_loadu_ps(b + i)));
    }
}

static void v_floats(float *out, const float *scale, const float *bias, STK_VERTICAL) {
  BY_NUMBER(floats_rows, out, scale, bias);
}

// Wider registers would not help the rest.
static void planes(const uint8_t *rgb, uint8_t *r, uint8_t *g, uint8_t *b, int n) { stk_avx2.planes(rgb, r, g, b, n); }
static void f32(const uint8_t *in, float *out, int n, float s, float b) { stk_avx2.f32(in, out, n, s, b); }
static void f32_rgb(const uint8_t *in, float *out, int n, const float *s, const float *b) {
  stk_avx2.f32_rgb(in, out, n, s, b);
}
static void luma(const uint8_t *rgb, uint8_t *out, int n) { stk_avx2.luma(rgb, out, n); }
static void mirror(const uint8_t *in, uint8_t *out, int n, int c) { stk_avx2.mirror(in, out, n, c); }

const stk_target stk_avx512 = {"avx512", stk_avx2_weigh, stk_avx2_fix, hprep, v, v_planes, v_float_planes, v_floats,
                               planes, f32, f32_rgb, luma, mirror, &stk_samples_avx512, &stk_colours_avx512, stk_warp_avx2};
#endif
