// AVX-512 (BW, VL, VBMI, VNNI: Ice Lake, Zen 4 and later), in registers of 256
// bits. Those of 512 were faster in here and slower over all: for some hundred
// microseconds after each use the core runs at a lower clock, and so does
// libjpeg, which has nine tenths of the time.
//
// Horizontal: 8 elements of the output at a time, whatever their pixel or
// channel. One load holds all source bytes that they need; vpermb brings the
// two bytes of a pair of taps into the 16-bit halves of each element's lane
// (zeroing between them), and vpdpwssd applies both weights. The shuffle table
// of the second pair of taps is the first's plus the bytes of two pixels.
#include "stk.h"

#ifdef __x86_64__
#pragma GCC target("avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni,prefer-vector-width=256")
#pragma GCC optimize("O3", "fp-contract=off")
#include <immintrin.h>

enum { LANES = 8, WIDE = 32, LOW_BYTES = 0x55555555 };

typedef struct {
  __m256i half, down, up;
} consts;

// Where prec is big, the upper half's result moves down too.
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

static inline __m256i load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

static inline __m256i tap(__m256i sum, __m256i idx, __m256i pixels, __m256i w) {
  return _mm256_dpwssd_epi32(sum, _mm256_maskz_permutexvar_epi8(LOW_BYTES, idx, pixels), w);
}

// The table of a group: a vector of shuffle, then one of weights for each pair.
static inline void h_shared(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi, const int pairs) {
  const consts k = consts_of(h->prec, 0);
  const __m256i step = _mm256_set1_epi8((char)(2 * h->c));
  const uint8_t *t = h->idx;
  const uint8_t *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
  for (int g = 0; g < h->groups; g++, t += WIDE * (1 + pairs)) {
    const int32_t off = h->off[g];
    __m256i idx = load(t);
    const __m256i s0 = load(r0 + off), s1 = load(r1 + off), s2 = load(r2 + off), s3 = load(r3 + off);
    __m256i a0 = k.half, a1 = k.half, a2 = k.half, a3 = k.half;
    for (int p = 0; p < pairs; p++) {
      const __m256i w = load(t + WIDE + WIDE * p);
      a0 = tap(a0, idx, s0, w);
      a1 = tap(a1, idx, s1, w);
      a2 = tap(a2, idx, s2, w);
      a3 = tap(a3, idx, s3, w);
      if (p + 1 < pairs) idx = _mm256_add_epi8(idx, step);
    }
    _mm256_store_si256((__m256i *)lo + g, join(a0, a1, &k, 0));
    _mm256_store_si256((__m256i *)hi + g, join(a2, a3, &k, 0));
  }
}

// Where the taps of a group spread wider than a register, every pair has a load of its own.
static inline void h_apart(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi, const int pairs,
                           const int big) {
  const consts k = consts_of(h->prec, big);
  const uint8_t *t = h->idx;
  for (int g = 0; g < h->groups; g++, t += WIDE * (1 + pairs)) {
    int32_t off = h->off[g];
    const __m256i idx = load(t);
    __m256i a0 = k.half, a1 = k.half, a2 = k.half, a3 = k.half;
    for (int p = 0; p < pairs; p++, off += 2 * h->c) {
      const __m256i w = load(t + WIDE + WIDE * p);
      a0 = tap(a0, idx, load(row[0] + off), w);
      a1 = tap(a1, idx, load(row[1] + off), w);
      a2 = tap(a2, idx, load(row[2] + off), w);
      a3 = tap(a3, idx, load(row[3] + off), w);
    }
    _mm256_store_si256((__m256i *)lo + g, join(a0, a1, &k, big));
    _mm256_store_si256((__m256i *)hi + g, join(a2, a3, &k, big));
  }
}

#define ROWS const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi
static void h_1(ROWS) { h_shared(h, row, lo, hi, 1); }
static void h_2(ROWS) { h_shared(h, row, lo, hi, 2); }
static void h_3(ROWS) { h_shared(h, row, lo, hi, 3); }
static void h_apart_2(ROWS) { h_apart(h, row, lo, hi, 2, 0); }
static void h_apart_3(ROWS) { h_apart(h, row, lo, hi, 3, 0); }
static void h_apart_n(ROWS) { h_apart(h, row, lo, hi, h->pairs, 0); }
static void h_big(ROWS) { h_apart(h, row, lo, hi, h->pairs, 1); }

// put_group fills a group's table, its elements being e to e+m of the row, and
// returns the largest shuffle index, as far as it may exceed a byte.
static inline int put_group(const stk_hplan *h, uint8_t *t, int32_t *off, int e, int m, const int c) {
  const stk_axis *a = h->axis;
  const int pairs = h->pairs;
  int x = e / c, ch = e - x * c;
  const int last = (e + m - 1) / c;
  const int base = (a->start[x] < a->start[last] ? a->start[x] : a->start[last]) * c;
  uint32_t *idx = (uint32_t *)t;
  int most = 0;
  *off = base;
  for (int i = 0; i < m; x++, ch = 0) {
    const int at = a->start[x] * c - base;
    const uint32_t *w = (const uint32_t *)(a->w + (size_t)x * a->k);
    if (at > most) most = at;
    for (; ch < c && i < m; ch++, i++) {
      idx[i] = (uint32_t)(at + ch) | (uint32_t)(at + ch + c) << 16;
      for (int p = 0; p < pairs; p++) idx[LANES + LANES * p + i] = w[p];
    }
  }
  for (int i = m; i < LANES; i++)
    for (int p = -1; p < pairs; p++) idx[LANES + LANES * p + i] = 0;
  return most + 2 * c - 1;
}

static void hprep(stk_lane *l, stk_hplan *h) {
  enum { MOST_PAIRS = 64 };
  const stk_axis *a = h->axis;
  h->pairs = a->k / 2;
  h->groups = (h->elems + LANES - 1) / LANES;
  if (h->pairs > MOST_PAIRS) {
    stk_avx2_hprep(l, h);
    return;
  }
  const size_t entry = WIDE * (1 + (size_t)h->pairs);
  h->off = stk_grow(l, &h->b_off, (size_t)h->groups * 4);
  h->idx = stk_grow(l, &h->b_idx, h->groups * entry);
  int most = 0;
  for (int g = 0; g < h->groups; g++) {
    const int e = LANES * g, m = h->elems - e < LANES ? h->elems - e : LANES;
    uint8_t *t = h->idx + g * entry;
    const int top = h->c == 3 ? put_group(h, t, &h->off[g], e, m, 3) : put_group(h, t, &h->off[g], e, m, 1);
    if (top > most) most = top;
    if (most >= WIDE) {
      stk_avx2_hprep(l, h);
      return;
    }
  }
  static stk_hfunc *const shared[] = {h_1, h_2, h_3}, *const apart[] = {h_1, h_apart_2, h_apart_3};
  if (h->prec > 16)
    h->run = h_big;
  else if (h->pairs > 3)
    h->run = h_apart_n;
  else if (most + 2 * h->c * (h->pairs - 1) < WIDE)
    h->run = shared[h->pairs - 1];
  else
    h->run = apart[h->pairs - 1];
}

static inline __m256i v_sum(const uint32_t *const *pair, const __m256i *w, int npair, int e, __m256i a) {
  for (int p = 0; p < npair; p++) a = _mm256_dpwssd_epi32(a, load(pair[p] + e), w[p]);
  return a;
}

static inline void v_rows(uint8_t *out, const uint32_t *const *pair, const __m256i *w, const int npair, int n, int prec) {
  const __m256i half = _mm256_set1_epi32(1 << prec >> 1), down = _mm256_set1_epi32(prec);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int e = 0; e < n; e += 32) {
    __m256i a = _mm256_srav_epi32(v_sum(pair, w, npair, e, half), down);
    __m256i b = _mm256_srav_epi32(v_sum(pair, w, npair, e + 8, half), down);
    __m256i c = _mm256_srav_epi32(v_sum(pair, w, npair, e + 16, half), down);
    __m256i d = _mm256_srav_epi32(v_sum(pair, w, npair, e + 24, half), down);
    a = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    a = _mm256_permutevar8x32_epi32(a, order);
    if (n - e >= 32)
      _mm256_storeu_si256((__m256i *)(out + e), a);
    else
      _mm256_mask_storeu_epi8(out + e, ~0u >> (32 - (n - e)), a);
  }
}

static void v(uint8_t *out, const uint32_t *const *pair, const uint32_t *wp, int npair, int n, int prec) {
  enum { MOST = 16 };
  if (npair > MOST) {
    stk_avx2.v(out, pair, wp, npair, n, prec);
    return;
  }
  __m256i w[MOST];
  for (int p = 0; p < npair; p++) w[p] = _mm256_set1_epi32((int)wp[p]);
  switch (npair) {
  case 1: v_rows(out, pair, w, 1, n, prec); return;
  case 2: v_rows(out, pair, w, 2, n, prec); return;
  case 3: v_rows(out, pair, w, 3, n, prec); return;
  }
  v_rows(out, pair, w, npair, n, prec);
}

// The rest has nothing to gain.
static void planes(const uint8_t *rgb, uint8_t *r, uint8_t *g, uint8_t *b, int n) { stk_avx2.planes(rgb, r, g, b, n); }
static void f32(const uint8_t *in, float *out, int n, float s, float b) { stk_avx2.f32(in, out, n, s, b); }
static void f32_rgb(const uint8_t *in, float *out, int n, const float *s, const float *b) {
  stk_avx2.f32_rgb(in, out, n, s, b);
}
static void luma(const uint8_t *rgb, uint8_t *out, int n) { stk_avx2.luma(rgb, out, n); }
static void mirror(const uint8_t *in, uint8_t *out, int n, int c) { stk_avx2.mirror(in, out, n, c); }

const stk_target stk_avx512 = {"avx512", hprep, v, planes, f32, f32_rgb, luma, mirror, &stk_samples_avx512};
#endif
