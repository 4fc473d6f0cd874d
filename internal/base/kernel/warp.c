// Warps: the rows of a result, each of which a target makes.
#include "pass.h"

#pragma GCC optimize("O3", "fp-contract=off")
#include "warp.h"

void stk_warp_base(const stk_warp *w, uint8_t *out) {
  int i = 0;
  if (w->map->single) {
    enum { SOME = 32 };            // places, that compilers make side by side
    for (int32_t x[SOME], y[SOME]; i + SOME <= w->n; i += SOME) {
      for (int k = 0; k < SOME; k++) stk_place_single(w, i + k, &x[k], &y[k]);
      for (int k = 0; k < SOME; k++) stk_warp_near(w, x[k], y[k], out + (size_t)(i + k) * w->c);
    }
  }
  for (; i < w->n; i++) stk_warp_one(w, i, out + (size_t)i * w->c);
}

void stk_warp_whole(stk_lane *l, const stk_pass *p, const stk_op *o, const source *s, const sink *k) {
  const stk_map *m = &o->warp;
  stk_warp w = {.pix = s->pix, .w = s->w, .h = s->h, .c = s->c, .n = p->ww, .map = m};
  uint8_t *t = stk_grow(l, &l->tmp, (size_t)w.n * w.c);
  for (int y = 0; y < p->wh; y++) {
    const double at = y + 0.5;
    w.x = m->whole[1] * y + m->whole[2];
    w.y = m->whole[4] * y + m->whole[5];
    w.nx = m->real[1] * at + m->real[2];
    w.ny = m->real[4] * at + m->real[5];
    w.part = m->real[7] * at + 1;
    w.gx = m->grid[1] * ((float)y - m->middle[1]);
    w.gy = m->grid[4] * ((float)y - m->middle[1]);
    l->target->warp(&w, t);
    stk_emit(l, p, k, y, t, w.c);
  }
}
