// The limit of decoding's cost: SLOWER times that of a valid file with as many blocks
// and bytes, estimated from three such files of each kind.
#include "fuzz.h"

enum { LARGE_SIDE = 128, SLOWER = 20 };

typedef struct {
  double file, block, byte;
} price;

static price prices[LEVELS][KINDS];

static double healthy(int level, int side, int noise, int kind, price_run *run, bytes *b, header *h) {
  base_plain(b, side, noise, kind);
  header_read(h, b->p, b->n);
  return run(level, h, b);
}

void price_set(int level, price_run *run) {
  static bytes b;
  header h;
  for (int kind = 0; kind < KINDS; kind++) {
    price *p = &prices[level][kind];
    if (kind != HUFFMAN && level > 0) {  // libjpeg's, on any target
      *p = prices[0][kind];
      continue;
    }
    p->file = healthy(level, 8, 0, kind, run, &b, &h);
    const double flat = healthy(level, LARGE_SIDE, 0, kind, run, &b, &h), small = (double)b.n, blocks = (double)h.blocks;
    const double noise = healthy(level, LARGE_SIDE, 1, kind, run, &b, &h), large = (double)b.n;
    p->block = (flat - p->file) / blocks;
    p->byte = (noise - flat) / (large - small);
    if (kind == ARITHMETIC) p->block = (noise - p->file) / blocks;  // its data never end: missing data read as noise
    if (p->block < 0) p->block = 0;
    if (p->byte < 0) p->byte = 0;
  }
}

double price_most(int level, const header *h, int multi, size_t n) {
  const price *p = &prices[level][h->arithmetic ? ARITHMETIC : h->progressive || multi ? PROGRESSIVE : HUFFMAN];
  return SLOWER * (p->file + p->block * (double)h->blocks + p->byte * (double)n);
}
