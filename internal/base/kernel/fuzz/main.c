// The command: which cases run, in how many processes, and what is said of them.
//
//	jpeg-fuzz -seed 7 -n 1000000 -jobs 2     cases 0 to 999,999 of seed 7
//	jpeg-fuzz -seed 7 -seconds 60            as many as go in a minute
//	jpeg-fuzz -seed 7 -case 1234             one of them, with those of its block before it
//	jpeg-fuzz -file x.jpg                    a file, and 200 regions of it
//
// With -strict, a stray marker or a byte too many counts also where no pixel of
// the region depends on it. It ends with 1 if there was a finding, whose input it left in -out.
#include "fuzz.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { MOST_JOBS = 64 };

typedef struct {
  uint64_t seed, n, one;
  double seconds;
  int jobs, verbose, strict, has_one;
  const char *out, *file;
} options;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *argument(int argc, char **argv, int *i) {
  if (*i + 1 < argc) return argv[++*i];
  fprintf(stderr, "%s: of what?\n", argv[*i]);
  exit(2);
}

static options read_options(int argc, char **argv) {
  options o = {.seed = 1, .n = UINT64_MAX, .jobs = 1, .out = "."};
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i];
    if (!strcmp(a, "-seed")) o.seed = strtoull(argument(argc, argv, &i), NULL, 10);
    else if (!strcmp(a, "-n")) o.n = strtoull(argument(argc, argv, &i), NULL, 10);
    else if (!strcmp(a, "-seconds")) o.seconds = atof(argument(argc, argv, &i));
    else if (!strcmp(a, "-jobs")) o.jobs = atoi(argument(argc, argv, &i));
    else if (!strcmp(a, "-out")) o.out = argument(argc, argv, &i);
    else if (!strcmp(a, "-file")) o.file = argument(argc, argv, &i);
    else if (!strcmp(a, "-v")) o.verbose = 1;
    else if (!strcmp(a, "-strict")) o.strict = 1;
    else if (!strcmp(a, "-case")) o.one = strtoull(argument(argc, argv, &i), NULL, 10), o.has_one = 1;
    else {
      fprintf(stderr, "usage: jpeg-fuzz [-seed S] [-n CASES] [-seconds T] [-jobs J] [-out FOLDER] [-case I] [-file JPEG] [-strict] [-v]\n");
      exit(2);
    }
  }
  if (o.jobs < 1 || o.jobs > MOST_JOBS) o.jobs = 1;
  if (o.n == UINT64_MAX && o.seconds == 0) o.n = 100000;
  return o;
}

static void report(const tally *t, double took) {
  printf("%llu cases, %llu runs of the kernel, %.0f cases a second: %llu decoded (%llu not by libjpeg), %llu refused (%llu of them without a warning of libjpeg), "
         "%llu refused by their header, %llu compared, %llu not judged, %llu good by a second opinion, %llu errors in other words on another target, "
         "%llu with wrong entry points (%llu noticed it; %llu have the picture before the damage and %llu pieces that fit, %llu of them with the same fingerprint), %llu findings\n",
         (unsigned long long)t->cases, (unsigned long long)t->runs, (double)t->cases / (took > 0 ? took : 1), (unsigned long long)t->decoded, (unsigned long long)t->own,
         (unsigned long long)t->refused, (unsigned long long)t->strict, (unsigned long long)t->gated, (unsigned long long)t->healthy,
         (unsigned long long)t->unjudged, (unsigned long long)t->stray, (unsigned long long)t->texts, (unsigned long long)t->pointed, (unsigned long long)t->noticed,
         (unsigned long long)t->undamaged, (unsigned long long)t->pieces, (unsigned long long)t->printed, (unsigned long long)t->findings);
  fflush(stdout);
}

#ifndef __SANITIZE_ADDRESS__
static void on_signal(int sig) {
  signal(sig, SIG_DFL);
  case_died();
  raise(sig);
}
#endif

static void watch_deaths(void) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(case_died);
#else
  const int all[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) signal(all[i], on_signal);
#endif
}

// work_on runs every jobs-th block of cases from the id-th. Its results are in memory
// that the parent sees, even if it dies.
static int work_on(const options *o, int id, tally *shown) {
  const double began = seconds();
  case_start(o->out, o->seed, o->verbose, o->strict);
  watch_deaths();
  for (uint64_t block = (uint64_t)id; block * TOGETHER < o->n; block += (uint64_t)o->jobs) {
    case_block();
    for (uint64_t i = block * TOGETHER; i < (block + 1) * TOGETHER && i < o->n; i++) case_run(i);
    *shown = sum;
    if (o->seconds > 0 && seconds() - began >= o->seconds) break;
  }
  return sum.findings ? 1 : 0;
}

static tally total(const tally *t, int n) {
  tally all = {0};
  for (int i = 0; i < n; i++) {
    const uint64_t *from = (const uint64_t *)&t[i];
    for (size_t k = 0; k < sizeof all / sizeof *from; k++) ((uint64_t *)&all)[k] += from[k];
  }
  return all;
}

static int run_jobs(const options *o) {
  const double began = seconds();
  tally *t = mmap(NULL, sizeof *t * MOST_JOBS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int left = o->jobs, bad = 0;
  if (t == MAP_FAILED) exit(2);
  fflush(stdout);
  for (int i = 0; i < o->jobs; i++) {
    const pid_t pid = fork();
    if (pid < 0) exit(2);
    if (pid == 0) _exit(work_on(o, i, &t[i]));
  }
  for (double said = began; left > 0;) {
    int status;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      left--;
      bad |= status != 0;
      continue;
    }
    usleep(100000);
    if (seconds() - said >= 60) {
      const tally all = total(t, o->jobs);
      report(&all, seconds() - began);
      said = seconds();
    }
  }
  const tally all = total(t, o->jobs);
  report(&all, seconds() - began);
  return bad;
}

static int run_file(const options *o) {
  static uint8_t buf[64 << 20];
  FILE *f = fopen(o->file, "rb");
  if (!f) {
    perror(o->file);
    return 2;
  }
  const size_t n = fread(buf, 1, sizeof buf, f);
  fclose(f);
  case_start(o->out, o->seed, o->verbose, o->strict);
  watch_deaths();
  case_file(buf, n, 200);
  report(&sum, 1);
  return sum.findings ? 1 : 0;
}

static int run_one(const options *o) {
  case_start(o->out, o->seed, 0, o->strict);
  watch_deaths();
  case_block();
  for (uint64_t i = o->one / TOGETHER * TOGETHER; i < o->one; i++) case_run(i);
  case_verbose();
  case_run(o->one);
  report(&sum, 1);
  return sum.findings ? 1 : 0;
}

int main(int argc, char **argv) {
  const options o = read_options(argc, argv);
  if (o.file) return run_file(&o);
  if (o.has_one) return run_one(&o);
  return run_jobs(&o);
}
