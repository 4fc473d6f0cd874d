// Entry points: places in a scan, between two MCUs, where decoding can begin, because the bit
// and the predictors are known. Earlier decodes of the same picture have recorded them.
//
// Known points may be of another file, or forged. After a jump, the next point that is passed
// must agree with the decoder; otherwise, or if decoding fails, the job ends with STK_STALE.
// Decoding reads on to that point before it leaves a place to which it has jumped. The last
// known point of all, and of each segment, is only compared with, so every jump has a point
// after it.
//
// Positions are bytes of the scan as stored. The window has no stuffed bytes any more, so
// h->shift keeps where they were.
#include "huff.h"

static _Noreturn void stale(stk_huff *h) { stk_fail(h->l, STK_STALE, "entry points of another scan"); }

static uint64_t position(const stk_point *p) { return (uint64_t)p->byte << 3 | p->bit; }

enum { FAR = 4, MOST_SPACING = 1 << 20 };  // as in Go

// grid_of is the grid of a scan for which there is a point for about spacing bytes: those of
// the left half of a row, and a quarter as many in the right half. A scan whose own
// segments are as short has none.
static stk_grid grid_of(const stk_huff *h, int64_t bytes, int64_t spacing) {
  stk_grid g = {.cols = h->cols, .left = h->cols / 2, .rows = 1};
  if (spacing > MOST_SPACING) spacing = MOST_SPACING;
  if (spacing <= 0 || (h->restart && h->restart * bytes <= spacing * h->mcus)) return g;
  const int64_t weight = FAR * g.left + g.cols - g.left, per = FAR * g.cols * bytes;
  g.step = (weight * spacing * h->mcus + per - 1) / per;
  if (g.step >= g.cols) g.rows = (spacing * h->mcus + g.cols * bytes - 1) / (g.cols * bytes);
  return g;
}

// after is the first MCU of the grid after MCU at.
static int64_t after(const stk_grid *g, int64_t at) {
  const int64_t y = at / g->cols, x = at % g->cols;
  if (y % g->rows == 0 && g->step < g->cols) {
    int64_t next = (x / g->step + 1) * g->step;
    if (x < g->left && next > g->left) next = g->left;
    if (x >= g->left) next = g->left + ((x - g->left) / (FAR * g->step) + 1) * FAR * g->step;
    if (next < g->cols) return at - x + next;
  }
  return (y / g->rows + 1) * g->rows * g->cols;
}

void stk_entry_aim(stk_huff *h) {
  h->stop = INT64_MAX;
  if (h->grid.step) {
    h->stop = after(&h->grid, h->at);
    while (h->restart && h->stop < h->mcus && h->stop % h->restart == 0) h->stop = after(&h->grid, h->stop);
  }
  if (h->k < h->nknown && h->known[h->k].mcu < h->stop) h->stop = h->known[h->k].mcu;
  if (h->stop >= h->mcus) h->stop = INT64_MAX;
}

void stk_entry_begin(stk_huff *h) {
  stk_entries *e = &h->l->entries;
  const int64_t bytes = h->f->end - h->f->scan;
  const int possible = bytes <= UINT32_MAX && h->mcus <= UINT32_MAX;
  h->k = h->jumped = 0;
  h->lost = INT64_MAX;
  h->known = e->known;
  h->nknown = possible ? e->nknown : 0;
  h->grid = grid_of(h, bytes, possible ? e->spacing : 0);
  e->nfound = e->jumps = e->compared = e->extra = 0;
  e->leapt = 0;
  for (int i = 1; i < h->nknown; i++)
    if (h->known[i].mcu <= h->known[i - 1].mcu || position(&h->known[i]) <= position(&h->known[i - 1])) stale(h);
  if (h->nknown && (h->known[0].mcu == 0 || h->known[h->nknown - 1].mcu >= h->mcus)) stale(h);
  stk_entry_aim(h);
  if (!h->grid.step) return;
  // In each row of the grid, one more than there are steps, and one where the left half ends.
  const int64_t rows = (h->mcus / h->cols + h->grid.rows - 1) / h->grid.rows, step = h->grid.step;
  h->most = rows * (h->grid.left / step + (h->cols - h->grid.left) / (FAR * step) + 3);
  stk_grow(h->l, &h->l->found, (size_t)h->most * sizeof(stk_point));
}

static int learn(stk_lane *l, const uint8_t *jpeg, size_t n) {
  if (setjmp(l->env)) return l->code;
  stk_frame f;
  if (!stk_frame_read(&f, jpeg, n)) return STK_ELSEWHERE;
  stk_huff *h = stk_huff_begin(l, &f);
  stk_huff_walk(h, h->mcus);
  h->f = NULL;
  return STK_OK;
}

int stk_learn_run(stk_lane *l, const uint8_t *jpeg, size_t n, int32_t spacing) {
  l->code = STK_OK;
  l->entries = (stk_entries){.spacing = spacing};
  const int code = learn(l, jpeg, n);
  l->entries.spacing = 0;
  return code;
}

// Up to eight bytes before the next one are not used up yet, so shifts there are kept.
void stk_entry_shift(stk_huff *h, ptrdiff_t n) {
  if (h->lost != INT64_MAX) h->lost = h->fresh ? -1 : h->lost - n;
  if (h->fresh) {
    h->from = h->in - h->f->scan;
    h->fresh = h->shifts = h->shifted = 0;
    return;
  }
  int left = 0, gone = 0;
  while (gone < h->shifts && h->shift[gone] <= n - 8) gone++;
  for (int i = gone; i < h->shifts; i++) h->shift[left++] = (int16_t)(h->shift[i] - n);
  h->from += n + gone;
  h->shifts = left;
  h->shifted = 0;
}

// bits_read is how many bits of the window were read.
static ptrdiff_t bits_read(const stk_huff *h) { return (h->b.p - h->window) * 8 - (ptrdiff_t)(h->b.cnt & 63); }

// here is the point that decoding has reached.
static stk_point here(stk_huff *h) {
  const ptrdiff_t read = bits_read(h), i = read >> 3;
  while (h->shifted < h->shifts && h->shift[h->shifted] <= i) h->shifted++;
  stk_point p = {.mcu = (uint32_t)h->at, .byte = (uint32_t)(h->from + i + h->shifted), .bit = (uint16_t)(read & 7)};
  for (int c = 0; c < h->f->components; c++) p.pred[c] = (int16_t)h->pred[c];
  return p;
}

void stk_entry_meet(stk_huff *h) {
  stk_entries *e = &h->l->entries;
  if (bits_read(h) >> 3 > h->lost) {  // from here on, where bytes are stored is not known
    if (h->jumped) stale(h);
    h->nknown = h->leaps = 0;
    h->grid.step = 0;
  } else {
    const stk_point p = here(h);
    const stk_point *k = h->k < h->nknown && h->known[h->k].mcu == h->at ? &h->known[h->k] : NULL;
    if (k) {
      if (position(&p) != position(k)) stale(h);
      for (int c = 0; c < h->f->components; c++)
        if (p.pred[c] != k->pred[c]) stale(h);
      h->k++;
      h->jumped = 0;
      e->compared++;
    } else if (e->nfound < h->most) {
      ((stk_point *)(void *)h->l->found.p)[e->nfound++] = p;
    }
  }
  stk_entry_aim(h);
}

const stk_point *stk_entry_point(const stk_huff *h, int64_t want) {
  int i = h->k;
  while (i + 1 < h->nknown && h->known[i].mcu <= want) i++;
  // A segment that is left may be the last one that is read, so each has its own.
  if (h->restart)
    while (i > h->k && h->known[i - 1].mcu / (uint32_t)h->restart != h->known[i].mcu / (uint32_t)h->restart) i--;
  return i > h->k && h->known[i - 1].mcu > h->at ? &h->known[i - 1] : NULL;
}

void stk_entry_enter(stk_huff *h, const stk_point *p) {
  if (p->byte >= h->f->end - h->f->scan || p->bit > 7) stale(h);
  h->l->entries.jumps++;
  h->l->entries.leapt += p->mcu - h->at;
  h->lost = INT64_MAX;  // what was in the window is not read
  stk_huff_pull(h);
  refill(&h->b);
  drop(&h->b, p->bit);
  for (int c = 0; c < h->f->components; c++) h->pred[c] = p->pred[c];
  if (h->restart) h->togo = h->restart - (int)(p->mcu % (uint32_t)h->restart);
  h->at = p->mcu;
  h->k = (int)(p - h->known) + 1;
  h->jumped = 1;
  stk_entry_aim(h);
}
