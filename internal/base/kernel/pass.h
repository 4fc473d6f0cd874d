// Passes: what job.c shares with the files of steps that read a whole picture.
#ifndef STK_PASS_H
#define STK_PASS_H

#include "stk.h"

// A source returns rows of columns x0..x1 of a box; y rises from call to call.
typedef struct {
  const uint8_t *pix;  // NULL: the JPEG
  int w, h, c;
  int x0, y0, x1, y1;
  int row_bytes, off;  // bytes of libjpeg's rows, and the offset of column x0 in them
  int next;            // the JPEG's next row
  int shift;           // decoded at 1 / 2^shift of its size; all positions here count such pixels
} source;

// A sink takes rows of w pixels and c channels, in any order.
typedef struct {
  uint8_t *dst;
  int w, h, c;
  int final;           // rows are in the output's layout already; otherwise uint8 HWC
} sink;

// stk_emit finishes row y of a pass: luma, colours, then the sink. c is its channels.
void stk_emit(stk_lane *l, const stk_pass *p, const sink *k, int y, const uint8_t *row, int c);

// A step over a whole picture: s has its pixels, with rows without padding. It emits every
// row of its result, p->ww x p->wh, once.
typedef void stk_whole(stk_lane *l, const stk_pass *p, const stk_op *o, const source *s, const sink *k);
stk_whole stk_sharpen, stk_blur, stk_warp_whole, stk_sum_step;

// Erasing boxes of what a sink has: one of a pass, and those of a result of floats.
void stk_erase(stk_lane *l, const stk_op *o, const sink *k);
void stk_erase_floats(stk_lane *l, const sink *k);

#endif
