// What lzw.c and the Go side share.
#ifndef STK_LZW_H
#define STK_LZW_H

#include <stddef.h>
#include <stdint.h>

// stk_lzw is the strings of a stream, as ranges of the output.
typedef struct {
  uint32_t start[4096];
  uint16_t size[4096];
} stk_lzw;

// The results of stk_lzw_decode: the data ended or dst is full; src ended; a code
// that is not defined yet; a TIFF stream that did not begin by clearing the table.
enum { STK_LZW_OK, STK_LZW_CUT, STK_LZW_CODE, STK_LZW_START };

// stk_lzw_decode fills n bytes of dst; *got is how many it wrote. tiff: the first bit
// is the highest, codes become wider one code earlier, and the first code clears the
// table.
int stk_lzw_decode(stk_lzw *t, uint8_t *dst, size_t n, size_t *got, const uint8_t *src, size_t nsrc, int bits, int tiff);

// stk_unpredict undoes TIFF's predictor 2 for rows of n bytes whose pixels have back bytes.
void stk_unpredict(uint8_t *p, size_t n, size_t rows, size_t back);

#endif
