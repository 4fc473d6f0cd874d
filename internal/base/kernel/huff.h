// How entropy-coded bytes are read: what huff.c, which decodes regions, and
// index.c, which rewrites whole pictures, share.
#ifndef STK_HUFF_H
#define STK_HUFF_H

#include "stk.h"

#include <string.h>

#include <jpeglib.h>

#include "jpeg.h"

#define INLINE inline __attribute__((always_inline))

// An entry of ac is the symbol that a prefix of LOOK bits begins with:
//
//	bits  0-5   length of its code; 0: longer than LOOK
//	bits  8-15  coefficients to step, the zeros before the value included;
//	            END for the end of the block
//	bits 16-19  size of its value in bits
//
// An entry of pair is the same symbol and, where all of both lies within LOOK
// bits, the next one:
//
//	bits  0-5   bits to drop: codes and values
//	bits  8-15  coefficients to step; ONE: look into ac instead
//	bits 16-23  coefficients to step for the first value
//	bits 24-29  length of the first code
//	bits 32-37  63 less the size of the first value
//	bits 40-45  that size
//	bits 48-63  the second value
//
// Values need not lie within LOOK bits, because the first is taken from the
// stream: that is work beside the chain from one look to the next, where a
// branch for long values would be missed again and again.
//
// Pairs serve as long as k stays below 64. From there on the next symbol may be
// another block's.
enum { LOOK = 10, DC_LOOK = 9, END = 128, ONE = 127 };
enum { WINDOW = 16 << 10, MCU_BYTES = 4 << 10 };  // an MCU takes less: 10 blocks of 64 symbols of 31 bits

// What a table was made of: most files use the same few, and then so do their tables.
typedef struct {
  int known;
  uint8_t bits[17], values[256];
} origin;

typedef struct {
  uint32_t limit[18];  // codes of n bits lie below it, as 16-bit prefixes
  int32_t base[18];    // symbol index less code, by length
  const uint8_t *symbol;
  origin from;
} longer;

typedef struct {
  uint64_t pair[1 << LOOK];
  uint32_t ac[1 << LOOK];
  longer l;
} ac_table;

typedef struct {
  uint16_t look[1 << DC_LOOK];  // length << 8 | size; 0: longer
  longer l;
} dc_table;

typedef struct {
  uint64_t acc;      // the next bits, from the top
  int cnt;           // valid ones
  const uint8_t *p;  // the next byte
} bits;

struct stk_huff {
  stk_lane *l;
  const uint8_t *in, *in_end;  // stuffed bytes not yet in the window
  uint8_t *end;                // of the window's bytes
  int marker;                  // that ended them; 0: there is more
  bits b;
  int col, cols;               // MCU in its row
  int first, last;             // columns that are stored
  uint32_t want, at;           // MCU of the picture: asked for next, next in the bits
  const uint8_t *data;         // where the scan's data begin
  const uint32_t *seg;         // where its segments do, from there; NULL: not known
  stk_buf segs;
  int blocks;
  int restart, togo, next;     // interval, MCUs left in it, number of its marker
  int dc_of[D_MAX_BLOCKS_IN_MCU];
  const dc_table *dct[D_MAX_BLOCKS_IN_MCU];
  const ac_table *act[D_MAX_BLOCKS_IN_MCU];
  int last_dc[MAX_COMPS_IN_SCAN];
  dc_table dc[NUM_HUFF_TBLS];
  ac_table ac[NUM_HUFF_TBLS];
  uint8_t window[WINDOW + 2 * MCU_BYTES];
};

// Zigzag to natural order. Steps beyond 63, of which only the last counts,
// lead to the last place.
extern const uint8_t stk_natural[64 + END + 64];

_Noreturn void stk_huff_corrupt(struct stk_huff *h, const char *what);

// huff.c: begin sets up the reading of a picture's only scan and builds its
// tables. pull moves what is left of the window to its front and fills it up:
// to its end, or to the next marker. next goes past a restart marker, which must
// stand where the data end.
struct stk_huff *stk_huff_begin(stk_lane *l);
void stk_huff_pull(struct stk_huff *h);
void stk_huff_next(struct stk_huff *h);

// rewind goes to the first MCU. end makes sure that behind the last one the
// scan ends, and with it the picture.
void stk_huff_rewind(struct stk_huff *h);
void stk_huff_end(struct stk_huff *h);

// segment.c
void stk_segments(struct stk_huff *h, int64_t mcus);

static INLINE void refill(bits *b) {
  uint64_t x;
  memcpy(&x, b->p, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  x = __builtin_bswap64(x);
#endif
  b->acc |= x >> b->cnt;
  b->p += (63 - b->cnt) >> 3;
  b->cnt |= 56;
}

static INLINE void drop(bits *b, int n) {
  b->acc <<= n;
  b->cnt -= n;
}

// long_code finds a code of more than n bits.
static INLINE int long_code(struct stk_huff *h, bits *b, const longer *l, int n) {
  const uint32_t prefix = (uint32_t)(b->acc >> 48);
  do n++;
  while (prefix >= l->limit[n]);
  if (n > 16) stk_huff_corrupt(h, "bad Huffman code");
  drop(b, n);
  return l->symbol[(l->base[n] + (int)(prefix >> (16 - n))) & 255];
}

// value takes s bits, s <= 15, by the standard's EXTEND.
static INLINE int value(bits *b, int s) {
  const int32_t v = (int32_t)(b->acc >> 1 >> (63 - s));
  const int32_t negative = ~(int32_t)((int64_t)b->acc >> 63);
  drop(b, s);
  return v + (negative & (1 - (1 << s)));
}

static INLINE int dc_diff(struct stk_huff *h, bits *b, const dc_table *d) {
  refill(b);
  const int e = d->look[b->acc >> (64 - DC_LOOK)];
  int s;
  if (__builtin_expect(e != 0, 1)) {
    drop(b, e >> 8);
    s = e & 15;
  } else {
    s = long_code(h, b, &d->l, DC_LOOK) & 15;
  }
  return value(b, s);
}

// step makes ready for an MCU: behind a restart marker, where one is due, with
// all of its bytes in the window.
static INLINE void stk_huff_step(struct stk_huff *h) {
  if (h->restart) {
    if (h->togo == 0) stk_huff_next(h);
    h->togo--;
  }
  if (h->end - h->b.p < MCU_BYTES && !h->marker) stk_huff_pull(h);
}

// check makes sure that no more was read than there is.
static INLINE void stk_huff_check(struct stk_huff *h) {
  if (__builtin_expect(h->marker != 0, 0) && h->b.p - h->b.cnt / 8 > h->end) stk_huff_corrupt(h, "premature end of data segment");
}

#endif
