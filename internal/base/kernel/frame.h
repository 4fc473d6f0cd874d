// A JPEG's frame and scan as its markers describe them: what the decoder of
// jpeg.c needs to know before the first bit. Names are those of ITU T.81.
#ifndef STK_FRAME_H
#define STK_FRAME_H

#include "stk.h"

enum { FRAME_COMPONENTS = 3, FRAME_TABLES = 4, MCU_BLOCKS = 10, BLOCK = 64 };

enum {
  M_SOF0 = 0xc0, M_SOF1 = 0xc1, M_SOF2 = 0xc2, M_DHT = 0xc4, M_DAC = 0xcc, M_RST0 = 0xd0, M_SOI = 0xd8, M_EOI = 0xd9,
  M_SOS = 0xda, M_DQT = 0xdb, M_DNL = 0xdc, M_DRI = 0xdd, M_APP0 = 0xe0, M_APP14 = 0xee, M_COM = 0xfe
};

typedef struct {
  int id;
  int h, v;      // Hi, Vi: blocks of an MCU, across and down
  int tq;        // Tqi: its quantisation table
  int td, ta;    // Tdj, Taj: its Huffman tables
} stk_component;

// stk_dht is a Huffman table as stored in the file: BITS and HUFFVAL.
typedef struct {
  const uint8_t *bits;    // [16], bits[i]: codes of i+1 bits; NULL: not defined
  const uint8_t *values;
  int n;                  // values
} stk_dht;

typedef struct {
  int w, h;                                // Y and X
  int components;                          // Nf
  stk_component comp[FRAME_COMPONENTS];
  int hmax, vmax;
  int ycc;                                 // three components are YCbCr; otherwise RGB
  uint16_t quant[FRAME_TABLES][BLOCK];     // Qk, in natural order
  unsigned have_quant;                     // one bit per table
  stk_dht dc[FRAME_TABLES], ac[FRAME_TABLES];
  int restart;                             // Ri, in MCUs; 0: none
  const uint8_t *file, *scan, *end;        // the bytes; the start of the scan's data; after the last byte
} stk_frame;

// Zigzag to natural order, figure A.6.
extern const uint8_t stk_zigzag[BLOCK];

// stk_frame_read reads the markers up to the data of the first scan. It returns 1 if
// the scan is one of 8-bit sequential Huffman coding that holds the whole picture, in
// the components' order, with sampling factors that divide the first component's.
// Anything else, damage included, returns 0: another decoder takes the picture.
int stk_frame_read(stk_frame *f, const uint8_t *p, size_t n);

#endif
