// Reading a picture as tokens from its only scan. Other pictures are read as
// coefficients (coefficients.c).
#include "index.h"

enum { MOST_TOKENS = 4 << 20, MOST_DC = 2047 };

// build_pairs turns an ac_table into one for tokens. An end of block is symbol 0,
// whatever its run.
static void build_pairs(stk_pairs *p, const ac_table *a) {
  if (p->from.n && !memcmp(&p->from, &a->l.from, sizeof p->from)) return;
  p->from = a->l.from;
  for (uint32_t i = 0; i < 1u << LOOK; i++) {
    const uint32_t e = a->ac[i], n = e & 63, size = e >> 16, step = e >> 8 & 255;
    if (n == 0) {
      p->pair[i] = ONE << 8;
      continue;
    }
    uint64_t drop = n + size, both = step, second = 0, more = 0;
    const uint32_t next = drop < LOOK && step < END ? a->ac[i << drop & ((1 << LOOK) - 1)] : 0;
    const uint32_t n2 = next & 63, size2 = next >> 16, step2 = next >> 8 & 255;
    if (n2 && drop + n2 + size2 <= LOOK) {
      drop += n2 + size2;
      both += step2;
      more = 1;
      second = i >> (LOOK - drop) & ((1u << size2) - 1);
      second |= step2 == END ? LAST : (step2 - 1) << 20 | size2 << 16;
    }
    const uint64_t first = step == END ? LAST : (step - 1) << 20 | size << 16;
    p->pair[i] = second << 40 | first << 16 | more << 20 | (uint64_t)n << 16 | both << 8 | drop;
  }
}

// one_token decodes a symbol of any length.
static INLINE int one_token(stk_huff *h, bits *b, const ac_table *a, int64_t *count, uint32_t *tok) {
  refill(b);
  const uint32_t e = a->ac[b->acc >> (64 - LOOK)];
  int step, size;
  if (e & 63) {
    drop(b, e & 63);
    step = e >> 8 & 255;
    size = (int)(e >> 16);
  } else {
    const int rs = long_code(h, b, &a->l, LOOK);
    size = rs & 15;
    step = step_of(rs);
  }
  const uint32_t symbol = step == END ? 0 : (uint32_t)(step - 1) << 4 | (uint32_t)size;
  *tok = symbol << 16 | (uint32_t)(b->acc >> 1 >> (63 - size));
  drop(b, (uint64_t)size);
  count[symbol]++;
  return step;
}

static INLINE uint32_t *block_tokens(stk_huff *h, bits *b, const stk_pairs *p, const ac_table *a,
                                     uint32_t *seen, int64_t *count, uint32_t *t) {
  int k = 1;
  for (;;) {
    refill(b);  // enough for two lookups: each drops at most 25 bits
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      const uint32_t look = (uint32_t)(b->acc >> (64 - LOOK));
      const uint64_t e = p->pair[look];
      if (__builtin_expect(k + (int)(e >> 8 & (END - 1)) >= 64, 0)) goto one;
      const uint32_t first = (uint32_t)(e >> 16) & 0xff8000;
      t[0] = first | (uint32_t)(b->acc << (e >> 16 & 15) >> 1 >> (63 - (first >> 16 & 15)));
      t[1] = (uint32_t)(e >> 40);
      t += 1 + (e >> 20 & 1);
      seen[look]++;
      drop(b, e & 63);
      k += e >> 8 & 255;
      if (k >= 64) return t;
    }
    continue;
  one:
    k += one_token(h, b, a, count, t++);
    if (k >= 64) break;
  }
  if (UNLIKELY(k > BLOCK && k < END)) {
    h->b = *b;
    stk_huff_corrupt(h, "more than 64 coefficients in a block");
  }
  t[-1] |= LAST;
  return t;
}

// stk_dc_token counts a DC coefficient and remembers the edges of its MCU.
uint32_t stk_dc_token(stk_index *x, const stk_part *p, stk_edge *edge, int dc) {
  if (__builtin_expect(dc > MOST_DC || dc < -MOST_DC, 0))
    stk_fail(x->l, STK_FORMAT, "a DC coefficient of %d, which no picture of 8 bits has", dc);
  x->dc_count[x->code_of[p->comp]][stk_size(dc - x->pred[p->comp])]++;
  x->pred[p->comp] = dc;
  if (p->x == 0 && p->y == 0) edge[p->comp].first = (int16_t)dc;
  edge[p->comp].last = (int16_t)dc;
  return (uint16_t)dc;
}

static INLINE void scan_mcu(stk_index *x, stk_edge *edge) {
  stk_huff *h = x->h;
  bits b = h->b;
  stk_huff_ready(h, &b);
  uint32_t *t = x->tok_end;
  for (int i = 0; i < h->blocks; i++) {
    const stk_part *p = &h->part[i];
    const int code = x->code_of[p->comp];
    refill(&b);
    int *dc = &h->pred[p->comp];
    *dc = (int)((unsigned)*dc + (unsigned)dc_diff(h, &b, p->dc, 0));
    *t++ = stk_dc_token(x, p, edge, *dc);
    const ptrdiff_t table = p->ac - h->ac;
    t = block_tokens(h, &b, &x->pairs[table], p->ac, x->seen[code][table], x->ac_count[code], t);
  }
  stk_huff_check(h, &b);
  h->b = b;
  x->tok_end = t;
}

static INLINE void scan_band(stk_index *x) {
  for (; x->next < x->mcus && x->tok_full - x->tok_end > MCU_TOKENS; x->next++, x->h->at++)
    scan_mcu(x, x->edge + x->next * x->comps);
}

static void scan_band_any(stk_index *x) { scan_band(x); }

#ifdef __x86_64__
__attribute__((target("bmi,bmi2,lzcnt"))) static void scan_band_bmi2(stk_index *x) { scan_band(x); }
#endif

// count_pairs adds the symbols of the pairs that were met to the counts.
static void count_pairs(stk_index *x) {
  for (int i = 0; i < CODES * FRAME_TABLES; i++) {
    const int code = i / FRAME_TABLES, table = i % FRAME_TABLES;
    uint32_t *seen = x->seen[code][table];
    for (int look = 0; look < 1 << LOOK; look++) {
      if (!seen[look]) continue;
      const uint64_t e = x->pairs[table].pair[look];
      x->ac_count[code][e >> 32 & 255] += seen[look];
      if (e >> 20 & 1) x->ac_count[code][e >> 56] += seen[look];
      seen[look] = 0;
    }
  }
}

int stk_tokens_band(stk_index *x) {
  x->from = x->next;
  x->tok_end = x->tok;
  if (!x->h) {
    stk_coefficients_band(x);
    return x->next < x->mcus;
  }
#ifdef __x86_64__
  if (x->l->level > 0 && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt"))
    scan_band_bmi2(x);
  else
#endif
    scan_band_any(x);
  count_pairs(x);
  if (x->next < x->mcus) return 1;
  stk_huff_end(x->h);
  return 0;
}

void stk_tokens_rewind(stk_index *x) {
  x->from = x->next = 0;
  memset(x->pred, 0, sizeof x->pred);
  if (x->h) stk_huff_rewind(x->h);
}

// room sizes the buffer for what most pictures of n bytes need.
static void room(stk_index *x, size_t n) {
  size_t tokens = n * 2 + 2 * MCU_TOKENS;
  if (tokens > MOST_TOKENS) tokens = MOST_TOKENS;
  x->tok = stk_grow(x->l, &x->b_tok, tokens * sizeof *x->tok);
  x->tok_full = x->tok + tokens;
  x->edge = stk_grow(x->l, &x->b_edge, (size_t)x->mcus * (size_t)x->comps * sizeof *x->edge);
}

static void through_scan(stk_index *x) {
  const stk_frame *f = &x->f;
  stk_huff *h = stk_huff_begin(x->l, f);
  x->h = h;
  x->comps = f->components;
  x->cols = h->cols;
  x->mcus = h->mcus;
  x->blocks = h->blocks;
  x->sof = 0;
  for (int i = 0; i < x->comps; i++) x->id[i] = f->comp[i].id;
  for (int i = 0; i < x->blocks; i++) {
    x->part[i] = h->part[i];
    build_pairs(&x->pairs[h->part[i].ac - h->ac], h->part[i].ac);
  }
}

void stk_tokens_begin(stk_index *x, int coefficients, size_t n) {
  if (coefficients)
    stk_coefficients_begin(x);
  else
    through_scan(x);
  x->codes = x->comps == 1 ? 1 : CODES;
  for (int i = 0; i < x->comps; i++) x->code_of[i] = i == 1 || i == 2;
  room(x, n);
  memset(x->dc_count, 0, sizeof x->dc_count);
  memset(x->ac_count, 0, sizeof x->ac_count);
  memset(x->seen, 0, sizeof x->seen);
  stk_tokens_rewind(x);
}
