// The clock of a timed job.
#ifndef STK_TICKS_H
#define STK_TICKS_H

#include "stk.h"

#include <time.h>

static inline int64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// ticks is a clock of unknown unit that is cheap enough to read for every row: a
// tenth of the cost of clock_gettime. scale converts it by the time of the whole
// job.
static inline int64_t ticks(void) {
#if defined(__x86_64__)
  return (int64_t)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  int64_t t;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
#else
  return clock_ns();
#endif
}

// tick is the current time in ticks, or 0 if the job is not timed; tock adds the
// time since then.
static inline int64_t tick(const stk_lane *l) { return l->job.timed ? ticks() : 0; }

static inline void tock(stk_lane *l, int64_t *sum, int64_t since) {
  if (l->job.timed) *sum += tick(l) - since;
}

#endif
