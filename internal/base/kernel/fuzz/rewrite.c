// Rewriting with restart markers (IndexJPEG): the result must be valid, and show the
// same picture as the file.
#include "fuzz.h"

#include <string.h>

// same reports whether a rewritten file shows what libjpeg sees in the first, without
// damage in either.
static const char *same(const reference *was, const uint8_t *p, size_t n) {
  static reference is;
  reference_decode(&is, p, n, 0);
  if (is.warnings || is.failed || is.rows != is.h) return "what was rewritten is damaged";
  if (is.w != was->w || is.h != was->h || is.c != was->c) return "what was rewritten has another size";
  return memcmp(is.pix, was->pix, (size_t)is.w * (size_t)is.h * (size_t)is.c) ? "what was rewritten has other pixels" : NULL;
}

const char *rewrite_check(rng *r, stk_lane *l, const header *h, const reference *f, const uint8_t *p, size_t n) {
  static reference hasty;
  stk_rewrite w = {.w = h->w, .h = h->h, .components = h->components};
  w.wish = one_in(r, 3) ? 8 : among(r, 1, 40);
  w.percent = one_in(r, 3) ? 100 : 10000;
  if (h->refused || h->arithmetic || !f->pix || stk_index_run(l, p, n, &w) != STK_OK || w.kept) return NULL;
  if (f->opened && !reference_blames(f, 0, 0, f->w, f->h, 16) && f->rows == f->h) {
    const char *bad = same(f, w.out, w.nout);
    if (!bad) return NULL;
  }
  // libjpeg reads several scans itself, in its fast way.
  reference_decode(&hasty, p, n, 1);
  if (hasty.failed && !hasty.warnings) return NULL;  // fractional sampling, which libjpeg only reads
  if (!hasty.opened || reference_blames(&hasty, 0, 0, hasty.w, hasty.h, 16) || hasty.rows != hasty.h) return "damage was rewritten";
  return same(&hasty, w.out, w.nout);
}
