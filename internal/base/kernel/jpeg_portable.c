// A JPEG's samples and pixels in the compiler's generic vectors, for processors that
// have no file of their own: see jpeg_portable.h.
#include "stk.h"

#ifdef STK_VECTORS
#pragma GCC optimize("O3")

#include "jpeg_portable.h"

#define CHROMA(name) name
#include "chroma.h"

#define DCT_NAME dct
#define DCT4_NAME dct4
#define DCT2_NAME dct2
#include "dct.h"
#include "reduced.h"

// scaled is x * part / 2^16, rounded, of x2 = 2 x.
static INLINE V scaled(V x2, int part) {
  int16_t high[8];
  EACH(i, 8) high[i] = (int16_t)(x2[i] * (int16_t)part >> 16);
  return v_add(v_load(high), v_set16(1)) >> 1;
}

// green is (-22554 cb - 46802 cr + half) >> 16.
static INLINE V green(V cb, V cr) {
  int16_t high[8];
  EACH(i, 8) high[i] = (int16_t)((cb[i] * -22554 + cr[i] * (65536 - 46802) + (1 << 15)) >> 16);
  return v_sub(v_load(high), cr);
}

// bytes clips int16 to 0..255.
static INLINE V bytes(V a, V b) {
  int16_t in[16];
  uint8_t out[16];
  v_store(in, a);
  v_store(in + 8, b);
  EACH(i, 16) {
    int16_t v = in[i];
    v = v < 0 ? 0 : v;
    v = v > 255 ? 255 : v;
    out[i] = (uint8_t)v;
  }
  return v_load(out);
}

// four stores four pixels of four bytes, of which the last is unused, as twelve, and
// two bytes more.
static INLINE void four(V a, uint8_t *out) {
  const VU64 p = (VU64)a;
  uint64_t half[2];
  v_store(half, (V)((p & 0xffffff) | (p >> 8 & 0xffffff000000)));
  memcpy(out, half, 8);
  memcpy(out + 6, half + 1, 8);
}

enum { PIXELS = 16, EXTRA = 2 };

// interleave stores PIXELS pixels, and EXTRA bytes more.
static INLINE void interleave(V r, V g, V b, uint8_t *out) {
  const V rg0 = v_lo8(r, g), rg1 = v_hi8(r, g), b0 = v_lo8(b, v_zero()), b1 = v_hi8(b, v_zero());
  four(v_lo(rg0, b0), out);
  four(v_hi(rg0, b0), out + 12);
  four(v_lo(rg1, b1), out + 24);
  four(v_hi(rg1, b1), out + 36);
}

// sixteen converts to pixels as JFIF says: see jpeg_base.c.
static INLINE void sixteen(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out) {
  const V zero = v_zero(), mid = v_set16(128), y8 = v_load(y), cb8 = v_load(cb), cr8 = v_load(cr);
  V red[2], grn[2], blue[2];
#pragma GCC unroll 2
  for (int k = 0; k < 2; k++) {
    const V luma = k ? v_hi8(y8, zero) : v_lo8(y8, zero);
    const V b = v_sub(k ? v_hi8(cb8, zero) : v_lo8(cb8, zero), mid), r = v_sub(k ? v_hi8(cr8, zero) : v_lo8(cr8, zero), mid);
    const V b2 = v_add(b, b), r2 = v_add(r, r);
    red[k] = v_add(luma, v_add(r, scaled(r2, 91881 - 65536)));
    grn[k] = v_add(luma, green(b, r));
    blue[k] = v_add(luma, v_add(b2, scaled(b2, 116130 - 131072)));
  }
  interleave(bytes(red[0], red[1]), bytes(grn[0], grn[1]), bytes(blue[0], blue[1]), out);
}

static void rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n) {
  int i = 0;
  for (; i + PIXELS < n; i += PIXELS) sixteen(y + i, cb + i, cr + i, out + 3 * i);
  uint8_t last[3 * PIXELS + EXTRA];
  sixteen(y + i, cb + i, cr + i, last);
  memcpy(out + 3 * i, last, 3 * (size_t)(n - i));
}

static void merge(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *out, int n) {
  int i = 0;
  for (; i + PIXELS < n; i += PIXELS) interleave(v_load(r + i), v_load(g + i), v_load(b + i), out + 3 * i);
  uint8_t last[3 * PIXELS + EXTRA];
  interleave(v_load(r + i), v_load(g + i), v_load(b + i), last);
  memcpy(out + 3 * i, last, 3 * (size_t)(n - i));
}

const stk_samples stk_samples_portable = {dct, dct4, dct2, h2, v2, h2v2, rgb, merge};
#ifndef __SSE2__
const stk_samples stk_samples_base = {dct, dct4, dct2, h2, v2, h2v2, rgb, merge};
#endif
#endif
