// A slow reader of scans, one bit at a time, which shares nothing with the kernel: it tells
// whether decoding that begins at one entry point comes to another one.
#include "fuzz.h"

#include <string.h>

enum { BLOCK = 64, MOST_BLOCKS = 10 };

typedef struct {
  uint8_t count[17], symbol[256];
  int there;
} codes;

typedef struct {
  const uint8_t *p;
  size_t n, at;      // the byte that is read, and
  int bit;           // its next bit, from the highest
  int failed;
  codes table[2][4];
  int components, restart;
  struct {
    int id, blocks, dc, ac;
  } comp[3];
} walker;

static void read_codes(walker *w, const uint8_t *s, size_t n) {
  while (n >= 17) {
    codes *c = &w->table[s[0] >> 4 & 1][s[0] & 3];
    size_t all = 0;
    for (int i = 1; i <= 16; i++) all += c->count[i] = s[i];
    if (all > 256 || 17 + all > n) return;
    memcpy(c->symbol, s + 17, all);
    c->there = 1;
    s += 17 + all;
    n -= 17 + all;
  }
}

static int read_frame(walker *w, const uint8_t *s, size_t n) {
  if (n < 6 || s[5] > 3 || n < 6 + 3 * (size_t)s[5]) return 0;
  w->components = s[5];
  for (int i = 0; i < w->components; i++) {
    w->comp[i].id = s[6 + 3 * i];
    w->comp[i].blocks = w->components == 1 ? 1 : (s[7 + 3 * i] >> 4) * (s[7 + 3 * i] & 15);
  }
  return 1;
}

// read_scan takes the header of a scan of all components, in the frame's order.
static int read_scan(walker *w, const uint8_t *s, size_t n) {
  if (n < 1 || s[0] != w->components || n < 1 + 2 * (size_t)s[0]) return 0;
  for (int i = 0; i < s[0]; i++) {
    if (s[1 + 2 * i] != w->comp[i].id) return 0;
    w->comp[i].dc = s[2 + 2 * i] >> 4 & 3;
    w->comp[i].ac = s[2 + 2 * i] & 3;
  }
  return w->components > 0;
}

// begin reads the markers up to the scan, and returns whether it can be walked.
static int begin(walker *w, const uint8_t *p, size_t n) {
  memset(w, 0, sizeof *w);
  w->p = p;
  w->n = n;
  for (size_t at = 2; at + 4 <= n && p[at] == 0xff;) {
    const int m = p[at + 1];
    if (m == 0xff || m == 1 || (m >= 0xd0 && m <= 0xd8)) {
      at += m == 0xff ? 1 : 2;
      continue;
    }
    const size_t len = (size_t)(p[at + 2] << 8 | p[at + 3]);
    if (len < 2 || at + 2 + len > n) return 0;
    const uint8_t *s = p + at + 4;
    if (m == 0xc4) read_codes(w, s, len - 2);
    if (m == 0xdd && len == 4) w->restart = s[0] << 8 | s[1];
    if ((m == 0xc0 || m == 0xc1) && !read_frame(w, s, len - 2)) return 0;
    at += 2 + len;
    if (m == 0xda) {
      w->at = at;
      return read_scan(w, s, len - 2);
    }
  }
  return 0;
}

// here is whether a byte of data is at w->at, past fill bytes.
static int here(walker *w) {
  while (w->at + 1 < w->n && w->p[w->at] == 0xff && w->p[w->at + 1] == 0xff) w->at++;
  return w->at + 1 < w->n && (w->p[w->at] != 0xff || w->p[w->at + 1] == 0);
}

static int one_bit(walker *w) {
  if (w->failed || !here(w)) {
    w->failed = 1;
    return 0;
  }
  const int v = w->p[w->at] >> (7 - w->bit) & 1;
  if (++w->bit == 8) {
    w->at += w->p[w->at] == 0xff ? 2 : 1;
    w->bit = 0;
  }
  return v;
}

static int number(walker *w, int size) {
  int v = 0;
  for (int i = 0; i < size; i++) v = v << 1 | one_bit(w);
  return size && v < 1 << (size - 1) ? v - (1 << size) + 1 : v;
}

// one_symbol is figure F.16 of the standard.
static int one_symbol(walker *w, const codes *c) {
  int code = 0, first = 0, at = 0;
  for (int len = 1; len <= 16; len++) {
    code = code << 1 | one_bit(w);
    if (code - first < c->count[len]) return c->symbol[at + code - first];
    at += c->count[len];
    first = (first + c->count[len]) << 1;
  }
  w->failed = 1;
  return 0;
}

static int one_block(walker *w, const codes *dc, const codes *ac) {
  const int diff = number(w, one_symbol(w, dc) & 15);
  for (int k = 1; k < BLOCK && !w->failed;) {
    const int rs = one_symbol(w, ac), run = rs >> 4, size = rs & 15;
    if (!size && run < 15) break;
    k += run + 1;
    number(w, size);
    if (k > BLOCK) w->failed = 1;
  }
  return diff;
}

int walk_fits(const uint8_t *jpeg, size_t n, const stk_point *a, const stk_point *b) {
  walker w;
  if (!begin(&w, jpeg, n)) return 0;
  if (w.restart && a->mcu / (uint32_t)w.restart != b->mcu / (uint32_t)w.restart) return 0;
  for (int i = 0; i < w.components; i++)
    if (!w.table[0][w.comp[i].dc].there || !w.table[1][w.comp[i].ac].there) return 0;
  const size_t scan = w.at;
  w.at += a->byte;
  w.bit = a->bit;
  int pred[3] = {a->pred[0], a->pred[1], a->pred[2]};
  for (uint32_t m = a->mcu; m < b->mcu && !w.failed; m++)
    for (int i = 0; i < w.components; i++)
      for (int k = 0; k < w.comp[i].blocks; k++) pred[i] += one_block(&w, &w.table[0][w.comp[i].dc], &w.table[1][w.comp[i].ac]);
  for (int i = 0; i < w.components; i++)
    if ((int16_t)pred[i] != b->pred[i]) return 0;
  // At the end of the data, fill bytes are not passed.
  if (w.failed || w.bit != b->bit) return 0;
  if (w.at - scan == b->byte) return 1;
  here(&w);
  return w.at - scan == b->byte;
}
