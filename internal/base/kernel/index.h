// What tokens.c, codes.c, write.c and index.c share: a JPEG between one entropy
// coding and another. Coefficients are never made: in between are the symbols of
// the first coding and the bits after them, which the second keeps.
#ifndef STK_INDEX_H
#define STK_INDEX_H

#include "huff.h"

enum { CODES = 2, MAX_COMPONENTS_IN = 4 };

// A token is a symbol of AC and its value's bits, or a DC coefficient:
//
//	AC: bits  0-14  the value's bits, as in the data
//	    bit   15    LAST: the block ends here
//	    bits 16-23  symbol: zeros before the value << 4 | its size
//	DC: bits  0-15  the coefficient itself, not its difference
//
// A block is one DC token and AC tokens up to LAST; an MCU is its blocks.
enum { LAST = 1 << 15, MCU_TOKENS = 10 * 65 };

// stk_code is a Huffman code made for a picture. Entry s of put is symbol s:
//
//	bits  0-31  its code, shifted left by the size of its value
//	bits 32-37  bits of both; 0: no such symbol
typedef struct {
  uint8_t bits[17], values[256];
  int n;
  uint64_t put[256];
} stk_code;

// stk_pairs is an ac_table for tokens: an entry is one or two symbols.
//
//	bits  0-5   bits to drop: codes and values
//	bits  8-15  coefficients to step, as in ac_table
//	bits 16-19  length of the first code
//	bit  20     there is a second
//	bits 31-39  the first token without its value
//	bits 40-63  the second token
typedef struct {
  uint64_t pair[1 << LOOK];
  origin from;
} stk_pairs;

// stk_edge is the first and the last DC coefficient of a component in an MCU.
typedef struct {
  int16_t first, last;
} stk_edge;

struct stk_index {
  stk_lane *l;
  stk_huff *h;                   // reads the scan; NULL: read from coefficients
  int comps, blocks;
  stk_part part[MCU_BLOCKS];
  stk_frame f;                         // of a picture that is read as its scan
  int id[MAX_COMPONENTS_IN];           // names of the components
  int sof;                             // the frame's marker in the result
  int code_of[MAX_COMPONENTS_IN];      // code of each component
  int pred[MAX_COMPONENTS_IN];         // DC coefficient of the block before
  int64_t cols, mcus;
  stk_edge *edge;                      // of MCU m, component c: edge[m * comps + c]
  uint32_t *tok, *tok_end, *tok_full;  // a band: MCUs from .. next
  int64_t from, next;
  int64_t dc_count[CODES][16], ac_count[CODES][256];
  int64_t dc_total[CODES][16], ac_total[CODES][256];  // of the whole picture, read once
  uint32_t seen[CODES][FRAME_TABLES][1 << LOOK];  // pairs met since they were last counted
  int codes;                           // of each kind: 1 for grey, otherwise 2
  stk_code dc[CODES], ac[CODES];
  stk_pairs pairs[FRAME_TABLES];
  struct jvirt_barray_control **arrays; // of a picture that is read as coefficients: libjpeg's
  int16_t (**rows[MAX_COMPONENTS_IN])[BLOCK];  // of the present row of MCUs
  stk_buf b_tok, b_edge;
  uint8_t *out;                        // the picture rewritten
  size_t nout, cap;
  int restart;                         // its interval
};

// tokens.c: begin finds the layout of a picture of n bytes: of its frame, or of that which
// libjpeg has read, whose coefficients it takes. rewind goes to its first MCU. band reads as many MCUs as the buffer holds and returns
// whether there are more; what is read is counted, DC as if it were one segment.
void stk_tokens_begin(stk_index *x, int coefficients, size_t n);
void stk_tokens_rewind(stk_index *x);
int stk_tokens_band(stk_index *x);

// stk_dc_token counts a DC coefficient and remembers the edges of its MCU.
uint32_t stk_dc_token(stk_index *x, const stk_part *p, stk_edge *edge, int dc);

// coefficients.c: begin reads the picture that libjpeg has opened, band a band of it.
void stk_coefficients_begin(stk_index *x);
void stk_coefficients_band(stk_index *x);

// codes.c: the best code for the counts, and its size in bits, values included.
void stk_code_make(stk_code *c, const int64_t *count, int n);
int64_t stk_code_bits(const stk_code *c, const int64_t *count);

// write.c: head writes everything before the scan's data, by the codes made;
// scan writes the data and the end marker, and returns 0 if that takes more than
// limit bytes in all.
void stk_write_head(stk_index *x, const uint8_t *in, size_t n, int sequential);
int stk_write_scan(stk_index *x, size_t limit);

// stk_size is the number of bits of v without its sign: the standard's SSSS.
static INLINE int stk_size(int v) {
  const unsigned a = (unsigned)(v < 0 ? -v : v);
  return a ? 32 - __builtin_clz(a) : 0;
}

#endif
