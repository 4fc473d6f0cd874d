// Colours: what colour.c, colour.h and the passes share. colour.go has the meaning of
// each step, and the twin. It is included after the pragmas of a file, which its functions
// must share to be inlined.
#ifndef STK_COLOURS_H
#define STK_COLOURS_H

#include "stk.h"

// stk_level is a float as a byte: clamped, its fraction cut off.
static inline uint8_t stk_level(float x) {
  x = x < 255 ? x : 255;
  x = x > 0 ? x : 0;
  return (uint8_t)(int32_t)x;
}

// The weights of torchvision's luma, in ten thousandths. Sums are exact as floats, and
// their products with a ten thousandth are cut off where the quotients are.
enum { STK_FLAT_R = 2989, STK_FLAT_G = 5870, STK_FLAT_B = 1140 };

#endif
