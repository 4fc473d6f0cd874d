// The kernels in plain C: what every target falls back to, and the whole of
// it on processors without a file of their own.
#include "stk.h"

#include <string.h>

#pragma GCC optimize("O3", "fp-contract=off")

// Sums are unsigned so that those of absurd sizes wrap as in the Go twin.
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

void stk_base_hprep(stk_lane *l, stk_hplan *h) {
  (void)l;
  h->run = h->c == 1 ? h1 : h3;
}

static void v(uint8_t *out, const uint32_t *const *pair, const uint32_t *w, int npair, int n, int prec) {
  const uint32_t half = 1u << prec >> 1;
  enum { B = 64 };
  for (int i = 0; i < n; i += B) {
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

const stk_target stk_base = {"base", stk_base_hprep, v, planes, f32, f32_rgb, luma, mirror};
