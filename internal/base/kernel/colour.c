// The colours of a pass: the job's operations as stages, in which consecutive tables are
// one.
#include "colours.h"
#include "ticks.h"

#include <string.h>

#pragma GCC optimize("fp-contract=off")

// A stage changes the planes of a row. op is STK_GRAY, STK_SATURATION, STK_HUE,
// STK_PERMUTE, or STK_INVERT for tables, one for each channel.
typedef struct {
  int32_t op, c;
  int32_t number;  // of the job's op, the first one if there are several
  float f, rest;
  uint8_t perm[4];
  uint8_t masked, and, flip;  // the table of all channels is (v & and) ^ flip
  uint8_t table[3][256];
} stage;

typedef struct {
  int n;
  stage s[STK_MAX_OP];
} stages;

static int is_table(int op) {
  return op != STK_GRAY && op != STK_SATURATION && op != STK_HUE && op != STK_PERMUTE;
}

// stretched is autocontrast's table.
static void stretched(const stk_numbers *of, int c, uint8_t t[256]) {
  const int least = of->least[c], most = of->most[c];
  const float scale = (float)(most - least) * (float)(1.0 / 255);
  for (int v = 0; v < 256; v++) t[v] = most > least ? stk_level((float)(v - least) / scale) : (uint8_t)v;
}

// equalized is Pillow's table.
static void equalized(const stk_numbers *of, int c, uint8_t t[256]) {
  uint32_t count[256];
  for (int v = 0; v < 256; v++) count[v] = of->count[c][0][v] + of->count[c][1][v] + of->count[c][2][v] + of->count[c][3][v];
  int last = 255;
  while (last > 0 && !count[last]) last--;
  const int64_t step = (of->pixels - count[last]) / 255;
  int64_t below = 0;
  for (int v = 0; v < 256; v++) {
    const int64_t x = step > 0 ? (below + step / 2) / step : v;
    t[v] = (uint8_t)(x < 255 ? x : 255);
    below += count[v];
  }
}

static uint8_t value(const stk_op *o, int v, float mean) {
  switch (o->op) {
  case STK_INVERT: return (uint8_t)(255 - v);
  case STK_POSTERIZE: return (uint8_t)(v & 255 << (8 - (int)o->n));
  case STK_SOLARIZE: return (uint8_t)(v >= o->n ? 255 - v : v);
  case STK_BRIGHTNESS: return stk_level((float)v * (float)o->n);
  }
  return stk_level((float)v * (float)o->n + mean);  // STK_CONTRAST
}

// table_of makes the table of an operation for channel c.
static void table_of(const stk_op *o, const stk_numbers *of, int c, uint8_t t[256]) {
  if (o->op == STK_AUTOCONTRAST) {
    stretched(of, c, t);
  } else if (o->op == STK_EQUALIZE) {
    equalized(of, c, t);
  } else {
    const double mean = o->op == STK_CONTRAST ? (double)of->luma / (double)of->pixels : 0;
    for (int v = 0; v < 256; v++) t[v] = value(o, v, (float)(mean * (1 - o->n)));
  }
}

// add_table makes one table of the last stage's and the operation's.
static void add_table(stage *s, const stk_op *o, const stk_numbers *of, int c_in) {
  for (int c = 0; c < c_in; c++) {
    uint8_t t[256];
    table_of(o, of, c, t);
    for (int v = 0; v < 256; v++) s->table[c][v] = t[s->table[c][v]];
  }
}

// flatten finds out whether the stages are one table, the same for c channels, and whether
// that is a mask.
static int flatten(stages *all, int c) {
  stage *s = all->s;
  if (all->n != 1 || s->op != STK_INVERT) return 0;
  for (int i = 1; i < c; i++)
    if (memcmp(s->table[0], s->table[i], 256) != 0) return 0;
  s->flip = s->table[0][0];
  s->and = (uint8_t)(s->table[0][255] ^ s->flip);
  s->masked = 1;
  for (int v = 0; v < 256; v++) s->masked &= s->table[0][v] == ((v & s->and) ^ s->flip);
  return 1;
}

void stk_colour_flat(const stk_lane *l, const uint8_t *in, uint8_t *out, int n) {
  const stage *s = ((const stages *)l->stages.p)->s;
  const stk_colours *t = l->target->colours;
  if (s->masked)
    t->mask(in, out, n, s->and, s->flip);
  else
    t->table(in, out, n, s->table[0]);
}

void stk_colour_begin(stk_lane *l, const stk_pass *p) {
  stages *all = stk_grow(l, &l->stages, sizeof *all);
  int c = p->gray_post ? p->gray_post : p->gray_pre ? 1 : p->c_in;
  all->n = 0;
  for (int i = p->op; i < p->op + p->nop; i++) {
    stk_op *o = &l->job.op[i];
    stage *s = &all->s[all->n];
    s->number = o->with = i;
    if (is_table(o->op)) {
      if (all->n == 0 || s[-1].op != STK_INVERT) {
        s->op = STK_INVERT;
        for (int k = 0; k < c; k++)
          for (int v = 0; v < 256; v++) s->table[k][v] = (uint8_t)v;
        all->n++;
      } else {
        s--;
        o->with = s->number;
      }
      add_table(s, o, &l->numbers, c);
      continue;
    }
    s->op = o->op;
    s->c = c = o->op == STK_GRAY ? o->c : c;
    // A turn of the hue is counted in sixths.
    s->f = (float)(o->op == STK_HUE ? 6 * o->n : o->n);
    s->rest = (float)(1 - o->n);
    memcpy(s->perm, o->perm, sizeof s->perm);
    all->n++;
  }
  l->flat = flatten(all, c);
  if (p->needs) {
    memset(&l->numbers, 0, sizeof l->numbers);
    memset(l->numbers.least, 255, sizeof l->numbers.least);
  }
}

// gray makes luma of a row, in c_out planes.
static void gray(uint8_t *plane[3], int w, int c_in, int c_out) {
  uint8_t *y = plane[0];
  if (c_in == 3)
    for (int i = 0; i < w; i++)
      y[i] = (uint8_t)((19595u * y[i] + 38470u * plane[1][i] + 7471u * plane[2][i] + 32768) >> 16);
  for (int c = 1; c < c_out; c++) memcpy(plane[c], y, (size_t)w);
}

int stk_colour_row(stk_lane *l, uint8_t *plane[4], int w, int c) {
  const stages *all = (const stages *)l->stages.p;
  const stk_colours *t = l->target->colours;
  for (const stage *s = all->s; s < all->s + all->n; s++) {
    int64_t since = tick(l);
    switch (s->op) {
    case STK_GRAY:
      gray(plane, w, c, s->c);
      c = s->c;
      break;
    case STK_SATURATION:
      t->flat_luma(plane[0], plane[1], plane[2], plane[3], w);
      for (int i = 0; i < 3; i++) t->blend(plane[i], plane[3], w, s->f, s->rest);
      break;
    case STK_HUE: t->hue(plane[0], plane[1], plane[2], w, s->f); break;
    case STK_PERMUTE: {
      uint8_t *was[3] = {plane[0], plane[1], plane[2]};
      for (int i = 0; i < 3; i++) plane[i] = was[s->perm[i]];
      break;
    }
    default:
      for (int i = 0; i < c; i++) t->table(plane[i], plane[i], w, s->table[i]);
    }
    tock(l, &l->job.op[s->number].ns, since);
  }
  return c;
}

// count has four parts, because a processor waits where one value follows itself.
static void count(uint32_t part[4][256], const uint8_t *p, int n) {
  int i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; k++) part[k][p[i + k]]++;
  for (; i < n; i++) part[0][p[i]]++;
}

void stk_colour_count(stk_lane *l, int needs, uint8_t *const plane[4], int w, int c) {
  const stk_colours *t = l->target->colours;
  stk_numbers *of = &l->numbers;
  of->pixels += w;
  if (needs & STK_NEEDS_LUMA) {
    if (c == 3) t->flat_luma(plane[0], plane[1], plane[2], plane[3], w);
    of->luma += t->sum(plane[c == 3 ? 3 : 0], w);
  }
  for (int i = 0; i < c; i++) {
    if (needs & STK_NEEDS_RANGE) t->range(plane[i], w, &of->least[i], &of->most[i]);
    if (needs & STK_NEEDS_HISTOGRAM) count(of->count[i], plane[i], w);
  }
}
