// One job: source -> passes -> output, row by row.
//
// Rows come from the source in rising order, four at a time, and go through the
// horizontal resampling into a ring of pair rows. Every output row is made as soon
// as the rows that it needs are there, so that everything stays in the nearest
// caches. Flipped outputs are made in the order in which their source rows come.
//
// The lane owns all buffers (stk_buf); the caller owns source and destination.
// Widths and positions count pixels, strides and offsets count bytes.
#include "pass.h"
#include "ticks.h"

#include <math.h>
#include <string.h>

#pragma GCC optimize("fp-contract=off")

static void begin(stk_lane *l, source *s, int x0, int y0, int x1, int y1) {
  s->x0 = x0;
  s->y0 = y0;
  s->x1 = x1;
  s->y1 = y1;
  if (!s->pix) {
    int64_t since = tick(l);
    s->row_bytes = x1 - x0;
    if (l->job.own)
      stk_jpeg_region(l, x0, y0, x1, s->shift);
    else
      s->off = stk_libjpeg_region(l, x0, y0, x1, s->shift, &s->row_bytes) * s->c;
    tock(l, &l->job.decode_ns, since);
    s->row_bytes *= s->c;
    s->next = y0;
  }
}

// fetch returns n rows from y on, n <= 4, each readable STK_SLACK bytes past column
// x1. They are valid until the next call.
static void fetch(stk_lane *l, source *s, int y, int n, const uint8_t **rows) {
  const size_t wide = (size_t)(s->x1 - s->x0) * s->c;
  if (s->pix) {
    const size_t stride = (size_t)s->w * s->c, total = stride * s->h;
    uint8_t *safe = NULL;
    for (int i = 0; i < n; i++) {
      size_t at = (y + i) * stride + (size_t)s->x0 * s->c;
      rows[i] = s->pix + at;
      if (at + wide + STK_SLACK <= total) continue;
      if (!safe) safe = stk_grow(l, &l->rows, (size_t)n * (wide + STK_SLACK));
      rows[i] = memcpy(safe + i * (wide + STK_SLACK), s->pix + at, wide);
    }
    return;
  }
  size_t stride = ((size_t)s->row_bytes + STK_SLACK + 63) & ~(size_t)63;
  // libjpeg writes rows past the caches if they are aligned to its vectors, so these
  // are not.
  uint8_t *buf = (uint8_t *)stk_grow(l, &l->rows, 4 * stride + 8) + (l->job.own ? 0 : 8), *out[4];
  for (int i = 0; i < n; i++) out[i] = buf + i * stride;
  int64_t since = tick(l);
  void (*rows_of)(stk_lane *, uint8_t **, int) = l->job.own ? stk_jpeg_rows : stk_libjpeg_rows;
  for (; s->next < y; s->next++) rows_of(l, out, 1);
  rows_of(l, out, n);
  tock(l, &l->job.decode_ns, since);
  s->next += n;
  for (int i = 0; i < n; i++) rows[i] = out[i] + s->off;
}

// fetch_gray is fetch, followed by luma if the pass asks for it.
static void fetch_gray(stk_lane *l, source *s, const stk_pass *p, int y, int n, const uint8_t **rows) {
  fetch(l, s, y, n, rows);
  if (!p->gray_pre) return;
  size_t w = s->x1 - s->x0, stride = w + STK_SLACK;
  uint8_t *g = stk_grow(l, &l->gray, 4 * stride);
  for (int i = 0; i < n; i++, g += stride) {
    l->target->luma(rows[i], g, (int)w);
    rows[i] = g;
  }
}

// plain_rows reports whether the sink's rows are bytes, pixel by pixel.
static int plain_rows(const stk_lane *l, const sink *k) {
  return !k->final || (!l->job.is_float && !l->job.is_half && (!l->job.chw || k->c == 1));
}

// halves writes n numbers of 16 bits: of every byte, or of every third one.
static void halves(const uint8_t *in, int step, uint16_t *out, int n, const uint16_t *table) {
  for (int x = 0; x < n; x++) out[x] = table[in[x * step]];
}

// put_halves is put_row of numbers of 16 bits.
static void put_halves(const stk_job *j, const sink *k, int y, const uint8_t *row) {
  const size_t w = k->w, plane = w * k->h, at = y * w;
  uint16_t *d = (uint16_t *)k->dst;
  if (k->c == 1) {
    halves(row, 1, d + at, k->w, j->half[0]);
  } else if (j->chw) {
    for (int c = 0; c < 3; c++) halves(row + c, 3, d + c * plane + at, k->w, j->half[c]);
  } else {
    d += 3 * at;
    for (size_t x = 0; x < 3 * w; x += 3) {
      d[x] = j->half[0][row[x]];
      d[x + 1] = j->half[1][row[x + 1]];
      d[x + 2] = j->half[2][row[x + 2]];
    }
  }
}

static void put_row(stk_lane *l, const sink *k, int y, const uint8_t *row) {
  const stk_job *j = &l->job;
  const stk_target *t = l->target;
  const size_t w = k->w, plane = w * k->h, at = y * w;
  if (plain_rows(l, k)) {
    uint8_t *d = k->dst + at * k->c;
    if (d != row) memcpy(d, row, w * k->c);
  } else if (j->is_half) {
    put_halves(j, k, y, row);
  } else if (!j->is_float) {
    t->planes(row, k->dst + at, k->dst + plane + at, k->dst + 2 * plane + at, k->w);
  } else {
    float *d = (float *)k->dst;
    if (k->c == 1) {
      t->f32(row, d + at, k->w, j->scale[0], j->bias[0]);
    } else if (!j->chw) {
      t->f32_rgb(row, d + 3 * at, k->w, j->scale, j->bias);
    } else {
      uint8_t *p = stk_grow(l, &l->line, 3 * (w + 64));
      t->planes(row, p, p + w + 64, p + 2 * (w + 64), k->w);
      for (int c = 0; c < 3; c++) t->f32(p + c * (w + 64), d + c * plane + at, k->w, j->scale[c], j->bias[c]);
    }
  }
}

static void put(stk_lane *l, const sink *k, int y, const uint8_t *row) {
  int64_t since = k->final ? tick(l) : 0;
  put_row(l, k, y, row);
  if (k->final) tock(l, &l->job.write_ns, since);
}

// coloured reports whether rows are taken apart into planes.
static int coloured(const stk_pass *p) { return p->nop || p->needs; }

// put_planes is put of a row in planes of stride bytes, in any order.
static void put_planes(stk_lane *l, const sink *k, int y, uint8_t *const plane[3]) {
  const stk_job *j = &l->job;
  const size_t w = k->w, whole = w * k->h, at = y * w;
  int64_t since = k->final ? tick(l) : 0;
  if (k->c == 1) {
    put_row(l, k, y, plane[0]);
  } else if (plain_rows(l, k)) {
    l->target->samples->merge(plane[0], plane[1], plane[2], k->dst + at * 3, k->w);
  } else if (!j->chw) {
    uint8_t *row = stk_grow(l, &l->line, 3 * (w + 64));
    l->target->samples->merge(plane[0], plane[1], plane[2], row, k->w);
    put_row(l, k, y, row);
  } else {
    for (int c = 0; c < 3; c++) {
      if (j->is_float)
        l->target->f32(plane[c], (float *)k->dst + c * whole + at, k->w, j->scale[c], j->bias[c]);
      else if (j->is_half)
        halves(plane[c], 1, (uint16_t *)k->dst + c * whole + at, k->w, j->half[c]);
      else
        memcpy(k->dst + c * whole + at, plane[c], w);
    }
  }
  if (k->final) tock(l, &l->job.write_ns, since);
}

// emit_colours is put, after the colours of the pass.
static void emit_colours(stk_lane *l, const stk_pass *p, const sink *k, int y, const uint8_t *row, int c) {
  int64_t since = tick(l);
  const size_t w = p->ww, stride = (w + 127) & ~(size_t)63;
  uint8_t *buf = stk_grow(l, &l->planes, 4 * stride);
  uint8_t *plane[4] = {buf, buf + stride, buf + 2 * stride, buf + 3 * stride};
  if (c == 1)
    memcpy(plane[0], row, w);
  else
    l->target->planes(row, plane[0], plane[1], plane[2], (int)w);
  // Time that belongs to no single colour is counted as the first one's.
  const int first = p->nop ? p->op : p->needer;
  tock(l, &l->job.op[first].ns, since);
  c = stk_colour_row(l, plane, (int)w, c);
  if (p->needs) {
    since = tick(l);
    stk_colour_count(l, p->needs, plane, (int)w, c);
    tock(l, &l->job.op[p->needer].ns, since);
  }
  since = tick(l);
  put_planes(l, k, y, plane);
  if (!k->final) tock(l, &l->job.op[first].ns, since);
}

// emit_flat is emit_colours where all channels have one table and nothing else.
static void emit_flat(stk_lane *l, const stk_pass *p, const sink *k, int y, const uint8_t *row, int c) {
  const size_t n = (size_t)p->ww * c;
  int64_t since = tick(l);
  uint8_t *out = plain_rows(l, k) ? k->dst + (size_t)y * n : stk_grow(l, &l->planes, n);
  stk_colour_flat(l, row, out, (int)n);
  tock(l, &l->job.op[p->op].ns, since);
  if (!plain_rows(l, k)) put(l, k, y, out);
}

// finish applies the colours, if there are any, and puts the row.
static void finish(stk_lane *l, const stk_pass *p, const sink *k, int y, const uint8_t *row, int c) {
  if (l->flat && p->nop && !p->needs)
    emit_flat(l, p, k, y, row, c);
  else if (coloured(p))
    emit_colours(l, p, k, y, row, c);
  else
    put(l, k, y, row);
}

static void emit(stk_lane *l, const stk_pass *p, const sink *k, int y, const uint8_t *row, int c) {
  if (!p->gray_post || (c == 1 && p->gray_post == 1)) {
    finish(l, p, k, y, row, c);
    return;
  }
  int w = p->ww;
  uint8_t *t = stk_grow(l, &l->post, (size_t)w * 4);
  t += p->gray_post == 3 ? 3 * (size_t)w : 0;
  if (c == 3)
    l->target->luma(row, t, w);
  else
    memcpy(t, row, w);
  if (p->gray_post == 3) {
    uint8_t *o = t - 3 * (size_t)w;
    for (int i = 0; i < w; i++) o[3 * i] = o[3 * i + 1] = o[3 * i + 2] = t[i];
    t = o;
  }
  finish(l, p, k, y, t, p->gray_post);
}

void stk_emit(stk_lane *l, const stk_pass *p, const sink *k, int y, const uint8_t *row, int c) {
  int64_t since = tick(l);
  emit(l, p, k, y, row, c);
  tock(l, &l->emitting, since);
}

// decode_pass is copy_pass if the decoder's rows are the result's.
static void decode_pass(stk_lane *l, const stk_pass *p, const sink *k, int c) {
  int64_t since = tick(l);
  for (int y = 0; y < p->bh; y++) {
    uint8_t *row = k->dst + (size_t)(p->post_v ? p->wh - 1 - y : y) * p->ww * c;
    stk_jpeg_rows(l, &row, 1);
  }
  tock(l, &l->job.decode_ns, since);
}

// as_is reports whether rows go into the sink unchanged.
static int as_is(const stk_lane *l, const stk_pass *p, const sink *k) {
  return !p->gray_pre && !p->gray_post && !p->post_h && !coloured(p) && plain_rows(l, k);
}

static void copy_pass(stk_lane *l, const stk_pass *p, source *s, const sink *k, int c) {
  begin(l, s, p->bx, p->by, p->bx + p->bw, p->by + p->bh);
  if (!s->pix && l->job.own && as_is(l, p, k)) {
    decode_pass(l, p, k, c);
    return;
  }
  uint8_t *t = p->post_h ? stk_grow(l, &l->tmp, (size_t)p->ww * c) : NULL;
  for (int y = 0; y < p->bh; y += 4) {
    const uint8_t *rows[4];
    int n = p->bh - y < 4 ? p->bh - y : 4;
    fetch_gray(l, s, p, p->by + y, n, rows);
    for (int i = 0; i < n; i++) {
      const uint8_t *row = rows[i];
      if (t) {
        l->target->mirror(row, t, p->ww, c);
        row = t;
      }
      emit(l, p, k, p->post_v ? p->wh - 1 - y - i : y + i, row, c);
    }
  }
}

// nearest follows ATen: scale and product are in single precision; for nearest-exact, the
// product is not rounded before 1/2 is taken off (a fused multiply-add; ATen does so for all
// but small results, where a few positions on the border of two pixels differ).
static int nearest(int i, int in, int out, int exact) {
  if (exact) {
    volatile float x = (float)((i + 0.5) * (double)((float)in / (float)out) - 0.5);
    volatile float y = (x < 0 ? 0 : x) + 0.5f;
    int v = (int)y;
    return v < in - 1 ? v : in - 1;
  }
  if (in == out) return i;
  if (out == 2 * in) return i >> 1;
  volatile float x = (float)i * ((float)in / (float)out);
  int v = (int)floorf(x);
  return v < in - 1 ? v : in - 1;
}

static int near_at(int i, int in, int out, int lo, int n, int pre, int post, int exact) {
  int v = nearest(lo + (post ? n - 1 - i : i), in, out, exact);
  return pre ? in - 1 - v : v;
}

static void nearest_pass(stk_lane *l, const stk_pass *p, source *s, const sink *k, int c) {
  const int exact = p->filter == STK_NEAREST_EXACT;
  int32_t *xs = stk_grow(l, &l->xmap, (size_t)p->ww * 4);
  int x0 = p->bw, x1 = 0;
  for (int i = 0; i < p->ww; i++) {
    xs[i] = near_at(i, p->bw, p->rw, p->wx, p->ww, p->pre_h, p->post_h, exact);
    if (xs[i] < x0) x0 = xs[i];
    if (xs[i] + 1 > x1) x1 = xs[i] + 1;
  }
  int back = p->pre_v != p->post_v;
  int first = near_at(back ? p->wh - 1 : 0, p->bh, p->rh, p->wy, p->wh, p->pre_v, p->post_v, exact);
  int last = near_at(back ? 0 : p->wh - 1, p->bh, p->rh, p->wy, p->wh, p->pre_v, p->post_v, exact);
  begin(l, s, p->bx + x0, p->by + first, p->bx + x1, p->by + last + 1);
  uint8_t *t = stk_grow(l, &l->tmp, (size_t)p->ww * c);
  int have = -1;
  for (int i = 0; i < p->wh; i++) {
    int y = back ? p->wh - 1 - i : i;
    int sy = near_at(y, p->bh, p->rh, p->wy, p->wh, p->pre_v, p->post_v, exact);
    if (sy != have) {
      const uint8_t *row;
      fetch_gray(l, s, p, p->by + sy, 1, &row);
      have = sy;
      if (c == 1)
        for (int x = 0; x < p->ww; x++) t[x] = row[xs[x] - x0];
      else
        for (int x = 0; x < p->ww; x++) memcpy(t + 3 * x, row + 3 * (xs[x] - x0), 3);
    }
    emit(l, p, k, y, t, c);
  }
}

// Vertical weights in the form that v needs: for each output its first pair row,
// the number of pair rows, and the weights of both rows of each pair.
typedef struct {
  const int32_t *first, *num;
  const uint32_t *w;
  int stride, most;
} vplan;

// pair_weights writes k weights that begin at an even or an odd row, with zeros
// around them: k/2 + 1 pairs.
static inline void pair_weights(uint32_t *d, const int16_t *w, int k, int odd) {
  uint64_t x = 0;
  memcpy(&x, w, k == 2 ? 4 : 8);
  const uint64_t low = x << (odd ? 16 : 0);
  memcpy(d, &low, 8);
  if (k == 2) return;
  d[2] = odd ? (uint32_t)(x >> 48) : 0;
  if (k == 4) return;
  memset(d + 2, 0, (size_t)(k / 2 - 1) * 4);
  memcpy((int16_t *)d + odd, w, (size_t)k * 2);
}

static vplan vprep(stk_lane *l, const stk_axis *a) {
  vplan v;
  v.stride = a->k / 2 + 1;
  v.most = 1;
  int32_t *f = stk_grow(l, &l->vnp, (size_t)a->n * 8), *num = f + a->n;
  uint32_t *w = stk_grow(l, &l->vw, (size_t)a->n * v.stride * 4);
  v.first = f;
  v.num = num;
  v.w = w;
  for (int i = 0; i < a->n; i++, w += v.stride) {
    int s = a->start[i] - a->lo;
    f[i] = s >> 1;
    num[i] = (s + a->cnt[i] - 1) / 2 - f[i] + 1;
    if (num[i] > v.most) v.most = num[i];
    pair_weights(w, a->w + (size_t)i * a->k, a->k, s & 1);
  }
  return v;
}

// fused makes an output row and writes it in the output's layout in one loop, if
// the target can.
static int fused(stk_lane *l, const sink *k, int y, STK_VERTICAL) {
  const stk_job *j = &l->job;
  const stk_target *t = l->target;
  const size_t w = k->w, plane = w * k->h, at = y * w;
  float *f = (float *)k->dst;
  if (j->is_half) return 0;
  if (!j->is_float) {
    if (!t->v_planes || !j->chw || k->c != 3) return 0;
    uint8_t *out[3] = {k->dst + at, k->dst + plane + at, k->dst + 2 * plane + at};
    t->v_planes(out, pair, wp, npair, n, prec, clamp);
  } else if (j->chw && k->c == 3) {
    if (!t->v_float_planes) return 0;
    float *out[3] = {f + at, f + plane + at, f + 2 * plane + at};
    t->v_float_planes(out, j->scale, j->bias, pair, wp, npair, n, prec, clamp);
  } else {
    if (!t->v_floats) return 0;
    const float *s = j->scale, *b = j->bias, s1[3] = {s[0], s[0], s[0]}, b1[3] = {b[0], b[0], b[0]};
    t->v_floats(f + at * k->c, k->c == 3 ? s : s1, k->c == 3 ? b : b1, pair, wp, npair, n, prec, clamp);
  }
  return 1;
}

// draft is how often the box can be halved before it gets smaller than its result.
static int draft(const stk_pass *p) {
  int shift = 0;
  while (shift < 3 && p->bw >> (shift + 1) >= p->rw && p->bh >> (shift + 1) >= p->rh) shift++;
  return shift;
}

// span_of is n pixels from x on, after groups of 2^shift have become one pixel;
// *first is the pixel from which it counts.
static stk_span span_of(int x, int n, int shift, int *first) {
  const int one = 1 << shift;
  *first = x >> shift;
  return (stk_span){
      .in = ((x + n + one - 1) >> shift) - *first, .at = (double)(x & (one - 1)) / one, .size = (double)n / one};
}

// smooth_pass resamples by weights: bilinear or bicubic.
static void smooth_pass(stk_lane *l, const stk_pass *p, source *s, const sink *k, int c) {
  stk_axis *ax = &l->ax, *ay = &l->ay;
  int bx, by;
  s->shift = p->draft && !s->pix ? draft(p) : 0;
  const int cubic = p->filter == STK_BICUBIC;
  stk_axis_make(l, ax, cubic, span_of(p->bx, p->bw, s->shift, &bx), p->rw, p->wx, p->ww, p->pre_h, p->post_h);
  stk_axis_make(l, ay, cubic, span_of(p->by, p->bh, s->shift, &by), p->rh, p->wy, p->wh, p->pre_v, p->post_v);
  begin(l, s, bx + ax->lo, by + ay->lo, bx + ax->hi, by + ay->hi);
  stk_axis_pull(ax);
  for (int i = 0; i < ax->n; i++) ax->start[i] -= ax->lo;

  stk_hplan *h = &l->h;
  h->axis = ax;
  h->c = c;
  h->elems = ax->n * c;
  h->prec = ax->prec;
  h->clamp = ax->clamp;
  l->target->hprep(l, h);
  vplan v = vprep(l, ay);

  // The ring has room for the rows of one output, and for four more, which arrive
  // together.
  int ring = 4;
  while (ring < v.most + 4) ring *= 2;
  size_t stride = ((size_t)h->elems + 64 + 63) & ~(size_t)63;  // targets may read and write up to 64 elements more
  uint32_t *buf = stk_grow(l, &l->ring, ring * stride * 4);
  const uint32_t **pairs = stk_grow(l, &l->ptrs, (size_t)v.most * sizeof *pairs);
  uint8_t *t = stk_grow(l, &l->tmp, (size_t)h->elems);
  const int bare = !p->gray_post && !coloured(p);  // rows need nothing more
  int straight = bare && plain_rows(l, k);
  int direct = bare && !straight && k->final && v.most <= STK_PAIRS;

  int total = ay->hi - ay->lo, have = 0;
  int back = p->pre_v != p->post_v;
  for (int i = 0; i < ay->n; i++) {
    int y = back ? ay->n - 1 - i : i;
    int need = ay->start[y] - ay->lo + ay->cnt[y];
    while (have < need) {
      const uint8_t *rows[4];
      int n = total - have < 4 ? total - have : 4;
      fetch_gray(l, s, p, by + ay->lo + have, n, rows);
      for (int r = n; r < 4; r++) rows[r] = rows[n - 1];
      size_t at = have / 2 & (ring - 1);
      h->run(h, rows, buf + at * stride, buf + (at + 1) * stride);
      have += 4;
    }
    for (int q = 0; q < v.num[y]; q++) pairs[q] = buf + ((v.first[y] + q) & (ring - 1)) * stride;
    const uint32_t *w = v.w + (size_t)y * v.stride;
    if (direct) {
      int64_t since = tick(l);
      int done = fused(l, k, y, pairs, w, v.num[y], h->elems, ay->prec, ay->clamp);
      tock(l, &l->job.write_ns, since);
      if (done) continue;
    }
    uint8_t *out = straight ? k->dst + (size_t)y * h->elems : t;
    l->target->v(out, pairs, w, v.num[y], h->elems, ay->prec, ay->clamp);
    if (!straight) emit(l, p, k, y, out, c);
  }
}

// outside maps a coordinate outside [0, n) back inside; -1 is the fill.
static int outside(int i, int n, int mode) {
  enum { CONSTANT, EDGE, REFLECT, SYMMETRIC };
  if (i >= 0 && i < n) return i;
  int period;
  switch (mode) {
  case EDGE: return i < 0 ? 0 : n - 1;
  case REFLECT:
    if (n == 1) return 0;
    period = 2 * n - 2;
    i = (i % period + period) % period;
    return i < n ? i : period - i;
  case SYMMETRIC:
    period = 2 * n;
    i = (i % period + period) % period;
    return i < n ? i : period - 1 - i;
  }
  return -1;
}

// fill_row makes n pixels of the fill.
static void fill_row(uint8_t *t, int n, const uint8_t *fill, int c) {
  if (c == 1) {
    memset(t, fill[0], (size_t)n);
    return;
  }
  for (int x = 0; x < n; x++) {
    t[3 * x] = fill[0];
    t[3 * x + 1] = fill[1];
    t[3 * x + 2] = fill[2];
  }
}

static void pad_pass(stk_lane *l, const stk_pass *p, const uint8_t *in, const sink *k) {
  const int c = k->c, filled = p->mode == 0;
  int a = p->px < 0 ? 0 : p->px > p->pw ? p->pw : p->px;       // first column that is inside
  int b = p->px + p->ww > p->pw ? p->pw : p->px + p->ww;
  if (b < a) b = a;
  const size_t wide = (size_t)p->pw * c;
  uint8_t *t = stk_grow(l, &l->tmp, 2 * wide), *none = t + wide;
  int32_t *xs = NULL;
  if (filled) {
    fill_row(t, p->pw, p->fill, c);
    memcpy(none, t, wide);
  } else {
    xs = stk_grow(l, &l->xmap, (size_t)p->pw * 4);
    for (int x = 0; x < p->pw; x++) xs[x] = outside(x - p->px, p->ww, p->mode);
  }
  for (int y = 0; y < p->ph; y++) {
    int sy = outside(y - p->py, p->wh, p->mode);
    if (sy < 0) {
      put(l, k, y, none);
      continue;
    }
    const uint8_t *row = in + (size_t)sy * p->ww * c;
    memcpy(t + (size_t)a * c, row + (size_t)(a - p->px) * c, (size_t)(b - a) * c);
    for (int x = 0; !filled && x < p->pw; x++) {
      if (x == a) x = b;
      if (x < p->pw) memcpy(t + (size_t)x * c, row + (size_t)xs[x] * c, (size_t)c);
    }
    put(l, k, y, t);
  }
}

static void whole_pass(stk_lane *l, const stk_pass *p, const source *s, const sink *k) {
  stk_op *o = &l->job.op[p->whole - 1];
  int64_t since = tick(l), emitted = l->emitting;
  o->with = p->whole - 1;
  switch (o->op) {
  case STK_SHARPNESS: stk_sharpen(l, p, o, s, k); break;
  case STK_BLUR: stk_blur(l, p, o, s, k); break;
  case STK_AFFINE:
  case STK_PERSPECTIVE: stk_warp_whole(l, p, o, s, k); break;
  case STK_KEEP:
  case STK_ADD:
  case STK_SUM: stk_sum_step(l, p, o, s, k); break;
  }
  tock(l, &o->ns, since);
  o->ns -= l->emitting - emitted;
}

static void run_pass(stk_lane *l, const stk_pass *p, source *s, const sink *k) {
  sink in = *k;
  int c = p->gray_pre ? 1 : p->c_in;
  if (coloured(p)) stk_colour_begin(l, p);
  if (p->pad) {
    in.dst = stk_grow(l, &l->inner, (size_t)p->ww * p->wh * p->c_out);
    in.w = p->ww;
    in.h = p->wh;
    in.final = 0;
  }
  if (p->whole)
    whole_pass(l, p, s, &in);
  else if (!p->resample)
    copy_pass(l, p, s, &in, c);
  else if (p->filter == STK_NEAREST || p->filter == STK_NEAREST_EXACT)
    nearest_pass(l, p, s, &in, c);
  else
    smooth_pass(l, p, s, &in, c);
  if (p->pad) pad_pass(l, p, in.dst, k);
  for (int i = p->erase; i < p->erase + p->nerase; i++) {
    const int64_t since = tick(l);
    l->job.op[i].with = i;
    stk_erase(l, &l->job.op[i], k);
    tock(l, &l->job.op[i].ns, since);
  }
  if (k->final) stk_erase_floats(l, k);
}

// scale converts the job's ticks to nanoseconds; all ticks together took all_ns.
static void scale(stk_lane *l, int64_t all, int64_t all_ns) {
  const double each = all > 0 ? (double)all_ns / (double)all : 0;
  l->job.decode_ns = (int64_t)((double)l->job.decode_ns * each);
  l->job.write_ns = (int64_t)((double)l->job.write_ns * each);
  for (int i = 0; i < l->job.nop; i++) l->job.op[i].ns = (int64_t)((double)l->job.op[i].ns * each);
  for (int i = 0; i < l->job.nerased; i++) l->job.erased[i].ns = (int64_t)((double)l->job.erased[i].ns * each);
  l->job.all_ns = all_ns;
}

// close_jpeg ends a JPEG that was read without errors so far.
static void close_jpeg(stk_lane *l) {
  const stk_job *j = &l->job;
  if (j->own) {
    if (j->strict) stk_jpeg_end(l);
    stk_jpeg_settle(l);
    stk_jpeg_done(l);
  } else {
    if (j->strict) stk_libjpeg_end(l);
    stk_libjpeg_close(l);
  }
}

static void run(stk_lane *l, const uint8_t *jpeg, size_t njpeg, const uint8_t *src, uint8_t *dst) {
  const stk_job *j = &l->job;
  const int64_t since = tick(l), began = j->timed ? clock_ns() : 0;
  source s = {.pix = src, .w = j->w, .h = j->h, .c = j->c};
  if (j->components) {
    s.pix = NULL;
    int64_t since = tick(l);
    l->job.own = !j->stock && stk_jpeg_take(l, jpeg, njpeg);
    if (!j->own) stk_libjpeg_open(l, jpeg, njpeg);
    tock(l, &l->job.decode_ns, since);
  }
  for (int i = 0; i < j->npass; i++) {
    const stk_pass *p = &j->pass[i];
    sink k = {.w = p->pad ? p->pw : p->ww, .h = p->pad ? p->ph : p->wh, .c = p->c_out, .final = i == j->npass - 1};
    k.dst = k.final ? dst : stk_grow(l, &l->pic[i & 1], (size_t)k.w * k.h * k.c);
    run_pass(l, p, &s, &k);
    if (i == 0 && j->components) close_jpeg(l);
    s = (source){.pix = k.dst, .w = k.w, .h = k.h, .c = k.c};
  }
  if (j->timed) scale(l, ticks() - since, clock_ns() - began);
}

int stk_run(stk_lane *l, const uint8_t *jpeg, size_t njpeg, const uint8_t *src, uint8_t *dst, const stk_point *known,
            int32_t nknown, int32_t spacing) {
  stk_entries *e = &l->entries;
  l->code = STK_OK;
  l->ending = 0;
  *e = (stk_entries){.known = known, .nknown = nknown, .spacing = spacing};
  l->job.decode_ns = l->job.write_ns = l->job.all_ns = 0;
  if (!setjmp(l->env)) run(l, jpeg, njpeg, src, dst);
  l->ending = 0;
  stk_libjpeg_close(l);
  stk_lane_trim(l);
  // A point of another scan leads to anything, errors among it.
  if (l->code == STK_FORMAT && e->jumps) l->code = STK_STALE;
  if (!l->found.p) e->nfound = 0;
  e->known = NULL;
  e->nknown = e->spacing = 0;
  return l->code;
}

const stk_entries *stk_lane_entries(const stk_lane *l) { return &l->entries; }

const stk_point *stk_lane_found(const stk_lane *l) { return (const stk_point *)l->found.p; }
