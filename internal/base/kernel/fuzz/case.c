// One case: a file, a region of it, a position in memory and a target; and what must
// hold for them.
#include "fuzz.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { AROUND = 64, FILES_EACH = 5, MOST_PIXELS = 1 << 21, TRIES = 8, SLACK = 16 };

// An errand is one request to the kernel.
typedef struct {
  int level;
  int w, h, components;
  int x, y, bw, bh;
  int gray;                // one channel is requested
  int resample, filter, rw, rh;
  int draft;               // it may be decoded smaller: compared only with other targets
  int anew;                // Huffman tables are not kept from file to file
  int sound;               // the scan must end with its last block
  int in_low, out_low;     // at the lower guard page, otherwise at the upper one
  size_t in_slack, out_slack;
} errand;

tally sum;

static struct {
  const char *folder;
  uint64_t seed, number, base;
  int verbose, strict;
  bytes made, input;
  char base_what[NOTE], what[NOTE];
  errand e;
} now;

// After the levels of the processor come the portable one, and plain, without
// vectors, which is the first one if the compiler has no vectors.
extern const stk_samples stk_samples_plain;
static stk_target plain;

static stk_lane *lanes[LEVELS], *raw;
static int levels;
static guarded in, out;
static reference ref, second;
static header head;

static void write_file(const char *kind) {
  char name[600];
  snprintf(name, sizeof name, "%s/%s-%llu-%llu.jpg", now.folder, kind, (unsigned long long)now.seed, (unsigned long long)now.number);
  FILE *f = fopen(name, "wb");
  if (!f) return;
  fwrite(now.input.p, 1, now.input.n, f);
  fclose(f);
  printf("  %s\n", name);
}

// The filters, numbered as STK_BILINEAR and the others.
static const char *const filters[] = {" bilinear", " nearest", " bicubic", " nearest-exact"};

static void describe(void) {
  const errand *e = &now.e;
  printf("  again: -seed %llu -case %llu\n  file: %s\n", (unsigned long long)now.seed, (unsigned long long)now.number, now.what);
  printf("  level %d, %dx%d of %d components, box %d,%d %dx%d%s", e->level, e->w, e->h, e->components, e->x, e->y, e->bw, e->bh, e->gray ? ", grey" : "");
  if (e->anew) printf(", tables anew");
  if (e->sound) printf(", sound to its end");
  if (e->resample) printf(", to %dx%d%s", e->rw, e->rh, e->draft ? " by a draft" : filters[e->filter]);
  printf("; input %s page %s %zu, output %s page %s %zu\n", e->in_low ? "lower" : "upper", e->in_low ? "+" : "-", e->in_slack,
         e->out_low ? "lower" : "upper", e->out_low ? "+" : "-", e->out_slack);
}

void case_died(void) {
  printf("finding: died\n");
  describe();
  write_file("died");
  fflush(stdout);
}

// finding reports a finding; a few of each kind, the others are counted.
static void finding(const char *kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void finding(const char *kind, const char *fmt, ...) {
  static struct {
    const char *kind;
    int n;
  } seen[16];
  int i = 0;
  while (i < 15 && seen[i].kind && strcmp(seen[i].kind, kind)) i++;
  seen[i].kind = kind;
  sum.findings++;
  if (++seen[i].n > FILES_EACH && !now.verbose) return;
  char text[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  printf("finding: %s: %s\n", kind, text);
  describe();
  write_file(kind);
  fflush(stdout);
}

static size_t out_size(const errand *e) {
  const size_t px = e->resample ? (size_t)e->rw * (size_t)e->rh : (size_t)e->bw * (size_t)e->bh;
  return px * (e->gray ? 1 : 3);
}

// ask writes an errand as the planner in Go does.
static void ask(stk_job *j, const errand *e) {
  memset(j, 0, sizeof *j);
  const int c = e->components == 1 ? 1 : 3;
  j->w = e->w;
  j->h = e->h;
  j->c = c;
  j->components = e->components;
  j->npass = 1;
  j->anew = e->anew;
  j->strict = e->sound;
  stk_pass *p = j->pass;
  p->c_in = c;
  p->c_out = e->gray ? 1 : 3;
  p->gray_pre = e->gray && c == 3;
  p->gray_post = !e->gray && c == 1 ? 3 : 0;
  p->bx = e->x;
  p->by = e->y;
  p->bw = p->ww = e->bw;
  p->bh = p->wh = e->bh;
  p->resample = e->resample;
  p->filter = e->filter;
  p->draft = e->draft;
  if (e->resample) {
    p->rw = p->ww = e->rw;
    p->rh = p->wh = e->rh;
  }
}

static uint8_t *place_out(const errand *e, size_t n) {
  uint8_t *d = guard_place(&out, n + 2 * AROUND, e->out_low, e->out_slack);
  memset(d, 0xa5, n + 2 * AROUND);
  // The pages begin and end with the output itself, with nothing left free.
  return e->out_low ? d : d + 2 * AROUND;
}

// around reports whether the bytes around the output are unchanged.
static int around(const errand *e, const uint8_t *d, size_t n) {
  const uint8_t *p = e->out_low ? d + n : d - 2 * AROUND;
  for (int i = 0; i < 2 * AROUND; i++)
    if (p[i] != 0xa5) return 0;
  return 1;
}

static int run(const errand *e, stk_lane *l, const uint8_t *jpeg, size_t n, uint8_t *d, uint64_t *cost) {
  ask(stk_lane_job(l), e);
  const uint64_t since = work();
  const int code = stk_run(l, jpeg, n, NULL, d, NULL, 0, 0);
  *cost = work() - since;
  sum.runs++;
  return code;
}

// expected is the part of the reference that the region shows.
static const uint8_t *expected(const errand *e, const reference *f) {
  static bytes b;
  const size_t n = out_size(e);
  if (n > b.cap) {
    b.p = realloc(b.p, b.cap = 2 * n);
    if (!b.p) exit(2);
  }
  if (e->resample) {
    errand pixels = *e;
    pixels.components = f->c == 1 ? 1 : 3;
    ask(stk_lane_job(raw), &pixels);
    stk_lane_job(raw)->components = 0;
    if (stk_run(raw, NULL, 0, f->pix, b.p, NULL, 0, 0) != STK_OK) exit(2);
    return b.p;
  }
  uint8_t *o = b.p;
  for (int y = e->y; y < e->y + e->bh; y++) {
    const uint8_t *p = f->pix + ((size_t)y * (size_t)f->w + (size_t)e->x) * (size_t)f->c;
    for (int x = 0; x < e->bw; x++, p += f->c) {
      if (f->c == 1)
        for (int k = e->gray ? 1 : 3; k > 0; k--) *o++ = *p;
      else if (e->gray)
        *o++ = (uint8_t)((19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) >> 16);
      else
        for (int k = 0; k < 3; k++) *o++ = p[k];
    }
  }
  return b.p;
}

// blames returns what libjpeg holds against the pixels that every decoder must read for this
// errand, or NULL. Without resampling these are the whole box. With it, only one is certain: the
// pixel with the largest weight in the result's first one.
static const char *blames(const errand *e, const reference *f) {
  if (!e->resample) return reference_blames(f, e->x, e->y, e->x + e->bw, e->y + e->bh, SLACK);
  const int corner = e->filter == STK_NEAREST;  // takes the first pixel, the others the middle one
  const int x = e->x + (corner ? 0 : e->bw / (2 * e->rw)), y = e->y + (corner ? 0 : e->bh / (2 * e->rh));
  return reference_blames(f, x, y, x + 1, y + 1, SLACK);
}

static int holds(const errand *e, const uint8_t *d) {
  if (second.w != e->w || second.h != e->h || second.rows < e->y + e->bh || blames(e, &second)) return 0;
  return !memcmp(d, expected(e, &second), out_size(e));
}

// agrees gets a second opinion: libjpeg's fast result for a kind that libjpeg decodes
// for the kernel, and for files with restart markers. A decoder that goes straight to
// the segments of a region does not see a wrong marker in another segment, but
// libjpeg gives up everything after it. So this asks for libjpeg's verdict on the
// same bytes with such markers turned into data.
static int agrees(const errand *e, const uint8_t *d) {
  static bytes b;
  if (now.strict) return 0;
  if (!stk_lane_job(lanes[e->level])->own) {
    reference_decode(&second, now.input.p, now.input.n, 1);
    if (holds(e, d)) return 1;
  }
  if (!head.restart || ref.multi) return 0;
  b.n = 0;
  bytes_put(&b, now.input.p, now.input.n);
  size_t end = b.n - 1;
  while (end > head.scan && !(b.p[end - 1] == 0xff && b.p[end] == 0xd9)) end--;
  for (size_t i = head.scan; i + 1 < end; i++)
    if (b.p[i] == 0xff && b.p[i + 1] != 0xff && (b.p[i + 1] & 0xf8) != 0xd0) b.p[i + 1] = 0;
  reference_decode(&second, b.p, b.n, 0);
  return holds(e, d);
}

static void compare(const errand *e, const uint8_t *d) {
  const size_t n = out_size(e);
  if (!memcmp(d, expected(e, &ref), n)) return;
  if (agrees(e, d)) {
    sum.stray++;
    return;
  }
  const uint8_t *want = expected(e, &ref);
  size_t first = 0, many = 0;
  int most = 0;
  for (size_t i = n; i-- > 0;)
    if (d[i] != want[i]) {
      first = i;
      many++;
      if (abs(d[i] - want[i]) > most) most = abs(d[i] - want[i]);
    }
  const int extreme = reference_extreme(now.input.p, now.input.n);
  finding(extreme ? "pixels-extreme" : "pixels", "%zu of %zu differ, by at most %d, first at %zu: %d, libjpeg's %d (libjpeg warned %d times)", many, n,
          most, first, d[first], want[first], ref.warnings);
}

// unsound reports whether the kernel skipped more bytes between the last block and
// the end marker than are allowed; each may be a stuffed one.
static int unsound(const errand *e) {
  if (!e->sound || ref.multi || ref.after <= 2 * SLACK) return 0;
  const uint8_t *p = now.input.p;
  for (size_t i = head.scan; i + 1 < now.input.n; i++)
    if (p[i] == 0xff && p[i + 1] != 0 && p[i + 1] != 0xff && (p[i + 1] & 0xf8) != 0xd0) return p[i + 1] == 0xd9;
  return 0;
}

// judge compares a verdict with libjpeg's. Files that readHeader refuses are run only
// to check memory.
static void judge(const errand *e, int code, const uint8_t *d, int damage) {
  const int clean = ref.opened && !ref.warnings && !ref.failed && ref.pix && ref.rows == ref.h && !(e->sound && ref.after);
  if (head.refused) {
    sum.gated++;
    if (!damage && clean) finding("refused-header", "not damaged, and: %s", head.refused);
    return;
  }
  sum.decoded += code == STK_OK;
  sum.own += code == STK_OK && stk_lane_job(lanes[e->level])->own;
  if (code != STK_OK) {
    sum.refused++;
    if (clean) {
      sum.strict++;
      if (now.verbose) printf("  libjpeg sees no damage\n");
    }
    if (clean && !damage) finding("refused", "not damaged, and: %s", stk_lane_msg(lanes[e->level]));
    return;
  }
  const char *blame = reference_blames(&ref, e->x, e->y, e->x + e->bw, e->y + e->bh, now.strict ? 0 : SLACK);
  if (unsound(e)) {
    finding("missed", "libjpeg: %d bytes before the end marker", ref.after);
  } else if (e->draft) {
    sum.unjudged++;
  } else if (blame && agrees(e, d)) {
    sum.stray++;
  } else if (blame && e->resample && !blames(e, &ref)) {
    sum.unjudged++;  // the result need not use all pixels of the box
  } else if (blame) {
    finding("missed", "libjpeg: %s", blame);
  } else if (ref.w != e->w || ref.h != e->h || ref.components != e->components) {
    finding("missed", "libjpeg reads another size");
  } else if (ref.rows >= e->y + e->bh) {
    sum.healthy++;
    compare(e, d);
  } else {
    sum.unjudged++;
  }
}

static void time_it(const errand *e, const uint8_t *jpeg, uint8_t *d, uint64_t cost) {
  const double most = price_most(e->level, &head, ref.multi, now.input.n);
  if (head.refused || e->resample || (double)cost <= most) return;
  for (int i = 0; i < TRIES; i++) {
    uint64_t again;
    run(e, lanes[e->level], jpeg, now.input.n, d, &again);
    if (again < cost) cost = again;
  }
  if ((double)cost > most) finding("slow", "%llu %s, at most %.0f allowed", (unsigned long long)cost, work_unit(), most);
}

// alike runs the same on the other targets.
static void alike(const errand *e, int code, const uint8_t *d, const uint8_t *jpeg) {
  static bytes first;
  const size_t n = out_size(e);
  char msg[STK_MSG];
  first.n = 0;
  bytes_put(&first, d, n);
  snprintf(msg, sizeof msg, "%s", stk_lane_msg(lanes[e->level]));
  for (int level = 0; level < levels; level++) {
    if (level == e->level) continue;
    uint64_t cost;
    uint8_t *o = place_out(e, n);
    const int other = run(e, lanes[level], jpeg, now.input.n, o, &cost);
    if (!around(e, o, n)) finding("outside", "level %d wrote beside its output", level);
    if (other != code)
      finding("targets", "level %d: %s; level %d: %s", e->level, code ? msg : "fine", level, other ? stk_lane_msg(lanes[level]) : "fine");
    else if (code == STK_OK && memcmp(o, first.p, n))
      finding("targets", "level %d has other pixels than level %d", level, e->level);
    else if (code != STK_OK && strcmp(msg, stk_lane_msg(lanes[level])))
      sum.texts++;
  }
}

static uint64_t mix(uint64_t a, uint64_t b) {
  rng r = {a * UINT64_C(0xd1342543de82ef95) + b};
  rnd(&r);
  return rnd(&r);
}

// other_file is the file whose points a kind has.
static const bytes *other_file(int kind) {
  static bytes b[POINT_KINDS];
  static uint64_t of[POINT_KINDS] = {[OTHER] = UINT64_MAX, [STRANGER] = UINT64_MAX};
  if (kind < EARLIER) return &now.input;
  if (kind == EARLIER || now.base == UINT64_MAX) return &now.made;
  if (of[kind] == now.base) return &b[kind];
  of[kind] = now.base;
  rng settings = {mix(now.seed, 2 * now.base)}, picture = {mix(~now.seed, now.base)};
  char what[NOTE];
  if (kind == OTHER) base_other(&settings, &picture, &b[kind]);
  else base_make(&picture, &b[kind], what);
  return &b[kind];
}

// unnoticed judges a run with wrong points that did not end as that without, and found
// nothing wrong.
static void unnoticed(const errand *e, int kind, int code, int other, const uint8_t *jpeg, const uint8_t *o, const bytes *from, const stk_point *p, int known) {
  static bytes got;
  stk_lane *l = lanes[e->level];
  const char *why = points_excuse(jpeg, now.input.n, p, known);
  sum.printed += (uint64_t)(kind >= EARLIER && points_alike(from, &now.input));
  if (other != STK_OK) {
    finding("points", "with %d of kind %d: %s; without: %s", known, kind, stk_lane_msg(l), code ? "not" : "fine");
    return;
  }
  got.n = 0;
  bytes_put(&got, o, out_size(e));
  header was;
  header_read(&was, from->p, from->n);
  if (kind == EARLIER && !was.refused && was.w == e->w && was.h == e->h && was.components == e->components) {
    uint64_t cost;
    uint8_t *d = place_out(e, got.n);
    if (run(e, l, from->p, from->n, d, &cost) == STK_OK && !memcmp(d, got.p, got.n)) {
      sum.undamaged++;
      return;
    }
  }
  if (why) finding("points", "with %d of kind %d it has other pixels, and %s", known, kind, why);
  else sum.pieces++;
}

// from_points runs the same with entry points.
static void from_points(rng *r, const errand *e, int code, const uint8_t *d, const uint8_t *jpeg) {
  static stk_point points[POINTS_MOST];
  static bytes first;
  stk_lane *l = lanes[e->level];
  if (e->sound || !stk_lane_job(l)->own) return;
  const size_t n = out_size(e);
  first.n = 0;
  bytes_put(&first, d, n);
  const int spacing = 1 + (int)below(r, one_in(r, 2) ? 40 : 800), kind = (int)below(r, POINT_KINDS);
  const bytes *from = other_file(kind);
  const int known = points_make(r, l, kind, from->p, from->n, spacing, points);
  for (int i = 1; i < known && kind == OWN && now.number % 8 == 1; i++)
    if ((!head.restart || points[i].mcu / (uint32_t)head.restart == points[i - 1].mcu / (uint32_t)head.restart) && !walk_fits(jpeg, now.input.n, &points[i - 1], &points[i]))
      finding("points", "reading bit by bit, its points %d and %d do not fit", i - 1, i);
  uint8_t *o = place_out(e, n);
  ask(stk_lane_job(l), e);
  points_watch(points);
  int other = stk_run(l, jpeg, now.input.n, NULL, o, points, known, one_in(r, 2) ? spacing : 0);
  points_watch(NULL);
  sum.runs++;
  sum.pointed += kind != OWN;
  if (!around(e, o, n)) finding("outside", "wrote beside its output, with points");
  const int stale = other == STK_STALE;
  if (stale) {
    uint64_t cost;
    sum.noticed += kind != OWN;
    if (kind == OWN && code == STK_OK) finding("points", "%d of its own are wrong", known);
    other = run(e, l, jpeg, now.input.n, o, &cost);
  }
  if (other == code && (code != STK_OK || !memcmp(o, first.p, n))) return;
  if (!stale && kind != OWN)
    unnoticed(e, kind, code, other, jpeg, o, from, points, known);
  else if (other != code)
    finding("points", "with %d of kind %d: %s; without: %s", known, kind, other ? stk_lane_msg(l) : "fine", code ? "not" : "fine");
  else
    finding("points", "with %d of kind %d it has other pixels", known, kind);
}

static void run_all(rng *r, int damage, int every_level) {
  errand *e = &now.e;
  const size_t n = out_size(e);
  uint8_t *jpeg = guard_place(&in, now.input.n, e->in_low, e->in_slack), *d = place_out(e, n);
  memcpy(jpeg, now.input.p, now.input.n);
  uint64_t cost;
  const int code = run(e, lanes[e->level], jpeg, now.input.n, d, &cost);
  if (now.verbose) printf("level %d%s: %s, %llu %s\n", e->level, stk_lane_job(lanes[e->level])->own ? "" : " by libjpeg",
                          code ? stk_lane_msg(lanes[e->level]) : "fine", (unsigned long long)cost, work_unit());
  if (!around(e, d, n)) finding("outside", "wrote beside its output");
  if (memcmp(jpeg, now.input.p, now.input.n)) finding("outside", "changed its input");
  judge(e, code, d, damage);
  time_it(e, jpeg, d, cost);
  if (!head.refused && one_in(r, 2)) {
    run(e, lanes[e->level], jpeg, now.input.n, d, &cost); // time_it may have written to d
    from_points(r, e, code, d, jpeg);
    d = place_out(e, n);
    run(e, lanes[e->level], jpeg, now.input.n, d, &cost); // points have written there
  }
  if (every_level && !head.refused) {
    const uint64_t before = allocations();
    run(e, lanes[e->level], jpeg, now.input.n, d, &cost);
    if (allocations() != before && stk_lane_job(lanes[e->level])->own && !e->resample) finding("allocates", "%d times, for what it has just done", (int)(allocations() - before));
    alike(e, code, d, jpeg);
    const char *bad = rewrite_check(r, lanes[e->level], &head, &ref, jpeg, now.input.n);
    if (bad) finding("rewritten", "%s", bad);
  }
}

static void choose_box(rng *r, errand *e) {
  e->bw = e->w;
  e->bh = e->h;
  const uint32_t kind = below(r, 8);
  if (kind >= 2) {
    e->bw = kind == 3 ? 1 + (int)below(r, e->w < 4 ? (uint32_t)e->w : 4) : among(r, 1, e->w);
    e->bh = kind == 4 ? 1 + (int)below(r, e->h < 4 ? (uint32_t)e->h : 4) : among(r, 1, e->h);
    if (kind == 5) e->bw = e->w;
    if (kind == 6) e->bh = e->h;
    e->x = among(r, 0, e->w - e->bw);
    e->y = among(r, 0, e->h - e->bh);
  }
}

static void choose(rng *r, errand *e) {
  memset(e, 0, sizeof *e);
  e->level = (int)below(r, (uint32_t)levels);
  e->w = head.w ? head.w : ref.w;
  e->h = head.h ? head.h : ref.h;
  e->components = head.components ? head.components : ref.components;
  if (e->w < 1 || e->h < 1) e->w = e->h = 0;
  else choose_box(r, e);
  e->gray = one_in(r, 10);
  if (one_in(r, 12)) {
    e->resample = 1;
    e->filter = one_in(r, 2) ? STK_BILINEAR : (int)below(r, sizeof filters / sizeof *filters);
    e->rw = among(r, 1, 50);
    e->rh = among(r, 1, 50);
    if (e->rw == e->bw && e->rh == e->bh) e->resample = 0;
    e->draft = e->resample && e->filter == STK_BILINEAR && one_in(r, 2);
  }
  e->anew = one_in(r, 8);
  e->sound = one_in(r, 8);
  e->in_low = one_in(r, 4);
  e->out_low = one_in(r, 4);
  e->in_slack = one_in(r, 3) ? below(r, 64) : 0;
  e->out_slack = one_in(r, 3) ? below(r, 64) : 0;
}

static int possible(const errand *e) {
  return e->w > 0 && (int64_t)e->w * e->h <= MOST_PIXELS && (e->components == 1 || e->components == 3 || e->components == 4);
}

static void say(void) {
  describe();
  printf("  header: %s\n  libjpeg: %d rows of %d, %d warnings%s%s; at MCU (code):", head.refused ? head.refused : "fine", ref.rows, ref.h, ref.warnings,
         ref.failed ? "; failed: " : "", ref.failure);
  for (int i = 0; i < ref.warnings && i < 40; i++) printf(" %lld (%d)", (long long)ref.warned[i].at, ref.warned[i].code);
  printf("\n  restart %d, MCUs of %dx%d, %d columns\n", ref.restart, ref.mcu_w, ref.mcu_h, ref.cols);
}

void case_run(uint64_t number) {
  const uint64_t base = number / PER_BASE;
  sum.cases++;
  now.number = number;
  if (base != now.base) {
    rng r = {mix(now.seed, 2 * base)};
    base_make(&r, &now.made, now.base_what);
    now.base = base;
  }
  rng r = {mix(now.seed, 2 * number + 1)};
  const int whole = number % PER_BASE == 0;
  memcpy(now.what, now.base_what, sizeof now.what);
  now.input.n = 0;
  bytes_put(&now.input, now.made.p, now.made.n);
  const int damage = whole ? 0 : mutate(&r, &now.input, now.what);
  header_read(&head, now.input.p, now.input.n);
  if (head.refused && damage && !one_in(&r, 4)) {
    sum.gated++;
    return;
  }
  reference_decode(&ref, now.input.p, now.input.n, 0);
  choose(&r, &now.e);
  const int every_level = whole || one_in(&r, 4);
  if (now.verbose) say();
  if (possible(&now.e)) run_all(&r, damage, every_level);
  else sum.unjudged++;
}

// case_file runs a whole file, and boxes of it, on every target.
void case_file(const uint8_t *p, size_t n, int boxes) {
  rng r = {1};
  now.input.n = 0;
  bytes_put(&now.input, p, n);
  header_read(&head, p, n);
  reference_decode(&ref, p, n, 0);
  if (now.verbose) {
    printf("%s; libjpeg: %d warnings %s, %d rows\n", head.refused ? head.refused : "header fine", ref.warnings, ref.failure, ref.rows);
  }
  for (int i = 0; i < boxes; i++) {
    sum.cases++;
    choose(&r, &now.e);
    if (i == 0) now.e.x = now.e.y = now.e.resample = now.e.draft = now.e.gray = 0, now.e.bw = now.e.w, now.e.bh = now.e.h;
    if (possible(&now.e)) run_all(&r, 1, 1);
  }
}

void case_input(uint64_t seed, const uint8_t *p, size_t n) {
  rng r = {seed};
  now.number = sum.cases++;
  snprintf(now.what, sizeof now.what, "an input of libFuzzer, %llu", (unsigned long long)seed);
  now.input.n = 0;
  bytes_put(&now.input, p, n);
  header_read(&head, now.input.p, now.input.n);
  if (head.refused && !one_in(&r, 4)) {
    sum.gated++;
    return;
  }
  reference_decode(&ref, now.input.p, now.input.n, 0);
  choose(&r, &now.e);
  const int every_level = one_in(&r, 4);
  if (possible(&now.e)) run_all(&r, 1, every_level);
  else sum.unjudged++;
}

void case_verbose(void) { now.verbose = 1; }

void case_block(void) {
  for (int i = 0; i < levels; i++) {
    stk_lane_free(lanes[i]);
    lanes[i] = stk_lane_new(i < levels - 2 ? i : i < levels - 1 ? -1 : 0);
    if (!lanes[i]) exit(2);
    if (i == levels - 1) lanes[i]->target = &plain;
  }
}

static double healthy_cost(int level, const header *h, const bytes *b) {
  uint64_t least = UINT64_MAX;
  errand e = {.level = level, .w = h->w, .h = h->h, .components = h->components, .bw = h->w, .bh = h->h};
  uint8_t *jpeg = guard_place(&in, b->n, 0, 0), *d = place_out(&e, out_size(&e));
  memcpy(jpeg, b->p, b->n);
  for (int i = 0; i < 2 * TRIES; i++) {
    uint64_t cost;
    if (run(&e, lanes[level], jpeg, b->n, d, &cost) != STK_OK) {
      fprintf(stderr, "a healthy file: %s\n", stk_lane_msg(lanes[level]));
      exit(2);
    }
    if (cost < least) least = cost;
  }
  return (double)least;
}

void case_start(const char *folder, uint64_t seed, int verbose, int strict) {
  now.folder = folder;
  now.seed = seed;
  now.verbose = verbose;
  now.strict = strict;
  now.base = UINT64_MAX;
  levels = stk_best_level() + 3;
  plain = stk_base;
  plain.samples = &stk_samples_plain;
  guard_make(&in, 1 << 20);
  guard_make(&out, 1 << 20);
  raw = stk_lane_new(0);
  if (!raw) exit(2);
  case_block();
  for (int i = 0; i < levels; i++) price_set(i, healthy_cost);
  sum = (tally){0};
}
