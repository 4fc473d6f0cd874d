// The inverse DCT to blocks of 4, 2 or 1 samples per side, in plain C: the fallback
// of reduced.h's vectors for numbers beyond those of real pictures, and the only form
// if the compiler has no vectors.
#include "reduced.h"

#pragma GCC optimize("O3")

// shifted is v / 2^n, rounded. Sums wrap, like those of vectors.
static int32_t shifted(uint32_t v, int n) { return (int32_t)(v + (1u << n >> 1)) >> n; }

static uint8_t sample(uint32_t v, int n) { return (uint8_t)(saturate(shifted(v, n), INT8_MAX) + 128); }

static uint32_t times(int16_t v, int c) { return (uint32_t)(v * c); }

// plain4 is the transform to four of in[0], in[1], in[2], in[3], in[5], in[6] and in[7].
static void plain4(const int16_t in[8], uint32_t out[4]) {
  const uint32_t dc = times(in[0], 1 << (CONST_BITS + 1)), even = times(in[2], RED_1_847) - times(in[6], RED_0_765);
  const uint32_t outer = times(in[1], RED_2_562) + times(in[3], RED_0_899) - times(in[5], RED_0_601) - times(in[7], RED_0_509);
  const uint32_t inner = times(in[1], RED_1_061) - times(in[3], RED_2_172) + times(in[5], RED_1_451) - times(in[7], RED_0_211);
  out[0] = dc + even + outer;
  out[1] = dc - even + inner;
  out[2] = dc - even - inner;
  out[3] = dc + even - outer;
}

// odd2 is the contribution of coefficients 1, 3, 5 and 7 to a transform to two.
static uint32_t odd2(const int16_t in[8]) {
  return times(in[1], RED_3_624) - times(in[3], RED_1_272) + times(in[5], RED_0_850) - times(in[7], RED_0_720);
}

static void column(const int16_t *block, const uint16_t *quant, int c, int16_t in[8]) {
  for (int r = 0; r < 8; r++) in[r] = (int16_t)(block[r * QUAD_ROW + c] * (int16_t)quant[8 * r + c]);
}

void stk_dct_block4(const int16_t *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride) {
  int16_t mid[4][8];  // after the columns, by row
  const int flat = only_first(block, 4);  // which the transform to four does not read
  for (int c = 0; c < 8; c++) {
    int16_t in[8];
    uint32_t sums[4];
    column(block, quant, c, in);
    plain4(in, sums);
    // libjpeg's vectors treat this case differently, and wrap.
    for (int r = 0; r < 4; r++)
      mid[r][c] = (int16_t)(flat ? in[0] * (1 << PASS1_BITS) : saturate(shifted(sums[r], SHIFT_4), INT16_MAX));
  }
  for (int r = 0; r < 4; r++) {
    uint32_t sums[4];
    plain4(mid[r], sums);
    for (int x = 0; x < 4; x++) out[r * stride + x] = sample(sums[x], SHIFT_4 + ROWS_MORE);
  }
}

void stk_dct_block2(const int16_t *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride) {
  int32_t dc[2] = {0, 0};  // of rows: not clipped
  int16_t mid[2][8];       // after the columns, by row
  for (int c = 0; c < 8; c++) {
    int16_t in[8];
    column(block, quant, c, in);
    const uint32_t even = times(in[0], 1 << (CONST_BITS + 2)), odd = odd2(in);
    const int32_t both[2] = {shifted(even + odd, SHIFT_2), shifted(even - odd, SHIFT_2)};
    for (int r = 0; r < 2; r++) {
      if (c == 0) dc[r] = both[r];
      mid[r][c] = (int16_t)saturate(both[r], INT16_MAX);
    }
  }
  for (int r = 0; r < 2; r++) {
    const uint32_t even = (uint32_t)dc[r] << (CONST_BITS + 2), odd = odd2(mid[r]);
    out[r * stride] = sample(even + odd, SHIFT_2 + ROWS_MORE);
    out[r * stride + 1] = sample(even - odd, SHIFT_2 + ROWS_MORE);
  }
}

void stk_dct_flat_reduced(const int16_t *quad, int q, int side, uint8_t *out, ptrdiff_t stride) {
  for (int b = 0; b < 4; b++) {
    const int16_t dc = (int16_t)(quad[8 * b] * (int16_t)q);
    const uint32_t sum = side == 4 ? times((int16_t)(dc * (1 << PASS1_BITS)), 1 << (CONST_BITS + 1))
                                   : (uint32_t)dc << (CONST_BITS + 2 + PASS1_BITS);
    const uint8_t v = sample(sum, (side == 4 ? SHIFT_4 : SHIFT_2) + ROWS_MORE);
    for (int y = 0; y < side; y++) memset(out + y * stride + side * b, v, (size_t)side);
  }
}

void stk_dct4_plain(int16_t *quad, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride) {
  for (int b = 0; b < 4; b++) stk_dct_block4(quad + 8 * b, quant, out + 4 * b, stride);
  quad_clear(quad, reach);
}

void stk_dct2_plain(int16_t *quad, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride) {
  for (int b = 0; b < 4; b++) stk_dct_block2(quad + 8 * b, quant, out + 2 * b, stride);
  quad_clear(quad, reach);
}

// stk_dct1 is an eighth of DC. libjpeg looks up the sample of the lower ten bits: 0 from
// -512, 255 up to 511.
void stk_dct1(int16_t *quad, const uint16_t *quant, int reach, uint8_t *out, ptrdiff_t stride) {
  (void)stride;
  for (int b = 0; b < 4; b++) {
    const int v = (quad[8 * b] * (int16_t)quant[0] + 4) >> 3;
    out[b] = (uint8_t)(saturate(((v + 512) & 1023) - 512, INT8_MAX) + 128);
  }
  quad_clear(quad, reach);
}
