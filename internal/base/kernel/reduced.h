// The inverse DCT of a quad to blocks of 4 or 2 samples a side, in the vectors of dct.h.
//
// Sums of products are those of libjpeg's jidctred.c, which drops terms of the transform
// of eight, and is not the transform of four low coefficients: 4x4 takes all rows and
// columns but 4, 2x2 rows and columns 0, 1, 3, 5 and 7. What is out of range wraps and
// saturates where libjpeg-turbo's SIMD forms have it, in reduced.c's plain form.
#ifndef STK_REDUCED_H
#define STK_REDUCED_H

#include "dct.h"

// FIX(x), as in dct.h.
enum {
  RED_0_211 = 1730,   // sqrt(2) * (c1 - c3), 0.211164243; ck = cos(k pi / 16)
  RED_0_509 = 4176,   // sqrt(2) * (c5 - c7), 0.509795579
  RED_0_601 = 4926,   // sqrt(2) * (c1 - c5), 0.601344887
  RED_0_720 = 5906,   // sqrt(2) * (c1 - c3 + c5 - c7), 0.720959822
  RED_0_765 = 6270,   // sqrt(2) * (c2 - c6), 0.765366865
  RED_0_850 = 6967,   // sqrt(2) * (-c1 + c3 + c5 + c7), 0.850430095
  RED_0_899 = 7373,   // sqrt(2) * (c3 - c7), 0.899976223
  RED_1_061 = 8697,   // sqrt(2) * (c5 + c7), 1.061594337
  RED_1_272 = 10426,  // sqrt(2) * (c1 - c3 + c5 + c7), 1.272758580
  RED_1_451 = 11893,  // sqrt(2) * (c3 + c7), 1.451774981
  RED_1_847 = 15137,  // sqrt(2) * (c2 + c6), 1.847759065
  RED_2_172 = 17799,  // sqrt(2) * (c1 + c5), 2.172734803
  RED_2_562 = 20995,  // sqrt(2) * (c1 + c3), 2.562915447
  RED_3_624 = 29692   // sqrt(2) * (c1 + c3 + c5 + c7), 3.624509785
};

// The final shifts of columns, in a transform to 4 and to 2; rows shift by more.
enum { SHIFT_4 = CONST_BITS - PASS1_BITS + 1, SHIFT_2 = CONST_BITS - PASS1_BITS + 2, ROWS_MORE = 2 * PASS1_BITS + 3 };

// reduced.c: the plain forms, of a block, and of a quad with nothing but DC.
void stk_dct_block4(const int16_t *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride);
void stk_dct_block2(const int16_t *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride);
stk_dct stk_dct4_plain, stk_dct2_plain, stk_dct1;
void stk_dct_flat_reduced(const int16_t *quad, int q, int side, uint8_t *out, ptrdiff_t stride);

// A quad is zero in its lower half if it does not reach beyond the diagonal from row
// 3 to column 3.
static INLINE void quad_clear(int16_t *quad, int reach) {
  memset(quad, 0, (size_t)(reach <= 10 ? 4 : 8) * QUAD_ROW * sizeof *quad);
}

#endif

#ifdef LANES

// to_four is a transform to four of what v_madd takes in pairs: dc is the upper half of int32.
static INLINE void to_four(V out[4], V dc, V z26, V z13, V z57, const int shift) {
  const V round = v_set32(1 << shift >> 1);
  const V e = v_madd(v_zero(), z26, v_pair(RED_1_847, -RED_0_765));
  const V outer = v_madd(v_madd(v_zero(), z13, v_pair(RED_2_562, RED_0_899)), z57, v_pair(-RED_0_601, -RED_0_509));
  const V inner = v_madd(v_madd(v_zero(), z13, v_pair(RED_1_061, -RED_2_172)), z57, v_pair(RED_1_451, -RED_0_211));
  const V t = v_add32(v_sra32(dc, 16 - CONST_BITS - 1), round), near = v_add32(t, e), far = v_sub32(t, e);
  out[0] = v_sra32(v_add32(near, outer), shift);
  out[1] = v_sra32(v_add32(far, inner), shift);
  out[2] = v_sra32(v_sub32(far, inner), shift);
  out[3] = v_sra32(v_sub32(near, outer), shift);
}

// rows4 turns transformed columns, by row, into a block's 16 bytes.
static INLINE V rows4(const V m[4]) {
  // Columns in pairs: 00 10 20 30 01 11 21 31.
  const V a = v_lo(m[0], m[1]), b = v_lo(m[2], m[3]), c = v_hi(m[0], m[1]), d = v_hi(m[2], m[3]);
  const V c01 = v_lo32(a, b), c23 = v_hi32(a, b), c45 = v_lo32(c, d), c67 = v_hi32(c, d);
  V s[4];
  to_four(s, v_lo(v_zero(), c01), v_pairs_lo(c23, c67), v_pairs_hi(c01, c23), v_pairs_hi(c45, c67), SHIFT_4 + ROWS_MORE);
  const V p02 = v_pack32(s[0], s[2]), p13 = v_pack32(s[1], s[3]);
  const V left = v_lo(p02, p13), right = v_hi(p02, p13);  // 00 01 10 11 .., 02 03 12 13 ..
  return v_center(v_pack16(v_lo32(left, right), v_hi32(left, right)));
}

// DCT4_NAME transforms a quad into 4 rows of 16 bytes, and zeroes it.
static void DCT4_NAME(int16_t *quad, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride) {
  if (reach <= 1) {
    stk_dct_flat_reduced(quad, quant[0], 4, out, stride);
    quad[0] = quad[8] = quad[16] = quad[24] = 0;
    return;
  }
  uint32_t done[4][4];  // rows of each block
  for (int b = 0; b < 4; b += LANES / 8) {
    V r[8], lo[4], hi[4], m[4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      r[i] = i >= 4 && reach <= 10 ? v_zero() : v_mul(v_load(quad + 8 * b + i * QUAD_ROW), v_row(quant + 8 * i));
    if (UNLIKELY(v_wild(r[0]))) {
      for (int i = b; i < b + LANES / 8; i++) stk_dct_block4(quad + 8 * i, quant, (uint8_t *)done[i], 4);
      continue;
    }
    to_four(lo, v_lo(v_zero(), r[0]), v_pairs_lo(r[2], r[6]), v_pairs_lo(r[1], r[3]), v_pairs_lo(r[5], r[7]), SHIFT_4);
    to_four(hi, v_hi(v_zero(), r[0]), v_pairs_hi(r[2], r[6]), v_pairs_hi(r[1], r[3]), v_pairs_hi(r[5], r[7]), SHIFT_4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) m[i] = v_pack32(lo[i], hi[i]);
    v_store(done[b], rows4(m));
  }
  for (int y = 0; y < 4; y++) {
    const uint32_t row[4] = {done[0][y], done[1][y], done[2][y], done[3][y]};
    memcpy(out + y * stride, row, sizeof row);
  }
  quad_clear(quad, reach);
}

// to_two is half of a transform of columns to two: r13 and r57 pair rows.
static INLINE void to_two(V *sum, V *diff, V dc, V r13, V r57) {
  const V odd = v_madd(v_madd(v_zero(), r13, v_pair(RED_3_624, -RED_1_272)), r57, v_pair(RED_0_850, -RED_0_720));
  const V even = v_add32(v_sra32(dc, 16 - CONST_BITS - 2), v_set32(1 << SHIFT_2 >> 1));
  *sum = v_sra32(v_add32(even, odd), SHIFT_2);
  *diff = v_sra32(v_sub32(even, odd), SHIFT_2);
}

// rows2 turns the upper and the lower row of transformed columns into a block's 4
// bytes.
static INLINE V rows2(V up, V low) {
  static const int16_t odd[8] = {0, RED_3_624, 0, -RED_1_272, 0, RED_0_850, 0, -RED_0_720};
  const V k = v_row((const uint16_t *)odd), a = v_madd(v_zero(), up, k), b = v_madd(v_zero(), low, k);
  V s = v_add32(v_lo32(a, b), v_hi32(a, b));
  s = v_add32(s, v_hi64(s, s));
  const int shift = SHIFT_2 + ROWS_MORE;
  const V dc = v_sra32(v_lo(v_zero(), v_lo(up, low)), 16 - CONST_BITS - 2), t = v_add32(dc, v_set32(1 << shift >> 1));
  const V c = v_lo32(v_sra32(v_add32(t, s), shift), v_sra32(v_sub32(t, s), shift)), p = v_pack32(c, c);
  return v_center(v_pack16(p, p));
}

// DCT2_NAME transforms a quad into 2 rows of 8 bytes, and zeroes it.
static void DCT2_NAME(int16_t *quad, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride) {
  if (reach <= 1) {
    stk_dct_flat_reduced(quad, quant[0], 2, out, stride);
    quad[0] = quad[8] = quad[16] = quad[24] = 0;
    return;
  }
  uint16_t done[4][8];  // rows of each block, and room after them
  for (int b = 0; b < 4; b += LANES / 8) {
    V r[8], sl, sh, dl, dh;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      r[i] = i >= 4 && reach <= 10 ? v_zero() : v_mul(v_load(quad + 8 * b + i * QUAD_ROW), v_row(quant + 8 * i));
    to_two(&sl, &dl, v_lo(v_zero(), r[0]), v_pairs_lo(r[1], r[3]), v_pairs_lo(r[5], r[7]));
    to_two(&sh, &dh, v_hi(v_zero(), r[0]), v_pairs_hi(r[1], r[3]), v_pairs_hi(r[5], r[7]));
    const V up = v_pack32(sl, sh), low = v_pack32(dl, dh);
    if (UNLIKELY(v_wild(up) | v_wild(low))) {
      for (int i = b; i < b + LANES / 8; i++) stk_dct_block2(quad + 8 * i, quant, (uint8_t *)done[i], 2);
      continue;
    }
    v_store(done[b], rows2(up, low));
  }
  for (int y = 0; y < 2; y++) {
    const uint16_t row[4] = {done[0][y], done[1][y], done[2][y], done[3][y]};
    memcpy(out + y * stride, row, sizeof row);
  }
  quad_clear(quad, reach);
}

#endif
