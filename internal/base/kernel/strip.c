// Where the segments of a JPEG's scan begin, for a part of it that another decoder reads.
#include "huff.h"

int stk_strip_run(stk_lane *l, const uint8_t *jpeg, size_t n, stk_strip *s) {
  l->code = STK_OK;
  s->n = 0;
  if (setjmp(l->env)) return l->code;
  stk_frame f;
  if (!stk_frame_read(&f, jpeg, n) || f.restart == 0) return STK_ELSEWHERE;
  stk_huff *h = stk_huff_begin(l, &f);
  stk_segments(h);
  h->f = NULL;
  if (!h->seg) return STK_ELSEWHERE;
  s->seg = h->seg;
  s->n = (h->mcus + h->restart - 1) / h->restart;
  return STK_OK;
}
