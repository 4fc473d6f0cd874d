// Sharpness: the blend of each pixel with the mean of its neighbourhood; sharpen in
// whole.go is the twin.
#include "pass.h"

#include <string.h>

void stk_sharpen(stk_lane *l, const stk_pass *p, const stk_op *o, const source *s, const sink *k) {
  const size_t c = s->c, wide = (size_t)s->w * c;
  const float f = (float)o->n, rest = (float)(1 - o->n);
  uint8_t *t = stk_grow(l, &l->tmp, wide);
  for (int y = 0; y < s->h; y++) {
    const uint8_t *row = s->pix + y * wide;
    if (y == 0 || y == s->h - 1 || s->w < 3) {
      stk_emit(l, p, k, y, row, s->c);
      continue;
    }
    memcpy(t, row, c);
    memcpy(t + wide - c, row + wide - c, c);
    l->target->colours->sharpen(row - wide, row, row + wide, t, (int)wide, s->c, f, rest);
    stk_emit(l, p, k, y, t, s->c);
  }
}
