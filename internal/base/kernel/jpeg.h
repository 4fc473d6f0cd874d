// The decoder of a lane: what jpeg.c keeps from one picture to the next.
#ifndef STK_JPEG_H
#define STK_JPEG_H

#include "huff.h"

// How samples become pixels if there are fewer of them.
typedef enum { SPREAD_NONE, SPREAD_H2, SPREAD_V2, SPREAD_H2V2, SPREAD_REPEAT } stk_spread;

// MCUs that are decoded before they are transformed: few, so that their coefficients
// and the tables share the nearest cache; at least four, which is a quad of blocks.
enum { GROUP = 16 };

// stk_plane is a component of the region: coefficients of a group of MCUs, and samples
// of two rows of them.
typedef struct {
  int side;                // of a block, in samples: 8; 4, 2 or 1 in a reduced picture
  int hs, vs;              // pixels that a sample covers
  int v;                   // rows of blocks of an MCU
  int width, height;       // of the whole component, in samples
  stk_spread spread;
  const uint16_t *quant;
  int16_t *quad;           // [v][h * GROUP / 4][QUAD]
  uint8_t *reach;          // [v][h * GROUP / 4]
  int columns;             // of samples
  int x;                   // the component's column of the first sample
  uint8_t *sample;         // [2 * side * v][stride], row y of the component at y modulo that
  ptrdiff_t stride;
} stk_plane;

struct stk_jpeg {
  stk_frame f;
  stk_huff *huff;
  stk_plane plane[FRAME_COMPONENTS];
  int first, last;         // columns of MCUs that are stored
  int band;                // the next row of MCUs
  int x0, x1, y;           // columns of the region; its next row
  int dirty;               // coefficients may not be zero
  uint8_t *line[FRAME_COMPONENTS];
  stk_buf samples, lines;
  uint8_t reach[MCU_BLOCKS * GROUP / 4];
  _Alignas(64) int16_t quad[MCU_BLOCKS * GROUP / 4 * QUAD];
};

typedef struct stk_jpeg stk_jpeg;

#endif
