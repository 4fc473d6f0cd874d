// VP8's key frames, compiled for each target: DECODE names the decoder.
//
// Rows of macroblocks are decoded one after the other: their modes, then, for each
// macroblock, its coefficients, the prediction and what is added to it, in a small
// buffer. From there it is copied to the lower half of a window of two rows of
// macroblocks. The loop filter works on the window, because prediction uses unfiltered
// samples, and ends ten rows above the end of the window; from there, rows become RGB.
//
// Most of the time goes to the boolean decoder, one bit after the other. Its state is in
// registers while the coefficients of a block are read, and 56 bits are loaded at once.
#include "vp8.h"
#include "vp8_tables.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

// Modes, in the order of the tree for 4 x 4 blocks; the first four are also those of
// larger ones.
enum { DC_PRED, TM_PRED, VE_PRED, HE_PRED, RD_PRED, VR_PRED, LD_PRED, VL_PRED, HD_PRED, HU_PRED };

// booler is the boolean decoder (RFC 6386, 7). value has its next bits highest; count
// + 8 of them are loaded. range is its range in bits 31 to 24. After the end it reads
// zeros, which ended reports.
typedef struct {
  uint64_t value, range;
  int count;
  int ended;
  const uint8_t *p, *end;
} booler;

// b_open reports whether the value is below the range, as it must be.
static int b_open(booler *b, const uint8_t *p, size_t n) {
  *b = (booler){0, UINT64_C(255) << 24, -8, 0, p, p + n};
  return !n || *p < 255;
}

static INLINE void b_fill(booler *b) {
  const int have = b->count + 8;
  if (__builtin_expect(b->end - b->p >= 8, 1)) {
    uint64_t v;
    memcpy(&v, b->p, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    const int bytes = (64 - have) >> 3;
    b->value |= v >> have; // bits beyond count are loaded again
    b->p += bytes;
    b->count += 8 * bytes;
    return;
  }
  if (b->p < b->end)
    b->value |= (uint64_t)*b->p++ << (56 - have);
  else
    b->ended = 1;
  b->count += 8;
}

// b_bit is a bit that is 0 with a probability of prob in 256. Its cost is the path
// from one range to the next, seven cycles: the split is 1 + ((range - 1) * prob >>
// 8), arranged so that the product comes first.
static INLINE int b_bit(booler *b, int prob) {
  const uint32_t split = (uint32_t)((b->range * (uint32_t)prob + ((uint64_t)(256 - prob) << 24)) >> 32);
  if (b->count < 0) b_fill(b);
  const uint64_t big = (uint64_t)split << 56;
  int bit;
  uint32_t range;
  if (b->value >= big) {
    range = (uint32_t)(b->range >> 24) - split;
    b->value -= big;
    bit = 1;
  } else {
    range = split;
    bit = 0;
  }
  const int zeros = __builtin_clz(range);
  b->range = (uint64_t)range << zeros;
  b->value <<= zeros - 24;
  b->count -= zeros - 24;
  return bit;
}

// b_sign is v or -v, by a bit of even probability. The range is below 255 after the
// first bit, so half of it always takes one shift.
static INLINE int b_sign(booler *b, int v) {
  const uint32_t range = (uint32_t)(b->range >> 24), split = (range + 1) >> 1;
  if (b->count < 0) b_fill(b);
  const uint64_t big = (uint64_t)split << 56;
  const int minus = b->value >= big;
  b->range = (uint64_t)(minus ? range - split : split) << 25;
  b->value = (minus ? b->value - big : b->value) << 1;
  b->count--;
  return minus ? -v : v;
}

static int b_number(booler *b, int bits) {
  int v = 0;
  while (bits--) v = 2 * v + b_bit(b, 128);
  return v;
}

static int b_signed(booler *b, int bits) {
  const int v = b_number(b, bits);
  return b_bit(b, 128) ? -v : v;
}

static int b_optional(booler *b, int bits) { return b_bit(b, 128) ? b_signed(b, bits) : 0; }

enum { BANDS = 17, NODES = 11, CONTEXTS = 3, BPS = 32 };

// quants are the factors of the first and of the other coefficients.
typedef struct {
  int y1[2], y2[2], uv[2];
} quants;

typedef struct {
  uint8_t limit, inner_limit, hev, inner;
} strength;

// above is what the macroblock below needs: samples and modes of the last row, and
// which blocks had coefficients: 4 of luma, 2 and 2 of chroma, and the block of DCs.
typedef struct {
  uint8_t y[16], u[8], v[8];
  uint8_t modes[4];
  uint8_t nz[9];
  strength filter;
  uint8_t segment, skip, small, ymode, uvmode;
  uint8_t sub[16];
} column;

typedef struct {
  booler modes, tokens[8];
  int parts;
  int w, h, mbw, mbh;
  int segments, map, absolute, quantizer[4], level_of[4];
  uint8_t segment_prob[3];
  int simple, level, sharpness, deltas, ref_delta, small_delta;
  int skips, skip_prob;
  quants quant[4];
  strength strengths[4][2];
  uint8_t prob[4][BANDS][CONTEXTS][NODES];  // by place, not by band
  column *columns;
  uint8_t left_modes[4], left_nz[9];
  int16_t coeffs[25 * 16];         // zeros, except for the macroblock in work
  uint8_t kinds[24];               // of each block: 0 nothing, 1 a DC, 2 of the first three, 3 more
  uint8_t work[BPS * 30];          // see Y_AT
  uint8_t *y, *u, *v;              // the window: 32 and 16 rows
  int stride;
  uint8_t *lines;                  // chroma as wide as luma, twice, and three planes
} frame;

// The macroblock in work: luma has a row above it and a column to its left, and four
// more samples above.
enum { Y_AT = BPS + 8, U_AT = BPS * 18 + 8, V_AT = BPS * 18 + 24, WORK = BPS * 27 };

static INLINE uint8_t clip(int v) { return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v; }
static INLINE int bound(int v, int most) { return v < 0 ? 0 : v > most ? most : v; }

// ---- the header (RFC 6386, 9) ----

static void read_segments(frame *f, booler *b) {
  f->segments = b_bit(b, 128);
  memset(f->segment_prob, 255, sizeof f->segment_prob);
  f->absolute = 1;
  if (!f->segments) return;
  f->map = b_bit(b, 128);
  if (b_bit(b, 128)) {
    f->absolute = b_bit(b, 128);
    for (int i = 0; i < 4; i++) f->quantizer[i] = b_optional(b, 7);
    for (int i = 0; i < 4; i++) f->level_of[i] = b_optional(b, 6);
  }
  if (f->map)
    for (int i = 0; i < 3; i++)
      if (b_bit(b, 128)) f->segment_prob[i] = (uint8_t)b_number(b, 8);
}

static void read_filter(frame *f, booler *b) {
  f->simple = b_bit(b, 128);
  f->level = b_number(b, 6);
  f->sharpness = b_number(b, 3);
  f->deltas = b_bit(b, 128);
  if (f->deltas && b_bit(b, 128)) {
    int delta[8];
    for (int i = 0; i < 8; i++) delta[i] = b_optional(b, 6);
    f->ref_delta = delta[0]; // of key frames
    f->small_delta = delta[4];
  }
}

static int read_parts(frame *f, const uint8_t *p, size_t n) {
  f->parts = 1 << b_number(&f->modes, 2);
  const size_t sizes = 3 * (size_t)(f->parts - 1);
  if (n < sizes) return STK_VP8_CUT;
  const uint8_t *size = p;
  p += sizes;
  n -= sizes;
  for (int i = 0; i < f->parts - 1; i++, size += 3) {
    size_t k = (size_t)size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16;
    if (k > n) k = n;
    if (!b_open(&f->tokens[i], p, k)) return STK_VP8_ODD;
    p += k;
    n -= k;
  }
  if (!b_open(&f->tokens[f->parts - 1], p, n)) return STK_VP8_ODD;
  return n ? STK_VP8_OK : STK_VP8_CUT;
}

static void read_quants(frame *f, booler *b) {
  const int base = b_number(b, 7);
  int d[5];
  for (int i = 0; i < 5; i++) d[i] = b_optional(b, 4);
  for (int i = 0; i < 4; i++) {
    const int q = !f->segments ? base : f->quantizer[i] + (f->absolute ? 0 : base);
    quants *m = &f->quant[i];
    m->y1[0] = stk_vp8_dc[bound(q + d[0], 127)];
    m->y1[1] = stk_vp8_ac[bound(q, 127)];
    m->y2[0] = stk_vp8_dc[bound(q + d[1], 127)] * 2;
    m->y2[1] = stk_vp8_ac[bound(q + d[2], 127)] * 155 / 100;
    if (m->y2[1] < 8) m->y2[1] = 8;
    m->uv[0] = stk_vp8_dc[bound(q + d[3], 117)];
    m->uv[1] = stk_vp8_ac[bound(q + d[4], 127)];
  }
}

static void make_strengths(frame *f) {
  for (int i = 0; i < 4; i++)
    for (int small = 0; small < 2; small++) {
      int level = !f->segments ? f->level : f->level_of[i] + (f->absolute ? 0 : f->level);
      if (f->deltas) level += f->ref_delta + (small ? f->small_delta : 0);
      level = bound(level, 63);
      strength *s = &f->strengths[i][small];
      *s = (strength){0, 0, 0, (uint8_t)small};
      if (level == 0 || f->level == 0) continue;
      int inner = level;
      if (f->sharpness > 0) {
        inner >>= f->sharpness > 4 ? 2 : 1;
        if (inner > 9 - f->sharpness) inner = 9 - f->sharpness;
      }
      if (inner < 1) inner = 1;
      s->inner_limit = (uint8_t)inner;
      s->limit = (uint8_t)(2 * level + inner);
      s->hev = level >= 40 ? 2 : level >= 15 ? 1 : 0;
    }
}

static void read_probs(frame *f, booler *b) {
  static const uint8_t band[BANDS] = {0, 1, 2, 3, 6, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7, 0};
  uint8_t by_band[4 * 8 * CONTEXTS * NODES];
  for (int i = 0; i < 4 * 8 * CONTEXTS * NODES; i++)
    by_band[i] = b_bit(b, stk_vp8_update[i]) ? (uint8_t)b_number(b, 8) : stk_vp8_default[i];
  for (int t = 0; t < 4; t++)
    for (int i = 0; i < BANDS; i++)
      memcpy(f->prob[t][i], by_band + (t * 8 + band[i]) * CONTEXTS * NODES, CONTEXTS * NODES);
  f->skips = b_bit(b, 128);
  f->skip_prob = f->skips ? b_number(b, 8) : 0;
}

static int read_header(frame *f, const uint8_t *src, size_t n) {
  if (n < 10) return STK_VP8_CUT;
  const uint32_t tag = (uint32_t)src[0] | (uint32_t)src[1] << 8 | (uint32_t)src[2] << 16;
  // A key frame, of profile 0 to 3, that is shown.
  if (tag & 1 || (tag >> 1 & 7) > 3 || !(tag >> 4 & 1) || memcmp(src + 3, "\x9d\x01\x2a", 3)) return STK_VP8_BAD;
  if ((src[6] | (src[7] & 0x3f) << 8) != f->w || (src[8] | (src[9] & 0x3f) << 8) != f->h) return STK_VP8_BAD;
  const size_t first = tag >> 5;
  src += 10;
  n -= 10;
  if (first > n) return STK_VP8_CUT;
  booler *b = &f->modes;
  if (!b_open(b, src, first)) return STK_VP8_ODD;
  b_number(b, 2); // colour space, clamping: neither changes what decoders do
  read_segments(f, b);
  read_filter(f, b);
  const int code = read_parts(f, src + first, n - first);
  if (code) return code;
  read_quants(f, b);
  b_bit(b, 128); // whether probabilities are kept for the next frame
  read_probs(f, b);
  make_strengths(f);
  return b->ended ? STK_VP8_CUT : STK_VP8_OK;
}

// ---- modes (RFC 6386, 11) ----

static INLINE int small_mode(booler *b, const uint8_t *p) {
  if (!b_bit(b, p[0])) return DC_PRED;
  if (!b_bit(b, p[1])) return TM_PRED;
  if (!b_bit(b, p[2])) return VE_PRED;
  if (!b_bit(b, p[3])) {
    if (!b_bit(b, p[4])) return HE_PRED;
    return b_bit(b, p[5]) ? VR_PRED : RD_PRED;
  }
  if (!b_bit(b, p[6])) return LD_PRED;
  if (!b_bit(b, p[7])) return VL_PRED;
  return b_bit(b, p[8]) ? HU_PRED : HD_PRED;
}

static void read_modes(frame *f) {
  booler b = f->modes;
  memset(f->left_modes, DC_PRED, 4);
  for (int x = 0; x < f->mbw; x++) {
    column *c = &f->columns[x];
    if (f->map) c->segment = (uint8_t)(!b_bit(&b, f->segment_prob[0]) ? b_bit(&b, f->segment_prob[1]) : b_bit(&b, f->segment_prob[2]) + 2);
    c->skip = (uint8_t)(f->skips && b_bit(&b, f->skip_prob));
    c->small = (uint8_t)!b_bit(&b, 145);
    if (!c->small) {
      c->ymode = (uint8_t)(b_bit(&b, 156) ? (b_bit(&b, 128) ? TM_PRED : HE_PRED) : (b_bit(&b, 163) ? VE_PRED : DC_PRED));
      memset(c->modes, c->ymode, 4);
      memset(f->left_modes, c->ymode, 4);
    } else {
      for (int i = 0; i < 4; i++) {
        int mode = f->left_modes[i];
        for (int k = 0; k < 4; k++) {
          mode = small_mode(&b, stk_vp8_modes + (c->modes[k] * 10 + mode) * 9);
          c->modes[k] = c->sub[4 * i + k] = (uint8_t)mode;
        }
        f->left_modes[i] = (uint8_t)mode;
      }
    }
    c->uvmode = (uint8_t)(!b_bit(&b, 142) ? DC_PRED : !b_bit(&b, 114) ? VE_PRED : b_bit(&b, 183) ? TM_PRED : HE_PRED);
  }
  f->modes = b;
}

// ---- coefficients (RFC 6386, 13) ----

// large is a coefficient above 1.
static INLINE int large(booler *b, const uint8_t *p) {
  static const uint8_t more[4][12] = {{173, 148, 140}, {176, 155, 140, 135}, {180, 157, 141, 134, 130}, {254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129}};
  if (!b_bit(b, p[3])) {
    if (!b_bit(b, p[4])) return 2;
    return 3 + b_bit(b, p[5]);
  }
  if (!b_bit(b, p[6])) {
    if (!b_bit(b, p[7])) return 5 + b_bit(b, 159);
    const int v = 7 + 2 * b_bit(b, 165);
    return v + b_bit(b, 145);
  }
  const int high = b_bit(b, p[8]), cat = 2 * high + b_bit(b, p[9 + high]);
  int v = 0;
  for (const uint8_t *q = more[cat]; *q; q++) v = 2 * v + b_bit(b, *q);
  return v + 3 + (8 << cat);
}

// block reads a block from coefficient n on, and returns the position after its last
// one.
static INLINE int block(booler *b, const uint8_t (*prob)[CONTEXTS][NODES], int context, const int quant[2], int n, int16_t *out) {
  static const uint8_t zigzag[16] = {0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15};
  const uint8_t *p = prob[n][context];
  for (; n < 16; n++) {
    if (!b_bit(b, p[0])) return n;
    while (!b_bit(b, p[1])) {
      p = prob[++n][0];
      if (n == 16) return 16;
    }
    int v = 1;
    if (!b_bit(b, p[2])) {
      p = prob[n + 1][1];
    } else {
      v = large(b, p);
      p = prob[n + 1][2];
    }
    out[zigzag[n]] = (int16_t)(b_sign(b, v) * quant[n > 0]);
  }
  return 16;
}

static void wht(const int16_t *in, int16_t *out) {
  int t[16];
  for (int i = 0; i < 4; i++) {
    const int a = in[i] + in[12 + i], b = in[4 + i] + in[8 + i], c = in[4 + i] - in[8 + i], d = in[i] - in[12 + i];
    t[i] = a + b;
    t[8 + i] = a - b;
    t[4 + i] = d + c;
    t[12 + i] = d - c;
  }
  for (int i = 0; i < 4; i++, out += 64) {
    const int dc = t[4 * i] + 3, a = dc + t[4 * i + 3], b = t[4 * i + 1] + t[4 * i + 2], c = t[4 * i + 1] - t[4 * i + 2], d = dc - t[4 * i + 3];
    out[0] = (int16_t)((a + b) >> 3);
    out[16] = (int16_t)((d + c) >> 3);
    out[32] = (int16_t)((a - b) >> 3);
    out[48] = (int16_t)((d - c) >> 3);
  }
}

// residuals reads what is added to a macroblock's prediction, and returns whether
// there is anything.
static __attribute__((noinline)) int residuals(frame *f, booler *tokens, column *c) {
  booler b = *tokens;
  const quants *q = &f->quant[c->segment];
  int16_t *out = f->coeffs;
  uint8_t *top = c->nz, *left = f->left_nz;
  int first = 0, type = 3, any = 0;
  if (!c->small) {
    int16_t *dc = out + 24 * 16;
    const int n = block(&b, (const uint8_t(*)[CONTEXTS][NODES])f->prob[1], top[8] + left[8], q->y2, 0, dc);
    top[8] = left[8] = n > 0;
    if (n > 1) {
      wht(dc, out);
    } else {
      const int16_t v = (int16_t)((dc[0] + 3) >> 3);
      for (int i = 0; i < 16; i++) out[16 * i] = v;
    }
    memset(dc, 0, 16 * sizeof *dc);
    first = 1;
    type = 0;
  }
  for (int i = 0; i < 16; i++, out += 16) {
    uint8_t *up = &top[i & 3], *side = &left[i >> 2];
    const int n = block(&b, (const uint8_t(*)[CONTEXTS][NODES])f->prob[type], *up + *side, q->y1, first, out);
    *up = *side = n > first;
    any |= f->kinds[i] = n > 3 ? 3 : n > 1 ? 2 : out[0] != 0;
  }
  for (int i = 16; i < 24; i++, out += 16) {
    uint8_t *up = &top[4 + (i >> 1 & 2) + (i & 1)], *side = &left[4 + (i >> 1 & 2) + (i >> 1 & 1)];
    const int n = block(&b, (const uint8_t(*)[CONTEXTS][NODES])f->prob[2], *up + *side, q->uv, 0, out);
    *up = *side = n > 0;
    any |= f->kinds[i] = n > 3 ? 3 : n > 1 ? 2 : out[0] != 0;
  }
  *tokens = b;
  return any;
}

// ---- prediction and what is added to it (RFC 6386, 12 and 14) ----

#define MUL1(v) (((v) * 20091 >> 16) + (v))
#define MUL2(v) ((v) * 35468 >> 16)

// The numbers of valid streams fit into 16 bits at every step. For invalid ones,
// libwebp's pixels on x86 are those of 16-bit arithmetic for whole blocks and of
// 32-bit arithmetic for blocks with few coefficients; so are these.
static void idct(const int16_t *in, uint8_t *dst) {
#ifdef __SSE2__
  const __m128i k1 = _mm_set1_epi16(20091), k2 = _mm_set1_epi16(-30068); // of 35468, as a product of x and itself
  __m128i v0 = _mm_loadl_epi64((const __m128i *)in), v1 = _mm_loadl_epi64((const __m128i *)(in + 4));
  __m128i v2 = _mm_loadl_epi64((const __m128i *)(in + 8)), v3 = _mm_loadl_epi64((const __m128i *)(in + 12));
  for (int pass = 0; pass < 2; pass++) {
    if (pass) v0 = _mm_add_epi16(v0, _mm_set1_epi16(4));
    const __m128i a = _mm_add_epi16(v0, v2), b = _mm_sub_epi16(v0, v2);
    const __m128i c = _mm_add_epi16(_mm_sub_epi16(v1, v3), _mm_sub_epi16(_mm_mulhi_epi16(v1, k2), _mm_mulhi_epi16(v3, k1)));
    const __m128i d = _mm_add_epi16(_mm_add_epi16(v1, v3), _mm_add_epi16(_mm_mulhi_epi16(v1, k1), _mm_mulhi_epi16(v3, k2)));
    const __m128i t0 = _mm_add_epi16(a, d), t1 = _mm_add_epi16(b, c), t2 = _mm_sub_epi16(b, c), t3 = _mm_sub_epi16(a, d);
    const __m128i l = _mm_unpacklo_epi16(t0, t1), h = _mm_unpacklo_epi16(t2, t3);
    const __m128i x = _mm_unpacklo_epi32(l, h), y = _mm_unpackhi_epi32(l, h);
    v0 = x;
    v1 = _mm_unpackhi_epi64(x, x);
    v2 = y;
    v3 = _mm_unpackhi_epi64(y, y);
  }
  const __m128i rows[4] = {v0, v1, v2, v3};
  for (int i = 0; i < 4; i++, dst += BPS) {
    int32_t p;
    memcpy(&p, dst, 4);
    const __m128i sum = _mm_add_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(p), _mm_setzero_si128()), _mm_srai_epi16(rows[i], 3));
    p = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
    memcpy(dst, &p, 4);
  }
#else
  int t[16];
  for (int i = 0; i < 4; i++) {
    const int a = in[i] + in[8 + i], b = in[i] - in[8 + i];
    const int c = MUL2(in[4 + i]) - MUL1(in[12 + i]), d = MUL1(in[4 + i]) + MUL2(in[12 + i]);
    t[4 * i] = a + d;
    t[4 * i + 1] = b + c;
    t[4 * i + 2] = b - c;
    t[4 * i + 3] = a - d;
  }
  for (int i = 0; i < 4; i++, dst += BPS) {
    const int dc = t[i] + 4, a = dc + t[8 + i], b = dc - t[8 + i];
    const int c = MUL2(t[4 + i]) - MUL1(t[12 + i]), d = MUL1(t[4 + i]) + MUL2(t[12 + i]);
    dst[0] = clip(dst[0] + ((a + d) >> 3));
    dst[1] = clip(dst[1] + ((b + c) >> 3));
    dst[2] = clip(dst[2] + ((b - c) >> 3));
    dst[3] = clip(dst[3] + ((a - d) >> 3));
  }
#endif
}

// idct_3 transforms a block with only the first three coefficients: 0, 1 and 4.
static void idct_3(const int16_t *in, uint8_t *dst) {
  const int dc = in[0] + 4, c4 = MUL2(in[4]), d4 = MUL1(in[4]), c1 = MUL2(in[1]), d1 = MUL1(in[1]);
  const int down[4] = {dc + d4, dc + c4, dc - c4, dc - d4}, right[4] = {d1, c1, -c1, -d1};
  for (int y = 0; y < 4; y++, dst += BPS)
    for (int x = 0; x < 4; x++) dst[x] = clip(dst[x] + ((down[y] + right[x]) >> 3));
}

// add adds a block to its prediction, and clears it.
static INLINE void add(int16_t *in, int kind, uint8_t *dst) {
  if (kind == 1) {
    const int dc = (in[0] + 4) >> 3;
    in[0] = 0;
    for (int y = 0; y < 4; y++, dst += BPS)
      for (int x = 0; x < 4; x++) dst[x] = clip(dst[x] + dc);
  } else if (kind) {
    if (kind == 2) idct_3(in, dst);
    else idct(in, dst);
    memset(in, 0, 16 * sizeof *in);
  }
}

static INLINE void true_motion(uint8_t *dst, const int n) {
  const uint8_t *top = dst - BPS;
  const int corner = top[-1];
  for (int y = 0; y < n; y++, dst += BPS) {
    const int d = dst[-1] - corner;
    for (int x = 0; x < n; x++) dst[x] = clip(top[x] + d);
  }
}

// predict fills a square of n samples. For DC, samples outside the picture do not
// count.
static INLINE void predict(uint8_t *dst, int mode, const int n, int has_left, int has_top) {
  const int log = n == 16 ? 4 : 3;
  int dc = 128;
  switch (mode) {
  case TM_PRED: true_motion(dst, n); return;
  case VE_PRED:
    for (int y = 0; y < n; y++) memcpy(dst + y * BPS, dst - BPS, (size_t)n);
    return;
  case HE_PRED:
    for (int y = 0; y < n; y++) memset(dst + y * BPS, dst[y * BPS - 1], (size_t)n);
    return;
  }
  if (has_left || has_top) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += (has_top ? dst[i - BPS] : 0) + (has_left ? dst[i * BPS - 1] : 0);
    const int bits = log + (has_left && has_top);
    dc = (sum + (1 << bits >> 1)) >> bits;
  }
  for (int y = 0; y < n; y++) memset(dst + y * BPS, dc, (size_t)n);
}

#define AVG2(a, b) ((uint8_t)(((a) + (b) + 1) >> 1))
#define AVG3(a, b, c) ((uint8_t)(((a) + 2 * (b) + (c) + 2) >> 2))
#define AT(x, y) dst[(x) + (y) * BPS]

static void predict_small(uint8_t *dst, int mode) {
  const uint8_t *top = dst - BPS;
  const int X = top[-1], A = top[0], B = top[1], C = top[2], D = top[3], E = top[4], F = top[5], G = top[6], H = top[7];
  const int I = dst[-1], J = dst[BPS - 1], K = dst[2 * BPS - 1], L = dst[3 * BPS - 1];
  switch (mode) {
  case DC_PRED: {
    const int dc = (A + B + C + D + I + J + K + L + 4) >> 3;
    for (int y = 0; y < 4; y++) memset(dst + y * BPS, dc, 4);
    break;
  }
  case TM_PRED: true_motion(dst, 4); break;
  case VE_PRED: {
    const uint8_t row[4] = {AVG3(X, A, B), AVG3(A, B, C), AVG3(B, C, D), AVG3(C, D, E)};
    for (int y = 0; y < 4; y++) memcpy(dst + y * BPS, row, 4);
    break;
  }
  case HE_PRED:
    memset(dst, AVG3(X, I, J), 4);
    memset(dst + BPS, AVG3(I, J, K), 4);
    memset(dst + 2 * BPS, AVG3(J, K, L), 4);
    memset(dst + 3 * BPS, AVG3(K, L, L), 4);
    break;
  case RD_PRED:
    AT(0, 3) = AVG3(J, K, L);
    AT(1, 3) = AT(0, 2) = AVG3(I, J, K);
    AT(2, 3) = AT(1, 2) = AT(0, 1) = AVG3(X, I, J);
    AT(3, 3) = AT(2, 2) = AT(1, 1) = AT(0, 0) = AVG3(A, X, I);
    AT(3, 2) = AT(2, 1) = AT(1, 0) = AVG3(B, A, X);
    AT(3, 1) = AT(2, 0) = AVG3(C, B, A);
    AT(3, 0) = AVG3(D, C, B);
    break;
  case LD_PRED:
    AT(0, 0) = AVG3(A, B, C);
    AT(1, 0) = AT(0, 1) = AVG3(B, C, D);
    AT(2, 0) = AT(1, 1) = AT(0, 2) = AVG3(C, D, E);
    AT(3, 0) = AT(2, 1) = AT(1, 2) = AT(0, 3) = AVG3(D, E, F);
    AT(3, 1) = AT(2, 2) = AT(1, 3) = AVG3(E, F, G);
    AT(3, 2) = AT(2, 3) = AVG3(F, G, H);
    AT(3, 3) = AVG3(G, H, H);
    break;
  case VR_PRED:
    AT(0, 0) = AT(1, 2) = AVG2(X, A);
    AT(1, 0) = AT(2, 2) = AVG2(A, B);
    AT(2, 0) = AT(3, 2) = AVG2(B, C);
    AT(3, 0) = AVG2(C, D);
    AT(0, 3) = AVG3(K, J, I);
    AT(0, 2) = AVG3(J, I, X);
    AT(0, 1) = AT(1, 3) = AVG3(I, X, A);
    AT(1, 1) = AT(2, 3) = AVG3(X, A, B);
    AT(2, 1) = AT(3, 3) = AVG3(A, B, C);
    AT(3, 1) = AVG3(B, C, D);
    break;
  case VL_PRED:
    AT(0, 0) = AVG2(A, B);
    AT(1, 0) = AT(0, 2) = AVG2(B, C);
    AT(2, 0) = AT(1, 2) = AVG2(C, D);
    AT(3, 0) = AT(2, 2) = AVG2(D, E);
    AT(0, 1) = AVG3(A, B, C);
    AT(1, 1) = AT(0, 3) = AVG3(B, C, D);
    AT(2, 1) = AT(1, 3) = AVG3(C, D, E);
    AT(3, 1) = AT(2, 3) = AVG3(D, E, F);
    AT(3, 2) = AVG3(E, F, G);
    AT(3, 3) = AVG3(F, G, H);
    break;
  case HD_PRED:
    AT(0, 0) = AT(2, 1) = AVG2(I, X);
    AT(0, 1) = AT(2, 2) = AVG2(J, I);
    AT(0, 2) = AT(2, 3) = AVG2(K, J);
    AT(0, 3) = AVG2(L, K);
    AT(3, 0) = AVG3(A, B, C);
    AT(2, 0) = AVG3(X, A, B);
    AT(1, 0) = AT(3, 1) = AVG3(I, X, A);
    AT(1, 1) = AT(3, 2) = AVG3(J, I, X);
    AT(1, 2) = AT(3, 3) = AVG3(K, J, I);
    AT(1, 3) = AVG3(L, K, J);
    break;
  case HU_PRED:
    AT(0, 0) = AVG2(I, J);
    AT(2, 0) = AT(0, 1) = AVG2(J, K);
    AT(2, 1) = AT(0, 2) = AVG2(K, L);
    AT(1, 0) = AVG3(I, J, K);
    AT(3, 0) = AT(1, 1) = AVG3(J, K, L);
    AT(3, 1) = AT(1, 2) = AVG3(K, L, L);
    AT(3, 2) = AT(2, 2) = AT(0, 3) = AT(1, 3) = AT(2, 3) = AT(3, 3) = (uint8_t)L;
    break;
  }
}

// reconstruct makes the macroblock in work, and copies it into the window's lower
// half.
static __attribute__((noinline)) void reconstruct(frame *f, int x, int row) {
  column *c = &f->columns[x];
  uint8_t *y = f->work + Y_AT, *u = f->work + U_AT, *v = f->work + V_AT;
  if (x == 0) { // 129 at the left of the picture, 127 above it, its corner included
    for (int i = 0; i < 16; i++) y[i * BPS - 1] = 129;
    for (int i = 0; i < 8; i++) u[i * BPS - 1] = v[i * BPS - 1] = 129;
    y[-BPS - 1] = u[-BPS - 1] = v[-BPS - 1] = row ? 129 : 127;
  } else {
    for (int i = -1; i < 16; i++) y[i * BPS - 1] = y[i * BPS + 15];
    for (int i = -1; i < 8; i++) u[i * BPS - 1] = u[i * BPS + 7], v[i * BPS - 1] = v[i * BPS + 7];
  }
  if (row) {
    memcpy(y - BPS, c->y, 16);
    memcpy(u - BPS, c->u, 8);
    memcpy(v - BPS, c->v, 8);
    if (x + 1 < f->mbw) memcpy(y - BPS + 16, c[1].y, 4);
    else memset(y - BPS + 16, c->y[15], 4);
  } else {
    memset(y - BPS, 127, 20);
    memset(u - BPS, 127, 8);
    memset(v - BPS, 127, 8);
  }
  if (c->small) {
    for (int i = 3; i < 15; i += 4) memcpy(y + i * BPS + 16, y - BPS + 16, 4); // above at the right, for blocks of the last column
    for (int i = 0; i < 16; i++) {
      uint8_t *dst = y + (i >> 2) * 4 * BPS + (i & 3) * 4;
      predict_small(dst, c->sub[i]);
      add(f->coeffs + 16 * i, f->kinds[i], dst);
    }
  } else {
    predict(y, c->ymode, 16, x > 0, row > 0);
    for (int i = 0; i < 16; i++) add(f->coeffs + 16 * i, f->kinds[i], y + (i >> 2) * 4 * BPS + (i & 3) * 4);
  }
  predict(u, c->uvmode, 8, x > 0, row > 0);
  predict(v, c->uvmode, 8, x > 0, row > 0);
  for (int plane = 16; plane < 24; plane += 4) {
    const uint8_t *kinds = f->kinds + plane;
    const int whole = (kinds[0] | kinds[1] | kinds[2] | kinds[3]) > 1; // then all four are, for libwebp
    for (int i = 0; i < 4; i++)
      add(f->coeffs + 16 * (plane + i), whole ? 3 : kinds[i], (plane == 16 ? u : v) + (i >> 1) * 4 * BPS + (i & 1) * 4);
  }
  memcpy(c->y, y + 15 * BPS, 16);
  memcpy(c->u, u + 7 * BPS, 8);
  memcpy(c->v, v + 7 * BPS, 8);
  uint8_t *to = f->y + 16 * f->stride + 16 * x, *to_u = f->u + 8 * f->stride / 2 + 8 * x, *to_v = f->v + 8 * f->stride / 2 + 8 * x;
  for (int i = 0; i < 16; i++) memcpy(to + i * f->stride, y + i * BPS, 16);
  for (int i = 0; i < 8; i++) {
    memcpy(to_u + i * f->stride / 2, u + i * BPS, 8);
    memcpy(to_v + i * f->stride / 2, v + i * BPS, 8);
  }
}

// ---- the loop filter (RFC 6386, 15): sixteen samples along an edge at once ----

enum { SIMPLE, OUTER, INNER };

#ifdef __SSE2__
typedef __m128i V;
static INLINE V v_load(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
static INLINE void v_store(uint8_t *p, V v) { _mm_storeu_si128((__m128i *)p, v); }
static INLINE V v_distance(V a, V b) { return _mm_or_si128(_mm_subs_epu8(a, b), _mm_subs_epu8(b, a)); }
static INLINE V v_within(V a, V limit) { return _mm_cmpeq_epi8(_mm_subs_epu8(a, limit), _mm_setzero_si128()); }
// v_eighth shifts signed bytes by three.
static INLINE V v_eighth(V v) {
  const V zero = _mm_setzero_si128();
  return _mm_packs_epi16(_mm_srai_epi16(_mm_unpacklo_epi8(zero, v), 11), _mm_srai_epi16(_mm_unpackhi_epi8(zero, v), 11));
}
// v_weighed is (times * 9 * v + 63) >> 7 of signed bytes.
static INLINE V v_weighed(V v, int times) {
  const V zero = _mm_setzero_si128(), nine = _mm_set1_epi16((short)(times * 9 << 8)), half = _mm_set1_epi16(63);
  const V l = _mm_mulhi_epi16(_mm_unpacklo_epi8(zero, v), nine), h = _mm_mulhi_epi16(_mm_unpackhi_epi8(zero, v), nine);
  return _mm_packs_epi16(_mm_srai_epi16(_mm_add_epi16(l, half), 7), _mm_srai_epi16(_mm_add_epi16(h, half), 7));
}

// edge filters between p[3] and p[4] of eight lines; SIMPLE has only p[2] to p[5].
static INLINE void edge(V p[8], const strength *s, int limit, const int kind) {
  const V sign = _mm_set1_epi8((char)0x80), one = _mm_set1_epi8(1), three = _mm_set1_epi8(3), four = _mm_set1_epi8(4);
  const V far = v_distance(p[2], p[5]);
  const V near = v_distance(p[3], p[4]);
  V mask = v_within(_mm_adds_epu8(_mm_adds_epu8(near, near), _mm_srli_epi16(_mm_and_si128(far, _mm_set1_epi8((char)0xfe)), 1)), _mm_set1_epi8((char)limit));
  V hev = _mm_setzero_si128();
  if (kind != SIMPLE) {
    const V a = v_distance(p[2], p[3]), b = v_distance(p[4], p[5]);
    V most = _mm_max_epu8(a, b);
    hev = _mm_xor_si128(v_within(most, _mm_set1_epi8((char)s->hev)), _mm_set1_epi8((char)0xff));
    most = _mm_max_epu8(most, _mm_max_epu8(v_distance(p[0], p[1]), v_distance(p[1], p[2])));
    most = _mm_max_epu8(most, _mm_max_epu8(v_distance(p[5], p[6]), v_distance(p[6], p[7])));
    mask = _mm_and_si128(mask, v_within(most, _mm_set1_epi8((char)s->inner_limit)));
  }
  V p1 = _mm_xor_si128(p[2], sign), p0 = _mm_xor_si128(p[3], sign), q0 = _mm_xor_si128(p[4], sign), q1 = _mm_xor_si128(p[5], sign);
  const V outer = _mm_subs_epi8(p1, q1), step = _mm_subs_epi8(q0, p0);
  V a = kind == INNER ? _mm_and_si128(outer, hev) : outer;
  a = _mm_adds_epi8(_mm_adds_epi8(_mm_adds_epi8(a, step), step), step);
  a = _mm_and_si128(a, mask);
  const V f = kind == OUTER ? _mm_and_si128(a, hev) : a;
  const V up = v_eighth(_mm_adds_epi8(f, three)), down = v_eighth(_mm_adds_epi8(f, four));
  p0 = _mm_adds_epi8(p0, up);
  q0 = _mm_subs_epi8(q0, down);
  if (kind == INNER) {
    // (down + 1) >> 1 of signed bytes, if the variance is not high.
    const V half = _mm_sub_epi8(_mm_avg_epu8(_mm_xor_si128(down, sign), _mm_setzero_si128()), _mm_set1_epi8(64));
    const V both = _mm_andnot_si128(hev, half);
    q1 = _mm_subs_epi8(q1, both);
    p1 = _mm_adds_epi8(p1, both);
    p[2] = _mm_xor_si128(p1, sign);
    p[5] = _mm_xor_si128(q1, sign);
  }
  if (kind == OUTER) {
    V p2 = _mm_xor_si128(p[1], sign), q2 = _mm_xor_si128(p[6], sign);
    const V w = _mm_andnot_si128(hev, a), w1 = v_weighed(w, 1), w2 = v_weighed(w, 2), w3 = v_weighed(w, 3);
    p2 = _mm_adds_epi8(p2, w1);
    q2 = _mm_subs_epi8(q2, w1);
    p1 = _mm_adds_epi8(p1, w2);
    q1 = _mm_subs_epi8(q1, w2);
    p0 = _mm_adds_epi8(p0, w3);
    q0 = _mm_subs_epi8(q0, w3);
    p[1] = _mm_xor_si128(p2, sign);
    p[6] = _mm_xor_si128(q2, sign);
    p[2] = _mm_xor_si128(p1, sign);
    p[5] = _mm_xor_si128(q1, sign);
  }
  p[3] = _mm_xor_si128(p0, sign);
  p[4] = _mm_xor_si128(q0, sign);
  (void)one;
}

// turn_8 turns 16 rows of 8 bytes into 8 lines of 16; turn_16 is the way back.
static INLINE void turn_8(const V in[8], V out[8]) { // in[i]: row i, and row i + 8
  V a[8], b[8];
  for (int i = 0; i < 4; i++) a[2 * i] = _mm_unpacklo_epi8(in[2 * i], in[2 * i + 1]), a[2 * i + 1] = _mm_unpackhi_epi8(in[2 * i], in[2 * i + 1]);
  // a[0]: rows 0 1, a[1]: rows 8 9, a[2]: rows 2 3, a[3]: rows 10 11, ...
  for (int h = 0; h < 2; h++) {
    const V x0 = _mm_unpacklo_epi16(a[h], a[2 + h]), x1 = _mm_unpackhi_epi16(a[h], a[2 + h]);
    const V y0 = _mm_unpacklo_epi16(a[4 + h], a[6 + h]), y1 = _mm_unpackhi_epi16(a[4 + h], a[6 + h]);
    b[4 * h] = _mm_unpacklo_epi32(x0, y0); // columns 0 and 1 of eight rows
    b[4 * h + 1] = _mm_unpackhi_epi32(x0, y0);
    b[4 * h + 2] = _mm_unpacklo_epi32(x1, y1);
    b[4 * h + 3] = _mm_unpackhi_epi32(x1, y1);
  }
  for (int i = 0; i < 4; i++) out[2 * i] = _mm_unpacklo_epi64(b[i], b[4 + i]), out[2 * i + 1] = _mm_unpackhi_epi64(b[i], b[4 + i]);
}

static INLINE void turn_16(const V in[8], V out[8]) { // out[i]: row 2i, and row 2i + 1
  V a[8], b[8];
  for (int i = 0; i < 4; i++) a[i] = _mm_unpacklo_epi8(in[2 * i], in[2 * i + 1]), a[4 + i] = _mm_unpackhi_epi8(in[2 * i], in[2 * i + 1]);
  for (int h = 0; h < 2; h++) {
    b[4 * h] = _mm_unpacklo_epi16(a[4 * h], a[4 * h + 1]); // columns 0 to 3 of rows 0 to 3
    b[4 * h + 1] = _mm_unpackhi_epi16(a[4 * h], a[4 * h + 1]);
    b[4 * h + 2] = _mm_unpacklo_epi16(a[4 * h + 2], a[4 * h + 3]);
    b[4 * h + 3] = _mm_unpackhi_epi16(a[4 * h + 2], a[4 * h + 3]);
  }
  for (int h = 0; h < 2; h++) {
    out[4 * h] = _mm_unpacklo_epi32(b[4 * h], b[4 * h + 2]);
    out[4 * h + 1] = _mm_unpackhi_epi32(b[4 * h], b[4 * h + 2]);
    out[4 * h + 2] = _mm_unpacklo_epi32(b[4 * h + 1], b[4 * h + 3]);
    out[4 * h + 3] = _mm_unpackhi_epi32(b[4 * h + 1], b[4 * h + 3]);
  }
}

static INLINE V v_rows(const uint8_t *a, const uint8_t *b) { return _mm_unpacklo_epi64(_mm_loadl_epi64((const V *)a), _mm_loadl_epi64((const V *)b)); }
static INLINE void v_apart(uint8_t *a, uint8_t *b, V v) {
  _mm_storel_epi64((V *)a, v);
  _mm_storel_epi64((V *)b, _mm_unpackhi_epi64(v, v));
}

// across filters the edge above row p; 16 samples of one plane, or 8 of each of two.
static INLINE void across(uint8_t *p, uint8_t *q, int stride, const strength *s, int limit, const int kind) {
  V v[8];
  const int from = kind == SIMPLE ? 2 : 0;
  for (int i = from; i < 8 - from; i++) v[i] = q ? v_rows(p + (i - 4) * stride, q + (i - 4) * stride) : v_load(p + (i - 4) * stride);
  edge(v, s, limit, kind);
  const int changed = kind == OUTER ? 1 : kind == INNER ? 2 : 3;
  for (int i = changed; i < 8 - changed; i++)
    if (q) v_apart(p + (i - 4) * stride, q + (i - 4) * stride, v[i]);
    else v_store(p + (i - 4) * stride, v[i]);
}

// along filters the edge to the left of column p; 16 rows of one plane, or 8 of each
// of two.
static INLINE void along(uint8_t *p, uint8_t *q, int stride, const strength *s, int limit, const int kind) {
  V in[8], v[8];
  if (!q) q = p + 8 * stride;
  for (int i = 0; i < 8; i++) in[i] = v_rows(p + i * stride - 4, q + i * stride - 4);
  turn_8(in, v);
  edge(v, s, limit, kind);
  turn_16(v, in);
  for (int i = 0; i < 4; i++) {
    v_apart(p + 2 * i * stride - 4, p + (2 * i + 1) * stride - 4, in[i]);
    v_apart(q + 2 * i * stride - 4, q + (2 * i + 1) * stride - 4, in[4 + i]);
  }
}
#else
static INLINE int sclip(int v, int bits) {
  const int most = (1 << (bits - 1)) - 1;
  return v > most ? most : v < -most - 1 ? -most - 1 : v;
}

static INLINE int far_apart(int a, int b, int most) { return a - b > most || b - a > most; }

// sample filters one position of an edge; its samples are step apart.
static INLINE void sample(uint8_t *p, int step, const strength *s, int limit, const int kind) {
  const int p1 = p[-2 * step], p0 = p[-step], q0 = p[0], q1 = p[step];
  if (4 * abs(p0 - q0) + abs(p1 - q1) > 2 * limit + 1) return;
  int hev = 0;
  if (kind != SIMPLE) {
    const int it = s->inner_limit, p3 = p[-4 * step], p2 = p[-3 * step], q2 = p[2 * step], q3 = p[3 * step];
    if (far_apart(p3, p2, it) || far_apart(p2, p1, it) || far_apart(p1, p0, it) || far_apart(q3, q2, it) || far_apart(q2, q1, it) ||
        far_apart(q1, q0, it))
      return;
    hev = far_apart(p1, p0, s->hev) || far_apart(q1, q0, s->hev);
  }
  const int outer = sclip(p1 - q1, 8);
  if (kind == OUTER && !hev) {
    const int a = sclip(3 * (q0 - p0) + outer, 8), a1 = (27 * a + 63) >> 7, a2 = (18 * a + 63) >> 7, a3 = (9 * a + 63) >> 7;
    p[-3 * step] = clip(p[-3 * step] + a3);
    p[-2 * step] = clip(p1 + a2);
    p[-step] = clip(p0 + a1);
    p[0] = clip(q0 - a1);
    p[step] = clip(q1 - a2);
    p[2 * step] = clip(p[2 * step] - a3);
    return;
  }
  const int a = 3 * (q0 - p0) + (kind == INNER && !hev ? 0 : outer), a1 = sclip((a + 4) >> 3, 5), a2 = sclip((a + 3) >> 3, 5);
  p[-step] = clip(p0 + a2);
  p[0] = clip(q0 - a1);
  if (kind == INNER && !hev) {
    const int a3 = (a1 + 1) >> 1;
    p[-2 * step] = clip(p1 + a3);
    p[step] = clip(q1 - a3);
  }
}

static INLINE void line(uint8_t *p, uint8_t *q, int next, int step, const strength *s, int limit, const int kind) {
  for (int i = 0; i < (q ? 8 : 16); i++) {
    sample(p + i * next, step, s, limit, kind);
    if (q) sample(q + i * next, step, s, limit, kind);
  }
}

static INLINE void across(uint8_t *p, uint8_t *q, int stride, const strength *s, int limit, const int kind) { line(p, q, 1, stride, s, limit, kind); }
static INLINE void along(uint8_t *p, uint8_t *q, int stride, const strength *s, int limit, const int kind) { line(p, q, stride, 1, s, limit, kind); }
#endif

static void filter(frame *f, int x, int row) {
  const strength *s = &f->columns[x].filter;
  if (!s->limit) return;
  const int stride = f->stride;
  uint8_t *y = f->y + 16 * stride + 16 * x, *u = f->u + 8 * stride / 2 + 8 * x, *v = f->v + 8 * stride / 2 + 8 * x;
  if (f->simple) {
    if (x) along(y, NULL, stride, s, s->limit + 4, SIMPLE);
    for (int i = 4; i < 16 && s->inner; i += 4) along(y + i, NULL, stride, s, s->limit, SIMPLE);
    if (row) across(y, NULL, stride, s, s->limit + 4, SIMPLE);
    for (int i = 4; i < 16 && s->inner; i += 4) across(y + i * stride, NULL, stride, s, s->limit, SIMPLE);
    return;
  }
  if (x) {
    along(y, NULL, stride, s, s->limit + 4, OUTER);
    along(u, v, stride / 2, s, s->limit + 4, OUTER);
  }
  if (s->inner) {
    for (int i = 4; i < 16; i += 4) along(y + i, NULL, stride, s, s->limit, INNER);
    along(u + 4, v + 4, stride / 2, s, s->limit, INNER);
  }
  if (row) {
    across(y, NULL, stride, s, s->limit + 4, OUTER);
    across(u, v, stride / 2, s, s->limit + 4, OUTER);
  }
  if (s->inner) {
    for (int i = 4; i < 16; i += 4) across(y + i * stride, NULL, stride, s, s->limit, INNER);
    across(u + 4 * stride / 2, v + 4 * stride / 2, stride / 2, s, s->limit, INNER);
  }
}

// ---- RGB ----

// widen makes 2n samples of n: each is 9:3:3:1 of the four around it, rounded in two steps.
static void widen(const uint8_t *restrict near, const uint8_t *restrict far, uint8_t *restrict out, int n) {
  out[0] = (uint8_t)((3 * near[0] + far[0] + 2) >> 2);
  for (int i = 0; i < n - 1; i++) {
    const uint16_t a = near[i], b = near[i + 1], c = far[i], d = far[i + 1];
    const uint16_t sum = (uint16_t)(a + b + c + d + 8);
    const uint16_t left = (uint16_t)((uint16_t)(sum + 2 * (b + c)) >> 3), right = (uint16_t)((uint16_t)(sum + 2 * (a + d)) >> 3);
    out[2 * i + 1] = (uint8_t)((uint16_t)(left + a) >> 1);
    out[2 * i + 2] = (uint8_t)((uint16_t)(right + b) >> 1);
  }
  out[2 * n - 1] = (uint8_t)((3 * near[n - 1] + far[n - 1] + 2) >> 2);
}

// HIGH is v * k >> 8 of a byte; k has 16 bits.
#define HIGH(v, k) ((uint16_t)((uint32_t)(uint16_t)((v) << 8) * (uint32_t)(k) >> 16))

// bright clips a number with 6 fraction bits.
static INLINE uint8_t bright(int16_t v) {
  v = (int16_t)(v >> 6);
  v = v < 0 ? 0 : v;
  return (uint8_t)(v > 255 ? 255 : v);
}

// colours makes n pixels, in 14-bit fixed point of BT.601 with luma from 16 to 235.
// Everything fits into 16 bits, except a far too large blue, which leaves no bit for
// the sign.
static void colours(const uint8_t *restrict y, const uint8_t *restrict u, const uint8_t *restrict v, uint8_t *restrict r, uint8_t *restrict g,
                    uint8_t *restrict b, int n) {
  for (int i = 0; i < n; i++) {
    const uint16_t base = HIGH(y[i], 19077);
    r[i] = bright((int16_t)((int16_t)(base - 14234) + (int16_t)HIGH(v[i], 26149)));
    g[i] = bright((int16_t)((int16_t)(base + 8708) - (int16_t)HIGH(u[i], 6419) - (int16_t)HIGH(v[i], 13320)));
    uint16_t blue = (uint16_t)(base + HIGH(u[i], 33050));
    blue = (uint16_t)(blue > 17685 ? blue - 17685 : 0) >> 6;
    b[i] = (uint8_t)(blue > 255 ? 255 : blue);
  }
}

// emit writes rows from to to of the picture; row is that of the window's lower half.
static __attribute__((noinline)) void emit(frame *f, uint8_t *rgb, int from, int to, int row, void (*merge)(const uint8_t *, const uint8_t *, const uint8_t *, uint8_t *, int)) {
  const int n = (f->w + 1) / 2, s = f->stride, last = (f->h + 1) / 2 - 1;
  uint8_t *u = f->lines, *v = u + s, *r = v + s, *g = r + s, *b = g + s;
  for (int y = from; y < to; y++) {
    const int near = y / 2, beside = near - 1 + 2 * (y & 1), far = beside < 0 ? 0 : beside > last ? last : beside;
    const int top = 8 * (row - 1); // chroma row of the window's first
    widen(f->u + (near - top) * s / 2, f->u + (far - top) * s / 2, u, n);
    widen(f->v + (near - top) * s / 2, f->v + (far - top) * s / 2, v, n);
    colours(f->y + (y - 16 * (row - 1)) * s, u, v, r, g, b, f->w);
    merge(r, g, b, rgb + (size_t)y * f->w * 3, f->w);
  }
}

static int decode_rows(frame *f, uint8_t *rgb, void (*merge)(const uint8_t *, const uint8_t *, const uint8_t *, uint8_t *, int)) {
  int emitted = 0;
  for (int row = 0; row < f->mbh; row++) {
    read_modes(f);
    if (f->modes.ended) return STK_VP8_CUT;
    booler *tokens = &f->tokens[row & (f->parts - 1)];
    memset(f->left_nz, 0, sizeof f->left_nz);
    for (int x = 0; x < f->mbw; x++) {
      column *c = &f->columns[x];
      int any = 0;
      if (!c->skip) {
        any = residuals(f, tokens, c);
      } else {
        memset(c->nz, 0, 8);
        memset(f->left_nz, 0, 8);
        if (!c->small) c->nz[8] = f->left_nz[8] = 0;
        memset(f->kinds, 0, sizeof f->kinds);
      }
      c->filter = f->strengths[c->segment][c->small];
      c->filter.inner |= (uint8_t)(any != 0);
      if (tokens->ended) return STK_VP8_CUT;
      reconstruct(f, x, row);
    }
    if (f->level)
      for (int x = 0; x < f->mbw; x++) filter(f, x, row);
    // The next row's filter changes three rows above its edge, also of chroma, and
    // rows of RGB read the chroma row below.
    const int to = row == f->mbh - 1 ? f->h : 16 * (row + 1) - 10;
    emit(f, rgb, emitted, to, row, merge);
    emitted = to;
    memcpy(f->y, f->y + 16 * f->stride, 16 * (size_t)f->stride);
    memcpy(f->u, f->u + 8 * f->stride / 2, 4 * (size_t)f->stride);
    memcpy(f->v, f->v + 8 * f->stride / 2, 4 * (size_t)f->stride);
  }
  return STK_VP8_OK;
}

int DECODE(uint8_t *rgb, const uint8_t *src, size_t n, int w, int h) {
  frame *f = calloc(1, sizeof *f);
  if (!f) return STK_VP8_MEMORY;
  f->w = w;
  f->h = h;
  f->mbw = (w + 15) / 16;
  f->mbh = (h + 15) / 16;
  f->stride = 16 * f->mbw + 32;
  int code = read_header(f, src, n);
  if (!code) {
    // 32 rows of luma, 16 of each chroma, and five lines; filters read four samples
    // beyond.
    const size_t s = (size_t)f->stride;
    uint8_t *room = calloc(1, s * (32 + 8 + 8 + 5) + 64);
    f->columns = calloc((size_t)f->mbw, sizeof *f->columns);
    code = STK_VP8_MEMORY;
    if (room && f->columns) {
      f->y = room + 16;
      f->u = f->y + 32 * s;
      f->v = f->u + 8 * s;
      f->lines = f->v + 8 * s;
      code = decode_rows(f, rgb, MERGE);
    }
    free(room);
    free(f->columns);
  }
  free(f);
  return code;
}
