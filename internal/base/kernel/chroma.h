// Upsampling of chroma samples, as libjpeg's "fancy" upsampling does it: a sample
// is at the middle of the pixels that it covers, and a pixel takes three quarters
// of the nearest sample and one quarter of the next. One source, compiled for each
// target; compilers vectorise it.
//
// Inputs can be read one sample to the left and to the right, where the next sample
// is, or, at the edge of the picture, the same sample again. Outputs may be written
// STK_SLACK bytes past their end.
#include "stk.h"

// h2 makes 2n pixels from n samples.
static void CHROMA(h2)(const uint8_t *restrict in, uint8_t *restrict out, int n) {
  for (int i = 0; i < n; i++) {
    const int c = 3 * in[i];
    out[2 * i] = (uint8_t)((c + in[i - 1] + 1) >> 2);
    out[2 * i + 1] = (uint8_t)((c + in[i + 1] + 2) >> 2);
  }
}

// v2 makes n pixels between a row of samples and the next one; bias is 1 for the
// upper of two output rows, 2 for the lower.
static void CHROMA(v2)(const uint8_t *restrict near, const uint8_t *restrict far, uint8_t *restrict out, int n, int bias) {
  for (int i = 0; i < n; i++) out[i] = (uint8_t)((3 * near[i] + far[i] + bias) >> 2);
}

// h2v2 is both at once, rounded once.
static void CHROMA(h2v2)(const uint8_t *restrict near, const uint8_t *restrict far, uint8_t *restrict out, int n) {
  for (int i = 0; i < n; i++) {
    const int before = 3 * near[i - 1] + far[i - 1], c = 3 * (3 * near[i] + far[i]), after = 3 * near[i + 1] + far[i + 1];
    out[2 * i] = (uint8_t)((c + before + 8) >> 4);
    out[2 * i + 1] = (uint8_t)((c + after + 7) >> 4);
  }
}
