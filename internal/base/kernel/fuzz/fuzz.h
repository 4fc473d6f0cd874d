// A differential fuzzer of the JPEG decoder: what its files share.
//
// Case number i of a seed is always the same bytes, region, position in memory
// and target. base.c makes a valid file, mutate.c damages it, reference.c has
// libjpeg decode all of it, and case.c runs the kernel between guard pages and
// compares. Lanes live for TOGETHER cases, so that the next case meets what one
// case left behind, as does a replay of the block.
//
// These promises are checked:
//
//   - no access outside of the input, the output and the lane's own memory
//     (guard pages, AddressSanitizer), nothing undefined (UBSan);
//   - what succeeds has libjpeg's pixels, and libjpeg sees no damage in what
//     the region needs;
//   - what is not damaged succeeds, however its segments are arranged;
//   - all targets do the same;
//   - a lane that has seen a sequential picture allocates nothing for it again;
//   - nothing takes 20 times as long as a healthy file of that size;
//   - with entry points, right or wrong ones, it does the same as without, except that
//     damage is not seen in bytes that were leapt over (points.c). Such pictures are counted.
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "stk.h"

enum { TOGETHER = 256, PER_BASE = 8, NOTE = 512, LEVELS = 5 };

// rng is splitmix64.
typedef struct {
  uint64_t s;
} rng;

static inline uint64_t rnd(rng *r) {
  uint64_t z = r->s += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

// below is uniform in [0, n); among is uniform in [lo, hi]; one_in is true once in n.
static inline uint32_t below(rng *r, uint32_t n) { return n ? (uint32_t)((rnd(r) >> 32) * n >> 32) : 0; }
static inline int among(rng *r, int lo, int hi) { return lo + (int)below(r, (uint32_t)(hi - lo + 1)); }
static inline int one_in(rng *r, uint32_t n) { return below(r, n) == 0; }

typedef struct {
  uint8_t *p;
  size_t n, cap;
} bytes;

void bytes_put(bytes *b, const void *p, size_t n);
// bytes_splice replaces n bytes at a position by others, which may be b's own.
void bytes_splice(bytes *b, size_t at, size_t n, const void *by, size_t nby);

// note appends to the description of a case.
void note(char *what, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// base.c: a valid file, at most 400 pixels per side.
void base_make(rng *r, bytes *out, char *what);
// base_other makes a file with the settings that base_make chooses by r, so mostly with the
// same header, but with another picture: from some row on, which may be the first.
void base_other(rng *r, rng *other, bytes *out);
// base_plain makes a file of a known kind, as a reference for cost.
enum { HUFFMAN, PROGRESSIVE, ARITHMETIC, KINDS };
void base_plain(bytes *out, int side, int noise, int kind);

// mutate.c: changes b and returns whether that may be damage; 0: it shows the same
// picture, with segments arranged differently.
int mutate(rng *r, bytes *b, char *what);

// header.c: the results of readHeader in header.go, on which the C relies.
typedef struct {
  int w, h, components, restart, progressive, arithmetic;
  int64_t blocks;
  size_t scan;
  const char *refused;  // NULL: it passes
} header;

void header_read(header *h, const uint8_t *p, size_t n);

// reference.c: libjpeg's full decode.
enum { WARNINGS = 1024, BEFORE = -1 };

// A warning of libjpeg, with its own code, and the MCU at which it came; n: its
// number.
typedef struct {
  int64_t at;
  int code, n;
} warning;

typedef struct {
  int opened;              // the header was read
  int w, h, c;             // c: channels of pix: 1 or 3
  int components;
  uint8_t *pix;            // NULL: too large
  size_t cap;
  int rows;                // that were decoded
  int failed;              // an error ended it
  int64_t failed_at;       // at this MCU; BEFORE: earlier
  int warnings;
  warning warned[WARNINGS];
  int after;               // bytes that it met after the last MCU, before a marker
  int multi;               // several scans: all of them come before any MCU
  int mcu_w, mcu_h, cols, restart;
  int fancy_h, fancy_v;    // a pixel takes chroma of its neighbours
  char failure[256];       // the error's text
} reference;

// reference_decode decodes as carefully as libjpeg can; hasty: as it does by default.
void reference_decode(reference *f, const uint8_t *p, size_t n, int hasty);
// reference_blames returns a text if libjpeg saw damage in what a region needs,
// otherwise NULL. slack is how many extra bytes a segment may have: up to 8, stuffed
// ones counted twice. libjpeg notices these or not, depending on how far it happened
// to read ahead.
const char *reference_blames(const reference *f, int x0, int y0, int x1, int y1, int slack);
// reference_extreme reports whether a dequantised coefficient is one that no 8-bit
// picture has.
int reference_extreme(const uint8_t *p, size_t n);

// rewrite.c: lets l rewrite a file of which f is libjpeg's result, and returns what
// is wrong with the new file; NULL: nothing.
const char *rewrite_check(rng *r, stk_lane *l, const header *h, const reference *f, const uint8_t *p, size_t n);

// points.c: entry points of a file.
// The kinds: its own, its own made wrong from one on, random ones, those of the file before
// it was damaged, those of a file with the same settings, those of any other file.
enum { OWN, LATER, CHANCE, EARLIER, OTHER, STRANGER, POINT_KINDS };
// How many a file is given at most; how much of a scan a fingerprint covers, as in Go.
enum { POINTS_MOST = 1 << 12, POINTS_HEAD = 64 };

// points_make finds the points of a file, or some of the first, makes them what kind says,
// and returns how many they are.
int points_make(rng *r, stk_lane *l, int kind, const uint8_t *jpeg, size_t n, int spacing, stk_point *out);
// points_watch takes down where a run that is given known begins, until it is called with
// NULL. points_excuse says afterwards why what that run did not notice is not excused; NULL:
// it is.
void points_watch(const stk_point *known);
const char *points_excuse(const uint8_t *jpeg, size_t n, const stk_point *p, int known);
// points_alike is whether two files have the same fingerprint.
int points_alike(const bytes *a, const bytes *b);

// walk.c: whether decoding a file that begins at point a comes to point b.
int walk_fits(const uint8_t *jpeg, size_t n, const stk_point *a, const stk_point *b);

// price.c: price_set measures with run, which returns the work of decoding b;
// price_most is the limit for a valid file.
typedef double price_run(int level, const header *h, const bytes *b);
void price_set(int level, price_run *run);
double price_most(int level, const header *h, int multi, size_t n);

// guard.c: memory between guard pages.
typedef struct {
  uint8_t *p;
  size_t n;
} guarded;

void guard_make(guarded *g, size_t n);
// guard_place returns n bytes that end slack bytes before the page above, or, with
// low, begin slack bytes after the page below.
uint8_t *guard_place(guarded *g, size_t n, int low, size_t slack);

// work is the work of this thread so far: instructions if the system counts them,
// otherwise nanoseconds.
uint64_t work(void);
const char *work_unit(void);
uint64_t allocations(void);  // so far

// case.c
typedef struct {
  uint64_t cases, runs, decoded, own, refused, strict, gated, unjudged, healthy, stray, texts, findings;
  // Runs with wrong points; those of them that noticed it; those that did not, and made
  // another picture, or one instead of an error: the one before the damage, or one whose
  // pieces fit the points; and how many of these the fingerprint does not tell from the file
  // whose points they are.
  uint64_t pointed, noticed, undamaged, pieces, printed;
} tally;

extern tally sum;
void case_start(const char *folder, uint64_t seed, int verbose, int strict);
void case_block(void);                    // new lanes
void case_verbose(void);                  // what follows is described
void case_run(uint64_t number);
void case_file(const uint8_t *p, size_t n, int boxes);
void case_input(uint64_t seed, const uint8_t *p, size_t n);  // a file that may be damaged
void case_died(void);                     // writes the input of the case that runs

#endif
