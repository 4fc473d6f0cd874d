// Colours in plain C.
#include "stk.h"

#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math", "no-math-errno", "finite-math-only", "no-signed-zeros")
#include "colours.h"

static void table(const uint8_t *in, uint8_t *out, int n, const uint8_t *t) {
  for (int i = 0; i < n; i++) out[i] = t[in[i]];
}

static void flat_luma(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *restrict y, int n) {
  for (int i = 0; i < n; i++)
    y[i] = (uint8_t)(int32_t)((float)(STK_FLAT_R * r[i] + STK_FLAT_G * g[i] + STK_FLAT_B * b[i]) * 1e-4f);
}

// Blurring, see blur.h.
static void fold(const uint16_t *const *at, const uint16_t *w, int r, int n, uint16_t *restrict out) {
  for (int i = 0; i < n; i++) out[i] = (uint16_t)((uint32_t)at[0][i] * w[0] >> 16);
  for (int k = 1; k <= r; k++) {
    const uint16_t *a = at[2 * k - 1], *b = at[2 * k], wk = w[k];
    for (int i = 0; i < n; i++) out[i] = (uint16_t)(out[i] + ((uint32_t)(uint16_t)(a[i] + b[i]) * wk >> 16));
  }
}

static void settle(const uint16_t *const *at, const uint16_t *w, int r, int n, int half, uint8_t *restrict out) {
  enum { MANY = 256 };
  uint16_t s[MANY];
  const uint16_t *part[2 * STK_BLUR_REACH + 1];
  for (int x = 0; x < n; x += MANY) {
    const int m = n - x < MANY ? n - x : MANY;
    for (int k = 0; k <= 2 * r; k++) part[k] = at[k] + x;
    fold(part, w, r, m, s);
    for (int i = 0; i < m; i++) {
      const int v = (s[i] + half) >> 7;
      out[x + i] = (uint8_t)(v < 255 ? v : 255);
    }
  }
}

#include "noise.h"
#define STK_COLOURS stk_colours_base
#include "colour.h"
