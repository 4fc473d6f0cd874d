// Entropy decoding of sequential Huffman scans.
//
// It takes two thirds of a picture's time, and a region needs most of it: a
// block can only be reached through those before it. This decoder
//
//   - reads bytes from a window in which byte stuffing is already undone, so that refilling 56 bits is a load and a shift without a branch;
//   - looks up two symbols at a time if they are short;
//   - stores nothing of MCUs that the region does not need;
//   - if restart markers divide the data into segments, reads only those that contain a part of the region (segment.c finds them).
//
// It is stricter than libjpeg: an invalid code, more than 64 coefficients in a
// block, data that ends early or continues after an interval are damage.
//
// The stk_huff belongs to the lane and is used by one thread. Positions are counted
// in MCUs (at, togo, want) or in coefficients in zigzag order (k, steps).
#include "huff.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

// The offset in a quad of the coefficient before k, in zigzag order. Steps past 63,
// of which only the last matters, lead to the last coefficient.
#define AT(n) ((n) / 8 * QUAD_ROW + (n) % 8)
static const uint8_t place[1 + BLOCK + END + BLOCK] = {
    0,
    AT(0),  AT(1),  AT(8),  AT(16), AT(9),  AT(2),  AT(3),  AT(10), AT(17), AT(24), AT(32), AT(25), AT(18),
    AT(11), AT(4),  AT(5),  AT(12), AT(19), AT(26), AT(33), AT(40), AT(48), AT(41), AT(34), AT(27), AT(20),
    AT(13), AT(6),  AT(7),  AT(14), AT(21), AT(28), AT(35), AT(42), AT(49), AT(56), AT(57), AT(50), AT(43),
    AT(36), AT(29), AT(22), AT(15), AT(23), AT(30), AT(37), AT(44), AT(51), AT(58), AT(59), AT(52), AT(45),
    AT(38), AT(31), AT(39), AT(46), AT(53), AT(60), AT(61), AT(54), AT(47), AT(55), AT(62), AT(63),
    [BLOCK + 1 ... BLOCK + END + BLOCK] = AT(63)};

_Noreturn void stk_huff_corrupt(stk_huff *h, const char *what) {
  const ptrdiff_t left = unread(&h->b, h->end), at = h->in - h->f->file - (left > 0 ? left : 0);
  // Bits after the last one are arbitrary, so an invalid code there means that data
  // is missing.
  if (h->marker && left < 0) what = "premature end of data segment";
  stk_fail(h->l, STK_FORMAT, "Corrupt JPEG data: %s, near byte %td, in row %lld of %lld of its blocks", what, at,
           (long long)(h->at / h->cols + (h->at < h->mcus)), (long long)(h->mcus / h->cols));
}

static int made_of(const origin *o, const stk_dht *t) {
  return o->n == t->n && !memcmp(o->bits, t->bits, sizeof o->bits) && !memcmp(o->values, t->values, (size_t)t->n);
}

// Codes are numbered as in annex C of the standard.
static void fill_longer(stk_lane *l, longer *g, const stk_dht *t) {
  uint32_t code = 0;
  int at = 0;
  g->from.n = 0;
  memset(g->from.values, 0, sizeof g->from.values);
  memcpy(g->from.bits, t->bits, sizeof g->from.bits);
  memcpy(g->from.values, t->values, (size_t)t->n);
  g->symbol = g->from.values;
  for (int n = 1; n <= 16; n++, code <<= 1) {
    g->base[n] = at - (int)code;
    code += t->bits[n - 1];
    at += t->bits[n - 1];
    if (code > 1u << n || (code == 1u << n && t->bits[n - 1]))
      stk_fail(l, STK_FORMAT, "Corrupt JPEG data: a Huffman table with more codes of %d bits than there are", n);
    g->limit[n] = code << (16 - n);
  }
  g->limit[17] = 1u << 16;
  g->base[17] = 0;
}

// entry describes a code of n bits and its value of size bits, which is positive,
// or absent.
static INLINE uint64_t entry(int n, int size, uint64_t step, uint64_t both) {
  return step << 32 | (uint64_t)size << 24 | (uint64_t)(64 - n - size) % 64 << 16 | both << 8 | (uint64_t)(n + size);
}

// negative is the entry of the same code if its value is negative.
static INLINE uint64_t negative(uint64_t e, int size) { return e | (uint64_t)((1 - (1 << size)) & 0xffff) << 40; }

static INLINE uint64_t *fill(uint64_t *p, uint64_t e, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) p[i] = e;
  return p + n;
}

// signs fills n entries for prefixes whose next bit is the sign of a value.
static INLINE uint64_t *signs(uint64_t *p, uint64_t e, int size, uint32_t n) {
  return fill(fill(p, negative(e, size), n / 2), e, n / 2);
}

static void build_dc(stk_lane *l, dc_table *d, const stk_dht *t) {
  if (!l->job.anew && made_of(&d->l.from, t)) return;
  fill_longer(l, &d->l, t);
  for (int i = 0; i < t->n; i++)
    if (t->values[i] > 15) stk_fail(l, STK_FORMAT, "Corrupt JPEG data: a Huffman table of DC with a difference of %d bits", t->values[i]);
  uint64_t *p = d->look;
  for (int n = 1, at = 0; n < DC_LOOK; n++)
    for (int i = 0; i < t->bits[n - 1]; i++, at++) {
      const int size = t->values[at];
      const uint64_t e = entry(n, size, 1, 1);
      p = size ? signs(p, e, size, 1u << (DC_LOOK - n)) : fill(p, e, 1u << (DC_LOOK - n));
    }
  fill(p, ONE << 8, (uint32_t)(d->look + (1 << DC_LOOK) - p));
  d->l.from.n = t->n;
}

// seconds lists what the second symbol of a pair adds to its entry, for R bits that
// are left of the prefix, at follow + 2^R: 0 if its code and value need more. First
// for LOOK bits, by symbols; for one bit less it is every other entry that still
// fits.
static void seconds(uint64_t *follow, const stk_dht *t) {
  uint64_t *p = follow + (1 << LOOK);
  for (int n = 1, at = 0; n <= LOOK; n++)
    for (int i = 0; i < t->bits[n - 1]; i++, at++) {
      const int size = t->values[at] & 15, left = LOOK - n - size;
      if (left < 0) {
        p = fill(p, 0, 1u << (LOOK - n));
        continue;
      }
      const uint64_t e = (uint64_t)step_of(t->values[at]) << 8 | (uint64_t)(n + size);
      const int half = size ? 1 << (size - 1) : 0;
      if (!size) p = fill(p, e, 1u << left);
      for (int v = 1 - 2 * half; v <= -half && size; v++) p = fill(p, e | (uint64_t)(uint8_t)v << 56, 1u << left);
      for (int v = half; v < 2 * half; v++) p = fill(p, e | (uint64_t)(uint8_t)v << 56, 1u << left);
    }
  fill(p, 0, (uint32_t)(follow + (2 << LOOK) - p));
  for (int r = LOOK - 1; r >= 0; r--) {
    const uint64_t *wide = follow + (2 << r);
    uint64_t *narrow = follow + (1 << r);
    for (int i = 0; i < 1 << r; i++) narrow[i] = (int)(wide[2 * i] & 63) <= r ? wide[2 * i] : 0;
  }
}

// build_pairs adds to each symbol the next one, if both fit into LOOK bits and the
// block continues.
static void build_pairs(ac_table *a, const stk_dht *t) {
  uint64_t follow[2 << LOOK];
  seconds(follow, t);
  const uint64_t one = ONE << 8 | UINT64_C(1) << 32;
  uint64_t *p = a->pair;
  for (int n = 1, at = 0; n <= LOOK; n++)
    for (int i = 0; i < t->bits[n - 1]; i++, at++) {
      const int size = t->values[at] & 15, rest = LOOK - n, left = rest - size;
      const uint64_t step = (uint64_t)step_of(t->values[at]), e = entry(n, size, step < END ? step : 1, step);
      if (size && rest == 0) {
        p = fill(p, one, 1);  // the sign is not in the prefix
      } else if (left < 0) {
        p = signs(p, e, size, 1u << rest);
      } else if (step == END) {
        p = fill(p, e, 1u << rest);
      } else {
        for (int v = 0; v < 1 << size; v++) {
          const uint64_t first = size && v < 1 << (size - 1) ? negative(e, size) : e;
          for (int k = 0; k < 1 << left; k++) p[k] = first + follow[(1 << left) + k];
          p += 1 << left;
        }
      }
    }
  fill(p, one, (uint32_t)(a->pair + (1 << LOOK) - p));
}

static void build_ac(stk_lane *l, ac_table *a, const stk_dht *t) {
  if (!l->job.anew && made_of(&a->l.from, t)) return;
  fill_longer(l, &a->l, t);
  uint32_t *look = a->ac, *const all = look + (1 << LOOK);
  for (int n = 1, at = 0; n <= LOOK; n++)
    for (int i = 0; i < t->bits[n - 1]; i++, at++) {
      const uint32_t size = t->values[at] & 15, step = (uint32_t)step_of(t->values[at]);
      for (int j = 0; j < 1 << (LOOK - n); j++) *look++ = size << 16 | step << 8 | (uint32_t)n;
    }
  memset(look, 0, (size_t)((uint8_t *)all - (uint8_t *)look));
  build_pairs(a, t);
  a->l.from.n = t->n;
}

// copy_plain copies up to n bytes, or up to a 0xff, and returns how many. It may
// write one vector more.
static inline size_t copy_plain(uint8_t *out, const uint8_t *in, size_t n) {
  size_t i = 0;
#ifdef __SSE2__
  const __m128i ff = _mm_set1_epi8(-1);
  for (; i + 16 <= n; i += 16) {
    const __m128i v = _mm_loadu_si128((const __m128i *)(in + i));
    _mm_storeu_si128((__m128i *)(out + i), v);
    const unsigned m = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, ff));
    if (m) return i + (size_t)__builtin_ctz(m);
  }
#elif __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  const uint64_t low = UINT64_C(0x0101010101010101);
  for (; i + 8 <= n; i += 8) {
    uint64_t v;
    memcpy(&v, in + i, 8);
    memcpy(out + i, &v, 8);
    // The lowest bit that remains is that of the first 0xff: borrows only change
    // the bits above it.
    const uint64_t ff = (~v - low) & v & low << 7;
    if (ff) return i + (size_t)__builtin_ctzll(ff) / 8;
  }
#endif
  for (; i < n && in[i] != 0xff; i++) out[i] = in[i];
  return i;
}

void stk_huff_pull(stk_huff *h) {
  const size_t left = (size_t)(h->end - h->b.p);
  stk_entry_shift(h, h->b.p - h->window);
  memmove(h->window, h->b.p, left);
  h->b.p = h->window;
  uint8_t *out = h->window + left, *const full = h->window + WINDOW;
  const uint8_t *in = h->in;
  while (out < full && !h->marker) {
    size_t n = (size_t)(h->f->end - in);
    if (n > (size_t)(full - out)) n = (size_t)(full - out);
    n = copy_plain(out, in, n);
    out += n;
    in += n;
    if (out == full) break;
    if (in + 1 >= h->f->end) {
      h->marker = M_EOI;
    } else if (in[1] == 0) {
      *out++ = 0xff;
      in += 2;
      h->shift[h->shifts++] = (int16_t)(out - h->window);
    } else if (in[1] == 0xff) {
      in++;
      if (h->lost == INT64_MAX && in + 1 < h->f->end && in[1] == 0) h->lost = out - h->window;
    } else {
      h->marker = in[1];
      in += 2;
    }
  }
  h->in = in;
  h->end = out;
  memset(out, 0, 16);
}

#define PEEK(b) ((b)->acc >> (64 - LOOK))

// one_symbol decodes one symbol of any length and returns its step.
static INLINE int one_symbol(stk_huff *h, bits *b, const ac_table *a, int *v) {
  refill(b);
  const uint32_t e = a->ac[PEEK(b)];
  if (e & 63) {
    drop(b, e & 63);
    *v = value(b, (int)(e >> 16));
    return e >> 8 & 255;
  }
  const int rs = long_code(h, b, &a->l, LOOK);
  *v = value(b, rs & 15);
  return step_of(rs);
}

// block_ac reads the AC coefficients of a block, stores them if there is a block to
// store into, and returns how far they reach. Whenever its loop begins, the bits are
// enough for one lookup and for the look of a second, which refills. On return they
// are enough for the look of the next block's DC.
static INLINE int block_ac(stk_huff *h, bits *at, const ac_table *a, int16_t *block, const int bmi) {
  bits b = *at;
  size_t k = 1;
  for (;;) {
    uint64_t e, before;
    // The second value is stored first: if there is none, its position is that of
    // the first. Positions past the end of the block are the block's last one,
    // which no real coefficient has reached then.
#define STEP(REFILL)                                                \
  e = a->pair[PEEK(&b)];                                            \
  REFILL;                                                           \
  before = b.acc;                                                   \
  if (block) {                                                      \
    block[place[k + (e >> 8 & 255)]] = (int16_t)((int64_t)e >> 56); \
    block[place[k + (e >> 32 & 255)]] = (int16_t)first_value(&b, e, bmi); \
  }                                                                 \
  drop(&b, e);                                                      \
  k += e >> 8 & 255;
    for (;;) {
      STEP((void)0)
      if (k >= BLOCK) break;
      STEP(refill(&b))
      if (k >= BLOCK) break;
    }
#undef STEP
    if (LIKELY(k >= END && (k & (END - 1)) < BLOCK)) {
      *at = b;
      return (int)(k & (END - 1));
    }
    if (k == BLOCK) break;
    // The second symbol may belong to another block, or its code may be longer than
    // LOOK: decode one symbol alone.
    b.acc = before;
    b.cnt += e & 255;
    k -= e >> 8 & 255;
    int v;
    k += (size_t)one_symbol(h, &b, a, &v);
    if (block) block[place[k]] = (int16_t)v;
    if (k >= BLOCK) break;
    refill(&b);
  }
  *at = b;
  if (UNLIKELY(k > BLOCK && k < END)) {
    h->b = b;
    stk_huff_corrupt(h, "more than 64 coefficients in a block");
  }
  return k < END ? BLOCK : (int)(k & (END - 1));
}

// Bytes that libjpeg reads ahead, and does not miss if a marker follows.
enum { SLACK = 8 };

// ended checks that an interval was read to its end, and not past it.
static void ended(stk_huff *h, const char *otherwise) {
  if (!h->marker && h->end - h->b.p < MCU_BYTES) stk_huff_pull(h);
  if (unread(&h->b, h->end) > SLACK) stk_huff_corrupt(h, otherwise);
}

// begin_at continues with the interval whose data begins at in.
static void begin_at(stk_huff *h, const uint8_t *in) {
  h->in = in;
  h->end = h->window;
  h->b = (bits){0, 0, h->window};
  h->fresh = 1;
  h->marker = 0;
  h->togo = h->restart;
  memset(h->pred, 0, sizeof h->pred);
}

// marked checks that an interval was read to its end, and that its restart marker
// follows.
static void marked(stk_huff *h) {
  ended(h, "extraneous bytes before a restart marker");
  if (h->marker != M_RST0 + h->next) stk_huff_corrupt(h, "a restart marker is missing");
}

void stk_huff_next(stk_huff *h) {
  marked(h);
  h->next = (h->next + 1) & 7;
  h->togo = h->restart;
  h->marker = 0;
  h->b.p = h->end;
  h->b.acc = 0;
  h->b.cnt = 0;
  h->fresh = 1;
  memset(h->pred, 0, sizeof h->pred);
}

// seek moves to the segment or the entry point that is nearest before MCU want, unless
// reading on gets there as soon.
static void seek(stk_huff *h, int64_t want) {
  const stk_point *p = stk_entry_point(h, want);
  const int64_t segment = h->seg ? want / h->restart : 0, from = segment * h->restart;
  if (p && p->mcu <= from) p = NULL;
  if (!p && (!h->seg || (h->at > from && h->at <= want))) return;
  if (h->jumped) {  // in a narrow region, no point may have been passed since
    stk_huff_settle(h);
    h->leaps = 1;
    if (p && h->at >= p->mcu) return;
  }
  if (h->at > 0 && h->restart && h->togo == 0) marked(h);
  begin_at(h, h->f->scan + (p ? p->byte : h->seg[segment]));
  h->next = (int)(segment & 7);
  if (p) {
    stk_entry_enter(h, p);
    return;
  }
  h->at = from;
  while (h->k < h->nknown && h->known[h->k].mcu <= from) h->k++;
  stk_entry_aim(h);
}

// met passes the point at which the MCUs before h->stop end.
static INLINE void met(stk_huff *h, bits *b) {
  if (LIKELY(h->at < h->stop)) return;
  h->b = *b;
  stk_entry_meet(h);
}

// skip moves to MCU want.
static INLINE void skip(stk_huff *h, int64_t want, const int bmi) {
  if (h->leaps && h->at != want) seek(h, want);
  bits b = h->b;
  while (h->at < want) {
    const int64_t stop = want < h->stop ? want : h->stop;
    for (; h->at < stop; h->at++) {
      stk_huff_ready(h, &b);
      for (int i = 0; i < h->blocks; i++) {
        const stk_part *p = &h->part[i];
        int *dc = &h->pred[p->comp];
        *dc = (int)((unsigned)*dc + (unsigned)dc_diff(h, &b, p->dc, bmi));
        block_ac(h, &b, p->ac, NULL, bmi);
      }
      stk_huff_check(h, &b);
    }
    met(h, &b);
  }
  h->b = b;
}

// row_of stores the next n MCUs.
static INLINE void row_of(stk_huff *h, int64_t y, int first, int last, const int bmi) {
  skip(h, y * h->cols + first, bmi);
  bits b = h->b;
  for (int m = 0; m <= last - first;) {
    const int64_t left = last - first + 1 - m, near = h->stop - h->at, end = m + (left < near ? left : near);
    for (; m < end; m++, h->at++) {
      stk_huff_ready(h, &b);
      for (int i = 0; i < h->blocks; i++) {
        const stk_part *p = &h->part[i];
        const int x = m * p->h + p->x;
        int16_t *block = h->store[i].quads + (x >> 2) * QUAD + (x & 3) * 8;
        uint8_t *reach = h->store[i].reach + (x >> 2);
        int *dc = &h->pred[p->comp];
        *dc = (int)((unsigned)*dc + (unsigned)dc_diff(h, &b, p->dc, bmi));
        block[0] = (int16_t)*dc;
        const int k = block_ac(h, &b, p->ac, block, bmi);
        *reach = (uint8_t)(k > *reach ? k : *reach);
      }
      stk_huff_check(h, &b);
    }
    met(h, &b);
  }
  h->b = b;
}

static void row_any(stk_huff *h, int64_t y, int first, int last) { row_of(h, y, first, last, 0); }

#ifdef __x86_64__
// With shifts that do not change the flags, which every processor with AVX2 has.
__attribute__((target("bmi,bmi2"))) static void row_bmi2(stk_huff *h, int64_t y, int first, int last) {
  row_of(h, y, first, last, 1);
}
#endif

void stk_huff_row(stk_huff *h, int64_t y, int first, int last) {
#ifdef __x86_64__
  if (h->l->level > 0 && __builtin_cpu_supports("bmi2")) {
    row_bmi2(h, y, first, last);
    return;
  }
#endif
  row_any(h, y, first, last);
}

void stk_huff_rewind(stk_huff *h) {
  begin_at(h, h->f->scan);
  h->next = 0;
  h->at = 0;
  stk_entry_begin(h);
  h->leaps = h->nknown > 0 && (!h->restart || h->restart >= h->mcus);  // otherwise, once segments are known
}

// scan_ended checks that the scan ends with the last MCU, which was read.
static void scan_ended(stk_huff *h) {
  ended(h, "extraneous bytes before the end marker");
  // Some encoders write a restart marker after the last segment.
  if (h->restart && h->togo == 0 && h->marker == M_RST0 + h->next) {
    h->marker = 0;
    h->b = (bits){0, 0, h->end};
    ended(h, "extraneous bytes before the end marker");
  }
  if (h->marker >= M_RST0 && h->marker < M_RST0 + 8) stk_huff_corrupt(h, "one restart marker too many");
}

#ifdef __x86_64__
__attribute__((target("bmi,bmi2"))) static void walk_bmi2(stk_huff *h, int64_t want) { skip(h, want, 1); }
#endif

void stk_huff_walk(stk_huff *h, int64_t want) {
  h->leaps = 0;
#ifdef __x86_64__
  if (h->l->level > 0 && __builtin_cpu_supports("bmi2")) {
    walk_bmi2(h, want);
    return;
  }
#endif
  skip(h, want, 0);
}

void stk_huff_settle(stk_huff *h) {
  h->l->entries.reached = h->at;
  if (!h->jumped || h->k >= h->nknown) return;
  const int64_t at = h->known[h->k].mcu, before = h->at;
  if (at > before) stk_huff_walk(h, at);
  h->l->entries.extra += (int32_t)(h->at - before);
}

void stk_huff_rest(stk_huff *h) {
  stk_huff_walk(h, h->mcus);
  h->l->ending = 1;
  scan_ended(h);
}

int stk_huff_keeps_interval(stk_huff *h) {
  stk_huff_walk(h, h->restart);
  if (!h->marker) stk_huff_pull(h);
  const int exact = h->marker && unread(&h->b, h->end) == 0;
  stk_huff_rewind(h);
  return exact;
}

void stk_huff_end(stk_huff *h) {
  scan_ended(h);
  // A number of lines (DNL) that repeats the header's changes nothing.
  if (h->marker != M_EOI && h->marker != M_DNL) stk_fail(h->l, STK_UNSUPPORTED, "a marker %#x after the scan", 0xff00 | (unsigned)h->marker);
}

stk_huff *stk_huff_begin(stk_lane *l, const stk_frame *f) {
  stk_huff *h = l->huff;
  if (!h) {
    void *p = NULL;
    if (posix_memalign(&p, 64, sizeof *h)) stk_fail(l, STK_MEMORY, "no memory for Huffman tables");
    memset(p, 0, sizeof *h);
    l->huff = h = p;
  }
  h->l = l;
  h->f = f;
  h->restart = f->restart;
  h->seg = NULL;
  h->cols = (f->w + 8 * f->hmax - 1) / (8 * f->hmax);
  h->mcus = (int64_t)h->cols * ((f->h + 8 * f->vmax - 1) / (8 * f->vmax));
  h->blocks = 0;
  unsigned dc = 0, ac = 0;
  for (int i = 0; i < f->components; i++) {
    const stk_component *c = &f->comp[i];
    if (!(dc >> c->td & 1)) build_dc(l, &h->dc[c->td], &f->dc[c->td]);
    if (!(ac >> c->ta & 1)) build_ac(l, &h->ac[c->ta], &f->ac[c->ta]);
    dc |= 1u << c->td;
    ac |= 1u << c->ta;
    for (int b = 0; b < c->h * c->v; b++)
      h->part[h->blocks++] = (stk_part){i, b % c->h, b / c->h, c->h, c->v, &h->dc[c->td], &h->ac[c->ta]};
  }
  stk_huff_rewind(h);
  return h;
}

void stk_huff_free(stk_huff *h) {
  free(h);
}
