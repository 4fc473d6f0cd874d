// The inverse DCT of a quad of blocks in vectors: one source for registers of
// 128 and 256 bits. Whoever includes it defines before
//
//	V                    a register of int16, LANES of them: LANES / 8 blocks
//	v_zero
//	v_load, v_store      of LANES coefficients
//	v_row                eight quantisation steps, for every block
//	v_mul v_add v_sub    of int16, wrapping
//	v_lo v_hi            interleave the lower, the upper halves of each 8 int16
//	v_lo32 v_hi32 v_lo64 v_hi64 v_lo8 v_hi8   the same of other sizes
//	v_pairs_lo v_pairs_hi    the lower, the upper halves as pairs for v_madd, in an order of its own
//	v_pair(a, b)         the constant pair for v_madd
//	v_madd(s, a, c)      s + the sums of products of pairs of int16, as int32
//	v_add32 v_sub32 v_sra32 v_set32
//	v_pack32 v_pack16    saturate two registers to half the size, in each 128 bits
//	v_short32            v_pack32 of what v_beyond lets pass; it need not saturate
//	v_center(a)          adds 128 to every byte
//	v_wild(a)            whether an int16 is outside +-8191
//	v_beyond(r, rows)    whether r[0] is wild, or the rows take more than v_short32 can
//	v_rows(a, out, stride)  stores 16 bytes a block: its part of two rows
//
// The arithmetic is that of libjpeg's accurate integer method, after Loeffler,
// Ligtenberg and Moschytz (ICASSP 1989): eleven multiplications, constants of
// CONST_BITS fraction bits, PASS1_BITS more between columns and rows. Two rotations
// make each sum of products with one multiplication a term, as its SIMD forms do,
// and what is out of range wraps and saturates where theirs does.
#ifndef STK_DCT_H
#define STK_DCT_H

#include "huff.h"

// dct.c: the plain form, of one block of a quad, and of a quad with nothing but DC,
// which it zeroes. quant is in natural order.
void stk_dct_block(const int16_t *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride);
// tame is the same of numbers as pictures have them, faster, and asks it of others.
void stk_dct_tame(const int16_t *block, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride);
void stk_dct_flat(int16_t *quad, int q, uint8_t *out, ptrdiff_t stride);

enum { CONST_BITS = 13, PASS1_BITS = 2 };

// saturate brings v between -limit - 1 and limit.
static INLINE int32_t saturate(int32_t v, int32_t limit) { return v < -limit - 1 ? -limit - 1 : v > limit ? limit : v; }

// only_first reports whether rows 1 to 7 of a block are zero, row aside not looked at; 0: all looked at.
static INLINE int only_first(const int16_t *block, int aside) {
  int any = 0;
  for (int r = 1; r < 8; r++)
    for (int c = 0; c < 8 && r != aside; c++) any |= block[r * QUAD_ROW + c];
  return !any;
}

// FIX(x) is x * 2^13, rounded.
enum {
  FIX_0_298 = 2446,   // sqrt(2) * (-c1 + c3 + c5 - c7), 0.298631336; ck = cos(k pi / 16)
  FIX_0_390 = 3196,   // sqrt(2) * (c3 - c5), 0.390180644
  FIX_0_541 = 4433,   // sqrt(2) * c6, 0.541196100
  FIX_0_765 = 6270,   // sqrt(2) * (c2 - c6), 0.765366865
  FIX_0_899 = 7373,   // sqrt(2) * (c3 - c7), 0.899976223
  FIX_1_175 = 9633,   // sqrt(2) * c3, 1.175875602
  FIX_1_501 = 12299,  // sqrt(2) * (c1 + c3 - c5 - c7), 1.501321110
  FIX_1_847 = 15137,  // sqrt(2) * (c2 + c6), 1.847759065
  FIX_1_961 = 16069,  // sqrt(2) * (c3 + c5), 1.961570560
  FIX_2_053 = 16819,  // sqrt(2) * (c1 + c3 - c5 + c7), 2.053119869
  FIX_2_562 = 20995,  // sqrt(2) * (c1 + c3), 2.562915447
  FIX_3_072 = 25172   // sqrt(2) * (c1 + c3 + c5 - c7), 3.072711026
};

#endif

#ifdef LANES

// even_part makes the even part of half the columns, rounded for the shift that ends
// the pass: e[i] goes with the odd part o[i] of odd_part.
static INLINE void even_part(V e[4], V z26, V sum, V diff, V round) {
  const V t3 = v_madd(v_zero(), z26, v_pair(FIX_0_541 + FIX_0_765, FIX_0_541));
  const V t2 = v_madd(v_zero(), z26, v_pair(FIX_0_541, FIX_0_541 - FIX_1_847));
  // The upper halves of int32, shifted down: times 2^CONST_BITS.
  const V t0 = v_add32(v_sra32(sum, 16 - CONST_BITS), round), t1 = v_add32(v_sra32(diff, 16 - CONST_BITS), round);
  e[0] = v_add32(t0, t3);
  e[3] = v_sub32(t0, t3);
  e[1] = v_add32(t1, t2);
  e[2] = v_sub32(t1, t2);
}

static INLINE void odd_part(V o[4], V z34, V i71, V i53) {
  const V z3 = v_madd(v_zero(), z34, v_pair(FIX_1_175 - FIX_1_961, FIX_1_175));
  const V z4 = v_madd(v_zero(), z34, v_pair(FIX_1_175, FIX_1_175 - FIX_0_390));
  o[3] = v_madd(z3, i71, v_pair(FIX_0_298 - FIX_0_899, -FIX_0_899));
  o[0] = v_madd(z4, i71, v_pair(-FIX_0_899, FIX_1_501 - FIX_0_899));
  o[2] = v_madd(z4, i53, v_pair(FIX_2_053 - FIX_2_562, -FIX_2_562));
  o[1] = v_madd(z3, i53, v_pair(-FIX_2_562, FIX_3_072 - FIX_2_562));
}

// odd_sparse is odd_part where inputs 5 and 7 are zero, with the same sums.
static INLINE void odd_sparse(V o[4], V i31) {
  o[3] = v_madd(v_zero(), i31, v_pair(FIX_1_175 - FIX_1_961, FIX_1_175 - FIX_0_899));
  o[0] = v_madd(v_zero(), i31, v_pair(FIX_1_175, FIX_1_175 - FIX_0_390 + FIX_1_501 - FIX_0_899));
  o[2] = v_madd(v_zero(), i31, v_pair(FIX_1_175 - FIX_2_562, FIX_1_175 - FIX_0_390));
  o[1] = v_madd(v_zero(), i31, v_pair(FIX_1_175 - FIX_1_961 + FIX_3_072 - FIX_2_562, FIX_1_175));
}

// finish packs the int32 of both halves of columns into rows i and 7 - i.
static INLINE void finish(V r[8], const V el[4], const V ol[4], const V eh[4], const V oh[4], const int shift) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    r[i] = v_short32(v_sra32(v_add32(el[i], ol[i]), shift), v_sra32(v_add32(eh[i], oh[i]), shift));
    r[7 - i] = v_short32(v_sra32(v_sub32(el[i], ol[i]), shift), v_sra32(v_sub32(eh[i], oh[i]), shift));
  }
}

// pass transforms all columns, r[i] being row i.
static INLINE void pass(V r[8], const int shift) {
  const V round = v_set32(1 << shift >> 1), zero = v_zero();
  const V sum = v_add(r[0], r[4]), diff = v_sub(r[0], r[4]), z3 = v_add(r[7], r[3]), z4 = v_add(r[5], r[1]);
  V el[4], ol[4], eh[4], oh[4];
  even_part(el, v_pairs_lo(r[2], r[6]), v_lo(zero, sum), v_lo(zero, diff), round);
  odd_part(ol, v_pairs_lo(z3, z4), v_pairs_lo(r[7], r[1]), v_pairs_lo(r[5], r[3]));
  even_part(eh, v_pairs_hi(r[2], r[6]), v_hi(zero, sum), v_hi(zero, diff), round);
  odd_part(oh, v_pairs_hi(z3, z4), v_pairs_hi(r[7], r[1]), v_pairs_hi(r[5], r[3]));
  finish(r, el, ol, eh, oh, shift);
}

// pass_sparse is pass where rows 4 to 7 are zero.
static INLINE void pass_sparse(V r[8], const int shift) {
  const V round = v_set32(1 << shift >> 1), zero = v_zero();
  V el[4], ol[4], eh[4], oh[4];
  even_part(el, v_pairs_lo(r[2], zero), v_lo(zero, r[0]), v_lo(zero, r[0]), round);
  odd_sparse(ol, v_pairs_lo(r[3], r[1]));
  even_part(eh, v_pairs_hi(r[2], zero), v_hi(zero, r[0]), v_hi(zero, r[0]), round);
  odd_sparse(oh, v_pairs_hi(r[3], r[1]));
  finish(r, el, ol, eh, oh, shift);
}

// pass_corner is pass_sparse and turn where columns 4 to 7 are zero too, and stay so.
static INLINE void pass_corner(V r[8], const int shift) {
  const V round = v_set32(1 << shift >> 1), zero = v_zero();
  V e[4], o[4], up[4], down[4], a[4], b[4];
  even_part(e, v_pairs_lo(r[2], zero), v_lo(zero, r[0]), v_lo(zero, r[0]), round);
  odd_sparse(o, v_pairs_lo(r[3], r[1]));
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    up[i] = v_sra32(v_add32(e[i], o[i]), shift);
    down[i] = v_sra32(v_sub32(e[i], o[i]), shift);  // row 7 - i
  }
  // Rows i and i + 4, four columns of each.
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) a[i] = v_short32(up[i], down[3 - i]);
  b[0] = v_lo(a[0], a[1]);
  b[1] = v_lo(a[2], a[3]);
  b[2] = v_hi(a[0], a[1]);
  b[3] = v_hi(a[2], a[3]);
  a[0] = v_lo32(b[0], b[1]);
  a[1] = v_hi32(b[0], b[1]);
  a[2] = v_lo32(b[2], b[3]);
  a[3] = v_hi32(b[2], b[3]);
  r[0] = v_lo64(a[0], a[2]);
  r[1] = v_hi64(a[0], a[2]);
  r[2] = v_lo64(a[1], a[3]);
  r[3] = v_hi64(a[1], a[3]);
}

// turn transposes each block.
static INLINE void turn(V r[8]) {
  V a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    a[2 * i] = v_lo(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = v_hi(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    b[4 * i] = v_lo32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = v_hi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = v_lo32(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = v_hi32(a[4 * i + 1], a[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    r[2 * i] = v_lo64(b[i], b[4 + i]);
    r[2 * i + 1] = v_hi64(b[i], b[4 + i]);
  }
}

// write turns columns into rows of bytes around 128 and stores them.
static INLINE void write_rows(const V c[8], uint8_t *out, ptrdiff_t stride) {
  V a[4], b[4];
  // Of pairs of columns k and k + 4: bytes of both, by row.
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) a[i] = v_pack16(c[i], c[i + 4]);
  // Three perfect shuffles bring together what was a row: columns 0 2 4 6 and 1 3 5 7 first.
  b[0] = v_lo8(a[0], a[2]);
  b[1] = v_hi8(a[0], a[2]);
  b[2] = v_lo8(a[1], a[3]);
  b[3] = v_hi8(a[1], a[3]);
  // b: lo has columns 0 and 2 of rows 0..7, hi 4 and 6.
  a[0] = v_lo8(b[0], b[2]);
  a[1] = v_hi8(b[0], b[2]);
  a[2] = v_lo8(b[1], b[3]);
  a[3] = v_hi8(b[1], b[3]);
  // a[0]: columns 0 1 2 3 of rows 0..3, a[1] of rows 4..7; a[2], a[3]: columns 4 to 7.
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    v_rows(v_center(v_lo32(a[i], a[2 + i])), out + (4 * i) * stride, stride);
    v_rows(v_center(v_hi32(a[i], a[2 + i])), out + (4 * i + 2) * stride, stride);
  }
}

// DCT_NAME transforms a quad into 8 rows of 32 bytes, and zeroes it. reach is how far
// its coefficients go in zigzag order.
static void DCT_NAME(int16_t *quad, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride) {
  if (reach <= 1) {
    stk_dct_flat(quad, quant[0], out, stride);
    return;
  }
  // Up to the diagonal from row 3 to column 3.
  const int rows = reach <= 10 ? 4 : 8;
  for (int b = 0; b < 4; b += LANES / 8, quad += LANES, out += LANES) {
    V r[8];
    if (rows == 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) r[i] = v_mul(v_load(quad + i * QUAD_ROW), v_row(quant + 8 * i));
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) r[i] = v_mul(v_load(quad + i * QUAD_ROW), v_row(quant + 8 * i));
    }
    if (UNLIKELY(v_beyond(r, rows))) {
      for (int i = 0; i < LANES / 8; i++) stk_dct_block(quad + 8 * i, quant, out + 8 * i, stride);
    } else if (rows == 4) {
      pass_corner(r, CONST_BITS - PASS1_BITS);
      pass_sparse(r, CONST_BITS + PASS1_BITS + 3);
      write_rows(r, out, stride);
    } else {
      pass(r, CONST_BITS - PASS1_BITS);
      turn(r);
      pass(r, CONST_BITS + PASS1_BITS + 3);
      write_rows(r, out, stride);
    }
    for (int i = 0; i < rows; i++) v_store(quad + i * QUAD_ROW, v_zero());
  }
}

#endif
