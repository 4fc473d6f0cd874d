// The kernels in plain C, and for x86-64 the resampling of three channels in
// SSE2: what every target falls back to.
#include "stk.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#pragma GCC optimize("O3", "fp-contract=off")

// Sums are unsigned so that those of impossible sizes wrap as in the Go twin.
static inline uint8_t clip(uint32_t sum, int prec) {
  int32_t v = (int32_t)sum >> prec;
  return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v;
}

static inline void h_rows(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi, const int c) {
  const stk_axis *a = h->axis;
  const uint32_t half = 1u << h->prec >> 1;
  for (int x = 0; x < a->n; x++) {
    const int16_t *w = a->w + (size_t)x * a->k;
    const size_t off = (size_t)a->start[x] * c;
    const int n = a->cnt[x];
    for (int ch = 0; ch < c; ch++) {
      uint32_t s[4] = {half, half, half, half};
      for (int t = 0; t < n; t++) {
        const uint32_t v = (uint32_t)w[t];
        const size_t p = off + (size_t)t * c + ch;
        s[0] += row[0][p] * v;
        s[1] += row[1][p] * v;
        s[2] += row[2][p] * v;
        s[3] += row[3][p] * v;
      }
      *lo++ = clip(s[0], h->prec) | (uint32_t)clip(s[1], h->prec) << 16;
      *hi++ = clip(s[2], h->prec) | (uint32_t)clip(s[3], h->prec) << 16;
    }
  }
}

static void h1(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi) {
  h_rows(h, row, lo, hi, 1);
}

static void h3(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi) {
  h_rows(h, row, lo, hi, 3);
}

#ifdef __SSE2__
static inline __m128i pixel(const uint8_t *p) {
  int32_t x;
  memcpy(&x, p, 4);
  return _mm_cvtsi32_si128(x);
}

// sum3 is one output pixel, before the shift: two taps of each channel side by
// side as 16-bit numbers, times both weights.
static inline __m128i sum3(const uint8_t *p, const int16_t *w, int n, __m128i half) {
  for (int t = 0; t < n; t += 2, p += 6) {
    const __m128i both = _mm_unpacklo_epi8(_mm_unpacklo_epi8(pixel(p), pixel(p + 3)), _mm_setzero_si128());
    half = _mm_add_epi32(half, _mm_madd_epi16(both, _mm_shuffle_epi32(pixel((const uint8_t *)(w + t)), 0)));
  }
  return half;
}

static void h3_sse2(const stk_hplan *h, const uint8_t *const row[4], uint32_t *lo, uint32_t *hi) {
  const stk_axis *a = h->axis;
  const __m128i half = _mm_set1_epi32(1 << h->prec >> 1), down = _mm_cvtsi32_si128(h->prec);
  for (int x = 0; x < a->n; x++, lo += 3, hi += 3) {
    const int16_t *w = a->w + (size_t)x * a->k;
    const size_t at = (size_t)a->start[x] * 3;
    __m128i s[4];
    for (int r = 0; r < 4; r++) s[r] = _mm_srl_epi32(sum3(row[r] + at, w, a->cnt[x], half), down);
    _mm_storeu_si128((__m128i *)lo, _mm_or_si128(s[0], _mm_slli_epi32(s[1], 16)));
    _mm_storeu_si128((__m128i *)hi, _mm_or_si128(s[2], _mm_slli_epi32(s[3], 16)));
  }
}

static inline __m128i v4(const uint32_t *const *pair, const uint32_t *w, int npair, int e, __m128i half, __m128i down) {
  for (int p = 0; p < npair; p++) {
    const __m128i q = _mm_load_si128((const __m128i *)(pair[p] + e));
    half = _mm_add_epi32(half, _mm_madd_epi16(q, _mm_set1_epi32((int)w[p])));
  }
  return _mm_sra_epi32(half, down);
}

// v_sse2 makes the elements up to a multiple of 16 and returns their number.
static int v_sse2(uint8_t *out, const uint32_t *const *pair, const uint32_t *w, int npair, int n, int prec) {
  const __m128i half = _mm_set1_epi32(1 << prec >> 1), down = _mm_cvtsi32_si128(prec);
  int e = 0;
  for (; e + 16 <= n; e += 16) {
    const __m128i a = v4(pair, w, npair, e, half, down), b = v4(pair, w, npair, e + 4, half, down);
    const __m128i c = v4(pair, w, npair, e + 8, half, down), d = v4(pair, w, npair, e + 12, half, down);
    _mm_storeu_si128((__m128i *)(out + e), _mm_packus_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d)));
  }
  return e;
}
#endif

void stk_base_hprep(stk_lane *l, stk_hplan *h) {
  (void)l;
  h->run = h->c == 1 ? h1 : h3;
#ifdef __SSE2__
  if (h->c == 3 && !h->clamp) h->run = h3_sse2;
#endif
}

static void v(uint8_t *out, const uint32_t *const *pair, const uint32_t *w, int npair, int n, int prec, int clamp) {
  (void)clamp;  // always
  const uint32_t half = 1u << prec >> 1;
  enum { B = 64 };
  int i = 0;
#ifdef __SSE2__
  i = v_sse2(out, pair, w, npair, n, prec);
#endif
  for (; i < n; i += B) {
    const int m = n - i < B ? n - i : B;
    uint32_t acc[B];
    for (int e = 0; e < B; e++) acc[e] = half;
    for (int p = 0; p < npair; p++) {
      const uint32_t *q = pair[p] + i;
      const uint32_t w0 = (uint32_t)(int16_t)w[p], w1 = (uint32_t)(int16_t)(w[p] >> 16);
      for (int e = 0; e < m; e++) acc[e] += (q[e] & 0xffff) * w0 + (q[e] >> 16) * w1;
    }
    for (int e = 0; e < m; e++) out[i + e] = clip(acc[e], prec);
  }
}

static void planes(const uint8_t *rgb, uint8_t *r, uint8_t *g, uint8_t *b, int n) {
  for (int i = 0; i < n; i++) {
    r[i] = rgb[3 * i];
    g[i] = rgb[3 * i + 1];
    b[i] = rgb[3 * i + 2];
  }
}

static void f32(const uint8_t *in, float *out, int n, float scale, float bias) {
  for (int i = 0; i < n; i++) out[i] = (float)in[i] * scale + bias;
}

static void f32_rgb(const uint8_t *in, float *out, int n, const float *s, const float *b) {
  for (int i = 0; i < n; i++, in += 3, out += 3) {
    out[0] = (float)in[0] * s[0] + b[0];
    out[1] = (float)in[1] * s[1] + b[1];
    out[2] = (float)in[2] * s[2] + b[2];
  }
}

static void luma(const uint8_t *in, uint8_t *out, int n) {
  for (int i = 0; i < n; i++, in += 3)
    out[i] = (uint8_t)((19595u * in[0] + 38470u * in[1] + 7471u * in[2] + 32768u) >> 16);
}

static void mirror(const uint8_t *in, uint8_t *out, int n, int c) {
  if (c == 1) {
    for (int i = 0; i < n; i++) out[i] = in[n - 1 - i];
    return;
  }
  const uint8_t *p = in + 3 * (size_t)n;
  for (int i = 0; i < n; i++, out += 3) {
    p -= 3;
    out[0] = p[0];
    out[1] = p[1];
    out[2] = p[2];
  }
}

#define BASE(name, samples) \
  {name, stk_axis_weigh, stk_axis_fix, stk_base_hprep, v, NULL, NULL, NULL, planes, f32, f32_rgb, luma, mirror, samples, &stk_colours_base, stk_warp_base}

const stk_target stk_base = BASE("base", &stk_samples_base);
#ifdef STK_VECTORS
const stk_target stk_portable = BASE("portable", &stk_samples_portable);
#endif
