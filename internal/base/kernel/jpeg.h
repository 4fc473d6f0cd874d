// What jpeg.c and huff.c share: the decompressor of a lane.
#ifndef STK_JPEG_H
#define STK_JPEG_H

#include "stk.h"

#include <jpeglib.h>

typedef struct stk_arena stk_arena;
typedef struct stk_huff stk_huff;

typedef struct stk_jpeg {
  struct jpeg_decompress_struct c;  // first, so that libjpeg's callbacks find the rest
  struct jpeg_error_mgr err;
  struct jpeg_source_mgr src;
  struct jpeg_progress_mgr progress;
  stk_lane *l;
  void (*free_pool)(j_common_ptr, int);
  stk_arena *arena;
  stk_huff *huff;                   // made at the first picture it can decode
  int busy;
  stk_buf cmyk;
} stk_jpeg;

static inline stk_jpeg *stk_jpeg_of(void *c) { return c; }

void stk_huff_take(stk_lane *l, int first, int last, int below);
int stk_jpeg_smooths(const struct jpeg_decompress_struct *c);
void stk_huff_free(stk_huff *h);

#endif
