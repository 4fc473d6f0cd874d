// Entropy decoding of sequential Huffman pictures, in place of libjpeg's.
//
// Three quarters of a picture's time go into Huffman decoding, and a region
// needs most of it: there is no way to a block but through those before it.
// libjpeg calls its entropy decoder through a pointer, once for each MCU; this
// one gives the same coefficients, and it
//
//   - reads bytes from a window in which stuffing is already undone, so that
//     refilling 56 bits is a load and a shift without a question;
//   - looks up two symbols at a time, where they are short;
//   - stores nothing of MCUs that the region does not show;
//   - where restart markers cut the data into segments, reads only those with
//     something of the region (segment.c finds them).
//
// It is stricter than libjpeg's: a code that is none, more than 64
// coefficients in a block, data that end early or go on behind an interval are
// damage. Anything but one interleaved sequential Huffman scan stays with libjpeg.
#include "stk.h"

#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jpegint.h>

#include "huff.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

const uint8_t stk_natural[64 + END + 64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
    [64 ... 64 + END + 63] = 63};

_Noreturn void stk_huff_corrupt(struct stk_huff *h, const char *what) {
  stk_fail(h->l, STK_FORMAT, "Corrupt JPEG data: %s", what);
}

static int made_of(const origin *o, const JHUFF_TBL *t) {
  return o->known && !memcmp(o->bits, t->bits, sizeof o->bits) && !memcmp(o->values, t->huffval, sizeof o->values);
}

// Codes are numbered as in section C of the standard; libjpeg has checked that
// they fit.
static void fill_longer(longer *l, const JHUFF_TBL *t) {
  uint32_t code = 0;
  int at = 0;
  memcpy(l->from.bits, t->bits, sizeof l->from.bits);
  memcpy(l->from.values, t->huffval, sizeof l->from.values);
  l->from.known = 1;
  l->symbol = l->from.values;
  for (int n = 1; n <= 16; n++, code <<= 1) {
    l->base[n] = at - (int)code;
    code += t->bits[n];
    at += t->bits[n];
    l->limit[n] = code << (16 - n);
  }
  l->limit[17] = 1u << 16;
  l->base[17] = 0;
}

static int32_t extend(uint32_t v, int s) { return s && v < 1u << (s - 1) ? (int32_t)v - (1 << s) + 1 : (int32_t)v; }

static void build_dc(dc_table *d, const JHUFF_TBL *t) {
  if (made_of(&d->l.from, t)) return;
  memset(d->look, 0, sizeof d->look);
  fill_longer(&d->l, t);
  uint32_t code = 0;
  for (int n = 1, at = 0; n <= DC_LOOK; n++, code <<= 1)
    for (int i = 0; i < t->bits[n]; i++, code++, at++)
      for (uint32_t j = 0; j < 1u << (DC_LOOK - n); j++)
        d->look[code << (DC_LOOK - n) | j] = (uint16_t)(n << 8 | t->huffval[at]);
}

// build_pairs puts behind each symbol the next, if both lie within LOOK bits
// and the block goes on.
static void build_pairs(ac_table *a) {
  for (uint32_t i = 0; i < 1u << LOOK; i++) {
    const uint32_t first = a->ac[i], n = first & 63, size = first >> 16, step = first >> 8 & 255;
    uint32_t drop = n + size, both = step, v = 0;
    if (n == 0) {
      a->pair[i] = ONE << 8;
      continue;
    }
    const uint32_t next = drop < LOOK && step < END ? a->ac[i << drop & ((1 << LOOK) - 1)] : 0;
    const uint32_t more = (next & 63) + (next >> 16);
    if ((next & 63) && drop + more <= LOOK) {
      drop += more;
      both += next >> 8 & 255;
      v = (uint32_t)extend(i >> (LOOK - drop) & ((1u << (next >> 16)) - 1), (int)(next >> 16));
    }
    a->pair[i] = (uint64_t)v << 48 | (uint64_t)size << 40 | (uint64_t)(63 - size) << 32 | n << 24 | step << 16 | both << 8 | drop;
  }
}

static void build_ac(ac_table *a, const JHUFF_TBL *t) {
  if (made_of(&a->l.from, t)) return;
  memset(a->ac, 0, sizeof a->ac);
  fill_longer(&a->l, t);
  uint32_t code = 0;
  for (int n = 1, at = 0; n <= LOOK; n++, code <<= 1)
    for (int i = 0; i < t->bits[n]; i++, code++, at++) {
      const uint32_t run = t->huffval[at] >> 4, size = t->huffval[at] & 15;
      const uint32_t step = size || run == 15 ? run + 1 : END;
      for (uint32_t j = 0; j < 1u << (LOOK - n); j++) a->ac[code << (LOOK - n) | j] = size << 16 | step << 8 | (uint32_t)n;
    }
  build_pairs(a);
}

// copy_plain copies bytes up to a 0xff or n of them, and returns how many. It
// may write a vector more.
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
#endif
  for (; i < n && in[i] != 0xff; i++) out[i] = in[i];
  return i;
}

void stk_huff_pull(struct stk_huff *h) {
  const size_t left = (size_t)(h->end - h->b.p);
  memmove(h->window, h->b.p, left);
  h->b.p = h->window;
  uint8_t *out = h->window + left, *const full = h->window + WINDOW;
  const uint8_t *in = h->in;
  while (out < full && !h->marker) {
    size_t n = (size_t)(h->in_end - in);
    if (n > (size_t)(full - out)) n = (size_t)(full - out);
    n = copy_plain(out, in, n);
    out += n;
    in += n;
    if (out == full) break;
    if (in + 1 >= h->in_end) {
      h->marker = JPEG_EOI;
    } else if (in[1] == 0) {
      *out++ = 0xff;
      in += 2;
    } else if (in[1] == 0xff) {
      in++;
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
static INLINE int one_symbol(struct stk_huff *h, bits *b, const ac_table *a, int *v) {
  refill(b);
  const uint32_t e = a->ac[PEEK(b)];
  if (e & 63) {
    drop(b, e & 63);
    *v = value(b, (int)(e >> 16));
    return e >> 8 & 255;
  }
  const int rs = long_code(h, b, &a->l, LOOK);
  *v = value(b, rs & 15);
  if (rs & 15) return (rs >> 4) + 1;
  return rs >> 4 == 15 ? 16 : END;
}

// first_value is the first value of pair e, before its bits are dropped.
static INLINE JCOEF first_value(const bits *b, uint64_t e) {
  const uint64_t t = b->acc << (e >> 24 & 63);
  const int64_t v = (int64_t)(t >> 1 >> (e >> 32 & 63));
  return (JCOEF)(v + (~((int64_t)t >> 63) & (1 - ((int64_t)1 << (e >> 40 & 63)))));
}

static INLINE void block_ac(struct stk_huff *h, bits *b, const ac_table *a, JCOEF *block) {
  int k = 1, v;
  for (;;) {
    refill(b);  // enough for two looks: each drops 25 bits at most
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      const uint64_t e = a->pair[PEEK(b)];
      if (__builtin_expect(k + (int)(e >> 8 & (END - 1)) >= 64, 0)) goto one;
      // The second value first: where there is none, its place is the first's.
      block[stk_natural[k + (int)(e >> 8 & 255) - 1]] = (JCOEF)(e >> 48);
      block[stk_natural[k + (int)(e >> 16 & 255) - 1]] = first_value(b, e);
      drop(b, e & 63);
      k += e >> 8 & 255;
      if (k >= 64) return;
    }
    continue;
  one:
    k += one_symbol(h, b, a, &v);
    block[stk_natural[k - 1]] = (JCOEF)v;
    if (k >= 64) break;
  }
  if (__builtin_expect(k > 64 && k < END, 0)) stk_huff_corrupt(h, "more than 64 coefficients in a block");
}

static INLINE void block_skip(struct stk_huff *h, bits *b, const ac_table *a) {
  int k = 1, v;
  for (;;) {
    refill(b);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      const uint64_t e = a->pair[PEEK(b)];
      if (__builtin_expect(k + (int)(e >> 8 & (END - 1)) >= 64, 0)) goto one;
      drop(b, e & 63);
      k += e >> 8 & 255;
      if (k >= 64) return;
    }
    continue;
  one:
    k += one_symbol(h, b, a, &v);
    if (k >= 64) break;
  }
  if (__builtin_expect(k > 64 && k < END, 0)) stk_huff_corrupt(h, "more than 64 coefficients in a block");
}

// Bytes that libjpeg reads ahead, and does not miss where a marker follows.
enum { SLACK = 8 };

// ended makes sure that an interval was read to its end, not short of it.
static void ended(struct stk_huff *h, const char *before) {
  if (!h->marker && h->end - h->b.p < MCU_BYTES) stk_huff_pull(h);
  if (h->end - h->b.p + h->b.cnt / 8 > SLACK) stk_fail(h->l, STK_FORMAT, "Corrupt JPEG data: extraneous bytes before %s", before);
}

// begin_at goes on with the interval whose data begin at in.
static void begin_at(struct stk_huff *h, const uint8_t *in) {
  h->in = in;
  h->end = h->window;
  h->b = (bits){0, 0, h->window};
  h->marker = 0;
  h->togo = h->restart;
  memset(h->last_dc, 0, sizeof h->last_dc);
}

void stk_huff_next(struct stk_huff *h) {
  ended(h, "a restart marker");
  if (h->marker != JPEG_RST0 + h->next) stk_huff_corrupt(h, "a restart marker is missing");
  h->next = (h->next + 1) & 7;
  h->togo = h->restart;
  h->marker = 0;
  h->b.p = h->end;
  h->b.acc = 0;
  h->b.cnt = 0;
  memset(h->last_dc, 0, sizeof h->last_dc);
}

// seek goes to the segment of MCU want, unless reading on leads there as soon.
static void seek(struct stk_huff *h, uint32_t want) {
  const uint32_t segment = want / (uint32_t)h->restart, from = segment * (uint32_t)h->restart;
  if (h->at > from && h->at < want) return;
  if (h->at > 0 && h->togo == 0) ended(h, "a restart marker");
  begin_at(h, h->data + h->seg[segment]);
  h->next = (int)(segment & 7);
  h->at = from;
}

static INLINE void one_mcu(struct stk_huff *h, JBLOCKROW *mcu) {
  stk_huff_step(h);
  bits b = h->b;
  for (int i = 0; i < h->blocks; i++) {
    int *dc = &h->last_dc[h->dc_of[i]];
    *dc = (int)((unsigned)*dc + (unsigned)dc_diff(h, &b, h->dct[i]));
    if (mcu) {
      (*mcu[i])[0] = (JCOEF)*dc;
      block_ac(h, &b, h->act[i], *mcu[i]);
    } else {
      block_skip(h, &b, h->act[i]);
    }
  }
  h->b = b;
  stk_huff_check(h);
}

// any_mcu is asked for one MCU after the other, also of rows and columns that
// are not shown, for which libjpeg takes what it is given.
static INLINE boolean any_mcu(j_decompress_ptr c, JBLOCKROW *mcu) {
  struct stk_huff *h = stk_jpeg_of(c)->huff;
  const int store = mcu && h->col >= h->first && h->col <= h->last;
  const uint32_t want = h->want++;
  if (++h->col == h->cols) h->col = 0;
  if (h->seg) {
    if (!store) return TRUE;
    if (h->at != want) seek(h, want);
  }
  do one_mcu(h, store && h->at == want ? mcu : NULL);
  while (h->at++ != want);
  return TRUE;
}

static boolean decode_mcu(j_decompress_ptr c, JBLOCKROW *mcu) { return any_mcu(c, mcu); }

#ifdef __x86_64__
// With shifts that leave the flags alone, as every processor with AVX2 has them.
__attribute__((target("bmi,bmi2"))) static boolean decode_mcu_bmi2(j_decompress_ptr c, JBLOCKROW *mcu) {
  return any_mcu(c, mcu);
}
#endif

void stk_huff_rewind(struct stk_huff *h) {
  begin_at(h, h->data);
  h->next = 0;
  h->want = h->at = 0;
  h->col = 0;
}

void stk_huff_end(struct stk_huff *h) {
  ended(h, "the end marker");
  // Some encoders mark a segment that never comes.
  if (h->restart && h->togo == 0 && h->marker == JPEG_RST0 + h->next) {
    h->marker = 0;
    h->b = (bits){0, 0, h->end};
    ended(h, "the end marker");
  }
  if (h->marker != JPEG_EOI) stk_fail(h->l, STK_UNSUPPORTED, "a marker %#x behind the scan", 0xff00 | (unsigned)h->marker);
}

struct stk_huff *stk_huff_begin(stk_lane *l) {
  stk_jpeg *j = l->jpeg;
  struct jpeg_decompress_struct *c = &j->c;
  if (c->progressive_mode || c->arith_code || jpeg_has_multiple_scans(c) || c->comps_in_scan != c->num_components) return NULL;
  struct stk_huff *h = j->huff;
  if (!h) {
    void *p = NULL;
    if (posix_memalign(&p, 64, sizeof *h)) stk_fail(l, STK_MEMORY, "no memory for Huffman tables");
    memset(p, 0, sizeof *h);
    j->huff = h = p;
  }
  h->l = l;
  h->data = c->src->next_input_byte;
  h->in_end = h->data + c->src->bytes_in_buffer;
  h->blocks = c->blocks_in_MCU;
  h->restart = (int)c->restart_interval;
  stk_huff_rewind(h);
  h->seg = NULL;
  h->cols = (int)c->MCUs_per_row;
  unsigned dc = 0, ac = 0;
  for (int i = 0; i < h->blocks; i++) {
    const int ci = c->MCU_membership[i];
    const jpeg_component_info *info = c->cur_comp_info[ci];
    const int d = info->dc_tbl_no, a = info->ac_tbl_no;
    h->dc_of[i] = ci;
    h->dct[i] = &h->dc[d];
    h->act[i] = &h->ac[a];
    if (!(dc >> d & 1)) build_dc(&h->dc[d], c->dc_huff_tbl_ptrs[d]);
    if (!(ac >> a & 1)) build_ac(&h->ac[a], c->ac_huff_tbl_ptrs[a]);
    dc |= 1u << d;
    ac |= 1u << a;
  }
  return h;
}

// stk_huff_take replaces the entropy decoder of a picture whose decompression
// has just started, and which is left to libjpeg if it is of another kind.
// first and last are the MCU columns that the region shows; below: it does not
// begin at the top.
void stk_huff_take(stk_lane *l, int first, int last, int below) {
  if (l->job.stock) return;
  struct stk_huff *h = stk_huff_begin(l);
  if (!h) return;
  struct jpeg_decompress_struct *c = &l->jpeg->c;
  h->first = first;
  h->last = last;
  if (h->restart && (below || first > 0 || last + 1 < h->cols))
    stk_segments(h, (int64_t)c->MCUs_per_row * c->MCU_rows_in_scan);
  c->entropy->decode_mcu = decode_mcu;
#ifdef __x86_64__
  if (l->level > 0 && __builtin_cpu_supports("bmi2")) c->entropy->decode_mcu = decode_mcu_bmi2;
#endif
}

void stk_huff_free(struct stk_huff *h) {
  if (!h) return;
  free(h->segs.p);
  free(h);
}
