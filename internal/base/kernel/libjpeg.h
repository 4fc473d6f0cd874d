// libjpeg-turbo's decompressor, as libjpeg.c keeps it and tokens.c reads
// coefficients from it.
#ifndef STK_LIBJPEG_H
#define STK_LIBJPEG_H

#include "stk.h"

#include <jpeglib.h>

typedef struct stk_arena stk_arena;

typedef struct stk_libjpeg {
  struct jpeg_decompress_struct c;  // first, so that libjpeg's callbacks find the rest
  struct jpeg_error_mgr err;
  struct jpeg_source_mgr src;
  struct jpeg_progress_mgr progress;
  stk_lane *l;
  void (*free_pool)(j_common_ptr, int);
  stk_arena *arena;
  int busy;
  stk_buf cmyk;
} stk_libjpeg;

static inline stk_libjpeg *stk_libjpeg_of(void *c) { return c; }

// Whether libjpeg would guess missing coefficients of an unfinished progressive file,
// which it does differently at a region's edge.
int stk_libjpeg_smooths(const struct jpeg_decompress_struct *c);
void stk_libjpeg_complete(stk_lane *l, const struct jpeg_decompress_struct *c);

#endif
