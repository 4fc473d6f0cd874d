// The inverse DCT in plain C: the reference of dct.h's vectors, their fallback for
// numbers beyond those of real pictures, and the only form if the compiler has no
// vectors.
#include "dct.h"

#pragma GCC optimize("O3")

static int16_t wrap16(int32_t v) { return (int16_t)(uint16_t)(uint32_t)v; }

// transform is the one-dimensional inverse DCT of eight numbers, before its shift.
// Sums wrap, like those of vectors.
static inline void transform(const int16_t in[8], int32_t out[8], int shift) {
  const int32_t round = 1 << shift >> 1;
  const uint32_t z2 = (uint32_t)in[2], z3 = (uint32_t)in[6];
  const uint32_t t3 = z2 * (FIX_0_541 + FIX_0_765) + z3 * FIX_0_541;
  const uint32_t t2 = z2 * FIX_0_541 + z3 * (uint32_t)(FIX_0_541 - FIX_1_847);
  const uint32_t t0 = ((uint32_t)wrap16(in[0] + in[4]) << CONST_BITS) + (uint32_t)round;
  const uint32_t t1 = ((uint32_t)wrap16(in[0] - in[4]) << CONST_BITS) + (uint32_t)round;
  const uint32_t even[4] = {t0 + t3, t1 + t2, t1 - t2, t0 - t3};

  const uint32_t a = (uint32_t)wrap16(in[7] + in[3]), b = (uint32_t)wrap16(in[5] + in[1]);
  const uint32_t i1 = (uint32_t)in[1], i3 = (uint32_t)in[3], i5 = (uint32_t)in[5], i7 = (uint32_t)in[7];
  const uint32_t y3 = a * (uint32_t)(FIX_1_175 - FIX_1_961) + b * FIX_1_175;
  const uint32_t y4 = a * FIX_1_175 + b * (FIX_1_175 - FIX_0_390);
  const uint32_t odd[4] = {
      y4 + i7 * (uint32_t)-FIX_0_899 + i1 * (FIX_1_501 - FIX_0_899),
      y3 + i5 * (uint32_t)-FIX_2_562 + i3 * (FIX_3_072 - FIX_2_562),
      y4 + i5 * (uint32_t)(FIX_2_053 - FIX_2_562) + i3 * (uint32_t)-FIX_2_562,
      y3 + i7 * (uint32_t)(FIX_0_298 - FIX_0_899) + i1 * (uint32_t)-FIX_0_899,
  };
  for (int i = 0; i < 4; i++) {
    out[i] = (int32_t)(even[i] + odd[i]) >> shift;
    out[7 - i] = (int32_t)(even[i] - odd[i]) >> shift;
  }
}

void stk_dct_block(const int16_t *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride) {
  int16_t mid[8][8];  // after the columns, by row
  const int flat = only_first(block, 0);
  for (int c = 0; c < 8; c++) {
    int16_t in[8];
    int32_t sums[8];
    for (int r = 0; r < 8; r++) in[r] = wrap16(block[r * QUAD_ROW + c] * (int16_t)quant[8 * r + c]);
    // libjpeg's vectors treat this case differently, and wrap.
    if (!flat) transform(in, sums, CONST_BITS - PASS1_BITS);
    for (int r = 0; r < 8; r++)
      mid[r][c] = flat ? wrap16(in[0] * (1 << PASS1_BITS)) : (int16_t)saturate(sums[r], INT16_MAX);
  }
  for (int r = 0; r < 8; r++) {
    int32_t sums[8];
    transform(mid[r], sums, CONST_BITS + PASS1_BITS + 3);
    for (int c = 0; c < 8; c++) out[r * stride + c] = (uint8_t)(saturate(sums[c], INT8_MAX) + 128);
  }
}

// Eight one-dimensional transforms side by side: number i of transform c is at i * 8
// + c. The form is one that compilers vectorise: they widen int16 times a 16-bit
// constant well. It neither wraps nor saturates. corner: numbers 4 to 7 are zero.
static inline __attribute__((always_inline)) void eight(const int16_t *restrict in, int16_t *restrict out, const int shift, const int corner) {
  const int32_t round = 1 << shift >> 1;
  for (int c = 0; c < 8; c++) {
    const int16_t i0 = in[c], i1 = in[8 + c], i2 = in[16 + c], i3 = in[24 + c];
    const int16_t i4 = corner ? 0 : in[32 + c], i5 = corner ? 0 : in[40 + c];
    const int16_t i6 = corner ? 0 : in[48 + c], i7 = corner ? 0 : in[56 + c];
    const int32_t t3 = i2 * (FIX_0_541 + FIX_0_765) + i6 * FIX_0_541, t2 = i2 * FIX_0_541 + i6 * (FIX_0_541 - FIX_1_847);
    const int32_t t0 = (i0 + i4) * (1 << CONST_BITS) + round, t1 = (i0 - i4) * (1 << CONST_BITS) + round;
    // The odd part, each output as one sum: see odd_part in dct.h for the steps that
    // give these constants.
    const int32_t o0 = i1 * (FIX_1_175 - FIX_0_390 + FIX_1_501 - FIX_0_899) + i3 * FIX_1_175 +
                       i5 * (FIX_1_175 - FIX_0_390) + i7 * (FIX_1_175 - FIX_0_899);
    const int32_t o1 = i1 * FIX_1_175 + i3 * (FIX_1_175 - FIX_1_961 + FIX_3_072 - FIX_2_562) +
                       i5 * (FIX_1_175 - FIX_2_562) + i7 * (FIX_1_175 - FIX_1_961);
    const int32_t o2 = i1 * (FIX_1_175 - FIX_0_390) + i3 * (FIX_1_175 - FIX_2_562) +
                       i5 * (FIX_1_175 - FIX_0_390 + FIX_2_053 - FIX_2_562) + i7 * FIX_1_175;
    const int32_t o3 = i1 * (FIX_1_175 - FIX_0_899) + i3 * (FIX_1_175 - FIX_1_961) + i5 * FIX_1_175 +
                       i7 * (FIX_0_298 - FIX_0_899 + FIX_1_175 - FIX_1_961);
    out[c] = (int16_t)((t0 + t3 + o0) >> shift);
    out[8 + c] = (int16_t)((t1 + t2 + o1) >> shift);
    out[16 + c] = (int16_t)((t1 - t2 + o2) >> shift);
    out[24 + c] = (int16_t)((t0 - t3 + o3) >> shift);
    out[32 + c] = (int16_t)((t0 - t3 - o3) >> shift);
    out[40 + c] = (int16_t)((t1 - t2 - o2) >> shift);
    out[48 + c] = (int16_t)((t1 + t2 - o1) >> shift);
    out[56 + c] = (int16_t)((t0 + t3 - o0) >> shift);
  }
}

// TAME is the largest sum of a column's inputs for which the sum times its largest
// factor, 1.39 * 2^PASS1_BITS, and the sum of two such products fit into int16.
enum { TAME = 2900 };

void stk_dct_tame(const int16_t *block, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride) {
  const int corner = reach <= 10;
  int16_t in[BLOCK], mid[BLOCK];
  uint32_t sum[8] = {0}, wild = 0;
  for (int r = 0; r < (corner ? 4 : 8); r++)
    for (int c = 0; c < 8; c++) {
      const int32_t v = block[r * QUAD_ROW + c] * (int16_t)quant[8 * r + c];
      const uint32_t size = v < 0 ? -(uint32_t)v : (uint32_t)v;
      sum[c] += size;
      wild |= size;
      in[8 * r + c] = (int16_t)v;
    }
  for (int c = 0; c < 8; c++) wild |= sum[c] > TAME ? 1u << 31 : 0;
  if (UNLIKELY(wild >= 1u << 15)) {
    stk_dct_block(block, quant, out, stride);
    return;
  }
  if (corner)
    eight(in, mid, CONST_BITS - PASS1_BITS, 1);
  else
    eight(in, mid, CONST_BITS - PASS1_BITS, 0);
  for (int r = 0; r < 8; r++)
    for (int c = 0; c < (corner ? 4 : 8); c++) in[8 * c + r] = mid[8 * r + c];
  if (corner)
    eight(in, mid, CONST_BITS + PASS1_BITS + 3, 1);
  else
    eight(in, mid, CONST_BITS + PASS1_BITS + 3, 0);
  uint8_t bytes[BLOCK];
  for (int i = 0; i < BLOCK; i++) {
    int16_t v = mid[i];
    v = v < -128 ? -128 : v;
    v = v > 127 ? 127 : v;
    bytes[i] = (uint8_t)(v + 128);
  }
  for (int r = 0; r < 8; r++)
    for (int c = 0; c < 8; c++) out[r * stride + c] = bytes[8 * c + r];
}

void stk_dct_flat(int16_t *quad, int q, uint8_t *out, ptrdiff_t stride) {
  uint64_t all[4];
  for (int b = 0; b < 4; b++) {
    const int32_t v = wrap16(wrap16(quad[8 * b] * (int16_t)q) * (1 << PASS1_BITS));
    const int32_t half = 1 << (PASS1_BITS + 3) >> 1;
    all[b] = (uint64_t)(saturate((v + half) >> (PASS1_BITS + 3), INT8_MAX) + 128) * UINT64_C(0x0101010101010101);
    quad[8 * b] = 0;
  }
  for (int r = 0; r < 8; r++) memcpy(out + r * stride, all, sizeof all);
}
