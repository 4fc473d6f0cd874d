// vp8_decode.h for any processor.
#include "stk.h"

#pragma GCC optimize("O3")
#define DECODE stk_vp8_base
#define MERGE stk_samples_base.merge
int stk_vp8_base(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h);
#include "vp8_decode.h"

int stk_vp8(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h, int level) {
#ifdef __x86_64__
  if (level > 0) return stk_vp8_avx2(rgb, src, n, w, h);
#endif
  (void)level;
  return stk_vp8_base(rgb, src, n, w, h);
}
