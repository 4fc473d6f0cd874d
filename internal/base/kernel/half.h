// Numbers of 16 bits, as half.go has them: plain C that compilers vectorise, included after
// the pragmas of a file.
#ifndef STK_HALF_H
#define STK_HALF_H

#include <stdint.h>
#include <string.h>

// The types of numbers, numbered as in Go.
enum { STK_FLOAT32, STK_FLOAT64, STK_FLOAT16, STK_BFLOAT16 };

static inline int32_t stk_bits(float v) {
  int32_t b;
  memcpy(&b, &v, sizeof b);
  return b;
}

static inline float stk_number(int32_t b) {
  float v;
  memcpy(&v, &b, sizeof v);
  return v;
}

static inline float stk_of_bfloat16(uint16_t h) { return stk_number((int32_t)((uint32_t)h << 16)); }

static inline uint16_t stk_bfloat16(float v) {
  const uint32_t b = (uint32_t)stk_bits(v), near = b + 0x7fff + (b >> 16 & 1), nan = b | 1 << 22;
  return (uint16_t)(((int32_t)(b & 0x7fffffff) > 0x7f800000 ? nan : near) >> 16);
}

// The exponents of the two types are 112 apart. A product moves the number, so that those
// below 2^-14 become what they are in float32; infinity and NaN have exponents of their own.
static inline float stk_of_float16(uint16_t h) {
  const int32_t size = (int32_t)(h & 0x7fff) << 13, sign = (int32_t)((uint32_t)(h & 0x8000) << 16);
  const int32_t moved = stk_bits(stk_number(size) * 0x1p112f);
  return stk_number((size >= 0x0f800000 ? size | 0x7f800000 : moved) | sign);
}

// Below 2^-14, numbers are multiples of 2^-24, which is what a sum with 1/2 rounds to.
static inline uint16_t stk_float16(float v) {
  const int32_t b = stk_bits(v), size = b & 0x7fffffff, sign = b >> 16 & 0x8000;
  const int32_t near = (size - (112 << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  const int32_t small = stk_bits(stk_number(size) + 0.5f) - 0x3f000000;
  int32_t r = size < 0x38800000 ? small : near;
  r = size >= 0x47800000 ? 0x7c00 : r;
  r = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : r;
  return (uint16_t)(r | sign);
}

// stk_half is the number of a type of 16 bits that is nearest to v.
static inline uint16_t stk_half(int type, float v) { return type == STK_FLOAT16 ? stk_float16(v) : stk_bfloat16(v); }

#endif
