// MixUp: what mix.c and mix_avx2.c share. A run of numbers of all rows is read and written
// once; the row before comes from the cache.
#ifndef STK_MIX_H
#define STK_MIX_H

#include <stddef.h>

#include "half.h"

enum { STK_MIX_RUN = 2048 };  // as mixRun in Go

#define STK_MIX_ROWS(type, real) type *data, size_t size, const int32_t *rows, size_t count, real k, real r

// BLEND defines blend_NAME, over n numbers of a type that wide makes real, and narrow rounds.
#define BLEND(name, type, real, wide, narrow)                                                               \
  static void blend_##name(type *restrict own, const type *restrict before, size_t n, real k, real r) {     \
    for (size_t j = 0; j < n; j++) {                                                                        \
      const type a = narrow(wide(before[j]) * r), b = narrow(wide(own[j]) * k);                             \
      own[j] = narrow(wide(a) + wide(b));                                                                   \
    }                                                                                                       \
  }

// MIX defines a function that does blend_NAME to rows.
#define MIX(function, name, type, real)                                                                     \
  void function(STK_MIX_ROWS(type, real)) {                                                                 \
    type last[STK_MIX_RUN];                                                                                 \
    for (size_t from = 0; from < size; from += STK_MIX_RUN) {                                               \
      const size_t n = size - from < STK_MIX_RUN ? size - from : STK_MIX_RUN;                               \
      memcpy(last, data + (size_t)rows[count - 1] * size + from, n * sizeof *last);                         \
      for (size_t i = count; i-- > 1;)                                                                      \
        blend_##name(data + (size_t)rows[i] * size + from, data + (size_t)rows[i - 1] * size + from, n, k, r); \
      blend_##name(data + (size_t)rows[0] * size + from, last, n, k, r);                                    \
    }                                                                                                       \
  }

// stk_mix mixes rows of size numbers of a type (STK_FLOAT32 ...): k is the share of a row
// itself, r that of the row before.
void stk_mix(void *data, size_t size, int type, const int32_t *rows, size_t count, double k, double r, int level);

// stk_mix_level is the level of the processor: 1 if mix_avx2.c runs.
int stk_mix_level(void);

#ifdef __x86_64__
void stk_mix_f16_avx2(STK_MIX_ROWS(uint16_t, float));
void stk_mix_bf16_avx2(STK_MIX_ROWS(uint16_t, float));
#endif

#endif
