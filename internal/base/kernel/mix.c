// MixUp: rows of a batch blended with the rows before them.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("O3", "fp-contract=off")
#endif

enum { RUN = 2048 }; // as mixRun in Go

// One run of numbers of all rows: read and written once, the row before from the cache. The
// loops are bound by memory, so what the compiler makes of them for any processor will do.
#define MIX(name, type)                                                                                    \
  static void blend_##name(type *restrict own, const type *restrict before, size_t n, type k, type r) {    \
    for (size_t j = 0; j < n; j++) {                                                                       \
      const type a = before[j] * r, b = own[j] * k;                                                        \
      own[j] = a + b;                                                                                      \
    }                                                                                                      \
  }                                                                                                        \
  void stk_mix_##name(type *data, size_t size, const int32_t *rows, size_t count, type k, type r) {        \
    type last[RUN];                                                                                        \
    for (size_t from = 0; from < size; from += RUN) {                                                      \
      const size_t n = size - from < RUN ? size - from : RUN;                                              \
      memcpy(last, data + (size_t)rows[count - 1] * size + from, n * sizeof *last);                        \
      for (size_t i = count; i-- > 1;)                                                                     \
        blend_##name(data + (size_t)rows[i] * size + from, data + (size_t)rows[i - 1] * size + from, n, k, r); \
      blend_##name(data + (size_t)rows[0] * size + from, last, n, k, r);                                   \
    }                                                                                                      \
  }

MIX(f32, float)
MIX(f64, double)
