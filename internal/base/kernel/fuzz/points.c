// Entry points that a file is given: its own, wrong ones, those of other files. And which
// wrong pictures can come of them.
//
// A decoder compares the points that it passes, and one after each jump. So a wrong picture
// is one of two: the damage is in bytes that it leapt over, and the picture is that before
// the damage; or what it read after each jump fits the next point. Few MCUs fit by chance, so
// this happens in pictures as small as these. Anything else is a finding.
#include "fuzz.h"

#include "huff.h"

#include <stdlib.h>

static struct {
  const stk_point *known;
  int jump[POINTS_MOST];  // to which of them
  int n;
} seen;

void points_watch(const stk_point *known) {
  if (known) seen.n = 0;
  seen.known = known;
}

// The linker has the kernel call it instead of stk_entry_enter (--wrap).
void __real_stk_entry_enter(stk_huff *h, const stk_point *p);
void __wrap_stk_entry_enter(stk_huff *h, const stk_point *p);
void __wrap_stk_entry_enter(stk_huff *h, const stk_point *p) {
  if (seen.known == h->known && seen.n < POINTS_MOST) seen.jump[seen.n++] = (int)(p - h->known);
  __real_stk_entry_enter(h, p);
}

const char *points_excuse(const uint8_t *jpeg, size_t n, const stk_point *p, int known) {
  if (seen.n == 0) return "it never began at a point";
  for (int i = 0; i < seen.n; i++) {
    const int at = seen.jump[i];
    if (at + 1 >= known) return "it began at the last point";
    if (!walk_fits(jpeg, n, &p[at], &p[at + 1])) return "it began at a point that the next one does not fit";
  }
  return NULL;
}

// wrong makes points wrong: those from one on, each in another way than the one before it,
// or all of them, by chance.
static void wrong(rng *r, stk_point *p, int n, int all) {
  const int from = all || n == 0 ? 0 : (int)below(r, (uint32_t)n);
  const uint32_t by = 1 + below(r, 100);
  for (int i = from; i < n; i++) {
    if (all)
      p[i] = (stk_point){.mcu = (uint32_t)rnd(r) >> below(r, 32), .byte = (uint32_t)rnd(r) >> below(r, 32), .bit = (uint16_t)below(r, 9)};
    else if (i % 3 == 0)
      p[i].byte += by;
    else if (i % 3 == 1)
      p[i].pred[0] = (int16_t)(p[i].pred[0] + (int)by);
    else
      p[i].mcu += by;
  }
}

int points_make(rng *r, stk_lane *l, int kind, const uint8_t *jpeg, size_t n, int spacing, stk_point *out) {
  stk_learn_run(l, jpeg, n, spacing);
  int known = stk_lane_entries(l)->nfound;
  if (known > POINTS_MOST) known = POINTS_MOST;
  if (known) memcpy(out, stk_lane_found(l), (size_t)known * sizeof *out);
  if (one_in(r, 2)) known = (int)below(r, (uint32_t)known + 1);
  if (kind == LATER || kind == CHANCE) wrong(r, out, known, kind == CHANCE);
  return known;
}

// covered is what a fingerprint covers (Fingerprint in entry.go), as bytes.
static void covered(bytes *out, const bytes *b) {
  const uint32_t n = (uint32_t)b->n;
  out->n = 0;
  bytes_put(out, &n, sizeof n);
  for (size_t at = 2; at + 4 <= b->n && b->p[at] == 0xff;) {
    const int m = b->p[at + 1];
    if (m == 0xff) {
      at++;
      continue;
    }
    size_t end = at + 2 + (size_t)(b->p[at + 2] << 8 | b->p[at + 3]);
    if (end > b->n) return;
    if (m == M_SOS) end = end + POINTS_HEAD < b->n ? end + POINTS_HEAD : b->n;
    if (m == M_SOF0 || m == M_SOF1 || m == M_DHT || m == M_DQT || m == M_DRI || m == M_APP14 || m == M_SOS) bytes_put(out, b->p + at, end - at);
    if (m == M_SOS) return;
    at = end;
  }
}

int points_alike(const bytes *a, const bytes *b) {
  static bytes ca, cb;
  covered(&ca, a);
  covered(&cb, b);
  return ca.n == cb.n && !memcmp(ca.p, cb.p, ca.n);
}
