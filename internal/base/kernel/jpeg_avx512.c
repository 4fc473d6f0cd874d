// A JPEG's samples and pixels in AVX-512, in registers of 256 bits: two blocks, and 32 pixels.
// Those of 512 took a few percent more of all, although their own part is shorter: the
// decoding around them runs at a lower clock for a while after each use.
#include "reduced.h"

#ifdef __x86_64__
#pragma GCC target("avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni,prefer-vector-width=256")
#pragma GCC optimize("O3")
#include <immintrin.h>

#define CHROMA(name) name
#include "chroma.h"

#define LANES 16
#define DCT_NAME dct
#define DCT4_NAME dct4
#define DCT2_NAME dct2
typedef __m256i V;

static INLINE V v_zero(void) { return _mm256_setzero_si256(); }
static INLINE V v_load(const void *p) { return _mm256_loadu_si256(p); }
static INLINE void v_store(void *p, V a) { _mm256_storeu_si256(p, a); }
static INLINE V v_row(const uint16_t *q) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)q)); }
static INLINE V v_mul(V a, V b) { return _mm256_mullo_epi16(a, b); }
static INLINE V v_add(V a, V b) { return _mm256_add_epi16(a, b); }
static INLINE V v_sub(V a, V b) { return _mm256_sub_epi16(a, b); }
static INLINE V v_lo(V a, V b) { return _mm256_unpacklo_epi16(a, b); }
static INLINE V v_hi(V a, V b) { return _mm256_unpackhi_epi16(a, b); }
static INLINE V v_lo32(V a, V b) { return _mm256_unpacklo_epi32(a, b); }
static INLINE V v_hi32(V a, V b) { return _mm256_unpackhi_epi32(a, b); }
static INLINE V v_lo64(V a, V b) { return _mm256_unpacklo_epi64(a, b); }
static INLINE V v_hi64(V a, V b) { return _mm256_unpackhi_epi64(a, b); }
static INLINE V v_lo8(V a, V b) { return _mm256_unpacklo_epi8(a, b); }
static INLINE V v_hi8(V a, V b) { return _mm256_unpackhi_epi8(a, b); }
static INLINE V v_pair(int a, int b) { return _mm256_set1_epi32((int32_t)((uint32_t)b << 16 | (uint16_t)a)); }
static INLINE V v_madd(V s, V a, V c) { return _mm256_dpwssd_epi32(s, a, c); }
static INLINE V v_add32(V a, V b) { return _mm256_add_epi32(a, b); }
static INLINE V v_sub32(V a, V b) { return _mm256_sub_epi32(a, b); }
static INLINE V v_sra32(V a, int n) { return _mm256_srai_epi32(a, (unsigned)n); }
static INLINE V v_set32(int v) { return _mm256_set1_epi32(v); }
static INLINE V v_pack32(V a, V b) { return _mm256_packs_epi32(a, b); }
static INLINE V v_pack16(V a, V b) { return _mm256_packs_epi16(a, b); }
static INLINE V v_center(V a) { return _mm256_xor_si256(a, _mm256_set1_epi8(-128)); }
static INLINE int v_wild(V a) {
  // |-32768| stays -32768, which is large when it has no sign.
  return _mm256_test_epi16_mask(_mm256_abs_epi16(a), _mm256_set1_epi16((short)0xe000)) != 0;
}
static INLINE void v_rows(V a, uint8_t *out, ptrdiff_t stride) {
  a = _mm256_permutex_epi64(a, 0xd8);
  _mm_storeu_si128((void *)out, _mm256_castsi256_si128(a));
  _mm_storeu_si128((void *)(out + stride), _mm256_extracti128_si256(a, 1));
}

#include "dct.h"
#include "reduced.h"

// wide is 16 bytes as int16.
static INLINE V wide(const uint8_t *p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)); }

// half makes red, green and blue of 16 pixels: see sixteen of jpeg_avx2.c.
static INLINE void half(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, V out[3]) {
  const V mid = _mm256_set1_epi16(128), c = v_pair(-22554, 65536 - 46802), round = v_set32(1 << 15);
  const V luma = wide(y), b = v_sub(wide(cb), mid), r = v_sub(wide(cr), mid);
  const V lo = v_sra32(v_madd(round, v_lo(b, r), c), 16), hi = v_sra32(v_madd(round, v_hi(b, r), c), 16);
  out[0] = v_add(luma, _mm256_mulhrs_epi16(v_add(r, r), _mm256_set1_epi16(22971)));
  out[1] = v_add(luma, v_sub(v_pack32(lo, hi), r));
  out[2] = v_add(luma, _mm256_mulhrs_epi16(v_add(b, b), _mm256_set1_epi16(29033)));
}

// Where the bytes of 32 interleaved pixels come from: of red (0..31) and green (32..63), and of
// blue where a byte is 2 mod 3. Bytes are as packing leaves them: in each 128 bits eight of
// the first 16 pixels, then eight of the others.
typedef struct {
  uint8_t rg[3][32], b[3][32];
} order;

#define PACKED(p) ((p) % 16 / 8 * 16 + (p) / 16 * 8 + (p) % 8)
#define RG(k) (uint8_t)((k) % 3 == 1 ? 32 + PACKED((k) / 3) : PACKED((k) / 3))
#define B_(k) (uint8_t) PACKED((k) / 3)
#define EIGHT(f, k) f(k), f((k) + 1), f((k) + 2), f((k) + 3), f((k) + 4), f((k) + 5), f((k) + 6), f((k) + 7)
#define ALL(f, k) EIGHT(f, k), EIGHT(f, (k) + 8), EIGHT(f, (k) + 16), EIGHT(f, (k) + 24)
static const order packed = {{{ALL(RG, 0)}, {ALL(RG, 32)}, {ALL(RG, 64)}}, {{ALL(B_, 0)}, {ALL(B_, 32)}, {ALL(B_, 64)}}};
static const uint32_t blue[3] = {0x24924924, 0x49249249, 0x92492492};

// rgb stores 32 pixels at a time, and of the last ones only what there is.
static void rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n) {
  for (int i = 0; i < n; i += 32) {
    V p[2][3];
    half(y + i, cb + i, cr + i, p[0]);
    half(y + i + 16, cb + i + 16, cr + i + 16, p[1]);
    const V r = _mm256_packus_epi16(p[0][0], p[1][0]), g = _mm256_packus_epi16(p[0][1], p[1][1]);
    const V b = _mm256_packus_epi16(p[0][2], p[1][2]);
    const int bytes = 3 * (n - i);
    uint8_t *o = out + 3 * i;
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++) {
      V s = _mm256_permutex2var_epi8(r, v_load(packed.rg[k]), g);
      s = _mm256_mask_permutexvar_epi8(s, blue[k], v_load(packed.b[k]), b);
      const int left = bytes - 32 * k;
      if (left >= 32)
        v_store(o + 32 * k, s);
      else if (left > 0)
        _mm256_mask_storeu_epi8(o + 32 * k, ~UINT32_C(0) >> (32 - left), s);
    }
  }
}

static void merge(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *out, int n) {
  stk_samples_avx2.merge(r, g, b, out, n);
}

const stk_samples stk_samples_avx512 = {dct, dct4, dct2, h2, v2, h2v2, rgb, merge};
#endif
