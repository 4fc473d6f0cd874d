// Guard pages, byte strings, and counts of work and of allocations.
#define _GNU_SOURCE
#include "fuzz.h"

#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
  perror(what);
  exit(2);
}

void bytes_put(bytes *b, const void *p, size_t n) { bytes_splice(b, b->n, 0, p, n); }

void bytes_splice(bytes *b, size_t at, size_t n, const void *by, size_t nby) {
  uint8_t *own = nby ? malloc(nby) : NULL;
  if (nby && !own) die("malloc");
  if (nby) memcpy(own, by, nby);
  const size_t all = b->n - n + nby;
  if (all > b->cap) {
    b->cap = 2 * all;
    b->p = realloc(b->p, b->cap);
    if (!b->p) die("realloc");
  }
  if (b->n > at + n) memmove(b->p + at + nby, b->p + at + n, b->n - at - n);
  if (nby) memcpy(b->p + at, own, nby);
  b->n = all;
  free(own);
}

void note(char *what, const char *fmt, ...) {
  const size_t n = strlen(what);
  va_list ap;
  va_start(ap, fmt);
  if (n < NOTE) vsnprintf(what + n, NOTE - n, fmt, ap);
  va_end(ap);
}

void guard_make(guarded *g, size_t n) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + page - 1) / page * page;
  uint8_t *p = mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || mprotect(p + page, body, PROT_READ | PROT_WRITE)) die("mmap");
  g->p = p + page;
  g->n = body;
}

uint8_t *guard_place(guarded *g, size_t n, int low, size_t slack) {
  if (n + slack > g->n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (g->p) munmap(g->p - page, g->n + 2 * page);
    guard_make(g, 2 * (n + slack));
  }
  return low ? g->p + slack : g->p + g->n - slack - n;
}

// The counter belongs to the process that opened it, so each process opens its own.
static int counter(void) {
  static int fd = -2;
  static pid_t of;
  if (fd != -2 && of == getpid()) return fd;
  struct perf_event_attr a = {.type = PERF_TYPE_HARDWARE, .size = sizeof a, .config = PERF_COUNT_HW_INSTRUCTIONS};
  a.exclude_kernel = a.exclude_hv = 1;
  of = getpid();
  fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
  return fd;
}

uint64_t work(void) {
  uint64_t n;
  if (counter() >= 0 && read(counter(), &n, sizeof n) == sizeof n) return n;
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

const char *work_unit(void) { return counter() >= 0 ? "instructions" : "ns"; }

// The linker redirects every call of these here (--wrap), libjpeg's too.
static uint64_t allocated;

uint64_t allocations(void) { return allocated; }

void *__real_malloc(size_t n);
void *__real_calloc(size_t k, size_t n);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t k, size_t n);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);

void *__wrap_malloc(size_t n) {
  allocated++;
  return __real_malloc(n);
}

void *__wrap_calloc(size_t k, size_t n) {
  allocated++;
  return __real_calloc(k, n);
}

void *__wrap_realloc(void *p, size_t n) {
  allocated++;
  return __real_realloc(p, n);
}

int __wrap_posix_memalign(void **p, size_t align, size_t n) {
  allocated++;
  return __real_posix_memalign(p, align, n);
}
