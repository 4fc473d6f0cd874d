// MixUp, rows of a batch blended with the rows before them: the choice of code, and that for
// any processor.
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math")
#endif
#include "mix.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

// The loops of float32 and float64 are bound by memory, so what the compiler makes of them
// for any processor will do.
#define SAME(v) (v)
BLEND(f32, float, float, SAME, SAME)
BLEND(f64, double, double, SAME, SAME)
BLEND(f16, uint16_t, float, stk_of_float16, stk_float16)
BLEND(bf16, uint16_t, float, stk_of_bfloat16, stk_bfloat16)

static MIX(mix_f32, f32, float, float)
static MIX(mix_f64, f64, double, double)
static MIX(mix_f16, f16, uint16_t, float)
static MIX(mix_bf16, bf16, uint16_t, float)

void stk_mix(void *data, size_t size, int type, const int32_t *rows, size_t count, double k, double r, int level) {
  switch (type) {
  case STK_FLOAT32: mix_f32(data, size, rows, count, (float)k, (float)r); return;
  case STK_FLOAT64: mix_f64(data, size, rows, count, k, r); return;
  }
  void (*mix)(STK_MIX_ROWS(uint16_t, float)) = type == STK_FLOAT16 ? mix_f16 : mix_bf16;
#ifdef __x86_64__
  if (level > 0) mix = type == STK_FLOAT16 ? stk_mix_f16_avx2 : stk_mix_bf16_avx2;
#endif
  (void)level;
  mix(data, size, rows, count, (float)k, (float)r);
}

int stk_mix_level(void) {
#ifdef __x86_64__
  unsigned a, b, c = 0, d;
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
#else
  return 0;
#endif
}
