// Sums of pictures: blend.go has their meaning, and the twin.
#include "pass.h"

#include <string.h>

void stk_sum_step(stk_lane *l, const stk_pass *p, const stk_op *o, const source *s, const sink *k) {
  const size_t wide = (size_t)s->w * s->c;
  const int begin = o->op == STK_KEEP, end = o->op == STK_SUM;
  const stk_colours *t = l->target->colours;
  // Only the first step of a sum may grow these: growing loses their contents.
  uint8_t *kept = begin ? stk_grow(l, &l->kept, wide * s->h) : l->kept.p;
  float *sum = begin ? stk_grow(l, &l->sum, wide * s->h * sizeof *sum) : (float *)l->sum.p;
  uint8_t *out = end ? stk_grow(l, &l->tmp, wide) : NULL;
  for (int y = 0; y < s->h; y++, kept += wide, sum += wide) {
    const uint8_t *row = s->pix + y * wide;
    t->weigh(sum, row, (int)wide, (float)o->n, begin);
    if (begin) memcpy(kept, row, wide);
    if (end) t->levels(sum, out, (int)wide);
    stk_emit(l, p, k, y, end ? out : kept, s->c);
  }
}
