// Warps: what warp.c and the targets share. warp.go has the meaning, and the twin.
#ifndef STK_WARP_H
#define STK_WARP_H

#include "stk.h"

#include <string.h>

// The bits of a weight and of a place.
enum { STK_WARP_BITS = 14, STK_PLACE_BITS = 32 };
// What a quotient is limited to: see limits in warp.go.
#define STK_LEAST_PLACE (-2.0)
#define STK_MOST_PLACE ((1 << 20) + 2.0)
#define STK_PLACE_ADD ((double)(3 << 21))

struct stk_warp {
  const uint8_t *pix;
  int32_t w, h, c, n;              // the picture; the pixels of a result's row
  const stk_map *map;
  int64_t x, y;                    // exact: where the row's first pixel comes from
  double nx, ny, part;             // otherwise: the terms that are the same for the whole row
  float gx, gy;                    // single: the same
};

static inline int64_t stk_place_fixed(double v) {
  const double add = STK_PLACE_ADD;
  v = v < STK_MOST_PLACE ? v : STK_MOST_PLACE;
  v = v > STK_LEAST_PLACE ? v : STK_LEAST_PLACE;
  v += add;
  uint64_t a, b;
  memcpy(&a, &v, 8);
  memcpy(&b, &add, 8);
  return (int64_t)((a - b) << (STK_PLACE_BITS - 30));
}

// stk_place is where pixel i of the row comes from.
static inline void stk_place(const stk_warp *w, int i, int64_t *x, int64_t *y) {
  const stk_map *m = w->map;
  if (m->exact) {
    *x = w->x + m->whole[0] * i;
    *y = w->y + m->whole[3] * i;
    return;
  }
  const double at = i + 0.5, part = 1 / (m->real[6] * at + w->part);
  *x = stk_place_fixed((m->real[0] * at + w->nx) * part - m->real[8]);
  *y = stk_place_fixed((m->real[3] * at + w->ny) * part - m->real[8]);
}

// stk_place_nearest is the number nearest to a place of the grid, of two the even one; what
// is outside, or no number, is -1 or size.
static inline int32_t stk_place_nearest(float at, float half, int32_t size) {
  const float add = 12582912;      // 3 * 2^22: the fraction is rounded away
  at = (at + 1) * half - 0.5f;
  at = at > -1 ? at : -1;
  at = at < (float)size ? at : (float)size;
  at += add;
  int32_t a, b;
  memcpy(&a, &at, 4);
  memcpy(&b, &add, 4);
  return a - b;
}

// stk_place_single is the pixel nearest to where pixel i of the row comes from, in float32.
static inline void stk_place_single(const stk_warp *w, int i, int32_t *x, int32_t *y) {
  const stk_map *m = w->map;
  const float at = (float)i - m->middle[0];
  *x = stk_place_nearest(m->grid[0] * at + w->gx + m->grid[2], m->half[0], w->w);
  *y = stk_place_nearest(m->grid[3] * at + w->gy + m->grid[5], m->half[1], w->h);
}

// stk_warp_near makes pixel x, y, or the fill.
static inline void stk_warp_near(const stk_warp *w, int32_t x, int32_t y, uint8_t *out) {
  const int in = x >= 0 && x < w->w && y >= 0 && y < w->h;
  const uint8_t *p = in ? w->pix + ((size_t)y * w->w + x) * w->c : w->map->fill;
  for (int c = 0; c < w->c; c++) out[c] = p[c];
}

// stk_warp_between weighs the pixels around x, y.
static inline void stk_warp_between(const stk_warp *w, int64_t at_x, int64_t at_y, uint8_t *out) {
  enum { ONE = 1 << STK_WARP_BITS, DOWN = STK_PLACE_BITS - STK_WARP_BITS };
  const int32_t x = (int32_t)(at_x >> STK_PLACE_BITS), y = (int32_t)(at_y >> STK_PLACE_BITS), c = w->c;
  if (x < -1 || y < -1 || x >= w->w || y >= w->h) {
    for (int i = 0; i < c; i++) out[i] = w->map->fill[i];
    return;
  }
  const int32_t fx = (int32_t)((uint32_t)at_x >> DOWN), fy = (int32_t)((uint32_t)at_y >> DOWN);
  const int32_t both = (fx * fy) >> STK_WARP_BITS;
  const int32_t weight[4] = {ONE - fx - fy + both, fx - both, fy - both, both};
  if (x >= 0 && y >= 0 && x < w->w - 1 && y < w->h - 1) {
    const uint8_t *p = w->pix + ((size_t)y * w->w + x) * c, *q = p + (size_t)w->w * c;
    for (int i = 0; i < c; i++)
      out[i] = (uint8_t)((weight[0] * p[i] + weight[1] * p[i + c] + weight[2] * q[i] + weight[3] * q[i + c] + ONE / 2) >> STK_WARP_BITS);
    return;
  }
  int32_t sum[3] = {0, 0, 0}, inside = 0;
  for (int i = 0; i < 4; i++) {
    const int32_t px = x + (i & 1), py = y + (i >> 1);
    if (px < 0 || px >= w->w || py < 0 || py >= w->h) continue;
    const uint8_t *p = w->pix + ((size_t)py * w->w + px) * c;
    inside += weight[i];
    for (int k = 0; k < c; k++) sum[k] += weight[i] * p[k];
  }
  for (int i = 0; i < c; i++) {
    int64_t s = sum[i];
    if (w->map->filled) s = (inside * s + (int64_t)(ONE - inside) * ONE * w->map->fill[i]) >> STK_WARP_BITS;
    out[i] = (uint8_t)((s + ONE / 2) >> STK_WARP_BITS);
  }
}

// stk_warp_one makes the row's pixel i.
static inline void stk_warp_one(const stk_warp *w, int i, uint8_t *out) {
  if (w->map->single) {
    int32_t x, y;
    stk_place_single(w, i, &x, &y);
    stk_warp_near(w, x, y, out);
    return;
  }
  int64_t x, y;
  stk_place(w, i, &x, &y);
  if (w->map->near)
    stk_warp_near(w, (int32_t)(x >> STK_PLACE_BITS), (int32_t)(y >> STK_PLACE_BITS), out);
  else
    stk_warp_between(w, x, y, out);
}

#endif
