// Blurring by a Gaussian: rows first, into a ring of them, then columns; blur.go has the
// meaning, and the twin.
#include "pass.h"

#include <string.h>

#pragma GCC optimize("O3", "fp-contract=off")

// The rows of a ring, and rows in work, are read past their end.
enum { PAST = 256 };

typedef struct {
  const uint16_t *w;  // of the pixel itself and of those up to r from it, in 65536ths
  int r;
} gauss;

// weights is gaussian of blur.go.
static gauss weights(uint16_t *w, int size, double next) {
  const int most = size / 2;
  double at = 1, factor = next, all = 0.5;
  for (int i = 1; i <= most; i++) {
    at *= factor;
    factor *= next * next;
    all += at;
  }
  gauss g = {w, 0};
  double sum = 0.5;
  at = 1;
  factor = next;
  int32_t done = (int32_t)(sum / all * 32768 + 0.5);
  w[0] = (uint16_t)(done < 32768 ? 2 * done : 65535);
  while (done < 32768) {
    at *= factor;
    factor *= next * next;
    sum += at;
    const int32_t now = (int32_t)(sum / all * 32768 + 0.5);
    w[++g.r] = (uint16_t)(now - done);
    done = now;
  }
  return g;
}

// wide is fold for more than STK_BLUR_REACH pairs, whose products are cut after they are
// added.
static void wide(const uint16_t *const *at, const gauss *g, int n, uint16_t *out) {
  uint32_t s[128];
  for (int x = 0; x < n; x += 128) {
    const int m = n - x < 128 ? n - x : 128;
    for (int i = 0; i < m; i++) s[i] = 32768 + (uint32_t)at[0][x + i] * g->w[0];
    for (int k = 1; k <= g->r; k++) {
      const uint16_t *a = at[2 * k - 1] + x, *b = at[2 * k] + x;
      const uint32_t w = g->w[k];
      for (int i = 0; i < m; i++) s[i] += (uint32_t)(a[i] + b[i]) * w;
    }
    for (int i = 0; i < m; i++) out[x + i] = (uint16_t)(s[i] >> 16);
  }
}

static void fold(stk_lane *l, const uint16_t *const *at, const gauss *g, int n, uint16_t *out) {
  if (g->r > STK_BLUR_REACH)
    wide(at, g, n, out);
  else
    l->target->colours->fold(at, g->w, g->r, n, out);
}

// mirrored is the position that a reflection shows at i, with the edge shown once.
static int mirrored(int i, int n) { return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i; }

// widen makes 128ths of a row of w pixels, with the r pixels before and after it.
static void widen(const uint8_t *row, uint16_t *out, int w, int c, int r) {
  for (int i = 0; i < w * c; i++) out[r * c + i] = (uint16_t)(row[i] << 7);
  for (int i = 1; i <= r; i++) {
    memcpy(out + (r - i) * c, out + (r + mirrored(-i, w)) * c, (size_t)c * 2);
    memcpy(out + (r + w - 1 + i) * c, out + (r + mirrored(w - 1 + i, w)) * c, (size_t)c * 2);
  }
}

void stk_blur(stk_lane *l, const stk_pass *p, const stk_op *o, const source *s, const sink *k) {
  const int n = s->w * s->c;
  uint16_t *wx = stk_grow(l, &l->vw, ((size_t)o->w + o->h + 2) * sizeof *wx), *wy = wx + o->w / 2 + 1;
  const gauss gx = weights(wx, o->w, o->n), gy = weights(wy, o->h, o->n);
  const int slots = gy.r + gy.r + 1 < s->h ? gy.r + gy.r + 1 : s->h;
  const size_t stride = (size_t)n + PAST;
  const int most = gx.r > gy.r ? gx.r : gy.r;
  uint16_t *ring = stk_grow(l, &l->ring, slots * stride * sizeof *ring);
  uint16_t *row = stk_grow(l, &l->rows, (2 * stride + 2 * (size_t)gx.r * s->c) * sizeof *row), *sum = row + stride + 2 * (size_t)gx.r * s->c;
  const uint16_t **at = stk_grow(l, &l->ptrs, (2 * (size_t)most + 1) * sizeof *at);
  uint8_t *t = stk_grow(l, &l->tmp, stride);
  // Half of what is cut off on average, and half of a level.
  const int cut = (gx.r > STK_BLUR_REACH ? 0 : gx.r + 1) + (gy.r > STK_BLUR_REACH ? 0 : gy.r + 1);
  const int half = 64 + cut / 2;
  for (int y = 0, have = 0; y < s->h; y++) {
    for (; have < s->h && have <= y + gy.r; have++) {
      widen(s->pix + (size_t)have * n, row, s->w, s->c, gx.r);
      at[0] = row + gx.r * s->c;
      for (int i = 1; i <= gx.r; i++) {
        at[2 * i - 1] = at[0] - i * s->c;
        at[2 * i] = at[0] + i * s->c;
      }
      fold(l, at, &gx, n, ring + (size_t)(have % slots) * stride);
    }
    for (int i = 0; i <= 2 * gy.r; i++) {
      const int from = mirrored(y + (i & 1 ? -(i + 1) / 2 : i / 2), s->h);
      at[i] = ring + (size_t)(from % slots) * stride;
    }
    if (gy.r > STK_BLUR_REACH) {
      wide(at, &gy, n, sum);
      for (int i = 0; i < n; i++) t[i] = (uint8_t)((sum[i] + half) >> 7);
    } else {
      l->target->colours->settle(at, gy.w, gy.r, n, half, t);
    }
    stk_emit(l, p, k, y, t, s->c);
  }
}
