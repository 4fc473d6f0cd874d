// Reading of entropy-coded bytes, shared by huff.c, which decodes regions, and
// tokens.c, which reads whole pictures to rewrite them.
#ifndef STK_HUFF_H
#define STK_HUFF_H

#include "frame.h"

#include <string.h>

#define INLINE inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

// An entry of dc_table.look and of ac_table.pair describes the code that a prefix
// begins with and the value after it, and, if all of both fits into LOOK bits, the
// next code and value too:
//
//	 63      56 55               40 39     32 31     24 23     16 15      8 7 6 5    0
//	+----------+-------------------+---------+---------+---------+---------+---+------+
//	| second   | first: added to   | first:  | first:  | first:  | both:   |   | both:|
//	| value    | its bits          | step    | bits    | 64-end  | step    | 0 | bits |
//	+----------+-------------------+---------+---------+---------+---------+---+------+
//
//	bits, of both     how many to drop: codes and values
//	step, of both     coefficients to advance, including the zeros before each value;
//	                  END if the block ends; ONE: the code is longer than the prefix
//	64-end, bits      the first value's bits: where they end, in bits above the lowest of
//	                  acc, and how many they are
//	step, of first    coefficients to advance to the first value
//	added             what makes its bits a value: 0, or 1 - 2^bits for a negative one
//
// Of the first value, only the sign must fit into LOOK bits: the value is taken
// from the stream, by one BEXTR with bits 16 to 31. That is independent of the
// chain from one lookup to the next, whereas a branch for long values would often
// be mispredicted.
//
// Pairs are used as long as k stays below 64. After that the next symbol may belong
// to another block.
//
// An entry of ac_table.ac is the first symbol alone:
//
//	bits  0-5   length of its code; 0: longer than LOOK
//	bits  8-15  coefficients to step, or END
//	bits 16-19  size of its value in bits
enum { LOOK = 10, DC_LOOK = 9, END = 128, ONE = 64 };

// The window is small because it shares the L1 cache with the tables. A block takes
// less than BLOCK_BYTES: 64 symbols of 31 bits.
enum { WINDOW = 4 << 10, BLOCK_BYTES = 256, MCU_BYTES = MCU_BLOCKS * BLOCK_BYTES };

// Coefficients wait for their transform in quads: four neighbours in a row of blocks,
// int16, row r of block b at r*32 + b*8, so that a row of all four is one vector (or
// two, or four). A quad is zero except for stored coefficients.
enum { QUAD = 4 * BLOCK, QUAD_ROW = 32 };

// The source of a table: encoders of small pictures use the same few, so their
// tables can be reused.
typedef struct {
  int n;  // number of values; 0: no table
  uint8_t bits[16], values[256];
} origin;

typedef struct {
  uint32_t limit[18];  // codes of n bits are below it, as 16-bit prefixes
  int32_t base[18];    // symbol index minus code, by length
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
  uint64_t cnt;      // how many are valid, in its lowest six bits; the others are undefined, because
                     // drop subtracts whole entries
  const uint8_t *p;  // the next byte
} bits;

// stk_part is a block of an MCU.
typedef struct {
  int comp;
  int x, y, h, v;      // its position in the component's h x v blocks
  const dc_table *dc;
  const ac_table *ac;
} stk_part;

// stk_store is the destination of a row of blocks of one component: its quads, and
// for each quad how far its blocks reach at most, in coefficients in zigzag order.
typedef struct {
  int16_t *quads;
  uint8_t *reach;
} stk_store;

// stk_grid is the MCUs before which points are recorded. step: each row of MCUs that is a
// multiple of rows has one before its first MCU, one at every multiple of step up to
// column left, and one at every further multiple of FAR steps from there on: most crops
// begin in the left half. step 0: there are none.
typedef struct {
  int64_t cols;
  int64_t step, left, rows;
} stk_grid;

struct stk_huff {
  stk_lane *l;
  const stk_frame *f;
  const uint8_t *in;           // stuffed bytes not yet in the window
  uint8_t *end;                // end of the window's bytes
  int marker;                  // the marker that ended them; 0: there is more data
  bits b;
  int cols;                    // MCUs per row
  int64_t mcus, at;            // MCUs of the picture; number of the next one to read
  const uint32_t *seg;         // offsets of segments from the start of the scan; NULL: unknown
  int leaps;                   // MCUs that are not stored are leapt over, as far as seg and known allow
  stk_buf segs;
  int restart, togo, next;     // interval, MCUs left in it, number of its marker (0 to 7)
  int blocks;
  stk_part part[MCU_BLOCKS];
  stk_store store[MCU_BLOCKS]; // for each block of an MCU, in the current row
  int pred[FRAME_COMPONENTS];  // DC coefficient of the previous block
  const stk_point *known;      // entry points of the scan
  int nknown, k;               // how many; the next one to be passed
  int jumped;                  // none was passed after the last jump to one
  stk_grid grid;               // of those that are recorded
  int64_t most;                // that fit into the lane's found
  int64_t stop;                // the next MCU at which one is compared or recorded, after at
  int fresh;                   // nothing in the window was read yet
  int64_t lost;                // window index of a stuffed byte after fill bytes, which have no place in shift
  int64_t from;                // offset in the scan of window[0]
  int shifts, shifted;         // how many are in shift, and how many of them the last look had passed
  // Window indexes after each dropped 0x00: bytes from there on are one further in the scan.
  int16_t shift[WINDOW + 2 * MCU_BYTES + 8];
  dc_table dc[FRAME_TABLES];
  ac_table ac[FRAME_TABLES];
  uint8_t window[WINDOW + 2 * MCU_BYTES];
};

typedef struct stk_huff stk_huff;

// corrupt ends the picture with an error about the bits just read, which must be in
// h->b. (Passing the address of local bits to a function would keep them out of
// registers.)
_Noreturn void stk_huff_corrupt(stk_huff *h, const char *what);

// huff.c: begin makes the lane's decoder read the scan of a frame, with the tables
// for it. pull moves the rest of the window to its front and fills the window, to
// its end or up to the next marker. next moves past a restart marker, which must
// follow the data.
stk_huff *stk_huff_begin(stk_lane *l, const stk_frame *f);
void stk_huff_pull(stk_huff *h);
void stk_huff_next(stk_huff *h);
void stk_huff_free(stk_huff *h);

// row stores the MCUs from column first to last of MCU row y through h->store. Rows
// are requested from the top down. MCUs in between are decoded without being stored,
// or skipped if segments are known.
void stk_huff_row(stk_huff *h, int64_t y, int first, int last);

// rewind moves to the first MCU. rest reads the remaining data, and checks that the
// scan ends after it. end, after the last MCU, checks that the picture ends with the
// scan.
void stk_huff_rewind(stk_huff *h);
void stk_huff_rest(stk_huff *h);
void stk_huff_end(stk_huff *h);

// keeps_interval reports whether the first of several segments has exactly as many
// MCUs as it must, and no byte more; then it rewinds.
int stk_huff_keeps_interval(stk_huff *h);

// walk reads on to MCU want. settle reads on until a known point is passed after the last jump to one.
void stk_huff_walk(stk_huff *h, int64_t want);
void stk_huff_settle(stk_huff *h);

// entry.c: begin takes the points that the job knows, and has found none. shift keeps
// h->from and h->shift right when the window's bytes move, by n to its front. meet, before
// MCU h->stop, compares or records a point, and sets the next stop; aim sets it after a
// move. point is the last known point before MCU want and after h->at; NULL: there is none.
// enter continues there.
void stk_entry_begin(stk_huff *h);
void stk_entry_shift(stk_huff *h, ptrdiff_t n);
void stk_entry_meet(stk_huff *h);
void stk_entry_aim(stk_huff *h);
const stk_point *stk_entry_point(const stk_huff *h, int64_t want);
void stk_entry_enter(stk_huff *h, const stk_point *p);

// segment.c: finds where segments begin, if their markers are numbered correctly.
void stk_segments(stk_huff *h);

// refill makes at least 56 bits valid. Those below them are the next bits of the
// window too, so acc has 64, and still 14 after two lookups, which drop up to 25
// each. That is enough to look up the next entry, so a lookup looks first and refills
// while the table answers: the refill is not in the chain from one to the next.
static INLINE void refill(bits *b) {
  uint64_t x;
  memcpy(&x, b->p, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  x = __builtin_bswap64(x);
#endif
  b->acc |= x >> (b->cnt & 63);
  b->p += (~b->cnt & 56) >> 3;
  b->cnt |= 56;
}

// drop removes the bits of an entry, or n bits.
static INLINE void drop(bits *b, uint64_t n) {
  b->acc <<= n & 63;
  b->cnt -= n;
}

// unread is the number of bytes between what was read and end; negative if too much
// was read.
static INLINE ptrdiff_t unread(const bits *b, const uint8_t *end) { return end - b->p + (ptrdiff_t)((b->cnt & 63) / 8); }

// step_of is how many coefficients an AC symbol advances: the zeros before its
// value, and the value; END at the end of the block.
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

// value reads s bits, s <= 15, by the standard's RECEIVE and EXTEND, figures F.17
// and F.12.
static INLINE int value(bits *b, int s) {
  const int v = (int)(b->acc >> 1 >> (63 - s));
  const int negative = (int)~((int64_t)b->acc >> 63);
  drop(b, (uint64_t)s);
  return v + (negative & (1 - (1 << s)));
}

// first_value is the first value of an entry, before its bits are dropped, in its
// lower 16 bits. bmi: the processor has BEXTR.
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

// dc_diff reads a difference of DC, from bits that are enough to look it up. It
// refills, and leaves bits for one lookup and the look of a second.
static INLINE int dc_diff(stk_huff *h, bits *b, const dc_table *d, const int bmi) {
  const uint64_t e = d->look[b->acc >> (64 - DC_LOOK)];
  refill(b);
  if (UNLIKELY((e >> 8 & 255) == ONE)) {
    const int v = value(b, long_code(h, b, &d->l, DC_LOOK - 1));
    refill(b);
    return v;
  }
  const int v = (int16_t)first_value(b, e, bmi);
  drop(b, e);
  return v;
}

// ready makes sure that all of an MCU's bytes are in the window, and moves past a
// restart marker that is due.
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
    refill(b);
  }
}

// check makes sure that no more was read than the data has.
static INLINE void stk_huff_check(stk_huff *h, const bits *b) {
  if (UNLIKELY(h->marker != 0) && unread(b, h->end) < 0) {
    h->b = *b;
    stk_huff_corrupt(h, "premature end of data segment");
  }
}

#endif
