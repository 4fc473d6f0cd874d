// The loop for nearly all symbols of a deflate stream, compiled for each target: FAST
// names it. It stops near the end of the input, of the room and of the limit, where
// stk_inflate_tail continues.
//
// A step begins with at least 56 bits, enough for three lookups of literals (36) and a
// length (20); a distance (28) needs the next 56. The cost of a lookup is its latency,
// about seven cycles: so an entry has two literals if both codes fit into it, and the
// next entry is loaded before more bits are. Bits are loaded as in Giesen, "Reading
// bits in far too many ways, part 2" (2018), variant 4: bits beyond n are those at p,
// and are loaded again.
#include "inflate.h"

#include <string.h>

static inline uint64_t load64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  v = __builtin_bswap64(v);
#endif
  return v;
}

// match copies length bytes from distance before w, and up to 15 beyond.
static inline void match(uint8_t *w, size_t distance, size_t length) {
  const uint8_t *from = w - distance, *end = w + length;
  if (distance >= 16) {
    do {
      memcpy(w, from, 16);
      w += 16;
      from += 16;
    } while (w < end);
  } else if (distance >= 8) {
    do {
      memcpy(w, from, 8);
      w += 8;
      from += 8;
    } while (w < end);
  } else if (distance == 1) {
    memset(w, *from, length);
  } else {
    // Of eight bytes, as many are right as the distance has; the others are
    // overwritten later.
    do {
      uint64_t v;
      memcpy(&v, from, 8);
      memcpy(w, &v, 8);
      w += distance;
      from += distance;
    } while (w < end);
  }
}

#define REFILL()                              \
  do {                                        \
    b |= load64(p) << (n & 63);               \
    p += 7 - (n >> 3 & 7);                    \
    n |= 56;                                  \
  } while (0)
#define TAKE(e)                               \
  do {                                        \
    b >>= (e) & 63;                           \
    n -= (e);                                 \
  } while (0)
#define EMIT(e)                               \
  do {                                        \
    w[0] = (uint8_t)((e) >> 8);               \
    w[1] = (uint8_t)((e) >> 16);              \
    w += 1 + ((e) >> 24 & 1);                 \
  } while (0)
#define LOOK() z->lit[b & ((1 << STK_LIT_ROOT) - 1)]

// The result is STK_INFLATE_END after the end of a block, STK_INFLATE_MORE if the
// tail must continue, or an error. Of n, only the lowest byte counts.
int FAST(stk_inflate *z, const uint8_t *src, size_t nsrc, uint8_t *dst, size_t cap, size_t limit) {
  // One step reads two times eight bytes and advances by seven; it writes six
  // literals and a match.
  enum { IN = 16, OUT = 6 + 258 + 16 };
  if (nsrc < IN || z->in > nsrc - IN || cap < OUT) return STK_INFLATE_MORE;
  const uint8_t *p = src + z->in, *const stop = src + nsrc - IN;
  uint8_t *w = dst + z->out, *const full = dst + (limit < cap - OUT ? limit : cap - OUT);
  uint64_t b = z->bits;
  uint32_t n = z->n;
  int code = STK_INFLATE_MORE;
  if (w >= full) return code;
  REFILL();
  uint32_t e = LOOK();
  while (p <= stop && w < full) {
    REFILL();
    if (e & LITERAL) {
      TAKE(e);
      EMIT(e);
      e = LOOK();
      if (e & LITERAL) {
        TAKE(e);
        EMIT(e);
        e = LOOK();
        if (e & LITERAL) {
          TAKE(e);
          EMIT(e);
          e = LOOK();
          if (e & LITERAL) continue;
        }
      }
    }
    if (__builtin_expect(e & LIT_RARE, 0)) {
      if (!(e & (END | BAD))) {
        e = z->lit[(e >> 12 & 0xffff) + (b >> STK_LIT_ROOT & ((1u << (e >> 8 & 15)) - 1))];
        if (e & LITERAL) {
          TAKE(e);
          EMIT(e);
          REFILL();
          e = LOOK();
          continue;
        }
      }
      if (e & BAD) {
        code = STK_INFLATE_CODE;
        break;
      }
      if (e & END) {
        TAKE(e);
        code = STK_INFLATE_END;
        break;
      }
    }
    const size_t length = (e >> 16) + ((b & ((UINT64_C(1) << (e & 63)) - 1)) >> (e >> 8 & 15));
    TAKE(e);
    REFILL();
    uint32_t d = z->dist[b & ((1 << STK_DIST_ROOT) - 1)];
    if (__builtin_expect(d & DIST_RARE, 0)) {
      if (!(d & BAD)) d = z->dist[(d >> 12 & 0xffff) + (b >> STK_DIST_ROOT & ((1u << (d >> 8 & 15)) - 1))];
      if (d & DIST_RARE) {
        code = STK_INFLATE_CODE;
        break;
      }
    }
    const size_t distance = (d >> 16) + ((b & ((UINT64_C(1) << (d & 63)) - 1)) >> (d >> 8 & 15));
    TAKE(d);
    if (distance > (size_t)(w - dst)) {
      code = STK_INFLATE_FAR;
      break;
    }
    e = LOOK(); // of the remaining bits, at least 28
    match(w, distance, length);
    w += length;
  }
  n &= 63;
  p -= n >> 3;
  n &= 7;
  z->in = (uint64_t)(p - src);
  z->out = (uint64_t)(w - dst);
  z->bits = b & ((1u << n) - 1);
  z->n = n;
  return code;
}
