// Deflate: blocks, their codes and tables, and symbols where the input, the room or the
// limit end. inflate_loop.h has the loop for all others.
//
// Bytes are not trusted: every read and write is held against src, dst and the tables'
// room, and a code must be complete, or of one symbol of one bit, as zlib has it.
#include "inflate.h"

#include <string.h>

#pragma GCC optimize("O3")

#define FAST fast_base
static int fast_base(stk_inflate *z, const uint8_t *src, size_t nsrc, uint8_t *dst, size_t cap, size_t limit);
#include "inflate_loop.h"

enum { MAX_CODE = 15, MAX_LIT = 286, MAX_DIST = 30, END_OF_BLOCK = 256 };

// codes are those of one alphabet, sorted by length: symbols of length l begin at
// first[l], and there are count[l] of them.
typedef struct {
  uint16_t count[MAX_CODE + 2], first[MAX_CODE + 2];
  uint16_t symbol[288], code[288];  // code: its bits reversed, as they come
  int most;
} codes;

// order fills c from the lengths of n symbols. It returns 0 if they are not a valid
// code.
static int order(codes *c, const uint8_t *lens, int n) {
  memset(c->count, 0, sizeof c->count);
  for (int i = 0; i < n; i++) c->count[lens[i]]++;
  c->count[0] = 0;
  int left = 1, at = 0;
  c->most = 0;
  for (int l = 1; l <= MAX_CODE; l++) {
    left = 2 * left - c->count[l];
    if (left < 0) return 0;
    if (c->count[l]) c->most = l;
    c->first[l] = (uint16_t)at;
    at += c->count[l];
  }
  c->first[MAX_CODE + 1] = (uint16_t)at;
  if (left > 0 && (c->most > 1 || c->count[1] > 1)) return 0;
  uint16_t next[MAX_CODE + 1];
  memcpy(next, c->first, sizeof next);
  for (int i = 0; i < n; i++)
    if (lens[i]) c->symbol[next[lens[i]]++] = (uint16_t)i;
  uint32_t code = 0;
  int i = 0;
  for (int l = 1; l <= c->most; l++) {
    for (int k = 0; k < c->count[l]; k++, i++) {
      c->code[i] = (uint16_t)code;
      // Add one, with the highest bit last: the carry goes down from bit l - 1.
      uint32_t bit = 1u << (l - 1);
      while (code & bit) {
        code ^= bit;
        bit >>= 1;
      }
      code |= bit;
    }
  }
  return 1;
}

static const uint16_t length_least[31] = {3,  4,  5,  6,  7,  8,  9,  10, 11, 13,  15,  17,  19,  23, 27, 31,
                                          35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_bits[31] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t dist_least[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};

// lit_entry is the entry of a symbol whose code has l bits.
static inline uint32_t lit_entry(uint32_t symbol, uint32_t l) {
  if (symbol < 256) return LITERAL | l << 25 | symbol << 8 | l;
  if (symbol == END_OF_BLOCK) return LIT_RARE | END | l;
  if (symbol >= 286) return LIT_RARE | BAD;
  return (uint32_t)length_least[symbol - 257] << 16 | l << 8 | (l + length_bits[symbol - 257]);
}

static inline uint32_t dist_entry(uint32_t symbol, uint32_t l) {
  if (symbol >= 30) return DIST_RARE | BAD;
  return (uint32_t)dist_least[symbol] << 16 | l << 8 | (l + (symbol < 4 ? 0 : symbol / 2 - 1));
}

// pairs stores both literals in the entries of two codes that have l bits together.
static void pairs(uint32_t *t, const codes *c, const uint16_t *literals, int l) {
  for (int l1 = 1; l1 < l; l1++) {
    const int l2 = l - l1;
    const int a1 = c->first[l1] + literals[l1], a2 = c->first[l2] + literals[l2];
    for (int a = c->first[l1]; a < a1; a++) {
      const uint32_t e = LITERAL | (uint32_t)l1 << 25 | 1u << 24 | (uint32_t)c->symbol[a] << 8 | (uint32_t)l;
      for (int b = c->first[l2]; b < a2; b++)
        t[c->code[a] | (uint32_t)c->code[b] << l1] = e | (uint32_t)c->symbol[b] << 16;
    }
  }
}

// build makes a table. It grows by doubling: the entries for l bits are those for l +
// 1, except for the codes of that length.
static int build(uint32_t *t, int room, const codes *c, int root, int lit) {
  const uint32_t bad = lit ? LIT_RARE | BAD : DIST_RARE | BAD, link = lit ? LIT_RARE : DIST_RARE;
  uint16_t literals[MAX_CODE + 1] = {0};
  if (lit)
    for (int l = 1; l <= root; l++)
      while (literals[l] < c->count[l] && c->symbol[c->first[l] + literals[l]] < 256) literals[l]++;
  t[0] = bad;
  for (int l = 1; l <= root; l++) {
    memcpy(t + (1u << (l - 1)), t, sizeof *t << (l - 1));
    for (int i = c->first[l]; i < c->first[l + 1]; i++)
      t[c->code[i]] = lit ? lit_entry(c->symbol[i], (uint32_t)l) : dist_entry(c->symbol[i], (uint32_t)l);
    if (lit) pairs(t, c, literals, l);
  }
  int free = 1 << root;
  for (int i = c->first[root + 1], l = root + 1; l <= c->most; l++) {
    int left = c->count[l];
    for (; i < c->first[l + 1]; i++, left--) {
      const uint32_t at = c->code[i] & ((1u << root) - 1);
      uint32_t head = t[at];
      if (head == bad) { // the first code that leads here: later ones fill the table
        int width = l - root, space = (1 << width) - left;
        while (space > 0 && root + width < c->most) {
          width++;
          space = 2 * space - c->count[root + width];
        }
        if (free + (1 << width) > room) return 0;
        for (int k = 0; k < 1 << width; k++) t[free + k] = bad;
        head = t[at] = link | (uint32_t)free << 12 | (uint32_t)width << 8 | (uint32_t)root;
        free += 1 << width;
      }
      const int from = head >> 12 & 0xffff, width = head >> 8 & 15;
      if (l - root > width) return 0;
      for (uint32_t k = c->code[i] >> root; k < 1u << width; k += 1u << (l - root))
        t[from + k] = lit ? lit_entry(c->symbol[i], (uint32_t)l) : dist_entry(c->symbol[i], (uint32_t)l);
    }
  }
  return 1;
}

static int tables(stk_inflate *z, const uint8_t *lit, int nlit, const uint8_t *dist, int ndist) {
  codes c;
  if (!order(&c, lit, nlit) || !build(z->lit, STK_LIT_ROOM, &c, STK_LIT_ROOT, 1)) return STK_INFLATE_CODES;
  if (!order(&c, dist, ndist) || !build(z->dist, STK_DIST_ROOM, &c, STK_DIST_ROOT, 0)) return STK_INFLATE_CODES;
  return STK_INFLATE_END;
}

static int fixed(stk_inflate *z) {
  uint8_t lens[288], dist[32];
  memset(lens, 8, 144);
  memset(lens + 144, 9, 112);
  memset(lens + 256, 7, 24);
  memset(lens + 280, 8, 8);
  memset(dist, 5, 32);
  if (z->fixed) return STK_INFLATE_END;
  z->fixed = 1;
  return tables(z, lens, 288, dist, 32);
}

// fill loads bytes until there are 57 bits, or no more.
static inline void fill(stk_inflate *z, const uint8_t *src, size_t nsrc) {
  while (z->n <= 56 && z->in < nsrc) {
    z->bits |= (uint64_t)src[z->in++] << z->n;
    z->n += 8;
  }
}

static inline uint32_t take(stk_inflate *z, uint32_t k) {
  const uint32_t v = (uint32_t)z->bits & ((1u << k) - 1);
  z->bits >>= k;
  z->n -= k;
  return v;
}

// settle returns the bytes that were loaded but not begun.
static inline void settle(stk_inflate *z) {
  z->in -= z->n >> 3;
  z->n &= 7;
  z->bits &= (1u << z->n) - 1;
}

// dynamic reads the codes of a block (RFC 1951, 3.2.7).
static int dynamic(stk_inflate *z, const uint8_t *src, size_t nsrc) {
  static const uint8_t place[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
  fill(z, src, nsrc);
  if (z->n < 14) return STK_INFLATE_CUT;
  const int nlit = (int)take(z, 5) + 257, ndist = (int)take(z, 5) + 1, nlen = (int)take(z, 4) + 4;
  if (nlit > MAX_LIT || ndist > MAX_DIST) return STK_INFLATE_CODES;
  uint8_t few[19] = {0}, lens[MAX_LIT + MAX_DIST];
  for (int i = 0; i < nlen; i++) {
    fill(z, src, nsrc);
    if (z->n < 3) return STK_INFLATE_CUT;
    few[place[i]] = (uint8_t)take(z, 3);
  }
  codes c;
  if (!order(&c, few, 19)) return STK_INFLATE_CODES;
  uint8_t table[128], width[128];
  memset(width, 0, sizeof width);
  for (int l = 1; l <= c.most; l++)
    for (int i = c.first[l]; i < c.first[l + 1]; i++)
      for (uint32_t k = c.code[i]; k < 128; k += 1u << l) {
        table[k] = (uint8_t)c.symbol[i];
        width[k] = (uint8_t)l;
      }
  for (int i = 0; i < nlit + ndist;) {
    if (z->n < 14) fill(z, src, nsrc);
    const uint32_t look = (uint32_t)z->bits & 127, l = width[look];
    if (!l) return z->n ? STK_INFLATE_CODES : STK_INFLATE_CUT;
    if (l > z->n) return STK_INFLATE_CUT;
    const int symbol = table[look];
    take(z, l);
    if (symbol < 16) {
      lens[i++] = (uint8_t)symbol;
      continue;
    }
    const uint32_t bits = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
    if (symbol == 16 && i == 0) return STK_INFLATE_CODES;
    if (bits > z->n) return STK_INFLATE_CUT;
    const int times = (int)take(z, bits) + (symbol == 18 ? 11 : 3);
    if (times > nlit + ndist - i) return STK_INFLATE_CODES;
    memset(lens + i, symbol == 16 ? lens[i - 1] : 0, (size_t)times);
    i += times;
  }
  z->fixed = 0;
  return tables(z, lens, nlit, lens + nlit, ndist);
}

// block reads the head of a block.
static int block(stk_inflate *z, const uint8_t *src, size_t nsrc) {
  fill(z, src, nsrc);
  if (z->n < 3) return STK_INFLATE_CUT;
  z->last = take(z, 1);
  const uint32_t type = take(z, 2);
  if (type == 3) return STK_INFLATE_BLOCK;
  int code = STK_INFLATE_END;
  if (type == 0) {
    take(z, z->n & 7);
    settle(z);
    if (nsrc - z->in < 4) return STK_INFLATE_CUT;
    const uint8_t *p = src + z->in;
    z->left = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    if ((z->left ^ ((uint32_t)p[2] | (uint32_t)p[3] << 8)) != 0xffff) return STK_INFLATE_STORED;
    z->in += 4;
    z->mode = 2;
    return code;
  }
  z->mode = 1;
  code = type == 1 ? fixed(z) : dynamic(z, src, nsrc);
  settle(z);
  return code;
}

// tail decompresses symbols one by one, and never reads or writes out of bounds.
static int tail(stk_inflate *z, const uint8_t *src, size_t nsrc, uint8_t *dst, size_t cap, size_t limit) {
  int code = STK_INFLATE_MORE;
  while (z->out < limit) {
    fill(z, src, nsrc);
    uint32_t e = z->lit[z->bits & ((1 << STK_LIT_ROOT) - 1)];
    if (!(e & LITERAL) && e & LIT_RARE && !(e & (END | BAD)))
      e = z->lit[(e >> 12 & 0xffff) + (z->bits >> STK_LIT_ROOT & ((1u << (e >> 8 & 15)) - 1))];
    if (e & LITERAL) {
      const uint32_t l = e >> 25 & 15;
      if (l > z->n) {
        code = STK_INFLATE_CUT;
        break;
      }
      if (z->out == cap) {
        code = STK_INFLATE_FULL;
        break;
      }
      take(z, l);
      dst[z->out++] = (uint8_t)(e >> 8);
      continue;
    }
    if ((e & 63) > z->n || (e & BAD && z->n == 0)) {
      code = STK_INFLATE_CUT;
      break;
    }
    if (e & LIT_RARE) {
      code = e & END ? STK_INFLATE_END : STK_INFLATE_CODE;
      take(z, e & 63);
      break;
    }
    const size_t length = (e >> 16) + ((z->bits & ((UINT64_C(1) << (e & 63)) - 1)) >> (e >> 8 & 15));
    take(z, e & 63);
    uint32_t d = z->dist[z->bits & ((1 << STK_DIST_ROOT) - 1)];
    if (d & DIST_RARE && !(d & BAD)) d = z->dist[(d >> 12 & 0xffff) + (z->bits >> STK_DIST_ROOT & ((1u << (d >> 8 & 15)) - 1))];
    if ((d & 63) > z->n || (d & DIST_RARE && z->n == 0)) {
      code = STK_INFLATE_CUT;
      break;
    }
    if (d & DIST_RARE) {
      code = STK_INFLATE_CODE;
      break;
    }
    const size_t distance = (d >> 16) + ((z->bits & ((UINT64_C(1) << (d & 63)) - 1)) >> (d >> 8 & 15));
    take(z, d & 63);
    if (distance > z->out) {
      code = STK_INFLATE_FAR;
      break;
    }
    uint8_t *w = dst + z->out;
    const size_t room = cap - z->out, some = length < room ? length : room;
    for (size_t i = 0; i < some; i++) w[i] = w[i - distance];
    z->out += some;
    if (some < length) {
      code = STK_INFLATE_FULL;
      break;
    }
  }
  settle(z);
  return code;
}

static int stored(stk_inflate *z, const uint8_t *src, size_t nsrc, uint8_t *dst, size_t cap, size_t limit) {
  const size_t to = limit < cap ? limit : cap, room = to > z->out ? to - z->out : 0;
  size_t k = z->left;
  if (k > room) k = room;
  if (k > nsrc - z->in) k = nsrc - z->in;
  if (k) memcpy(dst + z->out, src + z->in, k);
  z->in += k;
  z->out += k;
  z->left -= (uint32_t)k;
  if (!z->left) return STK_INFLATE_END;
  if (z->out >= limit) return STK_INFLATE_MORE;
  return z->in == nsrc ? STK_INFLATE_CUT : STK_INFLATE_FULL;
}

int stk_inflate_run(stk_inflate *z, const uint8_t *src, size_t nsrc, uint8_t *dst, size_t cap, size_t limit, int level) {
  (void)level;
  while (z->mode != 3) {
    int code = STK_INFLATE_END;
    if (z->mode == 0) {
      if ((code = block(z, src, nsrc))) return code;
      continue;
    }
    if (z->mode == 2) {
      code = stored(z, src, nsrc, dst, cap, limit);
    } else {
#ifdef __x86_64__
      if (level > 0)
        code = stk_inflate_fast_avx2(z, src, nsrc, dst, cap, limit);
      else
#endif
        code = fast_base(z, src, nsrc, dst, cap, limit);
      if (code == STK_INFLATE_MORE) code = tail(z, src, nsrc, dst, cap, limit);
    }
    if (code) return code;
    z->mode = z->last ? 3 : 0;
  }
  return STK_INFLATE_END;
}

int stk_inflate_level(void) {
#ifdef __x86_64__
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
#else
  return 0;
#endif
}

// Adler-32: the sum of all bytes and the sum of those sums, each modulo 65521. For
// 5,552 bytes both fit into 32 bits.
uint32_t stk_adler32(uint32_t sum, const uint8_t *p, size_t n, int level) {
#ifdef __x86_64__
  if (level > 0) return stk_adler32_avx2(sum, p, n);
#endif
  (void)level;
  uint32_t a = sum & 0xffff, b = sum >> 16;
  while (n) {
    size_t k = n < 5552 ? n : 5552;
    n -= k;
    for (; k >= 16; k -= 16, p += 16) {
      uint32_t some = 0, steps = 0;
      for (uint32_t i = 0; i < 16; i++) {
        some += p[i];
        steps += (16 - i) * p[i];
      }
      b += 16 * a + steps;
      a += some;
    }
    for (; k; k--) b += a += *p++;
    a %= 65521;
    b %= 65521;
  }
  return b << 16 | a;
}
