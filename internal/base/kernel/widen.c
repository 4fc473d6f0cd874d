// Integers written out wider than they are stored: tokens, labels.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC optimize("O3")

// Neither side need be aligned. The loops are bound by their stores: hand-written
// loops for AVX2 and AVX-512 were no faster than what the compiler makes of these for
// any x86-64 (2 to 5 thousand million tokens per second, in the caches).
#define LOOP(from, to)                                      \
  for (size_t i = 0; i < n; i++) {                          \
    from v;                                                 \
    memcpy(&v, src + i * sizeof v, sizeof v);               \
    const to w = (to)v;                                     \
    memcpy(dst + i * sizeof w, &w, sizeof w);               \
  }                                                         \
  return;

#define KIND(from, sign, to) ((from) << 8 | (sign) << 4 | (to))

// stk_widen writes n integers of a kind: bytes per element read, whether its sign is
// extended, bytes per element written. Conversion to a wider unsigned type is defined
// to extend the sign of a signed one.
void stk_widen(uint8_t *restrict dst, const uint8_t *restrict src, size_t n, int kind) {
  switch (kind) {
  case KIND(1, 0, 2): LOOP(uint8_t, uint16_t)
  case KIND(1, 0, 4): LOOP(uint8_t, uint32_t)
  case KIND(1, 0, 8): LOOP(uint8_t, uint64_t)
  case KIND(2, 0, 4): LOOP(uint16_t, uint32_t)
  case KIND(2, 0, 8): LOOP(uint16_t, uint64_t)
  case KIND(4, 0, 8): LOOP(uint32_t, uint64_t)
  case KIND(1, 1, 2): LOOP(int8_t, uint16_t)
  case KIND(1, 1, 4): LOOP(int8_t, uint32_t)
  case KIND(1, 1, 8): LOOP(int8_t, uint64_t)
  case KIND(2, 1, 4): LOOP(int16_t, uint32_t)
  case KIND(2, 1, 8): LOOP(int16_t, uint64_t)
  case KIND(4, 1, 8): LOOP(int32_t, uint64_t)
  }
}
