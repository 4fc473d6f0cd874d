// A lane's memory, its target, and how a job fails.
#include "stk.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC optimize("fp-contract=off")

// Buffers above this are given back after the job that needed them: one giant
// picture must not raise the memory of a lane for good. Go has the same number in
// mem.KeepBytes.
enum { KEEP = 16 << 20 };

static const stk_target *target_of(int level) {
#ifdef __x86_64__
  if (level >= 2) return &stk_avx512;
  if (level == 1) return &stk_avx2;
#endif
#ifdef STK_VECTORS
  if (level < 0) return &stk_portable;
#endif
  (void)level;
  return &stk_base;
}

int stk_best_level(void) {
#ifdef STK_SIMDE
  return 2;
#elif defined __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
      __builtin_cpu_supports("avx512vnni"))
    return 2;
  if (__builtin_cpu_supports("avx2")) return 1;
#endif
  return 0;
}

stk_lane *stk_lane_new(int level) {
  stk_lane *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  l->level = level;
  l->target = target_of(level);
  return l;
}

stk_job *stk_lane_job(stk_lane *l) { return &l->job; }

const char *stk_lane_msg(stk_lane *l) { return l->msg; }

// Growing loses the contents of the buffer, so a buffer in use must not grow.
void *stk_grow(stk_lane *l, stk_buf *b, size_t n) {
  n += STK_SLACK;
  if (n <= b->cap) return b->p;
  size_t cap = (n + n / 4 + 4095) & ~(size_t)4095;
  void *p = NULL;
  free(b->p);
  b->p = NULL;
  b->cap = 0;
  if (cap < n || posix_memalign(&p, 64, cap)) stk_fail(l, STK_MEMORY, "no memory for %zu bytes of scratch", n);
  // Slack is read by wide loads though never used; zero it once so that memory checkers agree.
  memset(p, 0, cap < 65536 ? cap : 0);
  b->p = p;
  b->cap = cap;
  return p;
}

void stk_release(stk_buf *b) {
  if (b->cap <= KEEP) return;
  free(b->p);
  b->p = NULL;
  b->cap = 0;
}

// each calls what for every buffer that grows with pictures.
static void each(stk_lane *l, void (*what)(stk_buf *)) {
  stk_buf *all[] = {&l->ax.b_start, &l->ax.b_cnt, &l->ax.b_w, &l->ax.b_tmp, &l->ay.b_start, &l->ay.b_cnt, &l->ay.b_w, &l->ay.b_tmp,
                    &l->h.b_off, &l->h.b_idx, &l->h.b_coef, &l->ring, &l->ptrs, &l->vw,     &l->vnp,
                    &l->rows,    &l->gray,    &l->post, &l->tmp,      &l->line, &l->xmap, &l->pic[0], &l->pic[1],
                    &l->inner, &l->kept, &l->sum, &l->stages, &l->planes, &l->found};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) what(all[i]);
  stk_jpeg_each(l, what);
}

void stk_lane_trim(stk_lane *l) { each(l, stk_release); }

static void drop(stk_buf *b) {
  free(b->p);
  *b = (stk_buf){0};
}

void stk_lane_free(stk_lane *l) {
  if (!l) return;
  each(l, drop);
  stk_jpeg_free(l);
  stk_huff_free(l->huff);
  stk_libjpeg_free(l);
  stk_index_free(l->index);
  free(l);
}

void stk_fail(stk_lane *l, int code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(l->msg, sizeof l->msg, fmt, ap);
  va_end(ap);
  l->code = code == STK_FORMAT && l->ending ? STK_TRAILING : code;
  longjmp(l->env, 1);
}
