// One dimension of antialiased resampling, bilinear or bicubic: the source positions of
// each output, and its weights in fixed point.
//
// The arithmetic is ATen's for uint8 (and Pillow's before it), step by step in
// double precision, because the promise is equality with torchvision:
//
//	scale   = size / out
//	support = max(scale, 1), twice that for bicubic
//	center  = scale * (i + 0.5) + at
//	taps    = [trunc(center - support + 0.5), trunc(center + support + 0.5)) within the source
//	weight  = f((tap - center + 0.5) / max(scale, 1)), divided by their sum
//	f       = triangle, or Keys's cubic with a = -1/2 (IEEE Trans. ASSP 29, 1981, (15))
//	prec    = the most bits with which the largest weight stays below 2^15, at most 22
//
// prec depends on all outputs, even if only a window of them is wanted.
//
// size is the source's and at is 0, except for a box that begins or ends between
// pixels of a picture that was decoded smaller: then the taps are the pixels that
// the box covers, even if only in part.
#include "stk.h"

#include <math.h>
#include <string.h>

#pragma GCC optimize("fp-contract=off")

static int precision(double most) {
  int prec = 0;
  for (; prec < 22; prec++)
    if ((int)(0.5 + most * (1 << (prec + 1))) >= 1 << 15) break;
  return prec;
}

// widest is the largest weight of outputs from to to: prec depends also on outputs
// that are not wanted.
static double widest(const stk_target *t, const stk_filter *f, int from, int to, double *spare, double most) {
  int32_t start[SIDE], cnt[SIDE];
  for (; from < to; from += SIDE) {
    const double m = t->weigh(f, from, to - from < SIDE ? to - from : SIDE, spare, start, cnt);
    if (m > most) most = m;
  }
  return most;
}

static double triangle(double x) { return x < 1.0 ? 1.0 - x : 0.0; }

// cubic is ATen's order of operations.
static double cubic(double x) {
  if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1.0;
  if (x < 2.0) return ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0;
  return 0.0;
}

double stk_axis_weigh(const stk_filter *f, int i, int n, double *w, int32_t *start, int32_t *cnt) {
  double most = 0;
  for (int x = 0; x < n; x++) {
    const double center = f->scale * (i + x + 0.5) + f->at;
    int a = (int)(center - f->support + 0.5), b = (int)(center + f->support + 0.5);
    if (a < 0) a = 0;
    if (b > f->in) b = f->in;
    const int c = b - a < 0 ? 0 : b - a > f->taps ? f->taps : b - a;
    double *p = w + (size_t)(x - x % SIDE) * f->taps + x % SIDE, sum = 0;
    for (int j = 0; j < f->taps; j++) {
      const double d = fabs(((double)(j + a) - center + 0.5) * f->inv);
      p[SIDE * j] = j >= c ? 0.0 : f->cubic ? cubic(d) : triangle(d);
      sum += p[SIDE * j];
    }
    for (int j = 0; j < c && sum != 0; j++) {
      p[SIDE * j] /= sum;
      if (p[SIDE * j] > most) most = p[SIDE * j];
    }
    start[x] = a;
    cnt[x] = c;
  }
  return most;
}

// stk_axis_bound records which positions the outputs read, and whether sums need to be
// clamped: negative says that a weight is, worst is the largest sum of an output's weights.
void stk_axis_bound(stk_axis *a, int lo, int hi, int negative, int64_t worst) {
  a->lo = lo;
  a->hi = hi;
  a->clamp = negative || worst * 255 + ((int64_t)1 << a->prec >> 1) >= (int64_t)256 << a->prec;
}

static int32_t fixed(double w, double one) { return (int32_t)(w < 0 ? w * one - 0.5 : 0.5 + w * one); }

// stk_axis_fix drops weights of zero at either end, which keeps k small.
void stk_axis_fix(stk_lane *l, const stk_filter *f, stk_axis *a, const double *w) {
  const double one = 1 << a->prec;
  a->k = 2;
  for (int i = 0; i < a->n; i++) {
    const double *p = w + (size_t)(i - i % SIDE) * f->taps + i % SIDE;
    int c = a->cnt[i], z = 0;
    while (c > 1 && fixed(p[SIDE * (c - 1)], one) == 0) c--;
    while (z < c - 1 && fixed(p[SIDE * z], one) == 0) z++;
    a->skip[i] = z;
    a->start[i] += z;
    a->cnt[i] = c - z;
    if (c - z > a->k) a->k = c - z;
  }
  const int k = a->k = (a->k + 1) & ~1;
  int16_t *d = a->w = stk_grow(l, &a->b_w, (size_t)a->n * k * 2);
  int lo = f->in, hi = 0, negative = 0;
  int64_t worst = 0;
  for (int i = 0; i < a->n; i++, d += k) {
    const double *p = w + (size_t)(i - i % SIDE) * f->taps + i % SIDE + SIDE * a->skip[i];
    const int c = a->cnt[i];
    int64_t sum = 0;
    for (int j = 0; j < k; j++) {
      d[j] = j < c ? (int16_t)fixed(p[SIDE * j], one) : 0;
      sum += d[j];
      negative |= d[j] < 0;
    }
    if (sum > worst) worst = sum;
    if (a->start[i] < lo) lo = a->start[i];
    if (a->start[i] + c > hi) hi = a->start[i] + c;
  }
  stk_axis_bound(a, lo, hi, negative, worst);
}

static void mirror_source(stk_axis *a, int in) {
  int16_t *w = a->w;
  for (int i = 0; i < a->n; i++, w += a->k) {
    const int c = a->cnt[i];
    for (int p = 0, q = c - 1; p < q; p++, q--) {
      const int16_t t = w[p];
      w[p] = w[q];
      w[q] = t;
    }
    a->start[i] = in - a->start[i] - c;
  }
  const int lo = a->lo;
  a->lo = in - a->hi;
  a->hi = in - lo;
}

static void turn(int32_t *x, int n) {
  for (int i = 0, j = n - 1; i < j; i++, j--) {
    const int32_t t = x[i];
    x[i] = x[j];
    x[j] = t;
  }
}

static void mirror_outputs(stk_axis *a) {
  turn(a->start, a->n);
  turn(a->cnt, a->n);
  const size_t each = (size_t)a->k / 2;
  uint32_t *p = (uint32_t *)a->w, *q = p + (a->n - 1) * each;
  for (; p < q; p += each, q -= each)
    for (size_t j = 0; j < each; j++) {
      const uint32_t t = p[j];
      p[j] = q[j];
      q[j] = t;
    }
}

// stk_axis_make resamples a span to out and keeps outputs lo to lo+n. mirror_in
// reads the source backwards; mirror_out writes the window backwards.
void stk_axis_make(stk_lane *l, stk_axis *a, int cubic, stk_span s, int out, int lo, int n, int mirror_in, int mirror_out) {
  const double scale = s.size / out, support = (cubic ? 2 : 1) * (scale >= 1 ? scale : 1.0);
  const stk_filter f = {.in = s.in, .out = out, .taps = (int)(2 * support + 0.01) + 1, .cubic = cubic,
                        .at = mirror_in ? s.in - s.at - s.size : s.at, .scale = scale, .support = support, .inv = scale >= 1 ? 1.0 / scale : 1.0};
  const size_t wide = ((size_t)n + SIDE - 1) / SIDE * SIDE;
  double *w = stk_grow(l, &a->b_tmp, ((wide + SIDE) * f.taps) * sizeof *w + wide * 4), *spare = w + wide * f.taps;
  a->skip = (int32_t *)(spare + (size_t)SIDE * f.taps);
  a->start = stk_grow(l, &a->b_start, wide * 4);
  a->cnt = stk_grow(l, &a->b_cnt, wide * 4);
  a->n = n;
  double most = l->target->weigh(&f, lo, n, w, a->start, a->cnt);
  most = widest(l->target, &f, 0, lo, spare, most);
  most = widest(l->target, &f, lo + n, out, spare, most);
  a->prec = precision(most);
  a->most = (int32_t)(0.5 + most * (1 << a->prec));
  l->target->fix(l, &f, a, w);
  if (mirror_in) mirror_source(a, s.in);
  if (mirror_out) mirror_outputs(a);
}

// stk_axis_pull moves windows that end after the last position used back onto it,
// with weights of zero before them, so that wide loads stay within STK_SLACK of it.
void stk_axis_pull(stk_axis *a) {
  for (int i = 0; i < a->n; i++) {
    int d = a->start[i] + a->k - a->hi;
    if (d > a->start[i] - a->lo) d = a->start[i] - a->lo;
    if (d <= 0) continue;
    int16_t *w = a->w + (size_t)i * a->k;
    memmove(w + d, w, (size_t)(a->k - d) * 2);
    memset(w, 0, (size_t)d * 2);
    a->start[i] -= d;
    a->cnt[i] += d;
  }
}
