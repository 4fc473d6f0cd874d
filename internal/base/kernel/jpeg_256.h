// The part of a JPEG's samples and pixels that AVX2 and AVX-512 share: 256-bit
// registers, two blocks or 16 pixels of 16 bits each. The including file chooses the
// processor.

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
static INLINE V v_pairs_lo(V a, V b) { return v_lo(a, b); }
static INLINE V v_pairs_hi(V a, V b) { return v_hi(a, b); }
static INLINE V v_lo32(V a, V b) { return _mm256_unpacklo_epi32(a, b); }
static INLINE V v_hi32(V a, V b) { return _mm256_unpackhi_epi32(a, b); }
static INLINE V v_lo64(V a, V b) { return _mm256_unpacklo_epi64(a, b); }
static INLINE V v_hi64(V a, V b) { return _mm256_unpackhi_epi64(a, b); }
static INLINE V v_lo8(V a, V b) { return _mm256_unpacklo_epi8(a, b); }
static INLINE V v_hi8(V a, V b) { return _mm256_unpackhi_epi8(a, b); }
static INLINE V v_pair(int a, int b) { return _mm256_set1_epi32((int32_t)((uint32_t)b << 16 | (uint16_t)a)); }
static INLINE V v_madd(V s, V a, V c) {
#ifdef __AVX512VNNI__
  return _mm256_dpwssd_epi32(s, a, c);
#else
  return _mm256_add_epi32(s, _mm256_madd_epi16(a, c));
#endif
}
static INLINE V v_add32(V a, V b) { return _mm256_add_epi32(a, b); }
static INLINE V v_sub32(V a, V b) { return _mm256_sub_epi32(a, b); }
static INLINE V v_sra32(V a, int n) { return _mm256_srai_epi32(a, n); }
static INLINE V v_set32(int v) { return _mm256_set1_epi32(v); }
static INLINE V v_pack32(V a, V b) { return _mm256_packs_epi32(a, b); }
static INLINE V v_short32(V a, V b) { return v_pack32(a, b); }
static INLINE V v_pack16(V a, V b) { return _mm256_packs_epi16(a, b); }
static INLINE V v_center(V a) { return _mm256_xor_si256(a, _mm256_set1_epi8(-128)); }
static INLINE int v_wild(V a) {
  // |-32768| stays -32768, which is large as an unsigned number.
  return !_mm256_testz_si256(_mm256_abs_epi16(a), _mm256_set1_epi16((short)0xe000));
}
static INLINE int v_beyond(const V *r, int rows) { return (void)rows, v_wild(r[0]); }
static INLINE void v_rows(V a, uint8_t *out, ptrdiff_t stride) {
  a = _mm256_permute4x64_epi64(a, 0xd8);
  _mm_storeu_si128((void *)out, _mm256_castsi256_si128(a));
  _mm_storeu_si128((void *)(out + stride), _mm256_extracti128_si256(a, 1));
}

#include "dct.h"
#include "reduced.h"

// wide is 16 bytes as int16.
static INLINE V wide(const uint8_t *p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)); }

// sixteen makes red, green and blue of 16 pixels. For int16 x, mulhrs(2x, 22971) is
// 1.402 x and mulhrs(2x, 29033) is 1.772 x, rounded as by libjpeg, for every x of 9
// bits.
static INLINE void sixteen(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, V out[3]) {
  const V mid = _mm256_set1_epi16(128), c = v_pair(-22554, 65536 - 46802), half = v_set32(1 << 15);
  const V luma = wide(y), b = v_sub(wide(cb), mid), r = v_sub(wide(cr), mid);
  const V lo = v_sra32(v_madd(half, v_lo(b, r), c), 16), hi = v_sra32(v_madd(half, v_hi(b, r), c), 16);
  out[0] = v_add(luma, _mm256_mulhrs_epi16(v_add(r, r), _mm256_set1_epi16(22971)));
  out[1] = v_add(luma, v_sub(v_pack32(lo, hi), r));
  out[2] = v_add(luma, _mm256_mulhrs_epi16(v_add(b, b), _mm256_set1_epi16(29033)));
}
