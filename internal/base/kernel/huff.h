// How entropy-coded bytes are read: what huff.c, which decodes regions, and
// tokens.c, which reads whole pictures to rewrite them, share.
#ifndef STK_HUFF_H
#define STK_HUFF_H

#include "frame.h"

#include <string.h>

#define INLINE inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

// An entry of dc_table.look, and of ac_table.pair, says of the code that a prefix begins
// with and of the value behind it, and, where all of both lies within LOOK bits, of the
// code and value behind those:
//
//	 63      56 55               40 39     32 31     24 23     16 15      8 7 6 5    0
//	+----------+-------------------+---------+---------+---------+---------+---+------+
//	| second   | first: added to   | first:  | first:  | first:  | both:   |   | both:|
//	| value    | its bits          | step    | bits    | 64-end  | step    | 0 | bits |
//	+----------+-------------------+---------+---------+---------+---------+---+------+
//
//	bits, of both     how many to drop: codes and values
//	step, of both     coefficients to go on by, the zeros before each value included, and
//	                  END where the block ends; ONE: the code is longer than the prefix
//	64-end, bits      the first value's own: they end so many bits above the lowest of
//	                  acc, and are so many
//	step, of first    coefficients to go on by to the first value
//	added             what makes its bits a value: 0, or 1 - 2^bits for a negative one
//
// The first value need not lie within LOOK bits but for its sign: it is taken from the
// stream, by one BEXTR with bits 16 to 31. That is work beside the chain from one look to
// the next, where a branch for long values would be missed again and again.
//
// Pairs serve as long as k stays below 64. From there on the next symbol may be
// another block's.
//
// An entry of ac_table.ac is the first symbol alone:
//
//	bits  0-5   length of its code; 0: longer than LOOK
//	bits  8-15  coefficients to step, or END
//	bits 16-19  size of its value in bits
enum { LOOK = 10, DC_LOOK = 9, END = 128, ONE = 64 };

// The window is small, for it shares the nearest cache with the tables. A block takes less than
// BLOCK_BYTES: 64 symbols of 31 bits.
enum { WINDOW = 4 << 10, BLOCK_BYTES = 256, MCU_BYTES = MCU_BLOCKS * BLOCK_BYTES };

// Coefficients wait for their transform in quads: four neighbours of a row of
// blocks, int16, row r of block b at r*32 + b*8, so that a row of all four is
// one vector (two, four). A quad is zero but for what is stored.
enum { QUAD = 4 * BLOCK, QUAD_ROW = 32 };

// What a table was made of: encoders of small pictures use the same few, and then so do
// their tables.
typedef struct {
  int n;  // values; 0: of nothing
  uint8_t bits[16], values[256];
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
  uint64_t look[1 << DC_LOOK];
  longer l;
} dc_table;

typedef struct {
  uint64_t acc;      // the next bits, from the top
  uint64_t cnt;      // how many are valid, in its lowest six bits; those above mean nothing, for
                     // drop takes whole entries from it
  const uint8_t *p;  // the next byte
} bits;

// stk_part is a block of an MCU.
typedef struct {
  int comp;
  int x, y, h, v;      // its place in the component's h x v blocks
  const dc_table *dc;
  const ac_table *ac;
} stk_part;

// stk_store is where a row of blocks of one component goes: its quads, and of each
// quad how far its blocks reach at most: coefficients in zigzag order.
typedef struct {
  int16_t *quads;
  uint8_t *reach;
} stk_store;

struct stk_huff {
  stk_lane *l;
  const stk_frame *f;
  const uint8_t *in;           // stuffed bytes not yet in the window
  uint8_t *end;                // of the window's bytes
  int marker;                  // that ended them; 0: there is more
  bits b;
  int cols;                    // MCUs of a row
  int64_t mcus, at;            // of the picture; the next in the bits
  const uint32_t *seg;         // where segments begin, from the scan; NULL: not known
  stk_buf segs;
  int restart, togo, next;     // interval, MCUs left in it, number of its marker
  int blocks;
  stk_part part[MCU_BLOCKS];
  stk_store store[MCU_BLOCKS]; // of each block of an MCU, for the present row
  int pred[FRAME_COMPONENTS];  // DC coefficient of the block before
  dc_table dc[FRAME_TABLES];
  ac_table ac[FRAME_TABLES];
  uint8_t window[WINDOW + 2 * MCU_BYTES];
};

typedef struct stk_huff stk_huff;

// corrupt ends the picture: what is wrong with the bits just read, which h->b has. (Their
// address given to a function would keep them out of registers.)
_Noreturn void stk_huff_corrupt(stk_huff *h, const char *what);

// huff.c: begin makes the lane's decoder read a frame's scan, with tables made for
// it. pull moves what is left of the window to its front and fills it up:
// to its end, or to the next marker. next goes past a restart marker, which must
// stand where the data end.
stk_huff *stk_huff_begin(stk_lane *l, const stk_frame *f);
void stk_huff_pull(stk_huff *h);
void stk_huff_next(stk_huff *h);
void stk_huff_free(stk_huff *h);

// row stores the MCUs from column first to last of MCU row y by h->store; rows are
// asked for from the top down. What lies between is walked over, or, where
// segments are known, passed by.
void stk_huff_row(stk_huff *h, int64_t y, int first, int last);

// rewind goes to the first MCU. rest walks over what is left, and makes sure that the scan
// ends behind it. end, behind the last MCU, makes sure that with the scan the picture ends.
void stk_huff_rewind(stk_huff *h);
void stk_huff_rest(stk_huff *h);
void stk_huff_end(stk_huff *h);

// keeps_interval says whether the first of several segments holds as many MCUs as it must,
// and not a byte more, and rewinds.
int stk_huff_keeps_interval(stk_huff *h);

// segment.c: finds where segments begin, if their markers count as they should.
void stk_segments(stk_huff *h);

static INLINE void refill(bits *b) {
  uint64_t x;
  memcpy(&x, b->p, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  x = __builtin_bswap64(x);
#endif
  b->acc |= x >> (b->cnt & 63);
  b->p += ~b->cnt >> 3 & 7;
  b->cnt |= 56;
}

// drop takes away the bits that an entry says, or n.
static INLINE void drop(bits *b, uint64_t n) {
  b->acc <<= n & 63;
  b->cnt -= n;
}

// unread is how many bytes lie between what was read and end; negative: none.
static INLINE ptrdiff_t unread(const bits *b, const uint8_t *end) { return end - b->p + (ptrdiff_t)((b->cnt & 63) / 8); }

// step_of is how many coefficients an AC symbol steps: the zeros before its value, and it; END at the
// end of the block.
static INLINE int step_of(int symbol) { return symbol & 15 || symbol >> 4 == 15 ? (symbol >> 4) + 1 : END; }

// long_code finds a code of more than n bits.
static INLINE int long_code(stk_huff *h, bits *b, const longer *l, int n) {
  const uint32_t prefix = (uint32_t)(b->acc >> 48);
  do n++;
  while (prefix >= l->limit[n]);
  if (UNLIKELY(n > 16)) {
    h->b = *b;
    stk_huff_corrupt(h, "bad Huffman code");
  }
  drop(b, (uint64_t)n);
  return l->symbol[(l->base[n] + (int)(prefix >> (16 - n))) & 255];
}

// value takes s bits, s <= 15, by the standard's RECEIVE and EXTEND, figures F.17 and F.12.
static INLINE int value(bits *b, int s) {
  const int v = (int)(b->acc >> 1 >> (63 - s));
  const int negative = (int)~((int64_t)b->acc >> 63);
  drop(b, (uint64_t)s);
  return v + (negative & (1 - (1 << s)));
}

// first_value is the first value of an entry, before its bits are dropped, in its lower 16
// bits. bmi: the processor has BEXTR.
static INLINE uint64_t first_value(const bits *b, uint64_t e, const int bmi) {
#ifdef __x86_64__
  if (bmi) {
    uint64_t v;
    __asm__("bextr %2, %1, %0" : "=r"(v) : "r"(b->acc), "r"(e >> 16) : "cc");
    return v + (e >> 40);
  }
#endif
  (void)bmi;
  return (b->acc >> (e >> 16 & 63) & ((UINT64_C(1) << (e >> 24 & 63)) - 1)) + (e >> 40);
}

// dc_diff takes a difference of DC, and leaves bits for one look.
static INLINE int dc_diff(stk_huff *h, bits *b, const dc_table *d, const int bmi) {
  const uint64_t e = d->look[b->acc >> (64 - DC_LOOK)];
  if (UNLIKELY((e >> 8 & 255) == ONE)) {
    const int v = value(b, long_code(h, b, &d->l, DC_LOOK - 1));
    refill(b);
    return v;
  }
  const int v = (int16_t)first_value(b, e, bmi);
  drop(b, e);
  return v;
}

// ready makes sure that all of an MCU's bytes are in the window, and that a restart
// marker that is due is passed.
static INLINE void stk_huff_ready(stk_huff *h, bits *b) {
  if (h->restart) {
    if (UNLIKELY(h->togo == 0)) {
      h->b = *b;
      stk_huff_next(h);
      *b = h->b;
    }
    h->togo--;
  }
  if (UNLIKELY(h->end - b->p < h->blocks * BLOCK_BYTES) && !h->marker) {
    h->b = *b;
    stk_huff_pull(h);
    *b = h->b;
  }
}

// check makes sure that no more was read than there is.
static INLINE void stk_huff_check(stk_huff *h, const bits *b) {
  if (UNLIKELY(h->marker != 0) && unread(b, h->end) < 0) {
    h->b = *b;
    stk_huff_corrupt(h, "premature end of data segment");
  }
}

#endif
