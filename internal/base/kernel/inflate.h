// Deflate (RFC 1951) from memory to memory. What the files inflate.c, inflate_loop.h, inflate_avx2.c and
// the Go side share.
#ifndef STK_INFLATE_H
#define STK_INFLATE_H

#include <stddef.h>
#include <stdint.h>

// Codes of up to STK_LIT_ROOT bits are found by the first lookup, longer ones through
// a link to a further table. A complete code has at most two entries of further
// tables for each of its 286 symbols: a table of w bits, with w at most 3, has at
// least w + 1 codes. For distances, with w at most 7, it has 16 for each of 30. build
// checks the room in any case.
enum {
  STK_LIT_ROOT = 12,
  STK_DIST_ROOT = 8,
  STK_LIT_ROOM = (1 << STK_LIT_ROOT) + 2 * 286,
  STK_DIST_ROOM = (1 << STK_DIST_ROOT) + 16 * 30,
};

// The results of stk_inflate_run.
enum {
  STK_INFLATE_END,                 // the stream is at its end
  STK_INFLATE_MORE,                // the limit is reached; run again
  STK_INFLATE_FULL,                // the stream has more than dst has room for
  STK_INFLATE_CUT,                 // the input ends before the stream does
  STK_INFLATE_BLOCK,               // a block of type 3
  STK_INFLATE_STORED,              // the length of a stored block contradicts itself
  STK_INFLATE_CODES,               // the codes of a block are not codes
  STK_INFLATE_CODE,                // bits that are not a code of the block
  STK_INFLATE_FAR,                 // a match that begins before the stream
};

// stk_inflate is a stream being decompressed. It holds no pointers; all zeros is the
// initial state.
typedef struct {
  uint64_t in, out;                // bytes of src taken; bytes of dst written
  uint64_t bits;                   // the next n bits, lowest first; n is below 8 between calls
  uint32_t n;
  uint32_t mode;                   // what comes next: 0 a block, 1 symbols, 2 stored bytes, 3 nothing
  uint32_t last;                   // the block is the last one
  uint32_t left;                   // bytes of a stored block
  uint32_t fixed;                  // the tables are those of RFC 1951, 3.2.6
  uint32_t lit[STK_LIT_ROOM];
  uint32_t dist[STK_DIST_ROOM];
} stk_inflate;

// stk_inflate_run decompresses into dst, after the first z->out bytes, until z->out
// is at least limit. Of dst's cap bytes, those after z->out may be overwritten.
// Running again needs the same src; dst may be another buffer if its last 32 KiB
// before z->out, which the caller sets, are the same. If cap is at least limit +
// STK_INFLATE_SLACK, the result is never FULL.
enum { STK_INFLATE_SLACK = 320 };
int stk_inflate_run(stk_inflate *z, const uint8_t *src, size_t nsrc, uint8_t *dst, size_t cap, size_t limit, int level);

// stk_adler32 is the checksum of zlib's streams (RFC 1950) for the bytes of sum
// followed by p.
uint32_t stk_adler32(uint32_t sum, const uint8_t *p, size_t n, int level);

// stk_inflate_level is the level of the processor: 1 if the loops of inflate_avx2.c
// run.
int stk_inflate_level(void);

#ifdef __x86_64__
int stk_inflate_fast_avx2(stk_inflate *z, const uint8_t *src, size_t nsrc, uint8_t *dst, size_t cap, size_t limit);
uint32_t stk_adler32_avx2(uint32_t sum, const uint8_t *p, size_t n);
#endif

// An entry of the tables. Low byte: bits that are consumed, including those after
// the code.
//
//   literals   31 set; 28-25 bits of the first; 24 set: there are two; 23-16 second, 15-8 first
//   length     24-16 the least of the range; 11-8 bits of the code
//   distance   30-16 the least of the range; 11-8 bits of the code
//   others     LIT_RARE or DIST_RARE set, and END, BAD, or a link: 27-12 where the further
//              table begins, 11-8 its bits. Bit 28 of a distance is a part of it
#define LITERAL 0x80000000u
#define LIT_RARE 0x40000000u
#define DIST_RARE 0x80000000u
#define END 0x20000000u
#define BAD 0x10000000u

#endif
