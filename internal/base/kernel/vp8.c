// vp8_decode.h for any processor.
#include "stk.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#pragma GCC optimize("O3")
#define DECODE stk_vp8_base
#define MERGE stk_samples_base.merge
#include "vp8_decode.h"

int stk_vp8(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h, int level) {
#ifdef __x86_64__
  if (level > 0) return stk_vp8_avx2(rgb, src, n, w, h);
#endif
  (void)level;
  return stk_vp8_base(rgb, src, n, w, h);
}

int stk_vp8_level(void) {
#ifdef __x86_64__
  unsigned a, b, c = 0, d;
  __builtin_cpu_init();
  // Without lzcnt, its opcode is a different instruction.
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & bit_LZCNT) != 0;
#else
  return 0;
#endif
}
