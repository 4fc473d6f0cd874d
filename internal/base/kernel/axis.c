// One dimension of antialiased bilinear resampling: where each output looks,
// and its weights in fixed point.
//
// The arithmetic is ATen's for uint8 (and Pillow's before it), step by step in
// double precision, because the promise is equality with torchvision:
//
//	scale   = in / out
//	support = max(scale, 1)
//	center  = scale * (i + 0.5)
//	taps    = [trunc(center - support + 0.5), trunc(center + support + 0.5)) within the source
//	weight  = triangle((tap - center + 0.5) / max(scale, 1)), divided by their sum
//	prec    = the most bits with which the largest weight stays below 2^15, at most 22
//
// prec follows from all outputs, also where only a window of them is wanted.
#include "stk.h"

#include <math.h>
#include <string.h>

#pragma GCC optimize("fp-contract=off")

// weigh writes output i's weights and returns their number; *first is the first tap.
static inline int weigh(double *w, int i, int in, double scale, double support, double inv, int kmax, int *first,
                        double *most) {
  double center = scale * (i + 0.5);
  int64_t a = (int64_t)(center - support + 0.5);
  if (a < 0) a = 0;
  int64_t n = (int64_t)(center + support + 0.5);
  if (n > in) n = in;
  n -= a;
  if (n < 0) n = 0;
  if (n > kmax) n = kmax;
  double sum = 0;
  for (int j = 0; j < n; j++) {
    double x = fabs(((double)(j + a) - center + 0.5) * inv);
    double v = x < 1.0 ? 1.0 - x : 0.0;
    w[j] = v;
    sum += v;
  }
  if (sum != 0)
    for (int j = 0; j < n; j++) {
      w[j] /= sum;
      if (w[j] > *most) *most = w[j];
    }
  *first = (int)a;
  return (int)n;
}

static int precision(double most) {
  int prec = 0;
  for (; prec < 22; prec++)
    if ((int)(0.5 + most * (1 << (prec + 1))) >= 1 << 15) break;
  return prec;
}

// stk_axis_make resamples in to out and keeps outputs lo to lo+n. mirror_in
// reads the source backwards; mirror_out writes the window backwards.
void stk_axis_make(stk_lane *l, stk_axis *a, int in, int out, int lo, int n, int mirror_in, int mirror_out) {
  double scale = (double)in / out;
  double support = scale >= 1 ? scale : 1.0;
  double inv = scale >= 1 ? 1.0 / scale : 1.0;
  int kmax = (int)ceil(support) * 2 + 1;
  double *w = stk_grow(l, &a->b_tmp, (size_t)n * kmax * sizeof *w + kmax * sizeof *w);
  double *spare = w + (size_t)n * kmax;
  a->start = stk_grow(l, &a->b_start, (size_t)n * 4);
  a->cnt = stk_grow(l, &a->b_cnt, (size_t)n * 4);

  double most = 0;
  int first;
  for (int i = 0; i < lo; i++) weigh(spare, i, in, scale, support, inv, kmax, &first, &most);
  for (int i = lo + n; i < out; i++) weigh(spare, i, in, scale, support, inv, kmax, &first, &most);
  for (int i = 0; i < n; i++)
    a->cnt[i] = weigh(w + (size_t)i * kmax, lo + i, in, scale, support, inv, kmax, &a->start[i], &most);
  a->n = n;
  a->prec = precision(most);

  // To fixed point, in place of nothing: int16 beside the doubles. Zero
  // weights at either end are dropped, which keeps k small.
  double one = 1 << a->prec;
  int k = 2;
  for (int i = 0; i < n; i++) {
    double *p = w + (size_t)i * kmax;
    int32_t *q = (int32_t *)p;
    int c = a->cnt[i];
    for (int j = 0; j < c; j++) q[j] = (int32_t)(0.5 + p[j] * one);
    int z = 0;
    while (c > 1 && q[c - 1] == 0) c--;
    while (z < c - 1 && q[z] == 0) z++;
    if (z) memmove(q, q + z, (size_t)(c - z) * 4);
    a->start[i] += z;
    a->cnt[i] = c - z;
    if (c - z > k) k = c - z;
  }
  a->k = k = (k + 1) & ~1;
  a->w = stk_grow(l, &a->b_w, (size_t)n * k * 2);
  a->lo = in;
  a->hi = 0;
  int64_t worst = 0;
  for (int i = 0; i < n; i++) {
    const int32_t *q = (const int32_t *)(w + (size_t)i * kmax);
    int16_t *d = a->w + (size_t)(mirror_out ? n - 1 - i : i) * k;
    int c = a->cnt[i];
    int64_t sum = 0;
    for (int j = 0; j < c; j++) {
      d[j] = (int16_t)q[mirror_in ? c - 1 - j : j];
      sum += q[j];
    }
    for (int j = c; j < k; j++) d[j] = 0;
    if (sum > worst) worst = sum;
    if (mirror_in) a->start[i] = in - a->start[i] - c;
    if (a->start[i] < a->lo) a->lo = a->start[i];
    if (a->start[i] + c > a->hi) a->hi = a->start[i] + c;
  }
  if (mirror_out)
    for (int i = 0, j = n - 1; i < j; i++, j--) {
      int32_t t = a->start[i];
      a->start[i] = a->start[j];
      a->start[j] = t;
      t = a->cnt[i];
      a->cnt[i] = a->cnt[j];
      a->cnt[j] = t;
    }
  a->safe = worst * 255 + ((int64_t)1 << a->prec >> 1) < (int64_t)256 << a->prec;
}

// stk_axis_pull moves windows that end beyond the last position used back onto
// it, behind weights of zero, so that wide loads stay within STK_SLACK of it.
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
