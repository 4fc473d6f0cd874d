// A JPEG's samples and pixels in SSE2, which every x86-64 has, and in plain C. The
// plain form is for processors or compilers without vectors, for big-endian
// processors, and for the fuzzer, which compares.
#include "reduced.h"

#pragma GCC optimize("O3")

#define CHROMA(name) name
#include "chroma.h"

static int16_t clamp(int16_t v) { return v < 0 ? 0 : v > 255 ? 255 : v; }

enum { CHUNK = 64 };

// colours is the conversion of JFIF, in libjpeg's fixed point: 16 bits of fraction,
// each sum rounded once. 1.402 is 91881 / 65536, 1.772 116130, 0.34414 22554, 0.71414
// 46802; their whole parts are separate, so that the rest fits into 16 bits.
static void colours(const uint8_t *restrict y, const uint8_t *restrict cb, const uint8_t *restrict cr,
                    uint8_t *restrict r, uint8_t *restrict g, uint8_t *restrict b) {
  const int32_t half = 1 << 15;
  for (int i = 0; i < CHUNK; i++) {
    const int16_t blue = (int16_t)(cb[i] - 128), red = (int16_t)(cr[i] - 128), luma = y[i];
    const int16_t dr = (int16_t)((red * (91881 - 65536) + half) >> 16);
    const int16_t dg = (int16_t)((blue * -22554 + red * (65536 - 46802) + half) >> 16);
    const int16_t db = (int16_t)((blue * (116130 - 131072) + half) >> 16);
    r[i] = (uint8_t)clamp((int16_t)(luma + red + dr));
    g[i] = (uint8_t)clamp((int16_t)(luma - red + dg));
    b[i] = (uint8_t)clamp((int16_t)(luma + 2 * blue + db));
  }
}

static void merge(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *out, int n) {
  for (int i = 0; i < n; i++) {
    out[3 * i] = r[i];
    out[3 * i + 1] = g[i];
    out[3 * i + 2] = b[i];
  }
}

static void rgb_plain(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n) {
  uint8_t r[CHUNK], g[CHUNK], b[CHUNK];
  for (int i = 0; i < n; i += CHUNK) {
    colours(y + i, cb + i, cr + i, r, g, b);
    merge(r, g, b, out + 3 * i, n - i < CHUNK ? n - i : CHUNK);
  }
}

static void dct_plain(int16_t *quad, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride) {
  if (reach <= 1) {
    stk_dct_flat(quad, quant[0], out, stride);
    return;
  }
  for (int b = 0; b < 4; b++) stk_dct_tame(quad + 8 * b, quant, reach, out + 8 * b, stride);
  memset(quad, 0, QUAD * sizeof *quad);
}

const stk_samples stk_samples_plain = {dct_plain, stk_dct4_plain, stk_dct2_plain, h2, v2, h2v2, rgb_plain, merge};

#if !defined __SSE2__ && !defined STK_VECTORS
const stk_samples stk_samples_base = {dct_plain, stk_dct4_plain, stk_dct2_plain, h2, v2, h2v2, rgb_plain, merge};
#endif

#ifdef __SSE2__
#include <emmintrin.h>

enum { LANES_SSE2 = 8 };
#define LANES LANES_SSE2
#define DCT_NAME dct_sse2
#define DCT4_NAME dct4_sse2
#define DCT2_NAME dct2_sse2
typedef __m128i V;

static INLINE V v_zero(void) { return _mm_setzero_si128(); }
static INLINE V v_load(const void *p) { return _mm_loadu_si128(p); }
static INLINE void v_store(void *p, V a) { _mm_storeu_si128(p, a); }
static INLINE V v_row(const uint16_t *q) { return _mm_loadu_si128((const void *)q); }
static INLINE V v_mul(V a, V b) { return _mm_mullo_epi16(a, b); }
static INLINE V v_add(V a, V b) { return _mm_add_epi16(a, b); }
static INLINE V v_sub(V a, V b) { return _mm_sub_epi16(a, b); }
static INLINE V v_lo(V a, V b) { return _mm_unpacklo_epi16(a, b); }
static INLINE V v_hi(V a, V b) { return _mm_unpackhi_epi16(a, b); }
static INLINE V v_pairs_lo(V a, V b) { return v_lo(a, b); }
static INLINE V v_pairs_hi(V a, V b) { return v_hi(a, b); }
static INLINE V v_lo32(V a, V b) { return _mm_unpacklo_epi32(a, b); }
static INLINE V v_hi32(V a, V b) { return _mm_unpackhi_epi32(a, b); }
static INLINE V v_lo64(V a, V b) { return _mm_unpacklo_epi64(a, b); }
static INLINE V v_hi64(V a, V b) { return _mm_unpackhi_epi64(a, b); }
static INLINE V v_lo8(V a, V b) { return _mm_unpacklo_epi8(a, b); }
static INLINE V v_hi8(V a, V b) { return _mm_unpackhi_epi8(a, b); }
static INLINE V v_pair(int a, int b) { return _mm_set1_epi32((int32_t)((uint32_t)b << 16 | (uint16_t)a)); }
static INLINE V v_madd(V s, V a, V c) { return _mm_add_epi32(s, _mm_madd_epi16(a, c)); }
static INLINE V v_add32(V a, V b) { return _mm_add_epi32(a, b); }
static INLINE V v_sub32(V a, V b) { return _mm_sub_epi32(a, b); }
static INLINE V v_sra32(V a, int n) { return _mm_srai_epi32(a, n); }
static INLINE V v_set32(int v) { return _mm_set1_epi32(v); }
static INLINE V v_pack32(V a, V b) { return _mm_packs_epi32(a, b); }
static INLINE V v_short32(V a, V b) { return v_pack32(a, b); }
static INLINE V v_pack16(V a, V b) { return _mm_packs_epi16(a, b); }
static INLINE V v_center(V a) { return _mm_xor_si128(a, _mm_set1_epi8(-128)); }
static INLINE int v_wild(V a) {
  const V most = _mm_set1_epi16(8191), least = _mm_set1_epi16(-8192);
  return _mm_movemask_epi8(_mm_or_si128(_mm_cmpgt_epi16(a, most), _mm_cmplt_epi16(a, least)));
}
static INLINE int v_beyond(const V *r, int rows) { return (void)rows, v_wild(r[0]); }
static INLINE void v_rows(V a, uint8_t *out, ptrdiff_t stride) {
  _mm_storel_epi64((void *)out, a);
  _mm_storel_epi64((void *)(out + stride), _mm_unpackhi_epi64(a, a));
}

#include "dct.h"
#include "reduced.h"

// shift is by n pixels' worth: (c * x + half) >> 16 of int16 x, where c = 65536 whole + part.
static INLINE V scaled(V x2, int part) {
  return _mm_srai_epi16(_mm_add_epi16(_mm_mulhi_epi16(x2, _mm_set1_epi16((short)part)), _mm_set1_epi16(1)), 1);
}

// green is (-22554 cb - 46802 cr + half) >> 16.
static INLINE V green(V cb, V cr) {
  const V c = v_pair(-22554, 65536 - 46802), half = _mm_set1_epi32(1 << 15);
  const V lo = _mm_srai_epi32(v_madd(half, v_lo(cb, cr), c), 16), hi = _mm_srai_epi32(v_madd(half, v_hi(cb, cr), c), 16);
  return _mm_sub_epi16(_mm_packs_epi32(lo, hi), cr);
}

// four stores four pixels of four bytes, of which the last is unused, as twelve.
static INLINE void four(V a, uint8_t *out) {
  const V low = _mm_set1_epi64x(0xffffff), high = _mm_set1_epi64x(0xffffff000000);
  a = _mm_or_si128(_mm_and_si128(a, low), _mm_and_si128(_mm_srli_epi64(a, 8), high));
  _mm_storel_epi64((void *)out, a);
  _mm_storel_epi64((void *)(out + 6), _mm_unpackhi_epi64(a, a));
}

// rgb_sse2 writes two bytes more than its pixels, except at the end of a row.
static void rgb_sse2(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n) {
  const V zero = v_zero(), mid = _mm_set1_epi16(128);
  int i = 0;
  for (; i + 16 < n; i += 16) {
    V part[2][3];
    const V y8 = v_load(y + i), cb8 = v_load(cb + i), cr8 = v_load(cr + i);
    for (int k = 0; k < 2; k++) {
      const V luma = k ? v_hi8(y8, zero) : v_lo8(y8, zero);
      const V b = _mm_sub_epi16(k ? v_hi8(cb8, zero) : v_lo8(cb8, zero), mid);
      const V r = _mm_sub_epi16(k ? v_hi8(cr8, zero) : v_lo8(cr8, zero), mid);
      const V b2 = _mm_add_epi16(b, b), r2 = _mm_add_epi16(r, r);
      part[k][0] = _mm_add_epi16(luma, _mm_add_epi16(r, scaled(r2, 91881 - 65536)));
      part[k][1] = _mm_add_epi16(luma, green(b, r));
      part[k][2] = _mm_add_epi16(luma, _mm_add_epi16(b2, scaled(b2, 116130 - 131072)));
    }
    const V r = _mm_packus_epi16(part[0][0], part[1][0]), g = _mm_packus_epi16(part[0][1], part[1][1]);
    const V b = _mm_packus_epi16(part[0][2], part[1][2]);
    const V rg0 = v_lo8(r, g), rg1 = v_hi8(r, g), b0 = v_lo8(b, zero), b1 = v_hi8(b, zero);
    uint8_t *o = out + 3 * i;
    four(v_lo(rg0, b0), o);
    four(v_hi(rg0, b0), o + 12);
    four(v_lo(rg1, b1), o + 24);
    four(v_hi(rg1, b1), o + 36);
  }
  rgb_plain(y + i, cb + i, cr + i, out + 3 * i, n - i);
}

const stk_samples stk_samples_base = {dct_sse2, dct4_sse2, dct2_sse2, h2, v2, h2v2, rgb_sse2, merge};
#endif
